//! Plans in words and in names, for people and for programs.

use model::{Fleet, MigProfile, NodeId, Reason, Refusal, Seat, Share, SharingMode, WorkloadId};
use serde::Serialize;

/// A share in a few words, such as `mps 300/1000, 20480 MiB`.
pub(crate) fn share(fleet: &Fleet, node: NodeId, gpu: u8, share: Share) -> String {
    let compute = |milli: u32| match milli {
        0 => "compute uncapped".to_string(),
        capped => format!("{capped}/1000"),
    };
    match share {
        Share::Exclusive => "exclusive".to_string(),
        Share::TimeSlice { memory_mib } => format!("time-slice, {memory_mib} MiB booked"),
        Share::Mps { compute_milli, memory_mib } => {
            format!("mps {}, {memory_mib} MiB", compute(compute_milli))
        }
        Share::MemoryCapped { memory_mib, compute_milli } => {
            format!("memory-capped {}, {memory_mib} MiB", compute(compute_milli))
        }
        Share::Mig { profile, start } => {
            let found = fleet.node(node).and_then(|node| node.gpus().get(usize::from(gpu)));
            let geometry = found.and_then(|gpu| gpu.model().mig.as_ref());
            let named = geometry.and_then(|geometry| geometry.profile(profile));
            let name = named.map_or("?", |profile: &MigProfile| profile.name.as_str());
            format!("mig {name} at slice {start}")
        }
    }
}

/// A mode with its limit.
pub(crate) fn mode(mode: SharingMode) -> String {
    match mode {
        SharingMode::Exclusive | SharingMode::Mig => mode.kind().to_string(),
        SharingMode::TimeSlice { tenants_max }
        | SharingMode::Mps { tenants_max }
        | SharingMode::MemoryCapped { tenants_max } => {
            format!("{} (at most {tenants_max} tenants)", mode.kind())
        }
    }
}

/// A node's name.
pub(crate) fn node(fleet: &Fleet, id: NodeId) -> &str {
    fleet.node(id).map_or("?", |node| node.name())
}

/// Why a step is taken.
pub(crate) fn reason(reason: &Reason, name: impl Fn(WorkloadId) -> String) -> String {
    match reason {
        Reason::NeededBy(id) => format!("idle, needed by {}", name(*id)),
        Reason::Best { score } => format!("best seat, score {score}"),
        Reason::Backfill { head, head_starts_ms, score } => format!(
            "ahead of {} without delaying it (starts by {}), score {score}",
            name(*head),
            moment(*head_starts_ms)
        ),
        Reason::Gang { members } => format!("all {members} members fit"),
    }
}

/// Why something waits; as the refusal says it, with the head of the queue by its name.
pub(crate) fn refusal(refusal: &Refusal, name: impl Fn(WorkloadId) -> String) -> String {
    if let Refusal::KeptForHead { head, until_ms } = refusal {
        let head = name(*head);
        return format!("fits only where {head} is to start by {}", moment(*until_ms));
    }
    refusal.to_string()
}

/// JSON, indented, with a line end.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Our own types have string keys and no failing serializers.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// A time of the trace's clock.
pub(crate) fn moment(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    if days > 0 {
        format!("{days}d {hours:02}:{minutes:02}:{rest:02}")
    } else {
        format!("{hours:02}:{minutes:02}:{rest:02}")
    }
}

/// A seat in names, for JSON.
#[derive(Serialize)]
pub(crate) struct NamedSeat {
    node: String,
    gpus: Vec<NamedShare>,
}

#[derive(Serialize)]
struct NamedShare {
    gpu: u8,
    share: Share,
    text: String,
}

/// A seat in names, for JSON.
pub(crate) fn seat(fleet: &Fleet, seat: &Seat) -> NamedSeat {
    let gpus = seat.shares.iter().map(|(gpu, held)| NamedShare {
        gpu: *gpu,
        share: *held,
        text: share(fleet, seat.node, *gpu, *held),
    });
    NamedSeat { node: node(fleet, seat.node).to_string(), gpus: gpus.collect() }
}
