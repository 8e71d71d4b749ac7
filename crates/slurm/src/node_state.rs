//! A node's state as `scontrol show node` prints it: what it is, then flags, as in `IDLE+CLOUD+POWERED_DOWN`. Words are
//! compared whole: a node that is `POWERED_DOWN` is started for jobs, one that is `DOWN` is not.

use std::fmt::{self, Display};

/// Marks that older releases put behind a word (sinfo manual, "Node state codes").
const MARKS: [char; 9] = ['*', '~', '#', '!', '%', '$', '@', '^', '-'];
/// It is to take no more jobs.
const DRAINED: [&str; 3] = ["DRAIN", "DRAINING", "DRAINED"];
const MAINTENANCE: [&str; 2] = ["MAINT", "MAINTENANCE"];
/// Others with which it takes no jobs (scontrol manual, "NODES - SHOW"; INVALID_REG as measured, 22.05).
const UNUSABLE: [&str; 10] = [
    "FAIL",
    "FAILING",
    "ERROR",
    "UNKNOWN",
    "FUTURE",
    "REBOOT_ISSUED",
    "INVAL",
    "INVALID_REG",
    "POWER_DOWN",
    "POWERING_DOWN",
];
/// There is no machine that could answer.
const AWAY: [&str; 6] =
    ["DOWN", "UNKNOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"];

/// A node's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState(String);

/// Why a node takes no jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfUse {
    /// Somebody, or slurmctld, has drained it.
    Drained,
    /// Its slurmd does not answer.
    Silent,
    /// A reservation for maintenance has it.
    Maintenance,
    /// Slurm has given it up, or somebody has.
    Down,
    /// It fails, is started anew, or is not what slurm.conf says.
    Other,
}

impl NodeState {
    /// Takes what Slurm prints.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// As Slurm writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is this word, or has it as a flag.
    pub fn is(&self, word: &str) -> bool {
        self.0.split('+').any(|part| part.trim_end_matches(MARKS).eq_ignore_ascii_case(word))
    }

    /// Whether somebody wants no more jobs on it.
    pub fn is_drained(&self) -> bool {
        self.is_any(&DRAINED)
    }

    /// Whether its slurmd does not answer.
    pub fn is_silent(&self) -> bool {
        self.0.contains('*') || self.is("NOT_RESPONDING")
    }

    /// Whether there is a machine that could answer.
    pub fn is_there(&self) -> bool {
        !self.is_silent() && !self.is_any(&AWAY)
    }

    /// Whether Slurm starts jobs on it, even if it must power it up first.
    pub fn takes_jobs(&self) -> bool {
        self.out_of_use().is_none()
    }

    /// Why it takes no jobs; `None` if it does.
    pub fn out_of_use(&self) -> Option<OutOfUse> {
        let reasons = [
            (self.is_drained(), OutOfUse::Drained),
            (self.is_silent(), OutOfUse::Silent),
            (self.is_any(&MAINTENANCE), OutOfUse::Maintenance),
            (self.is("DOWN"), OutOfUse::Down),
            (self.is_any(&UNUSABLE), OutOfUse::Other),
        ];
        reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }
}

impl Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Display for OutOfUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drained => "drained",
            Self::Silent => "does not answer",
            Self::Maintenance => "under maintenance",
            Self::Down => "down",
            Self::Other => "out of use",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_by_whole_words() {
        use OutOfUse::{Down, Drained, Maintenance, Other, Silent};
        for (text, why, is_there) in [
            ("IDLE", None, true),
            ("MIXED+PLANNED", None, true),
            ("ALLOCATED+COMPLETING+RESERVED", None, true),
            ("IDLE+CLOUD+POWERED_DOWN", None, false),
            ("ALLOCATED+CLOUD+POWERING_UP", None, false),
            ("IDLE+CLOUD+POWERING_DOWN", Some(Other), false),
            ("IDLE+DYNAMIC_FUTURE", None, true),
            ("MIXED+REBOOT_REQUESTED", None, true),
            ("MIXED+REBOOT_REQUESTED+DRAIN", Some(Drained), true),
            ("DOWN+REBOOT_ISSUED", Some(Down), false),
            ("FUTURE", Some(Other), false),
            ("IDLE*", Some(Silent), false),
            ("IDLE+NOT_RESPONDING", Some(Silent), false),
            ("DOWN*+DRAIN", Some(Drained), false),
            ("DOWN+CLOUD", Some(Down), false),
            ("IDLE+MAINTENANCE", Some(Maintenance), true),
            ("IDLE+INVALID_REG", Some(Other), true),
        ] {
            let state = NodeState::new(text);
            assert_eq!((state.out_of_use(), state.is_there()), (why, is_there), "{text}");
            assert_eq!(state.takes_jobs(), why.is_none());
        }
    }
}
