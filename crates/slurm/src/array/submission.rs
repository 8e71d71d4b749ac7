//! From a call of sbatch to an array of pilots: what is taken out of the call, what goes into the
//! array's folder, and what is submitted in its place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use formats::calling;
use formats::{Complaint, quantity};
use node::tool::Tool;

use super::folder::{Folder, Order, PLACE};
use super::given::Given;
use super::ledger::Ledger;
use super::{ArrayError, of_file, queue};

/// Most pilots, unless told otherwise: more would wait for each other at the journal.
pub const PILOTS_MAX: usize = 256;
/// What a pilot may take beside its tasks, in ms.
const ASIDE_MS: u64 = 60_000;

/// Options that are ours to give: tasks have them, not pilots.
const OURS: [&str; 9] =
    ["array", "output", "error", "input", "open-mode", "time", "wrap", "parsable", "wait"];

/// What the user wants beside sbatch's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Most pilots.
    pub pilots: Option<usize>,
    /// Time limit of a pilot, in ms.
    pub pilot_limit_ms: Option<u64>,
    /// Where the array's folder shall be.
    pub place: Option<PathBuf>,
}

/// What a call of sbatch comes to.
#[derive(Debug)]
pub enum Asked {
    /// No array: sbatch can have it as it is.
    Plain,
    /// An array whose folder is made.
    Array(Box<Prepared>),
}

/// An array about to be submitted.
#[derive(Debug)]
pub struct Prepared {
    /// Its folder.
    pub folder: Folder,
    /// Whether only the job's number is to be printed.
    pub parsable: bool,
    /// Whether to wait for its end.
    pub wait: bool,
    partition: Option<String>,
}

/// An array that Slurm has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Number of its job.
    pub job: u64,
    /// As sbatch prints it with `--parsable`: with the cluster, if there are several.
    pub shown: String,
    /// How many pilots it has.
    pub pilots: usize,
}

/// Makes the folder of the array that a call of sbatch asks for, if it asks for one.
///
/// # Errors
/// Options that cannot be read, or a folder that cannot be written.
pub fn prepare(given: &Given, wish: &Wish) -> Result<Asked, ArrayError> {
    let Some(array) = given.get("array").map(str::to_string) else { return Ok(Asked::Plain) };
    let order = order(given, array)?;
    let place = wish.place.clone().unwrap_or_else(|| order.directory.join(PLACE));
    let text = given.source.text();
    let folder = Folder::make(&place, order, text, &head(text))?;
    Ok(Asked::Array(Box::new(Prepared {
        folder,
        parsable: given.get("parsable").is_some(),
        wait: given.get("wait").is_some(),
        partition: given.get("partition").map(str::to_string),
    })))
}

/// The lines of a script that may speak to sbatch: comments before the first command.
fn head(text: &str) -> String {
    let before = text.lines().skip(1).take_while(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    });
    // Who waits is the caller, and for the tasks.
    let lines = before.filter(|line| line.starts_with('#'));
    lines.map(|line| calling::line_without(line, &["wait"])).collect::<Vec<_>>().join("\n")
}

fn order(given: &Given, array: String) -> Result<Order, ArrayError> {
    let complain =
        |option: &str, complaint: Complaint| ArrayError::Usage(format!("--{option}: {complaint}"));
    let here = std::env::current_dir().map_err(of_file(Path::new("."), "look where we are"))?;
    let directory = given.get("chdir").map_or_else(|| here.clone(), |folder| here.join(folder));
    let name = given.name().to_string();
    let owned = |option: &str| given.get(option).map(str::to_string);
    let limit = given.get("time").map(quantity::slurm_time_ms).transpose();
    let append = given.get("open-mode").map(calling::appends).transpose();
    let mut order = Order::new(name, array, directory);
    order.limit_ms = limit.map_err(|complaint| complain("time", complaint))?.flatten();
    order.append = append.map_err(|complaint| complain("open-mode", complaint))?.unwrap_or(false);
    order.output = owned("output").unwrap_or(order.output);
    order.error = owned("error");
    order.input = owned("input");
    order.signal = owned("signal");
    order.may_repeat = given.get("no-requeue").is_none();
    order.arguments = given.call.arguments.clone();
    order.kill_wait_ms = queue::kill_wait_ms();
    order.options = given.call.without(&OURS);
    if given.get("job-name").is_none() {
        order.options.push(format!("--job-name={}", order.name));
    }
    Ok(order)
}

