//! Which kinds of workloads the map of slow-downs shows, under which way of sharing, and what is said beside it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use engine::interference::is_waited_for;
use model::SharingKind;
use simulator::report::draw::grouped;

use super::figures::counted;
use super::heat::{Heat, KINDS_MAX, Kind, Step, legend};
use crate::table::as_said;
use crate::{Advice, Question};

/// The map with its words.
pub(super) struct Neighbours {
    /// How to read it, or why there is none.
    pub(super) notes: Vec<String>,
    /// The drawing; empty if there is none.
    pub(super) svg: String,
    pub(super) legend: Vec<Step>,
}

pub(super) fn neighbours(question: &Question<'_>, advice: &Advice) -> Neighbours {
    let (kinds, left_out) = kinds(question);
    if kinds.is_empty() {
        return without(
            "No workload of the list says what kind it is. With “kind” in a workload file this page shows who slows down whom.",
        );
    }
    let mode = mode(question, advice);
    let Ok(heat) = Heat::of(&kinds, mode, &question.model.name) else {
        return without("The measurements that predictions rest on cannot be read.");
    };
    let mut notes = vec![format!(
        "Each row is slowed down, each column slows down; the figure is α: 0 is full speed, 1 half speed. Predicted for two on a card under {mode}, \
         from measurements on other machines. Below it stands how sure that is: one standard deviation of the speed, in points of the speed alone."
    )];
    notes.push(heat.rests_on().join(" "));
    if heat.has_guesses() {
        notes.push("A question mark is a guess: the mean of all that were measured, moved by the batch sizes that names tell.".to_owned());
    }
    if left_out > 0 {
        notes.push(format!(
            "The {} most frequent kinds are shown; {} left out.",
            grouped(KINDS_MAX as f64, 0),
            counted(left_out as u64, "more kind") + if left_out == 1 { " is" } else { " are" }
        ));
    }
    let silent = silent(question);
    if silent > 0 {
        let verb = if silent == 1 { "says" } else { "say" };
        let who = counted(silent as u64, "workload");
        notes.push(format!("{who} {verb} no kind and cannot be on the map."));
    }
    let title =
        format!("Predicted slow-down of {} of workloads", counted(kinds.len() as u64, "kind"));
    Neighbours { notes, svg: heat.draw(&title), legend: legend() }
}

fn without(why: &str) -> Neighbours {
    Neighbours { notes: vec![why.to_owned()], svg: String::new(), legend: Vec::new() }
}

/// Workloads with GPUs that do not say what kind they are.
fn silent(question: &Question<'_>) -> usize {
    let workloads = question.trace.arrivals.iter().map(|arrival| &arrival.workload);
    workloads.filter(|one| one.demand.gpus.is_some() && one.kind.is_empty()).count()
}

/// The most frequent kinds of workloads with GPUs, each as the first of it is, and how many kinds are left out.
fn kinds<'a>(question: &Question<'a>) -> (Vec<Kind<'a>>, usize) {
    let mut known: BTreeMap<&str, (usize, Kind<'_>)> = BTreeMap::new();
    let workloads = question.trace.arrivals.iter().map(|arrival| &arrival.workload);
    for workload in workloads.filter(|one| one.demand.gpus.is_some() && !one.kind.is_empty()) {
        let first = || Kind {
            name: &workload.kind,
            profile: as_said(workload, question.model),
            is_waited_for: is_waited_for(workload),
        };
        known.entry(&workload.kind).or_insert_with(|| (0, first())).0 += 1;
    }
    let mut order: Vec<(usize, Kind<'_>)> = known.into_values().collect();
    order.sort_by_key(|(count, _)| Reverse(*count));
    let left_out = order.len().saturating_sub(KINDS_MAX);
    (order.into_iter().take(KINDS_MAX).map(|(_, kind)| kind).collect(), left_out)
}

/// MPS if more of those with a kind are advised that than turns, with memory caps or without.
fn mode(question: &Question<'_>, advice: &Advice) -> SharingKind {
    let each = question.trace.arrivals.iter().zip(&advice.each);
    let kinds = each.filter(|(arrival, _)| !arrival.workload.kind.is_empty());
    let (mut mps, mut turns) = (0, 0);
    for (_, scheme) in kinds {
        match scheme.kind {
            SharingKind::Mps => mps += 1,
            SharingKind::TimeSlice | SharingKind::MemoryCapped => turns += 1,
            SharingKind::Exclusive | SharingKind::Mig => {}
        }
    }
    if mps > turns { SharingKind::Mps } else { SharingKind::TimeSlice }
}
