//! `hotpot check`: mistakes in files for Slurm and Kubernetes, and `--fix`, which mends them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use clap::{Args as Group, ValueEnum};
use formats::{Complaint, ReadError};
use lint::{Card, Finding, Input, Kind, Mended, SIZE_MAX_BYTES};
use serde::Serialize;
use simulator::report::harmless;

use crate::args::{Output, OutputChoice};
use crate::failure::{Answer, Failure};
use crate::{screen, words};

/// UTF-8's byte order mark, which a mended file keeps.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Group)]
#[command(
    after_help = "Exit codes: 0 nothing found, 1 something found (with --fix: something left), 2 wrong usage or \
                        unreadable input.\n\
                        Examples:\n  \
                        hotpot check train.sbatch /etc/slurm/gres.conf     (it tells how many shards a GPU has)\n  \
                        hotpot check --gpus a100-80gb:4 pod.yaml\n  \
                        hotpot check --fix claim.yaml"
)]
pub(crate) struct Check {
    /// sbatch scripts, gres.conf, slurm.conf, Kubernetes manifests (YAML, also of many documents).
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Mend what can be mended without asking; all else in the files stays as it is.
    #[arg(long)]
    pub(crate) fix: bool,
    /// The card that the files are for, and how many of it a node has: a100-80gb is one, a100-80gb:4 four.
    #[arg(long, value_name = "MODEL[:COUNT]", value_parser = Card::parse)]
    pub(crate) gpus: Option<Card>,
    /// What the files are. Default: told from their text.
    #[arg(long = "as", value_enum, value_name = "KIND")]
    pub(crate) kind: Option<KindName>,
    #[command(flatten)]
    pub(crate) output: OutputChoice,
}

/// What a file is.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KindName {
    /// A script for sbatch.
    Sbatch,
    /// Slurm's gres.conf.
    #[value(name = "gres.conf")]
    GresConf,
    /// Slurm's slurm.conf, or a part of it.
    #[value(name = "slurm.conf")]
    SlurmConf,
    /// Kubernetes objects.
    Manifest,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Self {
        match name {
            KindName::Sbatch => Self::Sbatch,
            KindName::GresConf => Self::GresConf,
            KindName::SlurmConf => Self::SlurmConf,
            KindName::Manifest => Self::Manifest,
        }
    }
}

/// A finding as JSON has it.
#[derive(Serialize)]
struct Told<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    name: &'a str,
    severity: lint::Severity,
    happens: &'a str,
    instead: &'a str,
    /// Whether `--fix` mends it, or has.
    mendable: bool,
    mended: bool,
}

/// All that is printed.
#[derive(Serialize)]
struct Answered<'a> {
    findings: Vec<Told<'a>>,
}

/// The files that can be checked, and why others cannot.
#[derive(Default)]
struct Work<'a> {
    paths: Vec<&'a Path>,
    inputs: Vec<Input>,
    failures: Vec<Failure>,
}

/// Checks the files, and mends them first if that is asked. What cannot be read or written does not keep the others from being
/// told.
pub(crate) fn run(options: &Check) -> Result<Answer, Failure> {
    let card = options.gpus.as_ref();
    let mut work = Work::of(options);
    let done = if options.fix { work.mend(card) } else { Vec::new() };
    let found = lint::check(&work.inputs, card)?;
    if !work.inputs.is_empty() {
        match options.output.output {
            Output::Table => table(&work.inputs, &found, &done)?,
            Output::Json => json(&work.inputs, &found, &done)?,
        };
    }
    // Unreadable input decides the exit code.
    work.failures.sort_by_key(|failure| std::cmp::Reverse(failure.exit_code()));
    let mut failures = work.failures.into_iter();
    if let Some(first) = failures.next() {
        failures.for_each(|failure| screen::complain(&failure.to_string()));
        return Err(first);
    }
    Ok(if found.iter().all(Vec::is_empty) { Answer::Yes } else { Answer::No })
}

impl<'a> Work<'a> {
    /// Reads the files, each once.
    fn of(options: &'a Check) -> Self {
        let (mut work, mut seen) = (Self::default(), BTreeSet::new());
        for path in &options.files {
            if fs::canonicalize(path).is_ok_and(|path| !seen.insert(path)) {
                continue;
            }
            let input = open(path, options.kind.map(Kind::from)).and_then(|input| {
                lint::check(std::slice::from_ref(&input), options.gpus.as_ref())?;
                Ok(input)
            });
            match input {
                Ok(input) => {
                    work.paths.push(path);
                    work.inputs.push(input);
                }
                Err(failure) => work.failures.push(failure),
            }
        }
        work
    }

