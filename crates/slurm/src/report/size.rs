//! Right sizes: what jobs of a name ask beside the most that they ever held, and whether they were refused memory.

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
/// Completed runs below which nothing less is suggested.
pub const RUNS_MIN: usize = 5;
/// A suggestion is a multiple of this.
const STEP_MIB: u64 = 256;
/// What is suggested beyond an ask at which a run was refused memory, in percent: how much it wanted is not known.
const GROWTH_PERCENT: u64 = 50;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Runs were refused memory, and too few have done with more since: [`Size::fits_mib`] is the least to ask.
    pub wants_more: bool,
    /// What fits, whatever was asked; `None` if nothing can be said.
    pub fits_mib: Option<u64>,
    /// What to ask instead; `None` if what is asked is right, or nothing can be said.
    pub ask_mib: Option<u64>,
    /// How many of such jobs a card takes as they ask now.
    pub per_card: Option<u64>,
    /// How many as suggested.
    pub per_card_then: Option<u64>,
    /// All that in a sentence.
    pub text: String,
}

/// One run that was measured.
struct Run<'a> {
    row: &'a JobRow,
    ask: Ask,
    /// What it asked of a card, if that is an amount.
    asked_mib: Option<u64>,
    peak_mib: u64,
    refused: bool,
}

impl<'a> Run<'a> {
    fn of(row: &'a JobRow, cards: &Cards<'_>) -> Option<Self> {
        let used = UsedOn::all_of(&row.admin_comment);
        let peak_mib = used.iter().map(|one| one.memory_mib).max()?;
        let ask = Ask::of_comment(&row.admin_comment).unwrap_or_default();
        let booked = Some(shards(row)).filter(|shards| *shards > 0);
        let booked_mib = booked.map(|shards| shards.saturating_mul(cards.shard_mib));
        let asked_mib = ask.memory_mib.or(booked_mib);
        let refused = used.iter().any(|one| one.refused > 0);
        Some(Self { row, ask, asked_mib, peak_mib, refused })
    }

    /// One that failed early may not have come to its peak.
    fn completed(&self) -> bool {
        self.row.state == "COMPLETED"
    }
}

/// Shards on each node.
fn shards(row: &JobRow) -> u64 {
    row.given.shards / row.given.nodes.max(1)
}

/// Sizes of all jobs that were measured, those that waste most first.
pub fn sizes(rows: &[JobRow], cards: &Cards<'_>, sizing: &Sizing) -> Vec<Size> {
    let mut by: BTreeMap<(&str, &str), Vec<Run<'_>>> = BTreeMap::new();
    for run in rows.iter().filter_map(|row| Run::of(row, cards)) {
        by.entry((&run.row.user, &run.row.name)).or_default().push(run);
    }
    let sized = by.values().filter_map(|runs| size(runs, cards, sizing));
    let mut sizes: Vec<Size> = sized.collect();
    let waste = |size: &Size| size.ask_mib.map_or(0, |ask| size.asked_mib.saturating_sub(ask));
    sizes.sort_by_key(|size| std::cmp::Reverse(waste(size) * size.runs as u64));
    sizes
}

