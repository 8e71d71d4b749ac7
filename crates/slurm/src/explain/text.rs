//! An answer in words, one screen of them.

use std::fmt::{self, Display, Write as _};

use model::SharingKind;
use node::amounts;

use super::{Alike, Answer, ArrayTasks, GpuState, Holding, Lack, Over, Runs, Standing, Waits};
use crate::ask::Ask;
use crate::gres::Booked;
use crate::profiles::profile;
use crate::queue_view::{GresNeed, JobView, Portion, QueueView};

/// Groups of nodes that are shown with their GPUs.
const GROUPS_SHOWN: usize = 4;
/// GPUs that are shown in all.
const GPUS_SHOWN: usize = 16;
/// Names of nodes in one line.
const NAMES_SHOWN: usize = 8;
/// Jobs named at one GPU.
const HOLDERS_SHOWN: usize = 4;

/// A length of time such as `1h30m`: two units at most, rounded up to the smaller.
pub(crate) fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let Some(at) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return "0s".to_owned();
    };
    let Some((small, small_name)) = UNITS.get(at + 1) else { return format!("{seconds}s") };
    let (size, name) = UNITS[at];
    let rounded = seconds.div_ceil(*small) * small;
    match (rounded / size, rounded % size / small) {
        (whole, 0) => format!("{whole}{name}"),
        (whole, rest) => format!("{whole}{name}{rest}{small_name}"),
    }
}

/// What a job asks, in words.
pub(super) fn asks(view: &QueueView, job: &JobView, ask: &Ask) -> String {
    let need = &job.need;
    let mut parts = vec![counted(need.cpus, "CPU")];
    if need.memory_mib > 0 {
        parts.push(amounts::mib(need.memory_mib));
    }
    parts.extend(need.gres.iter().map(|gres| gres_words(view, gres)));
    let each = match job.nodes_min {
        1 => String::new(),
        nodes => format!("{nodes} nodes, each "),
    };
    let mut text = format!("{each}{}", parts.join(", "));
    let mut asked = Vec::new();
    asked.extend(ask.memory_mib.map(|mib| format!("--gpu-mem={mib}M")));
    asked.extend(
        ask.compute_milli.map(|milli| format!("--gpu-compute={}%", f64::from(milli) / 10.0)),
    );
    asked.extend(ask.sharing.map(|kind| format!("--gpu-share={}", share_word(kind))));
    if !asked.is_empty() {
        let _ = write!(text, " (asked: {})", asked.join(" "));
    }
    text
}

fn share_word(kind: SharingKind) -> &'static str {
    match kind {
        SharingKind::Exclusive => "exclusive",
        SharingKind::TimeSlice => "timeslice",
        SharingKind::Mps => "mps",
        SharingKind::Mig => "mig",
        SharingKind::MemoryCapped => "capped",
    }
}

fn gres_words(view: &QueueView, need: &GresNeed) -> String {
    match need.name.as_str() {
        "gpu" => devices(need.count, &need.kind),
        "shard" => {
            let memory = amounts::mib(need.count.saturating_mul(view.shard_mib));
            format!("{} of one card ({memory})", counted(need.count, "shard"))
        }
        "mps" => format!("{} % of one card by MPS", need.count),
        name => format!("{} {name}", need.count),
    }
}

fn devices(count: u64, kind: &str) -> String {
    match kind {
        "" => counted(count, "GPU"),
        kind if profile(kind).is_some() => {
            format!("{count} × MIG {kind}")
        }
        kind => format!("{count} whole {kind}"),
    }
}

/// What a job holds of a device, such as `gpu1: 284 of 317 shards of a100 (71 GiB)`.
pub(super) fn held(view: &QueueView, node: &str, booked: &Booked, of: (u32, u64)) -> String {
    let (index, amount) = of;
    let device = view.node(node).and_then(|node| node.devices.get(index as usize));
    let kind = device.map_or("", |device| device.kind.as_str());
    match booked.name.as_str() {
        "shard" => {
            let memory = amounts::mib(amount.saturating_mul(view.shard_mib));
            let all = device.map_or(0, |device| device.shards);
            format!("gpu{index}: {amount} of {all} shards of {kind} ({memory})")
        }
        "mps" => format!("gpu{index}: {amount} % of {kind} by MPS"),
        _ => format!("gpu{index}: {kind}, all of it"),
    }
}

pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNamed => f.write_str("the job is to run elsewhere (--nodelist)"),
            Self::Excluded => f.write_str("the job is not to run here (--exclude)"),
            Self::Features { asked } => write!(f, "lacks the feature {asked}"),
            Self::OutOfUse { why } => f.write_str(why),
            Self::Reserved { by } => write!(f, "reserved ({by})"),
            Self::Cpus { asked, free, total } => {
                write!(f, "{free} of {total} CPUs free, {asked} asked")
            }
            Self::Memory { asked, free, total } => {
                let [asked, free, total] =
                    amounts::apart([asked, free, total].map(|mib| mib.saturating_mul(1 << 20)));
                write!(f, "{free} of {total} memory free, {asked} asked")
            }
            Self::Devices { kind, asked, free, total } => {
                let kind = if kind.is_empty() { "GPUs" } else { kind };
                write!(f, "{free} of {total} {kind} free, {asked} asked")
            }
            Self::Parts { name, asked, free, total } => {
                let what = if name == "mps" { "% (MPS)" } else { "shards" };
                write!(f, "at most {free} of {total} {what} free on one card, {asked} asked")
            }
        }
    }
}

impl Answer {
    /// The answer for people.
    pub fn text(&self, shard_mib: u64) -> String {
        let mut text = String::new();
        let mut who = format!("{} of {}", self.job, self.user);
        if !self.account.is_empty() {
            let _ = write!(who, ", account {}", self.account);
        }
        let partitions = self.partitions.join(",");
        let state = self.state.to_ascii_lowercase();
        let since = self.for_s.map_or(String::new(), |seconds| match &self.standing {
            Standing::Over(_) => format!(" after {}", span(seconds)),
            Standing::Waits(_) | Standing::Runs(_) => format!(" for {}", span(seconds)),
        });
        let _ = writeln!(text, "job {who}, partition {partitions}: {state}{since}");
        line(&mut text, "name", &self.name);
        line(&mut text, "asks", &self.asks);
        if let Some(ArrayTasks { running, waiting, more_wait, over }) = self.array {
            let more = if more_wait { " or more" } else { "" };
            let tasks = format!("{running} tasks running, {waiting}{more} waiting, {over} over");
            line(&mut text, "array", &tasks);
        }
        if let Some(pilots) = &self.pilots {
            let pilots = pilots.trim_start_matches("hotpot:").trim();
            line(&mut text, "pilots", &format!("{pilots}; see `hotpot slurm tasks`"));
        }
        if let Some(why) = &self.sent_back {
            line(&mut text, "sent back", &format!("by hotpot, as it could not run on {why}"));
        }
        match &self.standing {
            Standing::Waits(waits) => waits_text(&mut text, waits, shard_mib),
            Standing::Runs(runs) => runs_text(&mut text, runs),
            Standing::Over(over) => over_text(&mut text, over),
        }
        // Much of it comes from users: nothing in it steers a terminal.
        text.replace(|letter: char| letter.is_control() && letter != '\n', " ")
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<12}{value}");
}

fn waits_text(text: &mut String, waits: &Waits, shard_mib: u64) {
    let reason = waits.reason.as_deref().unwrap_or("None");
    line(text, "Slurm says", &format!("{reason}: {}", waits.because));
    line(text, "answer", &verdict(waits));
    if waits.ahead > 0 {
        let named = waits.ahead_first.iter();
        let named: Vec<String> = named
            .map(|ahead| format!("{} ({}, priority {})", ahead.job, ahead.user, ahead.priority))
            .collect();
        let more = match waits.ahead - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let jobs = counted(waits.ahead as u64, "job");
        line(text, "ahead", &format!("{jobs}: {}{more}", named.join(", ")));
    }
    if let Some((within, on)) = &waits.slurm_expects {
        line(text, "Slurm plans", &format!("a start in {} on {on}", span(*within)));
    }
    nodes_text(text, &waits.nodes, shard_mib);
}

fn verdict(waits: &Waits) -> String {
    let on = names(&waits.starts_on);
    match (waits.fits_now, waits.starts_within_s) {
        (true, _) if waits.ahead > 0 => {
            format!("there is room on {on} now, which those ahead of it may take")
        }
        (true, _) if matches!(waits.reason.as_deref(), None | Some("None" | "Resources")) => {
            format!("there is room on {on} now; the scheduler has not looked since it came free")
        }
        (true, _) => format!("there is room on {on} now; it waits for what Slurm says above"),
        (false, Some(within)) => format!(
            "no room now; within {} on {on}, if the running jobs take their whole limit and nobody goes \
             ahead",
            span(within)
        ),
        (false, None) => {
            let never = |one: &Alike| one.lacks.iter().any(Lack::is_for_ever);
            match waits.nodes.iter().all(never) {
                true => "no node of its partition can ever run it so".to_owned(),
                false => "no room now, and no end of what stands in its way is known".to_owned(),
            }
        }
    }
}