    /// Mends what can be mended; a file that cannot be written stays as it is.
    fn mend(&mut self, card: Option<&Card>) -> Vec<Done> {
        let mut done = Vec::new();
        for at in 0..self.inputs.len() {
            let mended = lint::mend(&self.inputs, at, card).map_err(Failure::from);
            let written = mended.and_then(|mended| {
                replace(self.paths[at], &self.inputs[at], &mended)?;
                Ok(mended)
            });
            match written {
                Ok(mended) => {
                    self.inputs[at] = mended.input;
                    done.extend(mended.done.into_iter().map(|one| (at, one)));
                }
                Err(failure) => self.failures.push(failure),
            }
        }
        done
    }
}

/// What was mended in which file, with the place that it had.
type Done = (usize, (lint::Place, Finding));

fn table(inputs: &[Input], found: &[Vec<Finding>], done: &[Done]) -> Result<Answer, Failure> {
    let mut out = String::new();
    for (at, (place, finding)) in done {
        let (name, line, column) = (inputs[*at].name(), place.line, place.column);
        out += &format!(
            "{}:{line}:{column}: mended: {}\n  {}\n",
            harmless(name),
            finding.name,
            finding.instead
        );
    }
    for (input, found) in inputs.iter().zip(found) {
        out += &lint::shown(input.name(), input.text(), found);
    }
    let count: usize = found.iter().map(Vec::len).sum();
    let files = inputs.len();
    out += &match (count, done.len()) {
        (0, 0) => format!("{files} checked: nothing found\n"),
        (left, 0) => format!("{files} checked: {left} found\n"),
        (left, mended) => format!("{files} checked: {mended} mended, {left} left\n"),
    };
    screen::print(&out)
}

fn json(inputs: &[Input], found: &[Vec<Finding>], done: &[Done]) -> Result<Answer, Failure> {
    let told = |at: usize, place: lint::Place, finding, mended| {
        let Finding { name, severity, happens, instead, edits, .. }: &Finding = finding;
        let (file, mendable) = (inputs[at].name(), !edits.is_empty());
        let (line, column, severity) = (place.line, place.column, *severity);
        Told { file, line, column, name, severity, happens, instead, mendable, mended }
    };
    let mended = done.iter().map(|(at, (place, finding))| told(*at, *place, finding, true));
    let left = found.iter().enumerate().flat_map(|(at, found)| {
        let text = inputs[at].text();
        found.iter().map(move |one| told(at, lint::place(text, &one.span), one, false))
    });
    screen::print(&words::to_json(&Answered { findings: mended.chain(left).collect() }))
}

/// Reads a file; not much more of it than is checked.
fn open(path: &Path, kind: Option<Kind>) -> Result<Input, Failure> {
    let name = path.display().to_string();
    let refuse = |error: std::io::Error| {
        let what = format!("cannot be read: {error}");
        let is_dash = error.kind() == ErrorKind::NotFound && name == "-";
        let way_out = if is_dash {
            "for standard input write /dev/stdin"
        } else {
            "check the path and the permissions"
        };
        Failure::Input(ReadError::about(&name, Complaint::new(what, way_out)))
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(refuse)?;
    file.take(SIZE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(refuse)?;
    Ok(Input::new(&name, bytes, kind)?)
}

/// Puts a mended file into the place of the old one: written beside it, then renamed, so that nobody reads half of it.
fn replace(path: &Path, old: &Input, mended: &Mended) -> Result<(), Failure> {
    if mended.done.is_empty() {
        return Ok(());
    }
    let refuse = |error: std::io::Error| {
        let shown = path.display();
        Failure::Machine(format!(
            "{shown}: cannot be written: {error}; check the permissions of the file and of its folder, or mend it by hand"
        ))
    };
    // A link stays one.
    let path = fs::canonicalize(path).map_err(refuse)?;
    let about = fs::metadata(&path).map_err(refuse)?;
    let bytes = fs::read(&path).map_err(refuse)?;
    let (mark, rest) = match bytes.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (BYTE_ORDER_MARK, rest),
        None => (&[][..], &bytes[..]),
    };
    if !about.is_file() || rest != old.text().as_bytes() {
        let why = "is no file, or was changed meanwhile, and stays as it is; try again";
        return Err(Failure::Machine(format!("{}: {why}", path.display())));
    }
    let beside = beside(&path);
    let write = || {
        // What nobody else may read stays so while it is written.
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(mark)?;
        file.write_all(mended.input.text().as_bytes())?;
        // Only root can give a file away; for others the owner is the same already.
        let _ = fchown(&file, Some(about.uid()), Some(about.gid()));
        file.set_permissions(about.permissions())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    write().map_err(|error| {
        // Nobody can be told that it cannot be removed either.
        let _ = fs::remove_file(&beside);
        refuse(error)
    })
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = format!(".{}.hotpot-{}", name.unwrap_or_default(), std::process::id());
    path.with_file_name(name)
}
