//! `cargo xtask kubernetes-lab`: a real Kubernetes cluster on this host, for people; tests use the crate `kubernetes-lab`.

use std::path::Path;
use std::time::Instant;

use kubernetes_lab::{Cluster, LabError, Options};

use crate::{Verdict, shell};

const HELP: &str = "cargo xtask kubernetes-lab build | up DIR [OPTION...] | down DIR | status DIR | in DIR COMMAND...

  build                     build Kubernetes' programs, which takes about ten minutes once
  up DIR                    bring a cluster up; it stays
    --nodes N               nodes with a kubelet (1)
    --gpus N, --gpu MODEL   GPUs of each node (2, a100-80gb)
  in DIR COMMAND...         run a command in the cluster's network, such as kubectl get nodes
  in DIR --node NODE COMMAND...   run it on a node";

pub(crate) fn run(words: &[&str]) -> Verdict {
    let said = |error: LabError| error.to_string();
    match words {
        ["in", folder, "--node", node, line @ ..] => {
            inside(shell::folder(folder)?, Some(node), line)
        }
        ["in", folder, line @ ..] => inside(shell::folder(folder)?, None, line),
        ["help"] => help(),
        words if shell::asks_help(words) => help(),
        ["build"] => build(),
        ["up", folder, words @ ..] => up(shell::folder(folder)?, &options(words)?),
        ["down", folder] => {
            kubernetes_lab::down(shell::folder(folder)?).map_err(said)?;
            println!("down: {folder}");
            Ok(())
        }
        ["status", folder] => status(shell::folder(folder)?),
        _ => Err(format!("build, up, down, status or in\n\n{HELP}")),
    }
}

fn help() -> Verdict {
    println!("{HELP}");
    Ok(())
}

fn build() -> Verdict {
    let done = kubernetes_lab::install().map_err(|error| error.to_string())?;
    done.iter().for_each(|done| println!("{done}"));
    Ok(())
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
        match *word {
            "--nodes" => options.nodes = number(value()?)?,
            "--gpus" => options.gpus = number(value()?)?,
            "--gpu" => options.gpu = value()?.into(),
            other => return Err(format!("unknown: {other}\n\n{HELP}")),
        }
    }
    Ok(options)
}

fn up(folder: &Path, options: &Options) -> Verdict {
    let said = |error: LabError| error.to_string();
    build()?;
    // The simulated driver that the nodes show.
    crate::slurm::built()?;
    let began = Instant::now();
    let cluster = Cluster::up(folder, options).map_err(said)?;
    let (place, ms) = (cluster.folder().to_path_buf(), began.elapsed().as_millis());
    cluster.leave().map_err(said)?;
    let place = place.display();
    println!(
        "up in {ms} ms: {} nodes with {} {} each\n  \
         cargo xtask kubernetes-lab in {place} kubectl get nodes\n  \
         cargo xtask kubernetes-lab down {place}",
        options.nodes, options.gpus, options.gpu
    );
    Ok(())
}

fn inside(folder: &Path, node: Option<&str>, line: &[&str]) -> Verdict {
    let (program, words) = line.split_first().ok_or(HELP)?;
    let command = kubernetes_lab::inside(folder, node, program);
    let status = command.map_err(|error| error.to_string())?.args(words).status();
    let status = status.map_err(|error| format!("cannot run nsenter: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

fn status(folder: &Path) -> Verdict {
    let daemons = kubernetes_lab::status(folder).map_err(|error| error.to_string())?;
    let place = folder.display();
    if daemons.is_empty() {
        return Err(format!("{place}: no lab is up"));
    }
    for (daemon, pid) in &daemons {
        println!("{daemon} {}", pid.map_or_else(|| "DEAD".to_string(), |pid| pid.to_string()));
    }
    let dead = daemons.iter().filter(|(_, pid)| pid.is_none()).count();
    if dead == 0 { Ok(()) } else { Err(format!("{dead} daemons have died; see {place}/log")) }
}
