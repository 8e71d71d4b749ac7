//! The list under one way of sharing, in figures; and what sits on each card.

use std::fmt;

use engine::interference::is_waited_for;
use engine::sharing::{GpuHours, alpha, efficiency, latency_factor};
use model::{
    Arrival, Gpu, GpuAsk, GpuDemand, GpuModel, Isolation, Placement, Profile, Share, SharingKind,
    Trace, Workload,
};
use serde::Serialize;
use simulator::IllegalPlan;

use crate::need::{Need, demand_as};
use crate::packed::{self, Packed};
use crate::scheme::Scheme;
use crate::timed::{self, Course};
use crate::{Question, id};

const WHOLE_MILLI: u32 = 1000;

/// How a list shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// All that can in this way, the rest on whole cards.
    All(SharingKind),
    /// Each as advised.
    AsAdvised,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(kind) => fmt::Display::fmt(kind, f),
            Self::AsAdvised => f.write_str("as advised"),
        }
    }
}

/// A list under one way of sharing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The way.
    pub way: Way,
    /// Cards needed at once.
    pub gpus: u64,
    /// Workloads that cannot share in this way and have whole cards instead.
    pub alone: u64,
    /// Workloads that fit on no number of these cards.
    pub never: u64,
    /// Memory booked on the cards in use, 0 to 1.
    pub memory_use: f64,
    /// Compute asked on the cards in use, 0 to 1; more where it is promised to several.
    pub compute_use: f64,
    /// Memory on the cards in use that nobody has, in MiB.
    pub stranded_mib: u64,
    /// `Σ P_eff / P_total` over the cards in use; see [`engine::sharing::efficiency`].
    pub efficiency: f64,
    /// The largest overhead α of anybody; see [`engine::sharing::alpha`]. Of those somebody waits for, while they compute.
    pub worst_alpha: f64,
    /// How many times longer answers take at most, at any percentile, among those somebody waits for; `None` if there are none or
    /// somebody cannot keep up. See [`engine::sharing::latency_factor`].
    pub worst_latency: Option<f64>,
    /// The list's course on the cards that there are, where all running times are known.
    pub course: Option<Course>,
    /// GPU hours: those of the course, or else of a day; busy as far as it is said how much each computes.
    #[serde(skip)]
    pub hours: GpuHours,
    /// The weakest isolation that anybody has.
    pub isolation: Isolation,
    /// The most workloads that one fault of a tenant can end: those under one MPS daemon (NVIDIA MPS guide, "Error containment").
    pub fault_domain: u64,
}

/// A tenant of a card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// Position in the list.
    pub workload: u64,
    /// What it holds.
    pub share: Share,
    /// Device memory in MiB.
    pub memory_mib: u64,
    /// Thousandths of compute that it asks.
    pub compute_milli: u32,
    /// Speed relative to running alone, in thousandths.
    pub speed_milli: u32,
}

/// A card with who sits on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// The way that it is shared in.
    pub mode: SharingKind,
    /// Tenants.
    pub held: Vec<Held>,
}

/// The list under one way, and its cards.
pub(crate) fn row(
    question: &Question<'_>,
    way: Way,
    each: &[Scheme],
) -> Result<(Row, Vec<Card>), IllegalPlan> {
    let (arrivals, alone) = under(question, way, each);
    let list: Vec<Workload> = arrivals.iter().map(|arrival| arrival.workload.clone()).collect();
    let packed = packed::pack(&list, question.model);
    let cards = cards(question, &packed);
    let course = course(question, &arrivals)?;
    Ok((figures(question, way, (alone, &packed), &cards, course), cards))
}

