//! MariaDB and slurmdbd, in the cluster's folder like all else.

use std::fs;
use std::process::Command;

use lab_base::process::done;
use lab_base::{LabError, Place, at};

use crate::conf;
use crate::daemon::program;
use crate::options::Options;

/// Makes the database's files. Durability is of no use to a lab: nothing is flushed to disk.
pub(crate) fn make_database(place: &Place) -> Result<(), LabError> {
    let mut command = program(
        "mariadb-install-db",
        &[
            "--no-defaults",
            "--user=root",
            "--skip-test-db",
            "--auth-root-authentication-method=socket",
            "--innodb-log-file-size=16M",
            "--innodb-flush-method=nosync",
        ],
    );
    command.arg(format!("--datadir={}", place.path("db").display()));
    done(&mut command).map(drop)
}

/// The database's server, reached through a socket alone.
pub(crate) fn mariadbd(place: &Place) -> Command {
    let option = |name: &str, path: &str| format!("--{name}={}", place.path(path).display());
    let mut command = program(
        "mariadbd",
        &[
            "--no-defaults",
            "--user=root",
            "--skip-networking",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
        ],
    );
    command
        .arg(option("datadir", "db"))
        .arg(option("socket", "run/mysql.sock"))
        .arg(option("pid-file", "run/mariadbd.pid"))
        .arg(option("log-error", "log/mariadbd.log"));
    command
}

/// The accounting daemon. It has no option for the database's socket; its client library takes it from the
/// environment.
pub(crate) fn slurmdbd(place: &Place) -> Command {
    let mut command = program("slurmdbd", &["-D"]);
    command.env("MYSQL_UNIX_PORT", place.path("run/mysql.sock"));
    command
}

/// Enters the cluster, the account `lab` and its users.
pub(crate) fn enter(options: &Options, place: &Place) -> Result<(), LabError> {
    let add = |words: &[&str]| {
        let mut command = program("sacctmgr", &["--immediate", "add"]);
        done(command.args(words).env("SLURM_CONF", conf::path(place))).map(drop)
    };
    add(&["cluster", "lab"])?;
    add(&["account", "lab"])?;
    if options.users.is_empty() {
        Ok(())
    } else {
        add(&["user", &options.users.join(","), "account=lab"])
    }
}

/// Writes what slurmdbd reads, which nobody else may.
pub(crate) fn write_conf(place: &Place, text: &str) -> Result<(), LabError> {
    let folder = place.path("db");
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    place.write_secret("etc/slurmdbd.conf", text.as_bytes())
}
