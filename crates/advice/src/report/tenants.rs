//! Who sits on a card: names fit to show, a colour for each kind of workload, and what is told of each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use engine::sharing::alpha;
use model::{GpuAsk, Share, Trace};
use simulator::report::draw::{shortened, shown};

use super::figures::{compute, memory, two_decimals};
use crate::groups::{stem, stem_of};
use crate::need::Need;
use crate::{Card, Held, Question};

/// Characters of a name on the page.
const NAME_MAX: usize = 40;

/// A colour for each stem, the most frequent first.
pub(super) struct Colours<'a>(BTreeMap<&'a str, usize>);

impl<'a> Colours<'a> {
    pub(super) fn of(trace: &'a Trace) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for arrival in &trace.arrivals {
            *counts.entry(stem(&arrival.workload.name)).or_default() += 1;
        }
        let mut order: Vec<(&str, usize)> = counts.into_iter().collect();
        order.sort_by_key(|(_, count)| Reverse(*count));
        Self(order.into_iter().enumerate().map(|(place, (name, _))| (name, place)).collect())
    }
}

/// A tenant of a card, as it is shown.
pub(super) struct Part<'a> {
    pub(super) held: &'a Held,
    /// Its name without what tells copies apart, fit to show.
    pub(super) name: String,
    pub(super) colour: usize,
    /// What it asks, in amounts.
    pub(super) need: Option<Need>,
    /// Whether it has asked for a profile, and so for all of its instance.
    pub(super) names_profile: bool,
    /// Its instance's profile.
    profile: Option<String>,
}

impl Part<'_> {
    /// What it holds and how fast it is.
    pub(super) fn told(&self) -> String {
        let held = self.held;
        let profile = self.profile.iter().map(|name| format!("{name}, ")).collect::<String>();
        let amounts = (memory(held.memory_mib), compute(held.compute_milli));
        let mut told = format!("{profile}{}, {}", amounts.0, amounts.1);
        if let Some(need) = self.need.filter(|need| need.compute_milli > held.compute_milli) {
            told.push_str(&format!(" of {}/1000 asked", need.compute_milli));
        }
        told.push_str(&format!(", α {}", two_decimals(alpha(speed(held)))));
        told
    }
}

fn speed(held: &Held) -> f64 {
    f64::from(held.speed_milli.max(1)) / 1000.0
}

/// The tenants of a card: instances by their place, others by name, the largest first.
pub(super) fn parts<'a>(
    question: &Question<'_>,
    colours: &Colours<'_>,
    card: &'a Card,
) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> =
        card.held.iter().map(|held| part(question, colours, held)).collect();
    parts.sort_by(|one, other| {
        let place = |part: &Part<'_>| match part.held.share {
            Share::Mig { start, .. } => start,
            Share::Exclusive
            | Share::TimeSlice { .. }
            | Share::Mps { .. }
            | Share::MemoryCapped { .. } => 0,
        };
        let size = |part: &Part<'_>| Reverse((part.held.memory_mib, part.held.compute_milli));
        (place(one), &one.name, size(one)).cmp(&(place(other), &other.name, size(other)))
    });
    parts
}

fn part<'a>(question: &Question<'_>, colours: &Colours<'_>, held: &'a Held) -> Part<'a> {
    let stem = stem_of(question.trace, held);
    let arrival = question.trace.arrivals.get(held.workload as usize);
    let gpus = arrival.and_then(|arrival| arrival.workload.demand.gpus.as_ref());
    Part {
        held,
        name: shortened(&shown(stem), NAME_MAX),
        colour: colours.0.get(stem).copied().unwrap_or(0),
        need: arrival.and_then(|arrival| Need::of(&arrival.workload, question.model)),
        profile: profile(question, held.share),
        names_profile: gpus.is_some_and(|gpus| matches!(gpus.each, GpuAsk::Profile(_))),
    }
}

fn profile(question: &Question<'_>, share: Share) -> Option<String> {
    let Share::Mig { profile, .. } = share else { return None };
    Some(question.model.mig.as_ref()?.profile(profile)?.name.clone())
}