/// The list as it asks in this way, and how many cannot.
fn under(question: &Question<'_>, way: Way, each: &[Scheme]) -> (Vec<Arrival>, u64) {
    let mut alone = 0;
    let one = |(at, (arrival, scheme)): (usize, (&Arrival, &Scheme))| {
        let kind = match way {
            Way::All(kind) => kind,
            Way::AsAdvised => scheme.kind,
        };
        let mut arrival = arrival.clone();
        arrival.workload.id = id(at);
        let demand = demand_as(&arrival.workload, question.model, kind);
        let has_gpus = arrival.workload.demand.gpus.is_some();
        alone += u64::from(has_gpus && demand.is_none());
        let whole = || demand_as(&arrival.workload, question.model, SharingKind::Exclusive);
        if let Some(demand) = demand.or_else(whole) {
            arrival.workload.demand = demand;
        }
        arrival.workload.profile = with_load(&question.trace.arrivals[at].workload, question.model);
        arrival
    };
    let arrivals = question.trace.arrivals.iter().zip(each).enumerate().map(one).collect();
    (arrivals, alone)
}

/// What is known of a workload, with the part of a card that it asks as what it takes where that was not measured; whoever says
/// nothing is taken to want all of it, which is the worst that can come.
fn with_load(asked: &Workload, model: &GpuModel) -> Profile {
    let profile = as_said(asked, model);
    if names_instance(asked) || asked.demand.gpus.is_none() {
        return profile;
    }
    Profile { busy_milli: profile.busy_milli.or(Some(WHOLE_MILLI)), ..profile }
}

/// The same as far as anything is said; nothing is assumed.
pub(crate) fn as_said(asked: &Workload, model: &GpuModel) -> Profile {
    let profile = asked.profile;
    let need = Need::of(asked, model).filter(|need| !need.is_whole && !names_instance(asked));
    let said = need.map(|need| need.compute_milli).filter(|milli| *milli > 0);
    Profile {
        busy_milli: profile.busy_milli.or(said),
        sm_milli: profile.sm_milli.or(said),
        ..profile
    }
}

fn names_instance(asked: &Workload) -> bool {
    matches!(&asked.demand.gpus, Some(GpuDemand { each: GpuAsk::Profile(_), .. }))
}

fn cards(question: &Question<'_>, packed: &Packed) -> Vec<Card> {
    let nodes = packed.snapshot.fleet().nodes().iter();
    let used = nodes.flat_map(|node| node.gpus()).filter(|gpu| !gpu.is_idle());
    used.map(|gpu| card(question, gpu)).collect()
}

fn card(question: &Question<'_>, gpu: &Gpu) -> Card {
    let held = gpu.tenants().iter().zip(question.speeds.of(gpu)).map(|(tenant, speed_milli)| {
        let (share, workload) = (tenant.share, &tenant.workload);
        let (memory_mib, compute_milli) = amounts(question, gpu, share, workload);
        Held { workload: workload.id.0, share, memory_mib, compute_milli, speed_milli }
    });
    Card { mode: gpu.mode().kind(), held: held.collect() }
}

/// What a share has of memory, and what its workload asks of compute.
fn amounts(question: &Question<'_>, gpu: &Gpu, share: Share, workload: &Workload) -> (u64, u32) {
    let model = question.model;
    let asked = question.trace.arrivals.get(workload.id.0 as usize);
    let need = asked.and_then(|arrival| Need::of(&arrival.workload, model));
    let asked_milli = need.map_or(0, |need| need.compute_milli);
    match share {
        Share::Exclusive => (need.map_or(model.memory_mib, |need| need.memory_mib), asked_milli),
        Share::TimeSlice { memory_mib }
        | Share::Mps { memory_mib, .. }
        | Share::MemoryCapped { memory_mib, .. } => (memory_mib, asked_milli),
        Share::Mig { profile, .. } => {
            let found = model.mig.as_ref().and_then(|geometry| geometry.profile(profile));
            let has = gpu.share_milli(gpu.mode(), share).min(WHOLE_MILLI);
            (found.map_or(0, |found| model.instance_memory_mib(found)), asked_milli.min(has))
        }
    }
}

/// The course on the cards that there are, where all running times are known.
fn course(question: &Question<'_>, arrivals: &[Arrival]) -> Result<Option<Course>, IllegalPlan> {
    if arrivals.is_empty() || arrivals.iter().any(|arrival| arrival.runs_ms.is_none()) {
        return Ok(None);
    }
    let fleet = packed::fleet(question.model, question.cards);
    let trace = Trace { arrivals: arrivals.to_vec() };
    timed::course(fleet, &trace, Placement::BestFit, question.speeds).map(Some)
}

