//! A job's files on a node: what was granted, for whoever takes it back, and what its tasks are to be told,
//! for the plugin that slurmstepd loads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use node::grant::Grant;
use node::limiter::PRELOAD_VARIABLE;

use super::{Node, NodeError, file_error};
use crate::job::Job;
use crate::whole;

/// First line of what tasks are told.
const HEAD: &str = "hotpot-slurm-task/1";
/// What a job's files end in.
const KINDS: [&str; 3] = ["task", "grants", "lock"];
const FOLDER_MODE: u32 = 0o755;
pub(super) const TASK_MODE: u32 = 0o644;
const GRANTS_MODE: u32 = 0o600;

/// A grant and the position in gres.conf of what it is for.
pub(super) type Granted = (u32, Grant);
/// A device file and the position of what it belongs to.
pub(super) type DeviceFile = (u32, PathBuf);

impl Node {
    /// Notes what a job has been granted so far.
    pub(super) fn write_grants(&self, job: u32, granted: &[Granted]) -> Result<(), NodeError> {
        let path = self.file(job, "grants");
        let text = serde_json::to_string(granted).map_err(io::Error::other);
        text.and_then(|text| replace(&path, &text, GRANTS_MODE)).map_err(file_error(&path))
    }

    /// What a job has been granted, as far as it was noted. What is not there, or of another release, is
    /// nothing: the machine's journal knows the holds all the same.
    pub(super) fn read_grants(&self, job: u32) -> Vec<Granted> {
        let text = fs::read_to_string(self.file(job, "grants")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Tells a job's tasks of their devices; also that there are none.
    ///
    /// * `files` — those that devices have for themselves.
    pub(super) fn tell(
        &self,
        job: &Job,
        granted: &[Granted],
        files: &[DeviceFile],
    ) -> Result<(), NodeError> {
        let line = |(index, file): &DeviceFile| format!("file {index} {}\n", file.display());
        let files: String = files.iter().map(line).collect();
        self.write_task(job, &(files + &told(granted)))
    }

    /// Keeps a job's tasks from running.
    pub(super) fn forbid(&self, job: &Job, why: &str) -> Result<(), NodeError> {
        self.write_task(job, &format!("sent-back {}\n", why.replace(char::is_control, " ")))
    }

    /// Keeps the tasks of any start of a job from running.
    pub(super) fn never(&self, job: u32, why: &str) -> Result<(), NodeError> {
        let path = self.file(job, "task");
        replace(&path, &format!("{HEAD}\nrefuse {why}\n"), TASK_MODE).map_err(file_error(&path))
    }

    /// Whether a job's tasks have been told of this start of it.
    pub(super) fn has_told(&self, job: &Job) -> bool {
        let text = fs::read_to_string(self.file(job.id, "task")).unwrap_or_default();
        text.starts_with(&head(job))
    }

    /// Held while a job's files are made: its steps may begin at once.
    pub(super) fn lock_job(&self, job: u32) -> Result<File, NodeError> {
        let path = self.file(job, "lock");
        let made = make_folder(&path).and_then(|()| File::create(&path));
        made.and_then(|file| file.lock().map(|()| file)).map_err(file_error(&path))
    }

    /// A job that Slurm starts anew keeps its number, and Slurm does not always run Prolog again: the count
    /// of starts tells the plugin what is left of an earlier one.
    fn write_task(&self, job: &Job, text: &str) -> Result<(), NodeError> {
        let path = self.file(job.id, "task");
        replace(&path, &(head(job) + text), TASK_MODE).map_err(file_error(&path))
    }

    /// Jobs of which there are files; what they used, which is reported from there, does not count.
    pub(super) fn jobs_with_files(&self) -> BTreeSet<u32> {
        let entries = fs::read_dir(&self.jobs).into_iter().flatten().flatten();
        let job = |name: String| {
            let (job, kind) = name.split_once('.')?;
            KINDS.contains(&kind).then(|| job.parse().ok()).flatten()
        };
        entries.filter_map(|entry| job(entry.file_name().into_string().ok()?)).collect()
    }

    /// Removes a job's files: `task`, `grants`, `lock`.
    pub(super) fn remove_files(&self, job: u32, kinds: &[&str]) -> Result<(), NodeError> {
        for kind in kinds {
            let path = self.file(job, kind);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn head(job: &Job) -> String {
    format!("{HEAD}\nrestart {}\n", job.restarts)
}

fn told(granted: &[Granted]) -> String {
    let mut text = String::new();
    for (index, grant) in granted {
        let _ = writeln!(text, "device {index} {}", grant.device);
    }
    let variables: BTreeMap<&str, &str> = granted
        .iter()
        .flat_map(|(_, grant)| &grant.env)
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    for (name, value) in variables {
        let word = if name == PRELOAD_VARIABLE { "prepend" } else { "set" };
        let _ = writeln!(text, "{word} {name} {value}");
    }
    text
}

/// Makes the folder of a file.
fn make_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
}

/// Writes a file of a job, in a folder that is made if it is missing.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    make_folder(path)?;
    whole::write(path, text, mode)
}
