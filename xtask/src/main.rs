//! The project's own commands: `cargo xtask VERB`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "commands print their tables")]

mod ablate;
mod advice;
mod bless;
mod churn;
mod compare;
mod cuda;
mod fakes;
mod gpu;
mod install;
mod interference;
mod kubernetes_bind;
mod kubernetes_chaos;
mod kubernetes_lab;
mod kubernetes_mig;
mod limiter;
mod metrics;
mod mig;
mod occupancy;
mod openb;
mod parallel;
mod prototypes;
mod python;
mod reproduce;
mod shell;
mod slurm;
mod slurm_lab;
mod speed;
mod suite;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "cargo xtask VERB

  test        everything that CI checks: format, lints, tidy, tests, a slice of the published results
  tidy        dependency arrows, purity of model and engine, file headers and sizes
  bless       rewrite the golden files of the tests from what the code does now
  reproduce   replay the published openb experiments and compare curve by curve [--quick]
  compare     hotpot against fgd on every shipped workload and seed [--quick]
  ablate      what each term of the policy hotpot is good for [--quick]
  churn       policies where workloads leave again and wait in a queue [--quick]
  mig         acceptance of MIG requests against first fit and the exact optimum
  interference  predicted speeds of shared GPUs against measured ones that were held out [--quick] [--write]
  advice      what sharing is worth, by simulation: embedding (many small requests), serving (pods that hardly compute),
              neighbours (placing without regard to interference) [--quick]
  fakes       the fake driver against NVIDIA's header and programs from PyPI
  cuda        the fake libcuda against NVIDIA's header and NVIDIA's own client
  limiter     what the limiter costs and what it holds, on a simulated GPU [--quick]
  gpu-test    what a real GPU says of it all [--only PART] [--output DIR] [--quick] [--simulated]
              [--change-settings]
  metrics     the agent's metrics read by promtool and prometheus_client; what it costs [--quick]
  install     build hotpot and put it under a PREFIX, such as ~/.local or /usr/local
  occupancy   how busy `hotpot run` keeps GPUs with short tasks, and what sharing saves [--quick]
  slurm-arrays  short tasks by plain sbatch and by `hotpot slurm run`, on real Slurm; 40 minutes [--quick]
              [--only SECONDS]
  slurm-churn   is a card or MIG instance ever given twice while jobs come and go, without hotpot and with it [--quick]
  kubernetes-bind  pods bound per second with hotpot and by the stock scheduler alone, on a real control plane [--quick]
  kubernetes-mig   MIG instances accepted by the stock allocator and with hotpot, on real control planes [--quick]
  kubernetes-chaos  pods come and go while parts of a real cluster die and come back: is anything given twice, stuck or left? [--seed N]
              [--quick]
  kubernetes-lab  a real Kubernetes cluster on this host: build, up DIR, down DIR, status DIR, in DIR COMMAND
  slurm-lab   a real Slurm cluster on this host: up DIR [OPTION...], down DIR, status DIR
  speed       CPU seconds and peak memory of whole runs

reproduce, compare, ablate, churn, interference and advice read the full traces from ../shared/traces or $HOTPOT_TRACES.";

/// Commands that tell more of themselves than [`HELP`], and those that hand their words on.
const OWN_HELP: [&str; 5] = ["gpu-test", "gpu-client", "kubernetes-lab", "slurm-lab", "speed-one"];

/// What a command that ran to its end found.
pub(crate) type Verdict = Result<(), String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let verdict = match words.as_slice() {
        [verb, rest @ ..] if shell::asks_help(rest) && !OWN_HELP.contains(verb) => help_of(verb),
        ["test"] => suite::run(),
        ["tidy"] => tidy::run(),
        ["bless"] => bless::run(),
        [
            "reproduce" | "advice" | "compare" | "ablate" | "churn" | "mig" | "speed" | "limiter"
            | "slurm-arrays" | "kubernetes-bind",
            ..,
        ] if cfg!(debug_assertions) => shell::again_in_release(&args),
        ["gpu-test", rest @ ..]
            if cfg!(debug_assertions) && shell::has_cargo() && !shell::asks_help(rest) =>
        {
            shell::again_in_release(&args)
        }
        ["gpu-test", words @ ..] => gpu::run(words),
        ["gpu-client", words @ ..] => gpu::client::run(words),
        ["cuda"] => cuda::run(),
        ["limiter", flags @ ..] => quick(flags).and_then(limiter::run),
        ["reproduce", flags @ ..] => quick(flags).and_then(reproduce::run),
        ["compare", flags @ ..] => quick(flags).and_then(compare::run),
        ["ablate", flags @ ..] => quick(flags).and_then(ablate::run),
        ["churn", flags @ ..] => quick(flags).and_then(churn::run),
        ["mig"] => mig::run(),
        ["advice", words @ ..] => advice::run(words),
        ["interference", words @ ..] => interference::run(words),
        ["install", prefix] => install::run(prefix),
        ["install"] => Err("name where to: cargo xtask install ~/.local".to_string()),
        ["occupancy", flags @ ..] => quick(flags).and_then(occupancy::run),
        ["fakes"] => fakes::run(),
        ["metrics", flags @ ..] => quick(flags).and_then(metrics::run),
        ["kubernetes-bind", flags @ ..] => quick(flags).and_then(kubernetes_bind::run),
        ["kubernetes-chaos", words @ ..] => kubernetes_chaos::run(words),
        ["kubernetes-lab", words @ ..] => kubernetes_lab::run(words),
        ["kubernetes-mig", flags @ ..] => quick(flags).and_then(kubernetes_mig::run),
        ["slurm-arrays", words @ ..] => slurm::arrays::run(words),
        ["slurm-churn", flags @ ..] => quick(flags).and_then(slurm::churn::run),
        ["slurm-lab", words @ ..] => slurm_lab::run(words),
        ["speed"] => speed::run(),
        ["speed-one", words @ ..] => speed::one(words),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown: {}\n\n{HELP}", other.join(" "))),
    };
    match verdict {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what the list of commands says of one.
fn help_of(verb: &str) -> Verdict {
    let told = about(verb).ok_or_else(|| format!("unknown: {verb}\n\n{HELP}"))?;
    println!("cargo xtask{told}");
    Ok(())
}

/// Its lines of [`HELP`].
fn about(verb: &str) -> Option<String> {
    let mut lines = HELP
        .lines()
        .skip_while(|line| !line.starts_with("  ") || line.split_whitespace().next() != Some(verb));
    let first = lines.next()?.trim_start();
    let more = lines.take_while(|line| line.starts_with("     "));
    Some(
        [format!(" {first}")]
            .into_iter()
            .chain(more.map(str::to_string))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// Whether the only flag, `--quick`, is there.
fn quick(flags: &[&str]) -> Result<bool, String> {
    match flags {
        [] => Ok(false),
        ["--quick"] => Ok(true),
        other => Err(format!("unknown: {}; there is --quick", other.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::about;

    #[test]
    fn each_command_is_told_by_its_own_lines() {
        assert!(about("churn").is_some_and(|told| told.starts_with(" churn  ")));
        let told = about("gpu-test").unwrap_or_default();
        assert!(told.ends_with("[--change-settings]") && told.lines().count() == 2, "{told}");
        assert_eq!(about("--help"), None);
    }
}
