//! What slurm.conf says, as slurmctld has read it: `scontrol show config`.

use crate::commands::{Slurm, SlurmError};

/// Slurm's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config(String);

impl Config {
    /// Asks slurmctld.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn ask(slurm: Slurm) -> Result<Self, SlurmError> {
        Ok(Self::parse(&slurm.call("scontrol", &["show", "config"])?))
    }

    /// Takes what was printed: `Name = value`, one a line.
    pub fn parse(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// A value; `None` if it is not there, or one of Slurm's words for nothing. Several programs of one kind are counted
    /// in newer releases (`Prolog[0]`): the first of them.
    pub fn get(&self, name: &str) -> Option<&str> {
        let lines = self.0.lines().filter_map(|line| line.split_once('='));
        let named = |key: &str| key.trim().split('[').next() == Some(name);
        let value = { lines }.find(|(key, _)| named(key)).map(|(_, value)| value.trim());
        value.filter(|value| !matches!(*value, "" | "(null)" | "NONE"))
    }

    /// Whether a word is in a list between commas.
    pub fn has(&self, name: &str, word: &str) -> bool {
        self.get(name).is_some_and(|list| list.split(',').any(|one| one.trim() == word))
    }

    /// The number that a value begins with: 30 of `30 sec`.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.split_whitespace().next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let config = Config::parse(
            "Configuration data as of 2026-01-01T00:00:00\nKillOnBadExit           = 0\n\
             KillWait                = 30 sec\nGresTypes               = gpu,shard\n\
             Prolog[0]               = /bin/a\nProlog[1]               = /bin/b\n\
             PrologEpilogTimeout     = 65534\nEpilog                  = (null)\n\
             AccountingStorageTRES   = cpu,gres/gpu:a=b\n",
        );
        assert_eq!(
            (config.number("KillWait"), config.number("KillOnBadExit")),
            (Some(30), Some(0))
        );
        assert_eq!((config.get("Prolog"), config.get("Epilog")), (Some("/bin/a"), None));
        assert_eq!(config.get("AccountingStorageTRES"), Some("cpu,gres/gpu:a=b"));
        assert!(config.has("GresTypes", "shard") && !config.has("GresTypes", "shar"));
        assert_eq!((config.get("Kill"), config.number("GresTypes")), (None, None));
    }
}
