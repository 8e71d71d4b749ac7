//! `cargo xtask slurm-lab`: a real Slurm cluster on this host, for people; tests use the crate `slurm-lab`.

use std::path::Path;
use std::time::Instant;

use slurm_lab::{Cluster, Options};

use crate::{Verdict, shell, slurm};

const HELP: &str = "cargo xtask slurm-lab up DIR [OPTION...] | down DIR | status DIR

  --nodes N, --dynamic N    nodes that slurm.conf names, and nodes that register themselves
  --gpus N, --gpu MODEL     GPUs of each node (a100-80gb)
  --type TYPE, --shards N   their gres type, and gres/shard of each
  --cpus N, --memory MIB    what each node claims
  --accounting, --rest      slurmdbd with MariaDB; slurmrestd
  --users A,B               who gets an association (root,nobody)
  --cgroup, --preempt       constrain devices and memory; partition online over batch
  --hotpot                  with hotpot on it: plugin, rules, Prolog and Epilog
  --conf FILE, --gres FILE  lines for slurm.conf; gres.conf, with @NODE@ and @DEV@
  --node-gres GRES          Gres= of each node, where gres.conf is another one
  --etc FILE                a file to lie beside slurm.conf; may be given again";

pub(crate) fn run(words: &[&str]) -> Verdict {
    if shell::asks_help(words) {
        println!("{HELP}");
        return Ok(());
    }
    match words {
        ["up", folder, words @ ..] => {
            let folder = shell::folder(folder)?;
            let words: Vec<&str> = words.to_vec();
            let (ours, rest): (Vec<&str>, Vec<&str>) =
                words.into_iter().partition(|word| *word == "--hotpot");
            up(folder, options(&rest)?, !ours.is_empty())
        }
        ["down", folder] => {
            slurm_lab::down(shell::folder(folder)?).map_err(|error| error.to_string())?;
            println!("down: {folder}");
            Ok(())
        }
        ["status", folder] => status(shell::folder(folder)?),
        ["help"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("up, down or status, and a folder\n\n{HELP}")),
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            let next = words.next().copied().filter(|next| !next.starts_with("--"));
            next.ok_or_else(|| format!("{word} needs a value"))
        };
        let number =
            |text: &str| text.parse::<u32>().map_err(|_| format!("{word}: `{text}` is no count"));
        let read =
            |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        match *word {
            "--nodes" => options.nodes = number(value()?)?,
            "--dynamic" => options.dynamic = number(value()?)?,
            "--gpus" => options.gpus = number(value()?)?,
            "--gpu" => options.gpu = value()?.into(),
            "--type" => options.gres_type = value()?.into(),
            "--shards" => options.shards = number(value()?)?,
            "--cpus" => options.cpus = number(value()?)?,
            "--memory" => options.memory_mib = number(value()?)?,
            "--accounting" => options.accounting = true,
            "--rest" => options.rest = true,
            "--users" => options.users = value()?.split(',').map(str::to_string).collect(),
            "--cgroup" => options.cgroup = true,
            "--preempt" => options.preempt = true,
            "--conf" => options.slurm_conf = read(value()?)?,
            "--gres" => options.gres_conf = Some(read(value()?)?),
            "--node-gres" => options.gres = Some(value()?.into()),
            "--etc" => {
                let path = value()?;
                let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
                options.files.push((name.into_owned(), read(path)?));
            }
            other => return Err(format!("unknown: {other}\n\n{HELP}")),
        }
    }
    Ok(options)
}

fn up(folder: &Path, options: Options, with_hotpot: bool) -> Verdict {
    let said = |error: slurm_lab::LabError| error.to_string();
    // The simulated driver that the nodes show, and what may be put on the cluster.
    let built = slurm::built()?;
    let options = if with_hotpot {
        let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
        options.with_hotpot(&folder, &built, &shell::root().join("deploy/slurm")).map_err(said)?
    } else {
        options
    };
    let options = &options;
    let missing = slurm_lab::missing(options).map_err(said)?;
    if !missing.is_empty() {
        println!("installing {}", missing.join(" "));
        slurm_lab::install(options).map_err(said)?;
    }
    let began = Instant::now();
    let cluster = Cluster::up(folder, options).map_err(said)?;
    if with_hotpot {
        cluster.tell_hotpot(&built).map_err(said)?;
    }
    let (place, ms) = (cluster.folder().to_path_buf(), began.elapsed().as_millis());
    cluster.leave().map_err(said)?;
    let place = place.display();
    println!(
        "up in {ms} ms: {} nodes with {} {} each\n  \
         . {place}/env                  points Slurm's commands at it\n  \
         . {place}/machines/n1/env      shows the GPUs of n1\n  \
         cargo xtask slurm-lab down {place}",
        options.nodes + options.dynamic,
        options.gpus,
        options.gpu
    );
    Ok(())
}

fn status(folder: &Path) -> Verdict {
    let daemons = slurm_lab::status(folder).map_err(|error| error.to_string())?;
    let place = folder.display();
    if daemons.is_empty() {
        return Err(format!("{place}: no lab is up"));
    }
    for (daemon, pid) in &daemons {
        println!("{daemon} {}", pid.map_or_else(|| "DEAD".to_string(), |pid| pid.to_string()));
    }
    let mut sinfo = std::process::Command::new("sinfo");
    sinfo.args(["--Node", "--partition=batch", "--format=%N %T %G %E"]);
    print!("{}", shell::output(sinfo.env("SLURM_CONF", folder.join("etc/slurm.conf")))?);
    let dead = daemons.iter().filter(|(_, pid)| pid.is_none()).count();
    if dead == 0 { Ok(()) } else { Err(format!("{dead} daemons have died; see {place}/log")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_what_is_wrong_is_named() {
        let words = ["--nodes", "3", "--rest", "--users", "root,nobody", "--type", "h100"];
        let read = options(&words).unwrap();
        assert_eq!((read.nodes, read.rest, read.accounting), (3, true, false));
        assert_eq!((read.users.len(), read.gres_type.as_str()), (2, "h100"));
        for (words, part) in [
            (&["--nodes", "x"][..], "`x` is no count"),
            (&["--gpus"], "--gpus needs a value"),
            (&["--users", "--rest"], "--users needs a value"),
            (&["--what"], "unknown: --what"),
        ] {
            let said = options(words).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn an_option_is_never_a_folder() {
        for verb in ["up", "down", "status"] {
            assert_eq!(run(&[verb, "--help"]), Ok(()));
            let said = run(&[verb, "--rest"]).unwrap_err();
            assert!(said.contains("./--rest"), "{said}");
        }
        assert_eq!(run(&["up", "lab", "--nodes", "3", "-h"]), Ok(()));
        for words in [&["up", "lab", "--bogus"][..], &["down", "lab", "--now"], &["up"], &["on"]] {
            assert!(run(words).is_err(), "{words:?}");
        }
        assert!(!Path::new("--help").exists() && !Path::new("lab").exists());
    }
}
