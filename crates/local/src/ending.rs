//! How tasks come to their end: by themselves, at their time limit, when the run is stopped, or with
//! the GPU under them. TERM first, KILL after the grace, and nothing of a task is left running.

use nix::sys::signal::Signal;
use node::grant::Grant;

use crate::clock::Clock;
use crate::devices::Trouble;
use crate::files;
use crate::held::{self, Held};
use crate::journal::Entry;
use crate::runner::{Live, Phase, Runner};
use crate::signals::Gone;
use crate::task::Ending;

/// Starts of one task at most, if the GPU under it fails.
const ATTEMPTS_MAX: u32 = 3;

impl Runner<'_> {
    /// The first process of a task has ended.
    pub(crate) fn leader_gone(&mut self, id: usize, gone: Gone) {
        let now_ms = self.clock.now_ms();
        let grace_ms = self.settings.grace_ms;
        let Some(live) = self.live.get_mut(&id) else { return };
        let of_itself = match gone.status {
            Ok(status) => Ending::Exited(status),
            Err(signal) => Ending::Signalled(signal),
        };
        let (ending, kill_at_ms) = match &live.phase {
            Phase::Told { ending, kill_at_ms } => (ending.clone(), *kill_at_ms),
            Phase::Going | Phase::Leftover { .. } => (of_itself, now_ms + grace_ms),
        };
        if self.containment.is_alive(&live.label, live.pid) {
            self.containment.signal(&live.label, live.pid, Signal::SIGTERM);
            // How it ended is known, whatever becomes of us while the others are ended.
            let (ended, at_ms) = (Some(ending.clone()), Clock::calendar_ms());
            self.journal.note(Entry::Ended { task: id, ending: ended, at_ms });
            live.phase = Phase::Leftover { ending, kill_at_ms };
        } else {
            self.all_gone(id, ending);
        }
    }

    /// Nothing of a task is left: its seat is free.
    fn all_gone(&mut self, id: usize, ending: Ending) {
        let Some(live) = self.live.remove(&id) else { return };
        self.containment.clear(&live.label);
        let refusals = self.close_accounts(id, &live.grants, &ending);
        self.take_back(&live.grants);
        let gpu_milli = self.vacate(id);
        self.totals.ended(live.since_ms, self.clock.now_ms(), gpu_milli);
        self.dirty = true;
        match live.disturbed {
            Some(why) if ending.may_be_the_gpus() && self.stops == 0 => self.try_again(id, why),
            _ => self.conclude(id, ending.clone()),
        }
        if !refusals.is_empty() {
            self.watch.refused(&self.work, id, &ending, &refusals);
        }
    }

    /// Notes what a task had booked with its limiter, and what of memory it was refused: sentences.
    /// To a task that failed they may be the reason, and stand where its own errors do.
    fn close_accounts(
        &mut self,
        id: usize,
        grants: &[(u8, Grant)],
        ending: &Ending,
    ) -> Vec<String> {
        let mut held = self.held(grants);
        if held.iter().all(|held| held.account.is_none()) {
            return Vec::new();
        }
        let label = self.work.label(id);
        for held in &mut held {
            let Some(account) = &mut held.account else { continue };
            // A context alone is some hundred MiB, so whoever has the limiter has booked something.
            let task = (self.around.run.as_str(), label.as_str());
            held.unlimited = account.peak_bytes == 0 && self.gauge.has_seen(&held.uuid, task);
            // Nobody is left to hold anything.
            account.memory_bytes.clear();
            self.totals.booked(&held.uuid, &account.counts);
        }
        let refusals: Vec<String> = held.iter().flat_map(Held::refusals).collect();
        for escaped in held.iter().filter_map(Held::escaped) {
            self.watch.told(&format!("{}: {escaped}", self.work.name(id)));
        }
        self.journal.note(Entry::Held { task: id, held });
        if refusals.is_empty() {
            return refusals;
        }
        self.totals.refused(self.work.name(id), &refusals);
        if !ending.is_ok() {
            let paths = files::of_task(&self.work, id, &self.around, &self.settings.folder);
            // They are in the journal too; a task may have removed its file.
            let _ = held::append(paths.error.as_ref().unwrap_or(&paths.output), &refusals);
        }
        refusals
    }

    /// A task failed after the GPU under it did: another try, on what is left.
    fn try_again(&mut self, id: usize, why: String) {
        if self.work.tasks[id].attempts >= ATTEMPTS_MAX {
            return self.conclude(id, Ending::GpuFailed(why));
        }
        let name = self.work.name(id).to_string();
        self.watch.told(&format!("{name} is started again: {why}"));
        self.requeue(id);
    }

    /// Time limits, warnings before them, and the end of every grace.
    pub(crate) fn end_what_must_end(&mut self) {
        let now_ms = self.clock.now_ms();
        let mut gone = Vec::new();
        let mut told = Vec::new();
        for (id, live) in &mut self.live {
            if live.warn_at_ms.is_some_and(|at_ms| now_ms >= at_ms) {
                live.warn_at_ms = None;
                told.push(*id);
            }
            match &live.phase {
                Phase::Going if live.limit_at_ms.is_some_and(|at_ms| now_ms >= at_ms) => {
                    let kill_at_ms = now_ms + self.settings.grace_ms;
                    settle(live, Ending::TimedOut, kill_at_ms);
                    self.containment.signal(&live.label, live.pid, Signal::SIGTERM);
                }
                Phase::Told { kill_at_ms, .. } if now_ms >= *kill_at_ms => {
                    self.containment.signal(&live.label, live.pid, Signal::SIGKILL);
                }
                Phase::Leftover { ending, kill_at_ms } => {
                    if !self.containment.is_alive(&live.label, live.pid) {
                        gone.push((*id, ending.clone()));
                    } else if now_ms >= *kill_at_ms {
                        self.containment.signal(&live.label, live.pid, Signal::SIGKILL);
                    }
                }
                Phase::Going | Phase::Told { .. } => {}
            }
        }
        told.into_iter().for_each(|id| self.warn(id));
        gone.into_iter().for_each(|(id, ending)| self.all_gone(id, ending));
    }

    /// The signal that a script has asked for ahead of its limit.
    fn warn(&mut self, id: usize) {
        let warning = self.work.job_of(id).job.launch.warning.clone();
        let (Some(live), Some(warning)) = (self.live.get(&id), warning) else { return };
        let signal = match warning.signal.as_str() {
            "HUP" => Signal::SIGHUP,
            "INT" => Signal::SIGINT,
            "USR1" => Signal::SIGUSR1,
            "USR2" => Signal::SIGUSR2,
            _ => Signal::SIGTERM,
        };
        match warning.to_script {
            true => self.containment.signal_leader(live.pid, signal),
            false => self.containment.signal_steps(&live.label, live.pid, signal),
        }
    }

    /// Someone wants the run to stop: tasks are told to end; a second Ctrl-C kills them. A second
    /// hangup or TERM does not: shells, kernels and `timeout` send them twice.
    pub(crate) fn stop(&mut self, signal: Signal) {
        if self.stops > 0 && signal != Signal::SIGINT {
            return;
        }
        self.stops += 1;
        let kill_at_ms = self.clock.now_ms() + self.settings.grace_ms;
        let text = match self.stops {
            1 => format!(
                "{signal}: {} tasks are told to end and killed after {} s; Ctrl-C kills them now",
                self.live.len(),
                self.settings.grace_ms.div_ceil(1000)
            ),
            _ => format!("{signal} again: {} tasks are killed", self.live.len()),
        };
        self.watch.told(&text);
        for live in self.live.values_mut() {
            let how = if self.stops == 1 { Signal::SIGTERM } else { Signal::SIGKILL };
            settle(live, Ending::Cancelled, kill_at_ms);
            self.containment.signal(&live.label, live.pid, how);
        }
    }

    /// Looks whether GPUs and what divides them are well, and at their use.
    pub(crate) fn look_at_devices(&mut self) {
        let (ratio, passed_ms) = self.gauge.read();
        if let Some(ratio) = ratio {
            self.totals.measured(ratio, passed_ms);
        }
        let mut troubles = self.gauge.troubles();
        troubles.extend(self.devices.troubles());
        for (index, trouble) in troubles {
            self.trouble(index, &trouble);
        }
    }

    fn trouble(&mut self, index: u8, trouble: &Trouble) {
        let (why, lost) = match trouble {
            Trouble::Lost(why) => {
                self.set_aside(index, why);
                (why.clone(), true)
            }
            Trouble::Repaired(why) | Trouble::Noted(why) => {
                self.watch.told(&format!("GPU {}: {why}", self.devices.index(index)));
                (why.clone(), false)
            }
        };
        if matches!(trouble, Trouble::Noted(_)) {
            return;
        }
        let kill_at_ms = self.clock.now_ms() + self.settings.grace_ms;
        for live in self.live.values_mut() {
            if !live.grants.iter().any(|(at, _)| *at == index) {
                continue;
            }
            live.disturbed.get_or_insert_with(|| why.clone());
            // On a lost GPU a task can only hang.
            if lost {
                settle(live, Ending::GpuFailed(why.clone()), kill_at_ms);
                self.containment.signal(&live.label, live.pid, Signal::SIGTERM);
            }
        }
    }
}

/// Notes how a task will be said to have ended, unless that is settled.
fn settle(live: &mut Live, ending: Ending, kill_at_ms: u64) {
    match &mut live.phase {
        Phase::Going => live.phase = Phase::Told { ending, kill_at_ms },
        Phase::Told { .. } | Phase::Leftover { .. } => {}
    }
}
