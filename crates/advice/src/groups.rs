//! Workloads that are advised alike, and cards that are shared alike, each told once.

use std::collections::BTreeMap;

use model::{GpuModel, Trace, Workload};

use crate::need::Need;
use crate::scheme::Scheme;
use crate::{Card, Held};

/// Workloads of one kind that are advised alike.
pub struct Alike<'a> {
    /// The first of them.
    pub first: &'a Workload,
    /// How many.
    pub count: usize,
    /// What each takes; `None` without GPUs.
    pub need: Option<Need>,
    /// What is advised.
    pub scheme: &'a Scheme,
}

impl Alike<'_> {
    /// `llama`, or `embed[0] and 99 more`.
    pub fn name(&self) -> String {
        match self.count {
            1 => self.first.name.clone(),
            count => format!("{} and {} more", self.first.name, count - 1),
        }
    }
}

/// In the order in which the first of each kind stands.
pub fn alike<'a>(trace: &'a Trace, model: &GpuModel, each: &'a [Scheme]) -> Vec<Alike<'a>> {
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

/// Cards that are shared alike, by kinds of workloads and what these hold, whoever came first; in the order in which the first of each stands.
pub fn cards<'a>(trace: &Trace, cards: &'a [Card]) -> Vec<(usize, &'a Card)> {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<(usize, &Card)> = Vec::new();
    for card in cards {
        let one = |held: &Held| {
            let amounts = (held.memory_mib, held.compute_milli);
            format!("{:?}{:?}{amounts:?}", stem_of(trace, held), held.share)
        };
        let mut held: Vec<String> = card.held.iter().map(one).collect();
        held.sort_unstable();
        let at = *known.entry(format!("{:?}{held:?}", card.mode)).or_insert(all.len());
        match all.get_mut(at) {
            Some(found) => found.0 += 1,
            None => all.push((1, card)),
        }
    }
    all
}

/// The stem of a tenant's name; empty for one that is not on the list.
pub fn stem_of<'a>(trace: &'a Trace, held: &Held) -> &'a str {
    let arrival = trace.arrivals.get(held.workload as usize);
    arrival.map_or("", |arrival| stem(&arrival.workload.name))
}

/// A name without what tells copies and tasks apart: `embed` of `embed[7]` and of `embed-7`.
pub fn stem(name: &str) -> &str {
    let name = name.split_once('[').map_or(name, |(stem, _)| stem);
    let digits = |tail: &str| !tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('-') {
        Some((stem, tail)) if digits(tail) => stem,
        _ => name,
    }
}
