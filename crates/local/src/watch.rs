//! What a run tells whoever looks on.

use crate::task::Ending;
use crate::work::Work;

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// ms since the run began.
    pub now_ms: u64,
    /// Tasks in all.
    pub tasks: usize,
    /// Tasks with a process.
    pub running: usize,
    /// Tasks that ended well.
    pub done: usize,
    /// Tasks that ended otherwise.
    pub failed: usize,
    /// Tasks that wait, for a seat or for other jobs.
    pub waiting: usize,
    /// Why most of those that wait do so.
    pub reason: Option<String>,
    /// GPUs that are used by this run.
    pub gpus: usize,
    /// GPUs of those that somebody sits on.
    pub gpus_held: usize,
    /// Part of the time in which a kernel ran, over all GPUs of the run, 0 to 1, as last measured.
    pub busy_ratio: Option<f64>,
}

/// Someone who looks on. Nothing that is said here changes the run.
pub trait Watch {
    /// A task has been started.
    fn started(&mut self, work: &Work, id: usize, devices: &str);
    /// A task is over.
    fn ended(&mut self, work: &Work, id: usize, ending: &Ending);
    /// Memory was refused to a task that is over: sentences that say by whom.
    fn refused(&mut self, work: &Work, id: usize, ending: &Ending, refusals: &[String]);
    /// Something that the user should know.
    fn told(&mut self, text: &str);
    /// Where the run stands; several times a second at most.
    fn stands(&mut self, view: &View);
}
