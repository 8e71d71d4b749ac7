//! Workloads that are advised alike, and cards that are shared alike, on one line each.

use std::collections::BTreeMap;

use advice::scheme::Scheme;
use advice::{Card, need::Need};
use model::{GpuModel, Trace, Workload};

/// Workloads of one kind that are advised alike.
pub(super) struct Alike<'a> {
    /// The first of them.
    pub(super) first: &'a Workload,
    /// How many.
    pub(super) count: usize,
    /// What each takes; `None` without GPUs.
    pub(super) need: Option<Need>,
    pub(super) scheme: &'a Scheme,
}

impl Alike<'_> {
    /// `llama`, or `embed[0] and 99 more`.
    pub(super) fn name(&self) -> String {
        match self.count {
            1 => self.first.name.clone(),
            count => format!("{} and {} more", self.first.name, count - 1),
        }
    }
}

/// In the order in which the first of each kind stands.
pub(super) fn alike<'a>(trace: &'a Trace, model: &GpuModel, each: &'a [Scheme]) -> Vec<Alike<'a>> {
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut all: Vec<Alike<'a>> = Vec::new();
    for (arrival, scheme) in trace.arrivals.iter().zip(each) {
        let workload = &arrival.workload;
        let key = (format!("{:?}", workload.demand), format!("{scheme:?}"));
        let at = *known.entry(key).or_insert(all.len());
        match all.get_mut(at) {
            Some(found) => found.count += 1,
            None => all.push(Alike {
                first: workload,
                count: 1,
                need: Need::of(workload, model),
                scheme,
            }),
        }
    }
    all
}

/// Cards that are shared alike: by kinds of workloads and what these hold.
pub(super) fn cards<'a>(trace: &Trace, cards: &'a [Card]) -> Vec<(usize, &'a Card)> {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<(usize, &Card)> = Vec::new();
    for card in cards {
        let held = card.held.iter().map(|held| {
            let arrival = trace.arrivals.get(held.workload as usize);
            let stem = arrival.map(|arrival| stem(&arrival.workload.name));
            format!("{stem:?}{:?}", held.share)
        });
        let at = *known
            .entry(format!("{:?}{:?}", card.mode, held.collect::<Vec<_>>()))
            .or_insert(all.len());
        match all.get_mut(at) {
            Some(found) => found.0 += 1,
            None => all.push((1, card)),
        }
    }
    all
}

/// A name without what tells copies and tasks apart: `embed` of `embed[7]` and of `embed-7`.
pub(super) fn stem(name: &str) -> &str {
    let name = name.split_once('[').map_or(name, |(stem, _)| stem);
    let digits = |tail: &str| !tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('-') {
        Some((stem, tail)) if digits(tail) => stem,
        _ => name,
    }
}
