//! One task from its start to the end of all that it has started: time limit, signals, leftovers.
//!
//! A task has no cgroup of its own: to move a process into one takes the kernel 6 to 10 ms (measured, Linux
//! 6), as long as a short task's start. Slurm has one for the job, and what a task leaves becomes this
//! process's child, so that it can see whether anything is left.

use formats::job::Warning;
use local::process::{self, NotStarted, Start};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node::procfs::Procfs;

use super::{Outcome, Pilot, task};
use crate::array::event::Ending;
use crate::array::ledger::Open;
use crate::array::queue;

/// How often tasks are looked after that are about to end, in ms.
const ENDING_TICK_MS: u64 = 20;
/// A machine that is short of processes or memory is tried this often, with a pause in ms.
const STARTS_MAX: u32 = 30;
const START_PAUSE_MS: u64 = 1000;
/// Slurm sends TERM and KILL to each process of a job in turn. A task may die of it before we hear of
/// ours, or are killed; this is how long we listen, in ms.
const SIGNAL_LAG_MS: u64 = 1000;
/// Of the time between TERM and KILL, what we leave to the task, so that there is time to write what
/// became of it.
const GRACE_PERCENT: u64 = 70;

/// A task that has a process.
struct Live {
    label: String,
    leader: u32,
    is_leader_gone: bool,
    /// What became of it, once that is settled; then the rest of it is ended.
    settled: Option<Outcome>,
    kill_at_ms: u64,
    limit_at_ms: Option<u64>,
    warn: Option<(u64, Warning)>,
}

