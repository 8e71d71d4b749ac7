//! The folder of an array: what it consists of, its script, and its journal.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use formats::array::ArraySpec;
use formats::calling;
use formats::job::Warning;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::{ArrayError, of_file};
use crate::commands::Slurm;
use crate::record::Record;
use crate::whole;

/// Where arrays are kept, below the working folder of the job.
pub const PLACE: &str = ".hotpot/arrays";
/// Version of `array.json`.
const VERSION: u32 = 1;

/// What an array consists of (`array.json`). Written once, before it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Version of this file.
    pub version: u32,
    /// Name of the job.
    pub name: String,
    /// Indices and how many at once, as sbatch's `--array` has it.
    pub array: String,
    /// Working folder of the tasks.
    pub directory: PathBuf,
    /// Where their output goes, with Slurm's patterns.
    pub output: String,
    /// Where their errors go, if elsewhere.
    pub error: Option<String>,
    /// Where their input comes from, if from anywhere.
    pub input: Option<String>,
    /// Whether output is added to files that are there.
    pub append: bool,
    /// Most time that a task may take, in ms.
    pub limit_ms: Option<u64>,
    /// Signal ahead of the limit, as sbatch's `--signal` has it.
    pub signal: Option<String>,
    /// Time between TERM and KILL, in ms: the cluster's `KillWait`.
    pub kill_wait_ms: u64,
    /// Whether a task may be started again if its pilot is lost.
    pub may_repeat: bool,
    /// What the script is given.
    pub arguments: Vec<String>,
    /// Options of the pilots, as sbatch is given them, without the number of pilots.
    pub options: Vec<String>,
    /// When it was made, in ms since 1970.
    pub made_ms: u64,
}

/// An array in its folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// What it consists of.
    pub order: Order,
    /// Its indices, and how many at once.
    pub spec: ArraySpec,
}

