//! What a run came to: time, waiting, GPU hours held and busy.

use std::collections::BTreeMap;

use model::Snapshot;
use node::account::Counts;
use serde::Serialize;

/// Refusals of memory that a summary tells.
const REFUSALS_MAX: usize = 10;

/// Sums over a run, kept as it goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    last_ms: u64,
    first_start_ms: Option<u64>,
    last_end_ms: u64,
    starts: u64,
    waited_ms: u64,
    waited_max_ms: u64,
    /// Time of tasks, times the thousandths of GPUs that each held.
    share_milli_ms: u64,
    held_ms: u64,
    busy_ms: Option<f64>,
    cpu_before_ms: f64,
    /// What ended tasks had booked with their limiters, by the UUID of the GPU.
    booked: BTreeMap<String, Counts>,
    refused: usize,
    refusals: Vec<String>,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of the run, to continue or look up.
    pub run: i64,
    /// Tasks in all.
    pub tasks: usize,
    /// Tasks that ended well, those of an earlier part of the run included.
    pub done: usize,
    /// Tasks that ended otherwise.
    pub failed: usize,
    /// Tasks that were interrupted or not started.
    pub left: usize,
    /// Whether someone stopped the run.
    pub interrupted: bool,
    /// Whether all of it is in the journal.
    pub recorded: bool,
    /// From the first start to the last end.
    pub makespan_ms: u64,
    /// Mean time from being able to start to starting.
    pub waiting_mean_ms: u64,
    /// The longest such time.
    pub waiting_max_ms: u64,
    /// GPUs that the run could use.
    pub gpus: usize,
    /// Whether they were simulated.
    pub simulated: bool,
    /// Hours of GPUs with somebody on them.
    pub gpu_hours_held: f64,
    /// Hours of GPUs with a kernel running; absent where nothing could measure it.
    pub gpu_hours_busy: Option<f64>,
    /// Hours of GPU time that tasks had, as their limiters measured it; absent where no task had one.
    pub gpu_hours_booked: Option<f64>,
    /// Tasks to which memory was refused, by their cap or because the card was full.
    pub memory_refused: usize,
    /// What was refused to the first of them, in sentences.
    pub memory_refusals: Vec<String>,
    /// Sum of the tasks' times, each times its share of GPUs, over GPUs times makespan: 0 to 1.
    pub occupancy: Option<f64>,
    /// CPU time of dispatching per start: planning, journal, starting and seeing the end. Measuring
    /// GPUs goes on beside it and is not in it.
    pub dispatch_ms_per_start: Option<f64>,
}

impl Totals {
    /// Nothing yet; counts the CPU time of this thread from here.
    pub(crate) fn begin() -> Self {
        Self { cpu_before_ms: thread_cpu_ms(), ..Self::default() }
    }

    /// Counts the time since the last call with the GPUs held as they are; to be called before each
    /// change.
    pub(crate) fn advance(&mut self, snapshot: &Snapshot, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.last_ms);
        self.last_ms = now_ms;
        if passed > 0 {
            self.held_ms += passed * gpus_held(snapshot) as u64;
        }
    }

    pub(crate) fn started(&mut self, since_ms: u64, now_ms: u64) {
        let waited_ms = now_ms.saturating_sub(since_ms);
        self.first_start_ms.get_or_insert(now_ms);
        self.starts += 1;
        self.waited_ms += waited_ms;
        self.waited_max_ms = self.waited_max_ms.max(waited_ms);
    }

    /// * `gpu_milli` — thousandths of GPUs that the task held.
    pub(crate) fn ended(&mut self, since_ms: u64, now_ms: u64, gpu_milli: u64) {
        self.last_end_ms = now_ms;
        self.share_milli_ms += now_ms.saturating_sub(since_ms) * gpu_milli;
    }

    /// * `ratio` — part of the passed time in which each GPU ran a kernel, summed over GPUs.
    pub(crate) fn measured(&mut self, ratio: f64, passed_ms: u64) {
        *self.busy_ms.get_or_insert(0.0) += ratio * passed_ms as f64;
    }

    /// A task is over that had a limiter.
    ///
    /// * `gpu` — UUID of the GPU.
    pub(crate) fn booked(&mut self, gpu: &str, counts: &Counts) {
        let sum = self.booked.entry(gpu.to_owned()).or_default();
        *sum = sum.plus(counts);
    }

    /// Memory was refused to a task.
    pub(crate) fn refused(&mut self, name: &str, refusals: &[String]) {
        self.refused += 1;
        let room = REFUSALS_MAX.saturating_sub(self.refusals.len());
        let named = refusals.iter().map(|text| format!("{name}: {text}"));
        self.refusals.extend(named.take(room));
    }

    /// What ended tasks had booked, by the UUID of the GPU.
    pub(crate) fn all_booked(&self) -> &BTreeMap<String, Counts> {
        &self.booked
    }

    /// Fills the figures of a summary.
    pub(crate) fn into_summary(self, summary: &mut Summary) {
        let hours = |ms: f64| ms / 3_600_000.0;
        let makespan_ms = self.last_end_ms.saturating_sub(self.first_start_ms.unwrap_or(0));
        summary.makespan_ms = makespan_ms;
        summary.waiting_mean_ms = self.waited_ms / self.starts.max(1);
        summary.waiting_max_ms = self.waited_max_ms;
        summary.gpu_hours_held = hours(self.held_ms as f64);
        summary.gpu_hours_busy = self.busy_ms.map(hours);
        let booked_us =
            self.booked.values().filter_map(Counts::measured_us).reduce(u64::saturating_add);
        summary.gpu_hours_booked = booked_us.map(|us| hours(us as f64 / 1000.0));
        summary.memory_refused = self.refused;
        summary.memory_refusals = self.refusals;
        let room = 1000 * makespan_ms * summary.gpus as u64;
        summary.occupancy = (room > 0).then(|| self.share_milli_ms as f64 / room as f64);
        let spent_ms = thread_cpu_ms() - self.cpu_before_ms;
        summary.dispatch_ms_per_start = (self.starts > 0).then(|| spent_ms / self.starts as f64);
    }
}

/// GPUs that somebody sits on.
pub(crate) fn gpus_held(snapshot: &Snapshot) -> usize {
    let nodes = snapshot.fleet().nodes().iter();
    nodes.flat_map(model::Node::gpus).filter(|gpu| !gpu.is_idle()).count()
}

/// CPU time of this thread so far.
fn thread_cpu_ms() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0.0, |usage| {
        let spent = usage.user_time() + usage.system_time();
        spent.num_microseconds() as f64 / 1000.0
    })
}
