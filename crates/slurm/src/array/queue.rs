//! What an array asks of Slurm, and tells it. slurmctld may be busy or down: every question has a short
//! patience, and whoever asks can do without an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use formats::quantity;
use node::tool::{Tool, ToolError};

use super::event::PilotId;
use crate::commands::Slurm;
use crate::config::Config;
use crate::record::Record;

/// How long a pilot waits for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of output that are read: a line for each job that waits, of a hundred thousand.
const OUTPUT_MAX: u64 = 64 << 20;

/// Where a pilot's job stands in Slurm's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has its resources.
    Running,
    /// It is about to end.
    Completing,
    /// It waits; a start of it that has been is over.
    Pending,
}

/// The jobs of a Slurm array that are in the queue: index, place and number of restarts.
///
/// # Errors
/// Slurm gives no answer.
pub fn elements(array: u64) -> Result<BTreeMap<u32, (Place, u32)>, ToolError> {
    let format = "ArrayTaskID:16,StateCompact:8,RestartCnt:16";
    match ask("squeue", &["-h", "-a", "-r", "-j", &array.to_string(), "-O", format]) {
        Ok(text) => Ok(text.lines().filter_map(element).collect()),
        // Slurm has forgotten it.
        Err(ToolError::Failed { said, .. }) if said.contains("Invalid job id") => {
            Ok(BTreeMap::new())
        }
        Err(error) => Err(error),
    }
}

fn element(line: &str) -> Option<(u32, (Place, u32))> {
    let mut words = line.split_whitespace();
    let index = words.next()?.parse().ok()?;
    let place = match words.next()? {
        "PD" | "RH" | "RQ" | "SE" | "RF" => Place::Pending,
        "CG" => Place::Completing,
        "R" | "S" | "CF" | "ST" | "SI" | "RS" | "SO" => Place::Running,
        _ => return None,
    };
    Some((index, (place, words.next()?.parse().ok()?)))
}

/// How many ms a pilot's job has left; `None` if it is not limited or Slurm does not say.
pub fn time_left_ms(id: PilotId) -> Option<u64> {
    let job = element_name(id);
    let text = ask("squeue", &["-h", "-j", &job, "-O", "TimeLeft:32"]).ok()?;
    quantity::slurm_time_ms(text.trim()).ok()?
}

/// Cancels pilots that wait, unless another job waits for this array to end well: it would then wait
/// for ever.
///
/// # Errors
/// Slurm gives no answer.
pub fn clear(array: u64) -> Result<(), ToolError> {
    let waited_for = ask("squeue", &["-h", "-a", "-t", "PENDING", "-o", "%E"])?;
    if waited_for.lines().any(|line| depends_on(line, array)) {
        return Ok(());
    }
    ask("scancel", &["--state=PENDING", &array.to_string()]).map(drop)
}

/// Whether a job's dependency (`afterok:12_*(unfulfilled)`) names an array.
fn depends_on(dependency: &str, array: u64) -> bool {
    let numbers = dependency.split(|one: char| !one.is_ascii_alphanumeric());
    numbers.filter_map(|word| word.parse::<u64>().ok()).any(|number| number == array)
}

/// Puts a pilot's job back into the queue; whoever calls from inside of it is ended.
///
/// # Errors
/// Slurm refuses, or gives no answer.
pub fn requeue(id: PilotId) -> Result<(), ToolError> {
    ask("scontrol", &["requeue", &element_name(id)]).map(drop)
}

/// Writes a comment on the jobs of an array that are not over: of the others Slurm says so, and that it has failed.
///
/// # Errors
/// Slurm refuses, or gives no answer.
pub fn comment(array: u64, text: &str) -> Result<(), ToolError> {
    let (job, comment) = (format!("JobId={array}"), format!("Comment={text}"));
    match ask("scontrol", &["update", &job, &comment]) {
        Err(ToolError::Failed { said, .. }) if said.contains("already finished") => Ok(()),
        done => done.map(drop),
    }
}

/// Time between TERM and KILL on this cluster, in ms; Slurm's default if it does not say.
pub fn kill_wait_ms() -> u64 {
    let seconds = Config::ask(Slurm).ok().and_then(|config| config.number("KillWait"));
    seconds.unwrap_or(30).saturating_mul(1000)
}

/// The longest that a job may take, in ms; `None` if that is not limited or Slurm does not say.
///
/// * `partitions` — those that it may run in; the default one if none is named.
pub fn limit_of_partitions_ms(partitions: Option<&str>) -> Option<u64> {
    let text = Slurm.call("scontrol", &["-o", "show", "partition"]).ok()?;
    let named: Vec<&str> = partitions.unwrap_or_default().split(',').collect();
    let meant = |partition: &Record| match partitions {
        Some(_) => partition.get("PartitionName").is_some_and(|name| named.contains(&name)),
        None => partition.get("Default") == Some("YES"),
    };
    let limit = |partition: &Record| quantity::slurm_time_ms(partition.get("MaxTime")?).ok()?;
    Record::all(&text).iter().filter(|partition| meant(partition)).filter_map(limit).min()
}

fn element_name(id: PilotId) -> String {
    format!("{}_{}", id.array, id.element)
}

fn ask(program: &str, words: &[&str]) -> Result<String, ToolError> {
    let variable = format!("HOTPOT_{}", program.to_uppercase());
    let tool = Tool::find(program, &variable)?.within(PATIENCE).keeping(OUTPUT_MAX);
    let mut command = tool.command();
    command.args(words);
    tool.run(command, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_places() {
        assert_eq!(element("3   R   0 "), Some((3, (Place::Running, 0))));
        assert_eq!(element("12  PD  2"), Some((12, (Place::Pending, 2))));
        assert_eq!(element("12  CG  0"), Some((12, (Place::Completing, 0))));
        assert_eq!(element("12  CD  0"), None, "it is over");
        assert_eq!(element("N/A  R  0"), None);
    }

    #[test]
    fn a_dependency_names_whole_numbers() {
        assert!(depends_on("afterok:12_*(unfulfilled)", 12));
        assert!(depends_on("afterany:7(unfulfilled),afterok:12+5(unfulfilled)", 12));
        assert!(!depends_on("afterok:123_*(unfulfilled)", 12));
        assert!(!depends_on("(null)", 12));
    }
}