fn names(nodes: &[String]) -> String {
    let shown = nodes.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn nodes_text(text: &mut String, all: &[Alike], shard_mib: u64) {
    let count: usize = all.iter().map(|one| one.nodes.len()).sum();
    let _ = writeln!(text, "nodes of its partition ({count}), the nearest first:");
    let mut gpus_left = GPUS_SHOWN;
    for one in all.iter().take(GROUPS_SHOWN) {
        let verdict = match one.lacks.as_slice() {
            [] => "yes".to_owned(),
            lacks => {
                let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
                let lacks = lacks.join("; ");
                match one.starts_within_s {
                    Some(within) => format!("no: {lacks}; within {} yes", span(within)),
                    None => format!("no: {lacks}"),
                }
            }
        };
        let _ = writeln!(text, "  {:<12}{verdict}", names(&one.nodes));
        for gpu in one.gpus.iter().take(gpus_left) {
            let _ = writeln!(text, "    {}", gpu_text(gpu, shard_mib));
            gpus_left -= 1;
        }
    }
    let rest = &all[GROUPS_SHOWN.min(all.len())..];
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for one in rest {
        let told = one.lacks.first().map_or("room".to_owned(), kind);
        match kinds.iter_mut().find(|(name, _)| *name == told) {
            Some((_, count)) => *count += one.nodes.len(),
            None => kinds.push((told, one.nodes.len())),
        }
    }
    for (told, count) in kinds {
        let _ = writeln!(text, "  {} more: {told}", counted(count as u64, "node"));
    }
}

/// A lack without its amounts.
fn kind(lack: &Lack) -> String {
    match lack {
        Lack::NotNamed | Lack::Excluded | Lack::Features { .. } => lack.to_string(),
        Lack::OutOfUse { .. } => "out of use".to_owned(),
        Lack::Reserved { .. } => "reserved".to_owned(),
        Lack::Cpus { .. } => "too few CPUs free".to_owned(),
        Lack::Memory { .. } => "too little memory free".to_owned(),
        Lack::Devices { kind, .. } if kind.is_empty() => "too few GPUs free".to_owned(),
        Lack::Devices { kind, .. } => format!("too few {kind} free"),
        Lack::Parts { .. } => "too little of one card free".to_owned(),
    }
}

fn gpu_text(gpu: &GpuState, shard_mib: u64) -> String {
    let mut text = format!("gpu{} {}: ", gpu.index, gpu.kind);
    if gpu.holders.is_empty() {
        text.push_str("free");
        return text;
    }
    if gpu.shards_free > 0 {
        let memory = amounts::mib(gpu.shards_free.saturating_mul(shard_mib));
        let _ = write!(text, "{} of {} shards free ({memory}); ", gpu.shards_free, gpu.shards);
    }
    // Some releases book a whole card and shares of it at once.
    let whole = gpu.holders.iter().any(|one| one.portion.is_whole());
    if whole && gpu.holders.len() > 1 {
        text.push_str("booked twice by Slurm; ");
    }
    let named: Vec<String> = gpu.holders.iter().take(HOLDERS_SHOWN).map(holding_text).collect();
    text.push_str(&named.join(", "));
    match gpu.holders.len().saturating_sub(HOLDERS_SHOWN) {
        0 => {}
        more => {
            let _ = write!(text, " and {more} more");
        }
    }
    text
}

fn holding_text(holding: &Holding) -> String {
    let Holding { job, user, of, portion, .. } = holding;
    let what = match portion {
        Portion::Whole => "all of it".to_owned(),
        Portion::Parts(percent) if of == "mps" => format!("{percent} %"),
        Portion::Parts(parts) => counted(*parts, of),
    };
    let end = holding
        .ends_within_s
        .map_or("without a limit".to_owned(), |within| format!("ends within {}", span(within)));
    format!("{job} of {user} has {what}, {end}")
}

fn runs_text(text: &mut String, runs: &Runs) {
    let end =
        runs.ends_within_s.map_or("never by itself: it has no time limit".to_owned(), |within| {
            format!("within {}", span(within))
        });
    line(text, "ends", &end);
    for place in &runs.on {
        let gpus = if place.gpus.is_empty() { "no GPU".to_owned() } else { place.gpus.join("; ") };
        line(text, &place.node, &gpus);
    }
}

fn over_text(text: &mut String, over: &Over) {
    line(text, "ended", &format!("{} (exit code {})", over.state.to_ascii_lowercase(), over.exit));
    line(text, "had", &over.had);
    for used in &over.used {
        line(text, "used", &format!("on {}: {used}", used.node));
    }
    if over.used.is_empty() && over.ran {
        line(text, "used", "not measured: only shares with caps are");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most_and_are_rounded_up() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m1s"),
            (3600, "1h"),
            (5399, "1h30m"),
            (86_399, "24h"),
            (90_000, "1d1h"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
