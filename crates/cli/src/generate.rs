//! Completions and man pages, from the definition of the arguments.

use clap::CommandFactory;

use crate::args::Args;
use crate::failure::{Answer, Failure};
use crate::screen;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "hotpot", &mut script);
    screen::print_bytes(&script)
}

pub(crate) fn man(verb: Option<&str>) -> Result<Answer, Failure> {
    let mut command = Args::command();
    command.build();
    let page = match verb {
        None => command,
        Some(name) => command.find_subcommand(name).cloned().ok_or_else(|| {
            let verbs = command.get_subcommands().map(|verb| verb.get_name());
            let verbs: Vec<_> = verbs.filter(|verb| *verb != "help").collect();
            Failure::Usage(format!("no verb `{name}`; there are {}", verbs.join(", ")))
        })?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(Failure::Screen)?;
    screen::print_bytes(&text)
}
