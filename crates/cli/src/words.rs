//! Plans in words and in names, for people and for programs.

use model::{
    Beside, Fleet, GpuAsk, GpuDemand, Isolation, MigProfile, NodeId, Reason, Refusal, Seat, Share,
    SharingMode, Workload, WorkloadId,
};
use node::account::Account;
use node::amounts::{self, mib as memory};
use serde::Serialize;
use simulator::report::shown;

/// What memory for contexts is called in accounts.
const CONTEXT: &str = "context";

/// What a workload asks for, such as `2 members, each 64 vCPUs, 400 GiB, 8 whole GPUs (a100)`.
pub(crate) fn demand(workload: &Workload) -> String {
    let demand = &workload.demand;
    let mut parts = Vec::new();
    if demand.cpu_milli > 0 {
        parts.push(cpus(demand.cpu_milli));
    }
    if demand.memory_mib > 0 {
        parts.push(memory(demand.memory_mib));
    }
    parts.extend(demand.gpus.as_ref().map(gpu_demand));
    if parts.is_empty() {
        parts.push("asks for nothing".to_string());
    }
    let each = match workload.members {
        0 | 1 => String::new(),
        members => format!("{members} members, each "),
    };
    shown(&format!("{each}{}", parts.join(", ")))
}

fn cpus(milli: u64) -> String {
    let part = format!(".{:03}", milli % 1000);
    let part = part.trim_end_matches('0').trim_end_matches('.');
    let plural = if milli == 1000 { "" } else { "s" };
    format!("{}{part} vCPU{plural}", milli / 1000)
}

fn gpu_demand(gpus: &GpuDemand) -> String {
    let of = match gpus.count {
        1 => "of a GPU".to_string(),
        count => format!("of each of {count} GPUs"),
    };
    let mut text = match &gpus.each {
        GpuAsk::Whole if gpus.count == 1 => "1 whole GPU".to_string(),
        GpuAsk::Whole => format!("{} whole GPUs", gpus.count),
        GpuAsk::Profile(name) => format!("{} × MIG {name}", gpus.count),
        GpuAsk::Fraction { compute_milli, memory_mib: 0 } => format!("{compute_milli}/1000 {of}"),
        GpuAsk::Fraction { compute_milli: 0, memory_mib } => {
            format!("{} {of}", memory(*memory_mib))
        }
        GpuAsk::Fraction { compute_milli, memory_mib } => {
            format!("{compute_milli}/1000 and {} {of}", memory(*memory_mib))
        }
    };
    if !gpus.accepts.is_empty() {
        let accepted: Vec<String> = gpus.accepts.iter().map(ToString::to_string).collect();
        text += &format!(" ({})", accepted.join(", else "));
    }
    if gpus.isolation != Isolation::None {
        text += &format!(", isolation {}", gpus.isolation);
    }
    text
}

