//! How a node stands with slurmctld.

use crate::commands::{Slurm, SlurmError};
use crate::node_state::NodeState;
use crate::record::Record;

/// Words in the state of a node that answers, by which it is not there all the same, or not as its configuration says
/// (scontrol manual, "State"; INVALID_REG as measured, 22.05). One that is `DOWN` may be there: see [`Standing::is_out`].
const AWAY: [&str; 5] = ["UNKNOWN", "INVALID_REG", "FUTURE", "POWERED_DOWN", "POWERING_UP"];
/// How reasons begin that slurmctld gives to a node whose slurmd is stopped, or has other GPUs than slurm.conf
/// says.
const OF_A_CHANGE: [&str; 2] = ["Not responding", "gres/"];
/// States of a job that is on its nodes.
const ON_NODES: &str = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING";

/// What slurmctld says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Such as `IDLE+DRAIN+DYNAMIC_NORM`.
    pub state: NodeState,
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
            state: NodeState::new(&text("State")),
            gres: text("Gres"),
            reason: text("Reason"),
            registered: !matches!(record.get("SlurmdStartTime"), None | Some("Unknown")),
        })
    }

    /// Whether a flag or the state itself is there.
    pub fn is(&self, word: &str) -> bool {
        self.state.is(word)
    }

    /// Whether it registered itself and slurm.conf does not name it.
    pub fn is_dynamic(&self) -> bool {
        self.is("DYNAMIC_NORM")
    }

    /// Whether no job is to start on it.
    pub fn is_drained(&self) -> bool {
        self.state.is_drained()
    }

    /// Whether somebody takes it out of use.
    pub fn is_out(&self) -> bool {
        self.is_drained() || self.is("DOWN")
    }

    /// The reason, if it is out of use for another one than ours and what comes of a change. A person must give
    /// one (scontrol manual, "Reason"); a node that registers itself with `State=DRAIN` has none.
    pub fn taken(&self, ours: &str) -> Option<&str> {
        let digit = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
        let is_ours = self.reason.strip_prefix(ours).is_some_and(|rest| !digit(rest));
        let of_a_change = OF_A_CHANGE.iter().any(|begin| self.reason.starts_with(begin));
        let is_theirs = !self.reason.is_empty() && !is_ours && !of_a_change;
        (self.is_out() && is_theirs).then_some(&self.reason)
    }

    /// Whether it is there, as its configuration says.
    pub fn is_there(&self) -> bool {
        self.registered && !self.state.is_silent() && !AWAY.iter().any(|word| self.is(word))
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

    #[test]
    fn a_node_is_taken_by_whoever_gave_another_reason() {
        let taken = |state: &str, reason: &str| {
            let line = format!("NodeName=n1 State={state} Reason={reason} [root@x]");
            let node = Standing::of(&Record::parse(&line), "n1").unwrap();
            node.taken("hotpot layout 3").is_some()
        };
        for theirs in ["bad fan", "hotpot layout 31", "Node unexpectedly rebooted"] {
            assert!(taken("IDLE+DRAIN", theirs) && taken("DOWN", theirs), "{theirs}");
            assert!(!taken("IDLE", theirs), "{theirs}");
        }
        for ours in ["hotpot layout 3", "Not responding", "gres/gpu count reported lower"] {
            assert!(!taken("IDLE+DRAIN", ours), "{ours}");
        }
        let nobody = Record::parse("NodeName=n1 State=IDLE+DRAIN+DYNAMIC_NORM");
        assert_eq!(Standing::of(&nobody, "n1").unwrap().taken("hotpot layout 3"), None);
    }
}
