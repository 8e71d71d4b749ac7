//! Workloads by name and by number: what they are called in output, and which one was meant.

use std::collections::BTreeSet;

use model::{Snapshot, WorkloadId};
use simulator::report::shown;

use crate::failure::Failure;
use crate::words;

/// Names and numbers that one error lists.
const LISTED: usize = 8;
/// Names that are compared with one that is not there.
const COMPARED: usize = 10_000;

/// What the waiting workloads are called.
pub(crate) struct Names<'a> {
    snapshot: &'a Snapshot,
    shared: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    /// The names of all that wait.
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let mut seen = BTreeSet::new();
        let names = snapshot.waiting().values().map(|workload| workload.name.as_str());
        let shared = names.filter(|name| !seen.insert(*name)).collect();
        Self { snapshot, shared }
    }

    /// The name, fit to show, with the number if others have that name too.
    pub(crate) fn of_id(&self, id: WorkloadId) -> String {
        match self.snapshot.waiting().get(&id) {
            Some(workload) if self.shared.contains(workload.name.as_str()) => {
                format!("{} ({id})", shown(&workload.name))
            }
            Some(workload) => shown(&workload.name),
            None => match self.snapshot.running().get(&id) {
                Some(running) => shown(&running.workload.name),
                None => id.to_string(),
            },
        }
    }
}

/// The workload with that name, or with the number behind a `#`.
pub(crate) fn find(snapshot: &Snapshot, wanted: &str) -> Result<WorkloadId, Failure> {
    let number = wanted.strip_prefix('#').and_then(|text| text.parse().ok()).map(WorkloadId);
    if let Some(id) = number.filter(|id| snapshot.waiting().contains_key(id)) {
        return Ok(id);
    }
    let named = snapshot.waiting().values().filter(|workload| workload.name == wanted);
    let ids: Vec<WorkloadId> = named.map(|workload| workload.id).collect();
    match (ids.as_slice(), number) {
        ([only], _) => Ok(*only),
        ([], Some(id)) => Err(unknown_number(snapshot, id)),
        ([], None) => Err(unknown_name(snapshot, wanted)),
        ([first, ..], _) => Err(Failure::Usage(format!(
            "{} workloads are named `{wanted}`: {}; give the number, in quotes: '{first}'",
            ids.len(),
            listed(ids.iter().map(WorkloadId::to_string), ids.len()),
        ))),
    }
}

fn unknown_number(snapshot: &Snapshot, id: WorkloadId) -> Failure {
    let (first, last) = (snapshot.waiting().keys().next(), snapshot.waiting().keys().last());
    Failure::Usage(match (first, last) {
        (Some(first), Some(last)) => {
            format!("no workload has the number {id}; numbers go from {first} to {last}")
        }
        _ => format!("no workload has the number {id}; the file has no workloads"),
    })
}

fn unknown_name(snapshot: &Snapshot, wanted: &str) -> Failure {
    let mut seen = BTreeSet::new();
    let names = snapshot.waiting().values().map(|workload| workload.name.as_str());
    // In the order of the file.
    let names: Vec<&str> = names.filter(|name| seen.insert(*name)).collect();
    let near = formats::near(wanted, names.iter().copied().take(COMPARED));
    let way_out = match (near.as_slice(), names.len()) {
        ([], 0) => "the file has no workloads".to_string(),
        ([], 1) => format!("the only one in the file is `{}`", names[0]),
        ([], count) => format!("those in the file are {}", listed(names.into_iter(), count)),
        (near, _) => format!("did you mean {}?", near.join(" or ")),
    };
    let task = match near.as_slice() {
        [] => format!(
            ". A task of a run is found with --run instead of a file: `hotpot explain {} --run last`",
            words::typed(wanted)
        ),
        _ => String::new(),
    };
    Failure::Usage(format!("no workload is named `{wanted}`; {}{task}", shown(&way_out)))
}

/// The first few, joined; says how many more there are.
pub(crate) fn listed<T: AsRef<str>>(items: impl Iterator<Item = T>, count: usize) -> String {
    let some: Vec<T> = items.take(LISTED).collect();
    let joined = some.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    match count.saturating_sub(LISTED) {
        0 => joined,
        more => format!("{joined} and {more} more"),
    }
}