/// A share in a few words, such as `mps 300/1000, 20 GiB`; compute that is not named is not capped.
pub(crate) fn share(fleet: &Fleet, node: NodeId, gpu: u8, share: Share) -> String {
    let capped = |mode: &str, milli: u32, mib: u64| match milli {
        0 => format!("{mode} {}", memory(mib)),
        milli => format!("{mode} {milli}/1000, {}", memory(mib)),
    };
    match share {
        Share::Exclusive => "exclusive".to_string(),
        Share::TimeSlice { memory_mib } => format!("time-slice, {} booked", memory(memory_mib)),
        Share::Mps { compute_milli, memory_mib } => capped("mps", compute_milli, memory_mib),
        Share::MemoryCapped { memory_mib, compute_milli } => {
            capped("memory-capped", compute_milli, memory_mib)
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

/// The shares of a seat, neighbours that are alike together: `gpu0-7: exclusive`.
pub(crate) fn shares(fleet: &Fleet, seat: &Seat) -> String {
    let mut runs: Vec<(u8, u8, String)> = Vec::new();
    for (gpu, held) in &seat.shares {
        let text = share(fleet, seat.node, *gpu, *held);
        match runs.last_mut() {
            Some((_, last, same)) if *same == text && last.checked_add(1) == Some(*gpu) => {
                *last = *gpu;
            }
            _ => runs.push((*gpu, *gpu, text)),
        }
    }
    let told = runs.into_iter().map(|(first, last, text)| match first == last {
        true => format!("gpu{first}: {text}"),
        false => format!("gpu{first}-{last}: {text}"),
    });
    told.collect::<Vec<_>>().join("; ")
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

/// A node's name, fit to show.
pub(crate) fn node_shown(fleet: &Fleet, id: NodeId) -> String {
    shown(node(fleet, id))
}

/// A node's name.
pub(crate) fn node(fleet: &Fleet, id: NodeId) -> &str {
    fleet.node(id).map_or("?", |node| node.name())
}

/// Why a step is taken.
pub(crate) fn reason(reason: &Reason, name: impl Fn(WorkloadId) -> String) -> String {
    match reason {
        Reason::NeededBy(id) => format!("idle, needed by {}", name(*id)),
        Reason::Best { beside, .. } => format!("best seat{}", beside_whom(*beside)),
        Reason::Backfill { head, head_starts_ms, beside, .. } => format!(
            "ahead of {} without delaying it ({}){}",
            name(*head),
            starts_within(*head_starts_ms),
            beside_whom(*beside)
        ),
        Reason::Gang { members } => format!("all {members} members fit"),
        Reason::MakesRoomFor(id) => format!("makes room for {}", name(*id)),
    }
}

/// What is predicted of those who share a GPU, as the end of a reason.
fn beside_whom(beside: Option<Beside>) -> String {
    let Some(Beside { tenants, speed_milli, slowest_milli }) = beside else { return String::new() };
    let part = |milli: u32| format!("{} %", (milli + 5) / 10);
    match tenants {
        0 => format!("; on an instance, at {} of its speed", part(speed_milli)),
        _ => format!(
            "; beside {tenants}, at {} of its speed, none there below {}",
            part(speed_milli),
            part(slowest_milli)
        ),
    }
}

/// The policy's score of a step's seat, comparable within one decision only.
pub(crate) fn score(reason: &Reason) -> Option<i64> {
    match reason {
        Reason::Best { score, .. } | Reason::Backfill { score, .. } => Some(*score),
        Reason::NeededBy(_) | Reason::Gang { .. } | Reason::MakesRoomFor(_) => None,
    }
}

/// Why something waits; as the refusal says it, with the head of the queue by its name.
pub(crate) fn refusal(refusal: &Refusal, name: &dyn Fn(WorkloadId) -> String) -> String {
    if let Refusal::KeptForHead { head, until_ms } = refusal {
        let (head, within) = (name(*head), starts_within(*until_ms));
        return format!("fits only on nodes kept for {head}, which {within}");
    }
    if let Refusal::MakingRoom { leaving, by_ms } = refusal {
        let plural = if *leaving == 1 { "" } else { "s" };
        return format!("waits for {leaving} workload{plural} asked to leave {}", within(*by_ms));
    }
    if let Refusal::BehindHead { head } = refusal {
        return format!("stands behind {}, and the policy lets nobody go ahead", name(*head));
    }
    if let Refusal::Gang { asked, offered, because } = refusal {
        let because = self::refusal(because, name);
        return format!("gang: {offered} of {asked} members find a place; the next, {because}");
    }
    if let Refusal::Never { because } = refusal {
        return format!("can never run here: {}", self::refusal(because, name));
    }
    if let Refusal::GpuCount { asked, offered, because: Some(because) } = refusal {
        let because = self::refusal(because, name);
        return format!("GPUs: asks {asked}, could use {offered}; the next one, {because}");
    }
    shown(&of_memory(refusal).unwrap_or_else(|| refusal.to_string()))
}

/// A refusal that compares amounts of memory.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others compare none")]
fn of_memory(refusal: &Refusal) -> Option<String> {
    let told = |what: &str, one: u64, between: &str, other: u64| {
        let [one, other] = amounts::apart([one, other].map(|mib| mib.saturating_mul(1 << 20)));
        Some(format!("{what} {one}, {between} {other}"))
    };
    match *refusal {
        Refusal::NodeMemory { asked_mib, offered_mib } => {
            told("memory: asks", asked_mib, "free", offered_mib)
        }
        Refusal::GpuMemory { asked_mib, offered_mib } => {
            told("GPU memory: asks", asked_mib, "free", offered_mib)
        }
        Refusal::BelowContext { share_mib, context_mib } => told(
            "GPU memory: the share comes to",
            share_mib,
            "and a CUDA context alone takes",
            context_mib,
        ),
        _ => None,
    }
}

/// A name as it is typed in a shell.
pub(crate) fn typed(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    match name.bytes().all(plain) {
        true => name.to_string(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

/// What the contexts of a tenant's processes take now, in bytes.
pub(crate) fn contexts_bytes(account: &Account) -> u64 {
    account.memory_bytes.get(CONTEXT).copied().unwrap_or(0)
}

/// JSON, indented, with a line end.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Our own types have string keys and no failing serializers.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// When the head of the queue starts at the latest, as a plan begins at 0.
fn starts_within(at_ms: u64) -> String {
    match at_ms {
        0 => "starts now".to_string(),
        at_ms => format!("starts within {}", span(at_ms)),
    }
}

/// By when somebody leaves.
pub(crate) fn within(at_ms: u64) -> String {
    match at_ms {
        0 => "now".to_string(),
        at_ms => format!("within {}", span(at_ms)),
    }
}

/// A span as files write it: `1h30m`, seconds rounded up.
/// A length of time, such as `1d2h`, in whole seconds rounded up.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = seconds;
    let mut told = Vec::new();
    for (size, unit) in units {
        if rest >= size {
            told.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if told.is_empty() { "0s".to_string() } else { told.concat() }
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