fn figures(
    question: &Question<'_>,
    way: Way,
    (alone, packed): (u64, &Packed),
    cards: &[Card],
    course: Option<Course>,
) -> Row {
    let gpus = cards.len() as u64;
    let held = || cards.iter().flat_map(|card| &card.held);
    let total_mib = gpus * question.model.memory_mib;
    let booked_mib: u64 = held().map(|one| one.memory_mib).sum();
    let part = |amount: f64| if gpus > 0 { amount / gpus as f64 } else { 0.0 };
    let speed = |one: &Held| f64::from(one.speed_milli.max(1)) / 1000.0;
    let asked: u64 = held().map(|one| u64::from(one.compute_milli)).sum();
    Row {
        way,
        gpus,
        alone,
        never: packed.never.len() as u64,
        memory_use: if total_mib > 0 { booked_mib as f64 / total_mib as f64 } else { 0.0 },
        compute_use: part(asked as f64 / 1000.0),
        stranded_mib: total_mib.saturating_sub(booked_mib),
        efficiency: part(efficiency(held().map(|one| (one.compute_milli, done(question, one))))),
        worst_latency: worst_latency(question, cards),
        worst_alpha: held().map(|one| alpha(speed(one))).fold(0.0, f64::max),
        hours: hours(question, gpus, course),
        course,
        isolation: cards.iter().map(|card| card.mode.isolation()).min().unwrap_or(Isolation::Hard),
        fault_domain: cards.iter().map(fault_domain).max().unwrap_or(0),
    }
}

/// The part of its work that somebody gets done: whoever is waited for does all of it as long as he keeps up.
fn done(question: &Question<'_>, one: &Held) -> f64 {
    let speed = f64::from(one.speed_milli) / 1000.0;
    match waited_for(question, one) {
        Some(busy) if busy > 0.0 => (speed / busy).min(1.0),
        _ => speed,
    }
}

/// The part of its time in which somebody computes who is waited for; `None` for others.
fn waited_for(question: &Question<'_>, one: &Held) -> Option<f64> {
    let workload = &question.trace.arrivals.get(one.workload as usize)?.workload;
    let busy_milli = with_load(workload, question.model).busy_milli.unwrap_or(0);
    is_waited_for(workload).then(|| f64::from(busy_milli) / 1000.0)
}

fn worst_latency(question: &Question<'_>, cards: &[Card]) -> Option<f64> {
    let factor = |one: &Held| {
        Some(latency_factor(f64::from(one.speed_milli) / 1000.0, waited_for(question, one)?))
    };
    let worst = cards.iter().flat_map(|card| &card.held).filter_map(factor).reduce(f64::max);
    worst.filter(|factor| factor.is_finite())
}

/// Hours of the course; without one, of a day in which all run all the time.
fn hours(question: &Question<'_>, gpus: u64, course: Option<Course>) -> GpuHours {
    const DAY_H: f64 = 24.0;
    let busy = |arrival: &Arrival| {
        let need = Need::of(&arrival.workload, question.model);
        let hours = arrival.runs_ms.map_or(DAY_H, |runs_ms| runs_ms as f64 / 3_600_000.0);
        let count = arrival.workload.demand.gpu_count() as f64;
        let members = f64::from(arrival.workload.members.max(1));
        need.map_or(0.0, |need| f64::from(need.compute_milli) / 1000.0 * hours * count * members)
    };
    GpuHours {
        held: course.map_or(gpus as f64 * DAY_H, |course| course.gpu_hours_held),
        busy: question.trace.arrivals.iter().map(busy).sum(),
    }
}

fn fault_domain(card: &Card) -> u64 {
    match card.mode {
        SharingKind::Mps => card.held.len() as u64,
        SharingKind::Exclusive
        | SharingKind::Mig
        | SharingKind::TimeSlice
        | SharingKind::MemoryCapped => 1,
    }
}
