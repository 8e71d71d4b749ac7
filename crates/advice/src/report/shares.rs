//! A card that one has whole, or that several share without instances: amounts side by side, in no particular place.

use model::{GpuModel, SharingKind};
use simulator::report::draw::{grouped, ticks};

use super::figures::{gib, memory};
use super::lanes::{Axis, Drawing, Segment, Tenant};
use super::tenants::Part;

/// Compute of a whole card.
const WHOLE_MILLI: u32 = 1000;
/// Ticks on an axis, about.
const TICKS: u32 = 4;

/// The drawing of a card that is not in instances.
pub(super) fn drawing(model: &GpuModel, mode: SharingKind, parts: &[Part<'_>]) -> Drawing {
    let is_whole = mode == SharingKind::Exclusive;
    let (mut memory_mib, mut compute_milli) = (0, 0);
    let mut tenants = Vec::new();
    for part in parts {
        let (from_mib, from_milli) = (memory_mib, compute_milli);
        memory_mib += part.held.memory_mib;
        compute_milli += part.held.compute_milli;
        let of = |from: f64, to: f64, whole: f64| Segment {
            from,
            to: if is_whole { whole.max(to) } else { to },
            asked: to,
            label: part.name.clone(),
        };
        tenants.push(Tenant {
            title: format!("{}: {}", part.name, part.told()),
            colour: part.colour,
            memory: of(gib(from_mib), gib(memory_mib), gib(model.memory_mib)),
            compute: of(from_milli.into(), compute_milli.into(), WHOLE_MILLI.into()),
        });
    }
    let silent = parts.iter().filter(|part| part.held.compute_milli == 0).count();
    Drawing {
        tenants,
        memory: memory_axis(model, memory_mib, is_whole),
        compute: compute_axis(compute_milli, silent, is_whole),
    }
}

fn memory_axis(model: &GpuModel, asked_mib: u64, is_whole: bool) -> Axis {
    let verb = if is_whole { "asked" } else { "booked" };
    let full = gib(model.memory_mib);
    let hi = if full > 0.0 { full } else { gib(asked_mib).max(1.0) };
    let figure = match model.memory_mib {
        0 => format!("{} {verb}; how much the card has is not known", memory(asked_mib)),
        all => format!("{} of {} {verb}", memory(asked_mib), memory(all)),
    };
    Axis {
        title: "Memory, GiB".to_owned(),
        figure,
        hi,
        full,
        ticks: if full > 0.0 { round(hi) } else { Vec::new() },
        merges: true,
        free: if is_whole { Vec::new() } else { rest(gib(asked_mib), full) },
        note: String::new(),
        lost: Vec::new(),
    }
}

fn compute_axis(asked_milli: u32, silent: usize, is_whole: bool) -> Axis {
    let hi = f64::from(asked_milli.max(WHOLE_MILLI));
    let mut figure = format!("{}/1000 asked", grouped(asked_milli.into(), 0));
    let mut note = String::new();
    if silent > 0 {
        figure.push_str(&format!("; {silent} not saying"));
        note.push_str("not said: all of it may be wanted");
    }
    Axis {
        title: "Compute, thousandths".to_owned(),
        figure,
        hi,
        full: WHOLE_MILLI.into(),
        ticks: round(hi),
        merges: true,
        free: if is_whole { Vec::new() } else { rest(asked_milli.into(), WHOLE_MILLI.into()) },
        note,
        lost: Vec::new(),
    }
}

/// From one amount to another, where there is anything between.
fn rest(from: f64, to: f64) -> Vec<(f64, f64)> {
    if from < to { vec![(from, to)] } else { Vec::new() }
}

fn round(hi: f64) -> Vec<(f64, String)> {
    let ticks = ticks(0.0, hi, TICKS, 0.0);
    ticks.values.iter().map(|value| (*value, grouped(*value, ticks.decimals))).collect()
}
