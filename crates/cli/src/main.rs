//! The `hotpot` program: parse, run one verb, print, exit.
//!
//! Exit codes: 0 done, 1 no (refused or failed), 2 wrong usage or unreadable input.
#![forbid(unsafe_code)]

mod advise;
mod agent;
mod args;
mod check;
mod explain;
mod failure;
mod generate;
mod inputs;
mod kubernetes;
mod names;
mod outputs;
mod plan;
mod progress;
mod report;
mod run;
mod screen;
mod simulate;
mod simulated;
mod slurm;
mod top;
mod words;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Verb};
use failure::{Answer, Failure};

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(failure) => {
            screen::complain(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(args: &Args) -> Result<Answer, Failure> {
    match &args.verb {
        Verb::Run(options) => run::run(options),
        Verb::Simulate(options) => simulate::run(options),
        Verb::Advise(options) => advise::run(options),
        Verb::Plan(options) => plan::run(options),
        Verb::Explain(options) => explain::run(options),
        Verb::Check(options) => check::run(options),
        Verb::Agent(options) => agent::run(options),
        Verb::Top(options) => top::run(options),
        Verb::Report(options) => report::run(options),
        Verb::Slurm(options) => slurm::run(options),
        Verb::Kubernetes(options) => kubernetes::run(options),
        Verb::Completions { shell } => generate::completions(*shell),
        Verb::Man { verb } => generate::man(verb.as_deref()),
    }
}
