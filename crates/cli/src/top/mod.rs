//! `hotpot top`: the machine's GPUs as pots. A view on a terminal, one picture elsewhere.

mod bar;
mod details;
mod draw;
mod lines;
mod live;
mod parts;
mod pot;
mod print;
mod rows;
#[cfg(test)]
mod sample_machine;
#[cfg(test)]
mod screens;
mod source;
mod view;

use std::io::IsTerminal;

use node::inventory::DriverFacts;

use crate::args::{Output, Top};
use crate::failure::{Answer, Failure};
use crate::{screen, simulated};

/// What is shown: the machine at one moment.
#[derive(Clone, Debug)]
struct Picture {
    /// When, in ms since 1970.
    at_ms: u64,
    /// The driver is a simulated one.
    simulated: bool,
    driver: DriverFacts,
    pots: Vec<pot::Pot>,
}

pub(crate) fn run(options: &Top) -> Result<Answer, Failure> {
    let machine = simulated::machine(options.simulate_gpus.as_deref())?;
    let interval = options.interval;
    let json = options.output.output == Output::Json;
    let once = options.once || json || !std::io::stdout().is_terminal();
    if once {
        let picture = source::Source::start(interval).wait().map_err(Failure::Machine)?;
        return screen::print(&if json {
            print::json(&picture)
        } else {
            print::table(&picture, screen::width())
        });
    }
    let signals = live::Signals::hold().map_err(Failure::Screen)?;
    let mut source = source::Source::start(interval);
    let first = source.wait().map_err(Failure::Machine)?;
    let came = live::show(source, first, &signals, interval).map_err(Failure::Screen)?;
    // A signal would leave a simulated machine behind.
    drop(machine);
    signals.release(came).map_err(Failure::Screen)?;
    Ok(Answer::Yes)
}
