//! Dependencies tied to the jobs of a run that they name.

use std::collections::BTreeMap;

use formats::{Dependency, DependencyKind, Job};

use crate::error::RunError;
use crate::work::Posted;

/// Names that an error lists.
const NAMES_SHOWN_MAX: usize = 8;

/// A dependency, with the jobs that it is about as positions in [`crate::Work::jobs`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: DependencyKind,
    pub(crate) any: bool,
    pub(crate) jobs: Vec<usize>,
}

/// The jobs by their names, in order.
pub(crate) struct Names<'a> {
    exact: BTreeMap<&'a str, Vec<usize>>,
    /// A script without `--job-name` is called after its file, and often meant without `.sbatch`.
    stems: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(jobs: &'a [Posted]) -> Self {
        let mut names = Self { exact: BTreeMap::new(), stems: BTreeMap::new() };
        for (at, posted) in jobs.iter().enumerate() {
            let name = posted.job.pattern.name.as_str();
            names.exact.entry(name).or_default().push(at);
            if let Some((stem, "sbatch" | "slurm" | "sh")) = name.rsplit_once('.') {
                names.stems.entry(stem).or_default().push(at);
            }
        }
        names
    }

    fn find(&self, wanted: &str) -> Option<&Vec<usize>> {
        self.exact.get(wanted).or_else(|| self.stems.get(wanted))
    }

    /// The first few, for whoever has looked for another.
    fn shown(&self) -> String {
        let few: Vec<&str> = self.exact.keys().take(NAMES_SHOWN_MAX).copied().collect();
        let more = if self.exact.len() > few.len() { ", …" } else { "" };
        few.join(", ") + more
    }
}

/// A job's conditions, with the jobs that they are about.
pub(crate) fn conditions(
    jobs: &[Posted],
    at: usize,
    names: &Names<'_>,
) -> Result<Vec<Condition>, RunError> {
    let job = &jobs[at].job;
    let condition = |dependency: &Dependency| {
        let Dependency { kind, any, jobs: wanted } = dependency;
        let about = match kind {
            DependencyKind::Singleton => {
                earlier_of_same_name(jobs, at, &names.exact[job.pattern.name.as_str()])
            }
            DependencyKind::After
            | DependencyKind::AfterAny
            | DependencyKind::AfterOk
            | DependencyKind::AfterNotOk
            | DependencyKind::AfterCorr => wanted
                .iter()
                .map(|wanted| find(job, at, names, wanted))
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
fn find(job: &Job, at: usize, names: &Names<'_>, wanted: &str) -> Result<usize, RunError> {
    let name = job.pattern.name.clone();
    let none = || RunError::NoSuchJob {
        job: name.clone(),
        wanted: wanted.to_string(),
        there_are: names.shown(),
    };
    let same = names.find(wanted).ok_or_else(none)?;
    let before = same.partition_point(|other| *other < at);
    let mut others = same[..before].iter().rev().chain(&same[before..]).copied();
    let found = others.find(|other| *other != at);
    found.ok_or(RunError::Circle { job: name.clone() })
}
