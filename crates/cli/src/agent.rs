//! `hotpot agent`: metrics of this machine's GPUs, served or printed once.

use std::time::Duration;

use agent::{AgentError, Format, Options};

use crate::args::{Agent, MetricNames};
use crate::failure::{Answer, Failure};
use crate::{screen, simulated};

pub(crate) fn run(args: &Agent) -> Result<Answer, Failure> {
    let _taken_away_at_the_end = simulated::machine(args.simulate_gpus.as_deref())?;
    let state = node::state_dir::state_dir();
    let options = Options {
        listen: args.listen,
        names: names(args.metric_names),
        token_file: args.token_file.clone(),
        interval: Duration::from_millis(args.interval),
        state: state.map_err(|error| Failure::Machine(error.to_string()))?,
        library: None,
        occupancy: None,
        notice: screen::complain,
    };
    if args.once {
        let text = agent::once(&options, Format::Prometheus).map_err(failure)?;
        return screen::print(&text);
    }
    agent::serve(&options).map_err(failure)?;
    Ok(Answer::Yes)
}

fn names(names: MetricNames) -> agent::MetricNames {
    match names {
        MetricNames::Legacy => agent::MetricNames::Legacy,
        MetricNames::Dcgm49 => agent::MetricNames::Dcgm49,
        MetricNames::Both => agent::MetricNames::Both,
    }
}

/// What the caller has to mend is wrong usage.
fn failure(error: AgentError) -> Failure {
    let text = error.to_string();
    match error {
        AgentError::Token(_) | AgentError::Exposed(_) => Failure::Usage(text),
        AgentError::Driver(_)
        | AgentError::Listen { .. }
        | AgentError::Defect
        | AgentError::System(_) => Failure::Machine(text),
    }
}
