//! How a node is reached and daemons are restarted, as the site says in `hotpot.conf`.

use std::process::Command;
use std::time::Duration;

use node::tool::{Tool, ToolError};

/// How long a daemon may take to stop or start, or a node to answer. An instance takes about a second to
/// be made, and a node has up to 16 cards with 7.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of an answer that are read.
const ANSWER_MAX: u64 = 4 << 20;

/// Commands, each as its words; `{node}` stands for the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ways {
    /// What stands before a command that is to run on a node; nothing where the node is this machine.
    pub remote: Vec<String>,
    /// hotpot on a node.
    pub hotpot: Vec<String>,
    /// Stops a node's slurmd; run there. It must be fine if it does not run.
    pub stop_slurmd: Vec<String>,
    /// Starts a node's slurmd; run there. It must be fine if it runs already.
    pub start_slurmd: Vec<String>,
    /// Stops slurmctld; run here.
    pub stop_slurmctld: Vec<String>,
    /// Starts slurmctld; run here.
    pub start_slurmctld: Vec<String>,
    /// Whether each node has a gres.conf to itself, of which lines that name no node are its own.
    pub own_gres_conf: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            remote: words("ssh -o BatchMode=yes root@{node}"),
            hotpot: words("hotpot"),
            stop_slurmd: words("systemctl stop slurmd"),
            start_slurmd: words("systemctl start slurmd"),
            stop_slurmctld: words("systemctl stop slurmctld"),
            start_slurmctld: words("systemctl start slurmctld"),
            own_gres_conf: false,
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Ways {
    /// Its keys in the file.
    pub(crate) const KEYS: &str =
        "Remote, Hotpot, StopSlurmd, StartSlurmd, StopSlurmctld, StartSlurmctld, GresConf";

    /// Takes a line of the file, if it is one of ours.
    ///
    /// * `key` — in small letters.
    ///
    /// # Errors
    /// What the value should be.
    pub(crate) fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let place = match key {
            "remote" => &mut self.remote,
            "hotpot" => &mut self.hotpot,
            "stopslurmd" => &mut self.stop_slurmd,
            "startslurmd" => &mut self.start_slurmd,
            "stopslurmctld" => &mut self.stop_slurmctld,
            "startslurmctld" => &mut self.start_slurmctld,
            "gresconf" => {
                self.own_gres_conf = match value {
                    "own" => true,
                    "shared" => false,
                    _ => return Err(format!("GresConf={value}: give shared or own")),
                };
                return Ok(true);
            }
            _ => return Ok(false),
        };
        *place = words(value);
        if place.is_empty() && key != "remote" {
            return Err("a command is missing".to_owned());
        }
        Ok(true)
    }

    /// Runs a command on a node and returns what it printed. ssh hands the words to a shell: they must be
    /// plain, and what is not goes by `input`.
    pub(super) fn on_node(
        &self,
        node: &str,
        line: &[String],
        input: &str,
    ) -> Result<String, ToolError> {
        let (tool, command) = command(node, &[&self.remote[..], line].concat())?;
        tool.run(command, input)
    }

    /// Runs a command on a node that may leave a daemon behind.
    pub(super) fn launch_on_node(&self, node: &str, line: &[String]) -> Result<(), ToolError> {
        launch_here(node, &[&self.remote[..], line].concat())
    }
}

/// Runs a command on this machine that may leave a daemon behind.
pub(super) fn launch_here(node: &str, line: &[String]) -> Result<(), ToolError> {
    let (tool, command) = command(node, line)?;
    tool.launch(command)
}

fn command(node: &str, line: &[String]) -> Result<(Tool, Command), ToolError> {
    let line: Vec<String> = line.iter().map(|word| word.replace("{node}", node)).collect();
    let (program, rest) = line.split_first().map_or(("true", &line[..]), |(it, rest)| (it, rest));
    let tool = match program.contains('/') {
        true => Tool::at(program),
        false => Tool::find(program, "")?,
    };
    let tool = tool.within(PATIENCE).keeping(ANSWER_MAX);
    let mut command = tool.command();
    command.args(rest);
    Ok((tool, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_file_are_taken_and_names_filled_in() {
        let mut ways = Ways::default();
        assert_eq!(ways.take("remote", "echo at {node}:"), Ok(true));
        let said = ways.on_node("n7", &words("stop it on {node}"), "").unwrap();
        assert_eq!(said, "at n7: stop it on n7\n");
        assert_eq!(ways.take("gresconf", "own"), Ok(true));
        assert!(ways.own_gres_conf && ways.take("gresconf", "x").is_err());
        assert_eq!(ways.take("frob", "x"), Ok(false));
        assert!(ways.take("stopslurmd", " ").is_err());
        assert_eq!(ways.take("remote", ""), Ok(true));
        assert_eq!(ways.on_node("n7", &words("echo {node}"), "").unwrap(), "n7\n");
    }
}
