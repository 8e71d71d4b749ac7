//! Right sizes: what jobs of a name ask beside the most that they ever held.

use std::collections::BTreeMap;

use formats::sacct::JobRow;
use node::amounts;
use serde::Serialize;

use super::Cards;
use crate::ask::Ask;
use crate::facts::context_mib;
use crate::usage::UsedOn;

/// What is suggested beyond the most that was held, in percent: runs differ by their input.
pub const MARGIN_PERCENT: u64 = 15;
/// Completed runs below which nothing is suggested.
pub const RUNS_MIN: usize = 5;
/// A suggestion is a multiple of this.
const STEP_MIB: u64 = 256;

/// How sizes are suggested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// See [`MARGIN_PERCENT`].
    pub margin_percent: u64,
    /// See [`RUNS_MIN`].
    pub runs_min: usize,
}

impl Default for Sizing {
    fn default() -> Self {
        Self { margin_percent: MARGIN_PERCENT, runs_min: RUNS_MIN }
    }
}

/// The size of jobs of one user and name; the tasks of an array are runs of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The user.
    pub user: String,
    /// The name.
    pub name: String,
    /// Completed runs that were measured.
    pub runs: usize,
    /// What the last of them asked.
    pub asked_mib: u64,
    /// The most that any run held of a card at once, contexts included.
    pub peak_mib: u64,
    /// Runs that were refused memory.
    pub refused_runs: usize,
    /// What to ask instead; `None` if what is asked is right, or nothing can be said.
    pub ask_mib: Option<u64>,
    /// How many of such jobs a card takes as they ask now.
    pub per_card: Option<u64>,
    /// How many as suggested.
    pub per_card_then: Option<u64>,
    /// All that in a sentence.
    pub text: String,
}

struct Runs<'a> {
    last: &'a JobRow,
    completed: usize,
    peak_mib: u64,
    refused: usize,
}

/// Sizes of all jobs that were measured, those that waste most first.
pub fn sizes(rows: &[JobRow], cards: &Cards<'_>, sizing: &Sizing) -> Vec<Size> {
    let mut by: BTreeMap<(&str, &str), Runs<'_>> = BTreeMap::new();
    for row in rows {
        let used = UsedOn::all_of(&row.admin_comment);
        let Some(peak_mib) = used.iter().map(|one| one.memory_mib).max() else { continue };
        let runs = by.entry((&row.user, &row.name)).or_insert(Runs {
            last: row,
            completed: 0,
            peak_mib: 0,
            refused: 0,
        });
        // One that failed early may not have come to its peak.
        runs.completed += usize::from(row.state == "COMPLETED");
        runs.peak_mib = runs.peak_mib.max(peak_mib);
        runs.refused += usize::from(used.iter().any(|one| one.refused > 0));
        if row.start_s >= runs.last.start_s {
            runs.last = row;
        }
    }
    let sized = by.values().filter_map(|runs| size(runs, cards, sizing));
    let mut sizes: Vec<Size> = sized.collect();
    let waste = |size: &Size| size.ask_mib.map_or(0, |ask| size.asked_mib.saturating_sub(ask));
    sizes.sort_by_key(|size| std::cmp::Reverse(waste(size) * size.runs as u64));
    sizes
}

/// `None` for jobs that ask no amount of memory.
fn size(runs: &Runs<'_>, cards: &Cards<'_>, sizing: &Sizing) -> Option<Size> {
    let row = runs.last;
    let asked = Ask::of_comment(&row.admin_comment).unwrap_or_default().memory_mib;
    let shards = row.given.shards / row.given.nodes.max(1);
    let booked = (shards > 0).then(|| shards.saturating_mul(cards.shard_mib));
    let asked_mib = asked.or(booked)?;
    let with_margin = runs.peak_mib.saturating_mul(100 + sizing.margin_percent).div_ceil(100);
    let fitting_mib = with_margin.next_multiple_of(STEP_MIB);
    let enough = runs.completed >= sizing.runs_min;
    let is_less = enough && runs.refused == 0 && fitting_mib < asked_mib;
    let per_card = cards.shards_of(row).filter(|_| shards > 0);
    // Whoever asks memory is booked a context on top of it; whoever asks shards has it in them.
    let context_mib = if asked.is_some() { cards.context_mib(row) } else { 0 };
    let shards_then = (fitting_mib + context_mib).div_ceil(cards.shard_mib.max(1)).max(1);
    let mut size = Size {
        user: row.user.clone(),
        name: row.name.clone(),
        runs: runs.completed,
        asked_mib,
        peak_mib: runs.peak_mib,
        refused_runs: runs.refused,
        ask_mib: is_less.then_some(fitting_mib),
        per_card: per_card.map(|all| all / shards),
        per_card_then: per_card.filter(|_| is_less).map(|all| all / shards_then),
        text: String::new(),
    };
    size.text = size.sentence(sizing);
    Some(size)
}

impl Cards<'_> {
    fn context_mib(&self, row: &JobRow) -> u64 {
        let shards = self.shards_of(row).unwrap_or(0);
        let devices = self.view.iter().flat_map(|view| &view.nodes).flat_map(|node| &node.devices);
        let kind = devices.filter(|device| device.shards == shards).map(|device| &device.kind);
        context_mib(kind.min().map_or("", String::as_str), shards * self.shard_mib)
    }
}

impl Size {
    /// The option for sbatch, such as `--gpu-mem=2G`; `None` if nothing is to be changed.
    pub fn option(&self) -> Option<String> {
        let mib = self.ask_mib?;
        let whole = mib.is_multiple_of(1024);
        let amount = if whole { format!("{}G", mib / 1024) } else { format!("{mib}M") };
        Some(format!("--gpu-mem={amount}"))
    }

    fn sentence(&self, sizing: &Sizing) -> String {
        let (asked, peak) = (amounts::mib(self.asked_mib), amounts::mib(self.peak_mib));
        let plural = if self.runs == 1 { "" } else { "s" };
        let seen = format!("asked {asked}, never above {peak} in {} run{plural}", self.runs);
        if self.refused_runs > 0 {
            return format!("{seen}, and {} were refused memory: ask more", self.refused_runs);
        }
        if self.runs < sizing.runs_min {
            return format!("{seen}: too few to say more ({} are needed)", sizing.runs_min);
        }
        let Some(option) = self.option() else { return format!("{seen}: the right size") };
        let more = self.per_card.zip(self.per_card_then).map(|(now, then)| then - now.min(then));
        let more = match more {
            None | Some(0) => String::new(),
            Some(more) => format!("; {more} more would fit on each card"),
        };
        format!("{seen}: ask {option}{more}")
    }
}
