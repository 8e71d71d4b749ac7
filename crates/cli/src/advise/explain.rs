//! The arithmetic behind advice, line by line.

use std::fmt::Write;

use advice::Advice;
use advice::groups::{Alike, alike};
use advice::need::Need;
use engine::sharing::{self, Bound, Capacity, Switching, capacity_on, instance_share, turn_milli};
use model::{GpuModel, SharingMode};
use node::amounts::mib;

use super::Asked;

/// Kinds of workloads shown.
const KINDS_MAX: usize = 10;

pub(super) fn text(asked: &Asked<'_>, advice: &Advice) -> String {
    let model = asked.question.model;
    let mut text = format!(
        "The arithmetic, on {}: {} for tenants, {} for each CUDA context\n",
        model.name,
        mib(model.memory_mib),
        mib(model.context_mib)
    );
    let all = alike(asked.question.trace, model, &advice.each);
    for one in all.iter().take(KINDS_MAX) {
        kind(&mut text, model, one);
    }
    text
}

fn kind(text: &mut String, model: &GpuModel, one: &Alike<'_>) {
    let Some(need) = one.need else { return };
    let _ = writeln!(
        text,
        "\n{}: {}, {}/1000 of compute",
        one.name(),
        mib(need.memory_mib),
        need.compute_milli
    );
    if need.is_whole {
        let _ = writeln!(text, "  asks for whole cards: nothing to reckon");
        return;
    }
    let shared = SharingMode::MemoryCapped { tenants_max: SharingMode::TENANTS_MAX };
    let asked = sharing::Need { memory_mib: need.memory_mib, compute_milli: need.compute_milli };
    capacity(text, model, &need, capacity_on(model, shared, asked));
    let turns = capacity_on(model, shared, sharing::Need { compute_milli: 0, ..asked }).tenants;
    let switching = Switching::default();
    let _ = writeln!(
        text,
        "  turns: {turns} of them in memory, each {}/1000 where all compute: 1000/{turns} × {} µs / ({} + {} µs)",
        turn_milli(turns, switching),
        switching.slice_us,
        switching.slice_us,
        switching.switch_us
    );
    instance(text, model, &need);
}

fn capacity(text: &mut String, model: &GpuModel, need: &Need, found: Capacity) {
    let with_context = need.memory_mib + model.context_mib;
    let by_compute = match need.compute_milli {
        0 => "compute is not said".to_owned(),
        milli => format!("⌊1000 / {milli}⌋ = {}", 1000 / milli),
    };
    let bound = match found.bound {
        Bound::Memory => "memory",
        Bound::Compute => "compute",
        Bound::Tenants => "the most tenants of a card",
    };
    let _ = writeln!(
        text,
        "  capped or MPS: ⌊{} / ({} + {})⌋ = {}; {by_compute}: {} on a card, bound by {bound}; left over {} and {}/1000",
        mib(model.memory_mib),
        mib(need.memory_mib),
        mib(model.context_mib),
        model.memory_mib.checked_div(with_context).unwrap_or(0),
        found.tenants,
        mib(found.stranded_memory_mib),
        found.stranded_compute_milli
    );
}

fn instance(text: &mut String, model: &GpuModel, need: &Need) {
    let Some(geometry) = &model.mig else { return };
    let with_context = need.memory_mib + model.context_mib;
    let plain = geometry.indexed().filter(|(_, one)| one.is_plain());
    for (index, one) in plain {
        let Some(share) = instance_share(geometry, index) else { continue };
        let has_mib = model.instance_memory_mib(one);
        let fits = match (has_mib >= with_context, share.compute_milli >= need.compute_milli) {
            (true, true) => format!("holds it, {} on a card", one.instances_max),
            (true, false) => "holds its memory, not its compute".to_owned(),
            (false, _) => "is too small".to_owned(),
        };
        let _ = writeln!(
            text,
            "  MIG {}: {}/{} of compute, {}/{} of memory ({}): {fits}",
            one.name,
            one.compute_slices,
            geometry.compute_slices,
            one.memory_slices,
            geometry.memory_slices,
            mib(has_mib)
        );
    }
}
