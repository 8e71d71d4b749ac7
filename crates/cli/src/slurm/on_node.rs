//! What Slurm calls on a node, as root: Prolog, Epilog and HealthCheckProgram; and what they start.

use slurm::Slurm;
use slurm::on_node::{self, Node, Tidied, Verdict, Without};
use slurm::site::Site;

use super::args::OfJob;
use crate::failure::{Answer, Failure};
use crate::screen;

/// Makes a job's shares real. Slurm takes a node out of use whose Prolog fails, which is right where the
/// node cannot do it; a job that others leave no room for is sent back, and that is a success.
pub(super) fn prolog(of: &OfJob) -> Result<Answer, Failure> {
    let done = match open(&of.node)? {
        Ok(mut node) => node.prolog(of.job),
        Err(without) => without.prolog(of.job),
    };
    match done.map_err(failure)? {
        Verdict::Nothing | Verdict::Ready(_) => Ok(Answer::Yes),
        Verdict::SentBack(why) => {
            screen::note(&format!("job {} is sent back: {why}", of.job));
            Ok(Answer::Yes)
        }
        Verdict::Refused(why) => {
            screen::note(&format!("job {} is refused: {why}", of.job));
            Ok(Answer::Yes)
        }
    }
}

/// Takes back what a job held.
pub(super) fn epilog(of: &OfJob) -> Result<Answer, Failure> {
    match open(&of.node)? {
        Ok(mut node) => node.epilog(of.job).map(drop),
        Err(without) => without.epilog(of.job),
    }
    .map_err(failure)?;
    Ok(Answer::Yes)
}

/// Takes back what jobs hold that are not on this node any more.
pub(super) fn tidy(name: &str) -> Result<Answer, Failure> {
    let found = match open(name)? {
        Ok(mut node) => node.tidy(),
        Err(without) => without.tidy().map(|()| Tidied::default()),
    };
    let tidied = found.map_err(failure)?;
    for job in tidied.gone {
        screen::note(&format!("job {job} is gone; what it held on {name} is free again"));
    }
    if let Some(why) = tidied.usage {
        screen::note(&format!("accounting has not taken what jobs used on {name}: {why}"));
    }
    Ok(Answer::Yes)
}

/// Requeues a job that must not run where Slurm has put it.
pub(super) fn send_back(job: u32, why: &str) -> Result<Answer, Failure> {
    on_node::send_back(Slurm, job, why).map_err(failure)?;
    Ok(Answer::Yes)
}

/// The node, or what is left of it without a driver.
fn open(name: &str) -> Result<Result<Node, Without>, Failure> {
    let site = Site::read().map_err(|error| Failure::Usage(error.to_string()))?;
    match Node::open(name, site.clone()) {
        Ok(node) => Ok(Ok(node)),
        Err(why) => Without::driver(name, &site, why).map(Err).map_err(failure),
    }
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Machine(error.to_string())
}