impl Prepared {
    /// An array that was submitted before and is to go on.
    ///
    /// # Errors
    /// Its script cannot be read any more.
    pub fn again(folder: Folder) -> Result<Self, ArrayError> {
        let given = Given::again(&folder.order.options, &folder.script())?;
        let partition = given.get("partition").map(str::to_string);
        Ok(Self { folder, parsable: false, wait: false, partition })
    }

    /// Submits pilots for what waits.
    ///
    /// * `ledger` — where its tasks stand.
    ///
    /// # Errors
    /// sbatch refuses; it has said why on standard error.
    pub fn submit(&self, wish: &Wish, ledger: &Ledger) -> Result<Submitted, ArrayError> {
        let pilots = pilots(self.folder.spec.at_once_max, ledger.waiting(), wish.pilots);
        let mut words = vec!["--parsable".to_string()];
        words.extend(self.folder.order.options.iter().cloned());
        words.extend(self.words(pilots, wish, ledger.waiting()));
        let variable = "HOTPOT_SBATCH";
        let tool =
            Tool::find("sbatch", variable).map_err(|error| ArrayError::Slurm(error.into()))?;
        let mut command: Command = tool.command();
        command
            .args(&words)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .env_remove("SBATCH_WAIT");
        let output = command.output().map_err(of_file(Path::new("sbatch"), "start it"))?;
        let shown = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let job = shown.split(';').next().and_then(|number| number.parse().ok());
        match job.filter(|_| output.status.success()) {
            Some(job) => {
                // Without the link, Slurm and the journal still know the array.
                let _ = self.folder.link(job);
                Ok(Submitted { job, shown, pilots })
            }
            None => Err(ArrayError::Usage("sbatch refused the array's pilots".to_string())),
        }
    }

    /// Our own options of the pilots; they come last, so that they count.
    fn words(&self, pilots: usize, wish: &Wish, waiting: usize) -> Vec<String> {
        let folder = self.folder.path().display().to_string().replace('%', "%%");
        let log = format!("{folder}/pilot-%A_%a.log");
        let mut words = vec![
            format!("--array=0-{}", pilots.saturating_sub(1)),
            format!("--output={log}"),
            format!("--error={log}"),
            "--input=/dev/null".to_string(),
            "--open-mode=append".to_string(),
        ];
        let by_tasks = || {
            let limit_ms = self.folder.order.limit_ms?;
            let each = waiting.div_ceil(pilots.max(1)) as u64;
            let wanted = limit_ms.saturating_mul(each).saturating_add(ASIDE_MS);
            let most = queue::limit_of_partitions_ms(self.partition.as_deref());
            // A limit of its own that is above the partition's is for Slurm to refuse.
            Some(wanted.min(most.unwrap_or(u64::MAX).max(limit_ms)))
        };
        if let Some(limit_ms) = wish.pilot_limit_ms.or_else(by_tasks) {
            let seconds = limit_ms.div_ceil(1000);
            words.push(format!("--time={}:{:02}", seconds / 60, seconds % 60));
        }
        words.push(self.folder.pilot().display().to_string());
        words
    }
}

/// How many pilots: no more than tasks, than tasks at once, than wanted.
fn pilots(at_once_max: u32, waiting: usize, wanted: Option<usize>) -> usize {
    let at_once = if at_once_max == 0 { usize::MAX } else { at_once_max as usize };
    waiting.min(at_once).min(wanted.unwrap_or(PILOTS_MAX)).max(1)
}

/// Slurm arrays that the pilots of an array are or were in, by the links to its folder and by what
/// pilots said.
pub fn submissions(folder: &Folder, ledger: &Ledger) -> BTreeSet<u64> {
    let place = folder.path().parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let own = folder.path().file_name();
    let number = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        (target.file_name() == own).then_some(())?;
        entry.file_name().to_str()?.parse().ok()
    };
    let told = ledger.pilots().keys().map(|id| id.array);
    entries.filter_map(number).chain(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_pilots_than_can_have_work() {
        assert_eq!(pilots(10, 1000, None), 10);
        assert_eq!(pilots(0, 1000, None), PILOTS_MAX);
        assert_eq!(pilots(10, 3, None), 3);
        assert_eq!(pilots(10, 1000, Some(4)), 4);
        assert_eq!(pilots(4, 1000, Some(10)), 4, "%N is the user's word to all");
    }

    #[test]
    fn the_head_of_a_script_is_what_sbatch_reads() {
        let text = "#!/bin/bash -l\n#SBATCH -c 2\n\n  # a remark\n#PBS -x\ncd x\n#SBATCH -c 9\n";
        assert_eq!(head(text), "#SBATCH -c 2\n#PBS -x");
    }
}
