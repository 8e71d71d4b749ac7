//! Dependencies tied to the jobs of a run that they name.

use std::collections::BTreeMap;

use formats::{Dependency, DependencyKind, Job};

use crate::error::RunError;
use crate::work::Posted;

/// A dependency, with the jobs that it is about as positions in [`crate::Work::jobs`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: DependencyKind,
    pub(crate) any: bool,
    pub(crate) jobs: Vec<usize>,
}

/// A job's conditions, with the jobs that they are about.
pub(crate) fn conditions(
    jobs: &[Posted],
    at: usize,
    by_name: &BTreeMap<&str, Vec<usize>>,
) -> Result<Vec<Condition>, RunError> {
    let job = &jobs[at].job;
    let condition = |dependency: &Dependency| {
        let Dependency { kind, any, jobs: wanted } = dependency;
        let about = match kind {
            DependencyKind::Singleton => {
                earlier_of_same_name(jobs, at, &by_name[job.pattern.name.as_str()])
            }
            DependencyKind::After
            | DependencyKind::AfterAny
            | DependencyKind::AfterOk
            | DependencyKind::AfterNotOk
            | DependencyKind::AfterCorr => wanted
                .iter()
                .map(|wanted| find(job, at, by_name, wanted))
                .collect::<Result<_, _>>()?,
        };
        Ok(Condition { kind: *kind, any: *any, jobs: about })
    };
    job.after.iter().map(condition).collect()
}

/// Earlier jobs of the same name, back to one that waits for those before it itself.
fn earlier_of_same_name(jobs: &[Posted], at: usize, same: &[usize]) -> Vec<usize> {
    let mut found = Vec::new();
    for other in same[..same.partition_point(|other| *other < at)].iter().rev() {
        found.push(*other);
        let after = &jobs[*other].job.after;
        if after.iter().any(|it| it.kind == DependencyKind::Singleton) {
            break;
        }
    }
    found
}

/// The job that another one calls by its name; of several the last before it, else the first after.
/// Numbers are given when a run begins, so that nobody can know them before.
fn find(
    job: &Job,
    at: usize,
    by_name: &BTreeMap<&str, Vec<usize>>,
    wanted: &str,
) -> Result<usize, RunError> {
    let name = job.pattern.name.clone();
    let none = || RunError::NoSuchJob { job: name.clone(), wanted: wanted.to_string() };
    let same = by_name.get(wanted).ok_or_else(none)?;
    let before = same.partition_point(|other| *other < at);
    let mut others = same[..before].iter().rev().chain(&same[before..]).copied();
    let found = others.find(|other| *other != at);
    found.ok_or(RunError::Circle { job: name.clone() })
}
