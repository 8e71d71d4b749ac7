//! How a node stands with slurmctld.

use crate::commands::{Slurm, SlurmError};
use crate::record::Record;

/// Words in a node's state by which it is not there, or not as its configuration says (scontrol manual,
/// "State"; INVALID_REG as measured, 22.05).
const AWAY: [&str; 6] =
    ["NOT_RESPONDING", "UNKNOWN", "INVALID_REG", "FUTURE", "POWERED_DOWN", "POWERING_UP"];
/// States of a job that is on its nodes.
const ON_NODES: &str = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING";

/// What slurmctld says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Such as `IDLE+DRAIN+DYNAMIC_NORM`.
    pub state: String,
    /// Its `Gres=`.
    pub gres: String,
    /// Why it is drained or down.
    pub reason: String,
    /// Whether its slurmd has registered with this slurmctld.
    pub registered: bool,
}

impl Standing {
    /// Asks slurmctld; `None` if it has no such node.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn ask(slurm: Slurm, node: &str) -> Result<Option<Self>, SlurmError> {
        let text = match slurm.call("scontrol", &["show", "node", "-o", node]) {
            Err(error) if error.to_string().contains("not found") => return Ok(None),
            other => other?,
        };
        Ok(Record::all(&text).iter().find_map(|record| Self::of(record, node)))
    }

    /// Reads a record, if it is the node's.
    pub fn of(record: &Record, node: &str) -> Option<Self> {
        let text = |name| record.get(name).unwrap_or_default().to_owned();
        (record.get("NodeName") == Some(node)).then(|| Self {
            state: text("State"),
            gres: text("Gres"),
            reason: text("Reason"),
            registered: !matches!(record.get("SlurmdStartTime"), None | Some("Unknown")),
        })
    }

    /// Whether a flag or the state itself is there.
    pub fn is(&self, word: &str) -> bool {
        self.state.split('+').any(|part| part.trim_end_matches(['*', '~', '#', '$', '@']) == word)
    }

    /// Whether it registered itself and slurm.conf does not name it.
    pub fn is_dynamic(&self) -> bool {
        self.is("DYNAMIC_NORM")
    }

    /// Whether no job is to start on it.
    pub fn is_drained(&self) -> bool {
        self.is("DRAIN") || self.is("DRAINING") || self.is("DRAINED")
    }

    /// Whether it is there, as its configuration says.
    pub fn is_there(&self) -> bool {
        let away = AWAY.iter().any(|word| self.is(word)) || self.state.contains('*');
        self.registered && !away
    }

    /// Whether jobs are on it, as far as its state tells.
    pub fn is_busy(&self) -> bool {
        ["ALLOCATED", "MIXED", "COMPLETING"].iter().any(|word| self.is(word))
    }
}

/// Jobs on a node.
///
/// # Errors
/// Slurm does not answer.
pub(super) fn jobs_on(slurm: Slurm, node: &str) -> Result<Vec<String>, SlurmError> {
    let words = ["--noheader", "--all", "--nodelist", node, "--states", ON_NODES, "--format=%i"];
    let text = slurm.call("squeue", &words)?;
    Ok(text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// Whether slurmctld answers.
pub(super) fn answers(slurm: Slurm) -> bool {
    slurm.call("scontrol", &["ping"]).is_ok_and(|text| text.contains(" UP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_with_their_flags() {
        let read = |line: &str| Standing::of(&Record::parse(line), "n1").unwrap();
        let line = "NodeName=n1 Gres=gpu:a100:4(S:0) State=MIXED+DRAIN+DYNAMIC_NORM \
                    SlurmdStartTime=2026-01-01T00:00:00 Reason=hotpot layout 3 [root@x]";
        let node = read(line);
        assert!(node.is_dynamic() && node.is_drained() && node.is_busy() && node.is_there());
        assert_eq!(node.reason, "hotpot layout 3 [root@x]");
        for state in ["IDLE*+DRAIN", "IDLE+DRAIN+NOT_RESPONDING", "IDLE+DRAIN+INVALID_REG"] {
            let node = read(&line.replace("MIXED+DRAIN", state));
            assert!(!node.is_there() && !node.is_busy(), "{state}");
        }
        assert!(!read(&line.replace("2026-01-01T00:00:00", "None")).is_there());
        assert_eq!(Standing::of(&Record::parse(line), "n2"), None);
    }
}