impl Pilot<'_> {
    /// Starts a task and holds on to it until nothing of it is left.
    pub(super) fn carry_out(&mut self, open: Open) -> Outcome {
        let start = task::start(&self.folder, &self.surroundings, open);
        let label = open.index.to_string();
        let leader = match self.begin(&start) {
            Ok(Some(leader)) => leader,
            Ok(None) => return Outcome::Back,
            Err(why) => {
                (self.tell)(&format!("task {label}: not started: {why}"));
                return Outcome::Ended(Ending::NotStarted(why.to_string()));
            }
        };
        let mut live = self.live(label, leader);
        if !self.asked_for_time {
            // While the first task runs: its start does not wait for slurmctld.
            self.asked_for_time = true;
            let asked_ms = self.clock.now_ms();
            self.ends_at_ms = queue::time_left_ms(self.me).map(|left_ms| asked_ms + left_ms);
        }
        while !self.look_after(&mut live) {
            self.signals.wait(self.until_next_ms(&live));
        }
        self.outcome(live.settled.unwrap_or(Outcome::Back))
    }

    /// The process; none if someone wants us to end before it could be started.
    fn begin(&mut self, start: &Start) -> Result<Option<u32>, NotStarted> {
        for _ in 1..STARTS_MAX {
            match process::start(start, None) {
                Err(why) if why.may_pass() => self.pause(START_PAUSE_MS),
                started => return started.map(Some),
            }
            if self.stopping {
                return Ok(None);
            }
        }
        process::start(start, None).map(Some)
    }

    fn live(&self, label: String, leader: u32) -> Live {
        let now_ms = self.clock.now_ms();
        let limit_at_ms = self.folder.order.limit_ms.map(|limit_ms| now_ms + limit_ms);
        let warn = self.folder.warning().zip(limit_at_ms).map(|(warning, limit_at_ms)| {
            (limit_at_ms.saturating_sub(warning.before_ms).max(now_ms), warning)
        });
        let (is_leader_gone, settled) = (false, None);
        Live { label, leader, is_leader_gone, settled, kill_at_ms: u64::MAX, limit_at_ms, warn }
    }

    /// One look; whether nothing of the task is left.
    fn look_after(&mut self, live: &mut Live) -> bool {
        let (gone, none_left) = self.signals.reap();
        let leader = live.leader;
        for gone in gone.iter().filter(|gone| gone.pid == leader) {
            live.is_leader_gone = true;
            let of_itself = match gone.status {
                Ok(status) => Ending::Exit(status),
                Err(signal) => Ending::Signal(signal),
            };
            self.settle(live, Outcome::Ended(of_itself), !none_left);
        }
        for signal in self.signals.heard() {
            if signal == Signal::SIGTERM {
                self.stop(live);
            } else if !live.is_leader_gone {
                self.containment.signal(&live.label, live.leader, signal);
            }
        }
        if none_left {
            return true;
        }
        let now_ms = self.clock.now_ms();
        if live.limit_at_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            live.limit_at_ms = None;
            self.settle(live, Outcome::Ended(Ending::Timeout), true);
        }
        if live.warn.as_ref().is_some_and(|(at_ms, _)| now_ms >= *at_ms) {
            self.warn(live);
        }
        if now_ms >= live.kill_at_ms {
            self.containment.signal(&live.label, live.leader, Signal::SIGKILL);
            kill_children();
        }
        false
    }

    /// Notes what became of the task, unless that is settled, and tells what is left of it to end.
    fn settle(&self, live: &mut Live, outcome: Outcome, tell: bool) {
        if live.settled.is_some() {
            return;
        }
        live.settled = Some(outcome);
        live.kill_at_ms =
            self.clock.now_ms() + self.folder.order.kill_wait_ms * GRACE_PERCENT / 100;
        if tell {
            self.containment.signal(&live.label, live.leader, Signal::SIGTERM);
        }
    }

    /// Slurm wants us to end: a preemption, `scancel`, or the end of our time.
    fn stop(&mut self, live: &mut Live) {
        self.stopping = true;
        self.settle(live, self.when_stopped(), true);
    }

    /// What becomes of a task when we are stopped: it waits again. If it had all of our time and did not
    /// come to its end, it will not do so another time either.
    fn when_stopped(&self) -> Outcome {
        let at_end = self.ends_at_ms.is_some_and(|at_ms| self.clock.now_ms() + 1000 >= at_ms);
        match at_end && self.ran == 0 {
            true => Outcome::Ended(Ending::Timeout),
            false => Outcome::Back,
        }
    }

    /// What is to be written. A task that failed when we are told to end has failed of that.
    fn outcome(&mut self, settled: Outcome) -> Outcome {
        let from_slurm = [Signal::SIGTERM as i32, Signal::SIGKILL as i32];
        let (failed, signalled) = match &settled {
            // A shell tells the signal that a command of it died of as 128 and its number.
            Outcome::Ended(Ending::Exit(status)) => {
                (*status != 0, from_slurm.contains(&(status - 128)))
            }
            Outcome::Ended(Ending::Signal(number)) => (true, from_slurm.contains(number)),
            Outcome::Ended(Ending::Timeout | Ending::Lost | Ending::NotStarted(_))
            | Outcome::Back => (false, false),
        };
        if failed && !self.stopping {
            self.pause(if signalled { SIGNAL_LAG_MS } else { 0 });
            self.stopping |= self.signals.heard().contains(&Signal::SIGTERM);
        }
        if failed && self.stopping { self.when_stopped() } else { settled }
    }

    /// The signal that the script has asked for ahead of its limit.
    fn warn(&self, live: &mut Live) {
        let Some((_, warning)) = live.warn.take() else { return };
        let named = format!("SIG{}", warning.signal).parse();
        let signal: Signal = named.unwrap_or(Signal::SIGTERM);
        match warning.to_script {
            true => self.containment.signal_leader(live.leader, signal),
            false => self.containment.signal_steps(&live.label, live.leader, signal),
        }
    }

    /// ms until something is due even if no signal comes.
    fn until_next_ms(&self, live: &Live) -> u64 {
        if live.settled.is_some() {
            return ENDING_TICK_MS;
        }
        let now_ms = self.clock.now_ms();
        let warn_at_ms = live.warn.as_ref().map(|(at_ms, _)| *at_ms);
        let due = [live.limit_at_ms, warn_at_ms].into_iter().flatten().min();
        due.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(now_ms).max(1))
    }
}

/// Kills every child of this process: what a task left becomes ours, whatever it made of its group and
/// its variables.
fn kill_children() {
    let processes = Procfs::default();
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |pid: &u32| processes.living(*pid).is_some_and(|facts| facts.parent == own);
    for pid in pids.filter(is_ours).filter_map(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
