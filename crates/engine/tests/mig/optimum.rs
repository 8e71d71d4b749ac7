//! The most that any choice could take of a set of requests, by an integer programme.
//!
//! It knows the profiles' sizes and starts and nothing else of ours: neither `admit` nor the order
//! in which the requests came.

use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, microlp, variable,
    variables,
};
use model::MigGeometry;

use super::requests::Request;

/// What is to be as great as possible.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    Requests,
    Slices,
}

/// An instance that may be made: 1 if it is.
struct Choice {
    gpu: u64,
    profile: usize,
    start: u8,
    made: Variable,
}

/// The greatest number of requests or of slices that `gpus` idle GPUs can take together.
///
/// # Errors
/// The solver's own words.
pub(crate) fn best(
    geometry: &MigGeometry,
    requests: &[Request],
    gpus: u64,
    goal: Goal,
) -> Result<u64, String> {
    let mut unknowns = variables!();
    let choices = choices(geometry, requests, gpus, &mut unknowns);
    let worth: Expression = choices.iter().map(|c| worth(geometry, c, goal) * c.made).sum();
    let mut problem = unknowns.maximise(worth.clone()).using(microlp);
    for gpu in 0..gpus {
        let here: Vec<_> = choices.iter().filter(|choice| choice.gpu == gpu).collect();
        for bit in 0..geometry.memory_slices {
            let covers = |c: &&&Choice| geometry.profiles[c.profile].mask(c.start) >> bit & 1 == 1;
            let users: Expression = here.iter().filter(covers).map(|c| c.made).sum();
            problem = problem.with(constraint!(users <= 1));
        }
        let compute: Expression = here.iter().map(|c| compute(geometry, c) * c.made).sum();
        problem = problem.with(constraint!(compute <= f64::from(geometry.compute_slices)));
    }
    for (at, (index, _)) in geometry.indexed().enumerate() {
        let asked = requests.iter().filter(|request| request.profile == index).count();
        let made: Expression = choices.iter().filter(|c| c.profile == at).map(|c| c.made).sum();
        problem = problem.with(constraint!(made <= asked as f64));
    }
    let solved = problem.solve().map_err(|error| error.to_string())?;
    Ok(solved.eval(&worth).round() as u64)
}

/// Every profile that is asked for, at every start of every GPU.
fn choices(
    geometry: &MigGeometry,
    requests: &[Request],
    gpus: u64,
    unknowns: &mut ProblemVariables,
) -> Vec<Choice> {
    let mut choices = Vec::new();
    for gpu in 0..gpus {
        for (profile, (index, found)) in geometry.indexed().enumerate() {
            if requests.iter().all(|request| request.profile != index) {
                continue;
            }
            for start in found.starts.iter().copied() {
                let made = unknowns.add(variable().binary());
                choices.push(Choice { gpu, profile, start, made });
            }
        }
    }
    choices
}

fn compute(geometry: &MigGeometry, choice: &Choice) -> f64 {
    f64::from(geometry.profiles[choice.profile].compute_slices)
}

fn worth(geometry: &MigGeometry, choice: &Choice, goal: Goal) -> f64 {
    let profile = &geometry.profiles[choice.profile];
    match goal {
        Goal::Requests => 1.0,
        Goal::Slices => f64::from(profile.compute_slices + profile.memory_slices),
    }
}