impl Folder {
    /// Makes the folder of an array that is about to be submitted.
    ///
    /// * `place` — the folder that it shall be in.
    /// * `script` — what its tasks run.
    /// * `head` — the script's lines for sbatch.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn make(place: &Path, order: Order, script: &str, head: &str) -> Result<Self, ArrayError> {
        let spec = spec(&order)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(place).map_err(of_file(place, "make it"))?;
        let place = &place.canonicalize().map_err(of_file(place, "look for it"))?;
        let path = place.join(name_of_folder(&order));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(of_file(&path, "make it"))?;
        let folder = Self { path, order, spec };
        folder.write("script", script, 0o700)?;
        folder.write("pilot.sh", &folder.pilot_script(head)?, 0o700)?;
        let order = serde_json::to_string_pretty(&folder.order).unwrap_or_default();
        folder.write("array.json", &(order + "\n"), 0o600)?;
        folder.journal()?;
        Ok(folder)
    }

    /// The array in a folder.
    ///
    /// # Errors
    /// No array is there, or one of a later version.
    pub fn open(path: &Path) -> Result<Self, ArrayError> {
        let path = path.canonicalize().map_err(of_file(path, "look for an array"))?;
        let file = path.join("array.json");
        let text = fs::read_to_string(&file).map_err(of_file(&file, "read it"))?;
        let order: Order = serde_json::from_str(&text).map_err(|error| {
            ArrayError::Usage(format!("{}: {error}; was it changed by hand?", file.display()))
        })?;
        if order.version != VERSION {
            let (path, version) = (file.display(), order.version);
            let what = format!("{path}: is of version {version}; use the hotpot that made it");
            return Err(ArrayError::Usage(what));
        }
        let spec = spec(&order)?;
        Ok(Self { path, order, spec })
    }

    /// Finds an array by its folder, or by the number of its job: below this folder, or as Slurm
    /// knows it.
    ///
    /// # Errors
    /// It is nowhere.
    pub fn find(named: &str) -> Result<Self, ArrayError> {
        let is_number = named.bytes().all(|byte| byte.is_ascii_digit()) && !named.is_empty();
        if !is_number || Path::new(named).join("array.json").exists() {
            return Self::open(Path::new(named));
        }
        let here = Path::new(PLACE).join(named);
        if here.exists() {
            return Self::open(&here);
        }
        let told = Slurm.call("scontrol", &["show", "job", named]).unwrap_or_default();
        let command =
            Record::jobs(&told).into_iter().find_map(|job| job.get("Command").map(PathBuf::from));
        match command.as_deref().and_then(Path::parent) {
            Some(folder) if folder.join("array.json").exists() => Self::open(folder),
            _ => Err(ArrayError::Usage(format!(
                "no array of job {named} in {}, and Slurm knows of none; give its folder",
                here.parent().unwrap_or(&here).display()
            ))),
        }
    }

    /// Whether this user has made it: the script in it runs as who continues the array.
    pub fn is_ours(&self) -> bool {
        let file = fs::metadata(self.path.join("array.json"));
        file.is_ok_and(|file| file.uid() == nix::unistd::geteuid().as_raw())
    }

    /// Makes it findable by the number of its job.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn link(&self, job: u64) -> Result<(), ArrayError> {
        let link = self.path.with_file_name(job.to_string());
        // Slurm begins again with 1 where its state is lost.
        let _ = fs::remove_file(&link);
        let name = self.path.file_name().unwrap_or_default();
        symlink(name, &link).map_err(of_file(&link, "link it"))
    }

    /// Takes it away, if it was never submitted.
    pub fn remove(self) {
        let _ = fs::remove_dir_all(self.path);
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its tasks run.
    pub fn script(&self) -> PathBuf {
        self.path.join("script")
    }

    /// What its pilots are.
    pub fn pilot(&self) -> PathBuf {
        self.path.join("pilot.sh")
    }

    /// Its journal, for writing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn journal(&self) -> Result<Journal, ArrayError> {
        let path = self.path.join("journal");
        Journal::open(&path, &self.spec.indices).map_err(of_file(&path, "open it"))
    }

    /// Its journal, for looking.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn look(&self) -> Result<Journal, ArrayError> {
        let path = self.path.join("journal");
        let mut journal =
            Journal::look(&path, &self.spec.indices).map_err(of_file(&path, "open it"))?;
        journal.catch_up().map_err(of_file(&path, "read it"))?;
        Ok(journal)
    }

    /// The signal ahead of the time limit; none if hotpot does not send it.
    pub fn warning(&self) -> Option<Warning> {
        calling::warning(self.order.signal.as_deref()?).ok()
    }

    fn pilot_script(&self, head: &str) -> Result<String, ArrayError> {
        let own = Path::new("/proc/self/exe");
        let hotpot = fs::read_link(own).map_err(of_file(own, "look where hotpot is"))?;
        // A newer one may have been put in its place since: that is the one to start then.
        let shown = hotpot.to_string_lossy();
        let hotpot = Path::new(shown.strip_suffix(" (deleted)").unwrap_or(&shown)).to_owned();
        let quoted =
            |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        let (hotpot, folder) = (quoted(&hotpot), quoted(&self.path));
        Ok(format!("#!/bin/sh\n{head}\nexec {hotpot} slurm pilot {folder}\n"))
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> Result<(), ArrayError> {
        let path = self.path.join(name);
        whole::write(&path, text, mode).map_err(of_file(&path, "write it"))
    }
}

fn spec(order: &Order) -> Result<ArraySpec, ArrayError> {
    let complain =
        |complaint: formats::Complaint| ArrayError::Usage(format!("--array: {complaint}"));
    ArraySpec::parse(&order.array).map_err(complain)
}

/// The job's name as a word, when it was made, and by whom: nobody else makes the same.
fn name_of_folder(order: &Order) -> String {
    let plain =
        |one: char| if one.is_ascii_alphanumeric() || "-_".contains(one) { one } else { '_' };
    let name: String = order.name.chars().take(40).map(plain).collect();
    format!("{name}-{}-{}", order.made_ms, std::process::id())
}

impl Order {
    /// An array that asks for nothing in particular; callers fill in what they know.
    pub fn new(name: String, array: String, directory: PathBuf) -> Self {
        Self {
            version: VERSION,
            name,
            array,
            directory,
            output: "slurm-%A_%a.out".to_string(),
            error: None,
            input: None,
            append: false,
            limit_ms: None,
            signal: None,
            kill_wait_ms: 30_000,
            may_repeat: true,
            arguments: Vec::new(),
            options: Vec::new(),
            made_ms: local::clock::Clock::calendar_ms(),
        }
    }
}