/// `None` for jobs that ask no amount of memory.
fn size(runs: &[Run<'_>], cards: &Cards<'_>, sizing: &Sizing) -> Option<Size> {
    let last = runs.iter().max_by_key(|run| run.row.start_s)?;
    let asked_mib = last.asked_mib?;
    let (fits_mib, wants_more) = fits(runs, sizing);
    let fits_mib = fits_mib.map(|mib| mib.min(cards.most_mib(last.row).max(asked_mib)));
    let is_other = |fits: &u64| if wants_more { *fits > asked_mib } else { *fits < asked_mib };
    let ask_mib = fits_mib.filter(is_other);
    let per_card = cards.shards_of(last.row).filter(|_| shards(last.row) > 0);
    let then = |ask_mib| per_card.map(|all| all / cards.shards_for(ask_mib, last));
    let mut size = Size {
        user: last.row.user.clone(),
        name: last.row.name.clone(),
        runs: runs.iter().filter(|run| run.completed()).count(),
        asked_mib,
        peak_mib: runs.iter().map(|run| run.peak_mib).max()?,
        refused_runs: runs.iter().filter(|run| run.refused).count(),
        wants_more,
        fits_mib,
        ask_mib,
        per_card: per_card.map(|all| all / shards(last.row)),
        per_card_then: ask_mib.and_then(then),
        text: String::new(),
    };
    size.text = size.sentence(sizing);
    Some(size)
}

/// What fits, and whether that is what runs want that were refused memory.
fn fits(runs: &[Run<'_>], sizing: &Sizing) -> (Option<u64>, bool) {
    let with = |mib: u64, percent| {
        mib.saturating_mul(100 + percent).div_ceil(100).next_multiple_of(STEP_MIB)
    };
    let enough = |count: usize| count >= sizing.runs_min;
    let peak_mib = runs.iter().map(|run| run.peak_mib).max().unwrap_or(0);
    let refused: Vec<&Run<'_>> = runs.iter().filter(|run| run.refused).collect();
    if refused.is_empty() {
        let completed = runs.iter().filter(|run| run.completed()).count();
        return (enough(completed).then(|| with(peak_mib, sizing.margin_percent)), false);
    }
    let Some(refused_mib) = refused.iter().filter_map(|run| run.asked_mib).max() else {
        return (None, true);
    };
    let since = refused.iter().filter_map(|run| run.row.start_s).max();
    let did = |run: &&Run<'_>| run.completed() && run.asked_mib > Some(refused_mib);
    if enough(runs.iter().filter(did).filter(|run| run.row.start_s > since).count()) {
        return (Some(with(peak_mib.max(refused_mib), sizing.margin_percent)), false);
    }
    // A run that came to its end though it was refused memory takes what it gets, and would be refused some of any
    // amount: it is given more once, of the least that it did with.
    let failed = refused.iter().filter(|run| !run.completed()).filter_map(|run| run.asked_mib);
    let lived = refused.iter().filter(|run| run.completed()).filter_map(|run| run.asked_mib);
    let grown = failed.max().max(lived.min()).map(|mib| with(mib, GROWTH_PERCENT));
    let others = runs.iter().filter(|run| !run.refused).map(|run| run.peak_mib).max();
    (grown.max(others.map(|mib| with(mib, sizing.margin_percent))), true)
}

impl Cards<'_> {
    fn context_mib(&self, row: &JobRow) -> u64 {
        let shards = self.shards_of(row).unwrap_or(0);
        let devices = self.view.iter().flat_map(|view| &view.nodes).flat_map(|node| &node.devices);
        let kind = devices.filter(|device| device.shards == shards).map(|device| &device.kind);
        context_mib(kind.min().map_or("", String::as_str), shards * self.shard_mib)
    }

    /// The most that can be asked of the card that a job was on.
    fn most_mib(&self, row: &JobRow) -> u64 {
        let card_mib = self.shards_of(row).map(|shards| shards * self.shard_mib);
        card_mib.map_or(u64::MAX, |mib| mib.saturating_sub(self.context_mib(row)))
    }

    /// Shards that are booked for so much memory, as `hotpot.lua` counts them: a context is on top of it, and the
    /// part of the compute may come to more.
    fn shards_for(&self, memory_mib: u64, like: &Run<'_>) -> u64 {
        let memory_mib = memory_mib + self.context_mib(like.row);
        let compute_milli = u64::from(like.ask.compute_milli.unwrap_or(0));
        let of_compute = self.shards_of(like.row).unwrap_or(0) * compute_milli / 1000;
        memory_mib.div_ceil(self.shard_mib.max(1)).max(of_compute).max(1)
    }
}

/// As `--gpu-mem` takes it, such as `2G`.
pub(crate) fn amount(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{}G", mib / 1024) } else { format!("{mib}M") }
}

impl Size {
    /// The option for sbatch, such as `--gpu-mem=2G`; `None` if nothing is to be changed.
    pub fn option(&self) -> Option<String> {
        Some(format!("--gpu-mem={}", amount(self.ask_mib?)))
    }

    /// What runs held, such as `never above 1.7 GiB in 40 runs`.
    pub(crate) fn seen(&self) -> String {
        let plural = if self.runs == 1 { "" } else { "s" };
        let seen =
            format!("never above {} in {} run{plural}", amounts::mib(self.peak_mib), self.runs);
        match self.refused_runs {
            0 => seen,
            1 => format!("{seen}, and 1 was refused memory"),
            many => format!("{seen}, and {many} were refused memory"),
        }
    }

    fn sentence(&self, sizing: &Sizing) -> String {
        let seen = format!("asked {}, {}", amounts::mib(self.asked_mib), self.seen());
        let more = self.per_card.zip(self.per_card_then).map(|(now, then)| then - now.min(then));
        let more = match more {
            None | Some(0) => String::new(),
            Some(more) => format!("; {more} more would fit on each card"),
        };
        match self.option() {
            Some(option) => format!("{seen}: ask {option}{more}"),
            None if self.wants_more => format!("{seen}: no less"),
            None if self.fits_mib.is_none() => {
                format!("{seen}: too few to say more ({} are needed)", sizing.runs_min)
            }
            None => format!("{seen}: the right size"),
        }
    }
}
