//! The daemons of a cluster: their names, how each is started, and when it is ready.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::User;

use lab_base::{LabError, Place};

use crate::accounting;
use crate::conf;
use crate::options::Options;
use crate::ports::Ports;

/// A daemon of a cluster. In this order they are ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// The daemon of the node with that name.
    Slurmd(String),
    /// The REST server.
    Slurmrestd,
    /// The controller.
    Slurmctld,
    /// The accounting daemon.
    Slurmdbd,
    /// The accounting's database.
    Mariadbd,
    /// The authentication of all others.
    Munged,
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slurmd(node) => write!(f, "slurmd.{node}"),
            Self::Slurmrestd => f.write_str("slurmrestd"),
            Self::Slurmctld => f.write_str("slurmctld"),
            Self::Slurmdbd => f.write_str("slurmdbd"),
            Self::Mariadbd => f.write_str("mariadbd"),
            Self::Munged => f.write_str("munged"),
        }
    }
}

impl Daemon {
    /// The daemon that is displayed so.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let fixed =
            [Self::Slurmrestd, Self::Slurmctld, Self::Slurmdbd, Self::Mariadbd, Self::Munged];
        let node = || name.strip_prefix("slurmd.").map(|node| Self::Slurmd(node.into()));
        fixed.into_iter().find(|daemon| daemon.to_string() == name).or_else(node)
    }

    /// Where its process is written down.
    pub(crate) fn record(&self) -> String {
        format!("run/{self}.process")
    }

    /// What it prints, beside what it writes to its log.
    pub(crate) fn output(&self) -> String {
        format!("log/{self}.out")
    }

    /// Starts it in the foreground.
    pub(crate) fn command(
        &self,
        options: &Options,
        place: &Place,
        ports: &Ports,
    ) -> Result<Command, LabError> {
        let mut command = match self {
            Self::Slurmd(node) if options.dynamic_nodes().contains(node) => {
                Command::new(place.path(&script(node)))
            }
            Self::Slurmd(node) => program("slurmd", &["-D", "-N", node]),
            Self::Slurmctld => program("slurmctld", &["-D"]),
            Self::Slurmrestd => slurmrestd(options, place, ports)?,
            Self::Slurmdbd => accounting::slurmdbd(place),
            Self::Mariadbd => accounting::mariadbd(place),
            Self::Munged => munged(place),
        };
        command.env("SLURM_CONF", conf::path(place)).current_dir(place.root());
        Ok(command)
    }

    /// Whether it answers. A slurmd counts at once: the nodes' states tell.
    pub(crate) fn is_ready(&self, place: &Place) -> bool {
        let answers = |name: &str, words: &[&str]| {
            let done = program(name, words).env("SLURM_CONF", conf::path(place)).output();
            done.is_ok_and(|done| done.status.success())
        };
        match self {
            Self::Slurmd(_) => true,
            Self::Slurmctld => answers("scontrol", &["ping"]),
            Self::Slurmdbd => answers("sacctmgr", &["--noheader", "list", "cluster"]),
            Self::Mariadbd => {
                let socket = format!("--socket={}", place.path("run/mysql.sock").display());
                answers("mariadb-admin", &["--no-defaults", &socket, "ping"])
            }
            Self::Munged => place.path("run/munge.sock").exists(),
            Self::Slurmrestd => place.path("rest/slurmrestd.sock").exists(),
        }
    }
}

/// A program with arguments.
pub(crate) fn program(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(words);
    command
}

fn munged(place: &Place) -> Command {
    let option = |name: &str, path: &str| format!("--{name}={}", place.path(path).display());
    let mut command = program("munged", &["--foreground", "--num-threads=4"]);
    command
        .arg(option("socket", "run/munge.sock"))
        .arg(option("key-file", "etc/munge.key"))
        .arg(option("pid-file", "run/munged.pid"))
        .arg(option("log-file", "log/munged.log"))
        .arg(option("seed-file", "run/munge.seed"));
    command
}

/// It refuses to run as root and as SlurmUser, and its accounting plugin does not load without slurmdbd.
fn slurmrestd(options: &Options, place: &Place, ports: &Ports) -> Result<Command, LabError> {
    let user = User::from_name("slurm").ok().flatten();
    let user = user.ok_or_else(|| LabError::Options("there is no user `slurm`".into()))?;
    let plugins = match options.accounting {
        true => "openapi/v0.0.38,openapi/dbv0.0.38",
        false => "openapi/v0.0.38",
    };
    let folder = place.path("rest");
    nix::unistd::chown(&folder, Some(user.uid), Some(user.gid))
        .map_err(|error| lab_base::at(&folder)(error.into()))?;
    // One that was killed leaves it.
    let socket = folder.join("slurmrestd.sock");
    let _ = std::fs::remove_file(&socket);
    let mut command = program("slurmrestd", &["-a", "rest_auth/jwt", "-s", plugins]);
    command
        .arg(format!("unix:{}", socket.display()))
        .arg(format!("127.0.0.1:{}", ports.slurmrestd()))
        .env("SLURM_JWT", "daemon")
        .uid(user.uid.as_raw())
        .gid(user.gid.as_raw());
    Ok(command)
}

/// The program that runs a dynamic node's daemon.
pub(crate) fn script(node: &str) -> String {
    format!("bin/slurmd-{node}")
}

/// The text of [`script`].
///
/// slurmctld reaches a dynamic node at SlurmdPort only, so each needs an address of its own. A slurmd listens
/// at one address with NoInAddrAny, at the one that its host's name stands for; so the host gets another name,
/// in the eyes of that daemon alone. slurmctld believes that the node is where it registered from, which is
/// 127.0.0.1; so a new node is drained until slurmctld has been told better.
pub(crate) fn script_text(options: &Options, place: &Place, node: &str, address: &str) -> String {
    let dir = place.root().display();
    let has = conf::node_has(options, "$gres");
    format!(
        "\
#!/bin/sh
# Runs slurmd of node {node}, which registers with the Gres= in etc/{node}/gres. For other ones: once the
# node is idle, `scontrol delete nodename={node}`, end this program, change etc/{node}/gres and gres.conf
# beside it, start it again.
gres=$(cat {dir}/etc/{node}/gres)
export SLURM_CONF={dir}/etc/{node}/slurm.conf
(
    for try in $(seq 600); do
        case $(scontrol --oneliner show node {node} 2>/dev/null) in
            *NodeAddr={address}' '*) break ;;
            *NodeAddr=*) scontrol update nodename={node} nodeaddr={address} state=resume ;;
        esac
        sleep 0.05
    done
) >/dev/null 2>&1 &
exec unshare --uts sh -c 'hostname \"$0\" && exec slurmd -D -Z -N {node} --conf \"$1\"' \
    {address} \"{has} State=DRAIN\"
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_known_by_their_names_and_munged_ends_last() {
        let node = Daemon::Slurmd("n1".into());
        let mut all = [Daemon::Munged, Daemon::Slurmctld, node.clone(), Daemon::Slurmdbd];
        for daemon in &all {
            assert_eq!(Daemon::named(&daemon.to_string()).as_ref(), Some(daemon));
        }
        assert_eq!(Daemon::named("cron"), None);
        all.sort();
        assert_eq!((&all[0], &all[3]), (&node, &Daemon::Munged));
    }
}
