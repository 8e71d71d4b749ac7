//! Carrying a plan out: modes are set, tasks are given their shares and started.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;

use formats::job::Program;
use model::{Action, GpuId, NodeId, Plan, Seat};
use node::grant::{Grant, Holder};

use crate::clock::Clock;
use crate::containment::start_ticks_of;
use crate::environment;
use crate::files;
use crate::held::Held;
use crate::journal::Entry;
use crate::prepare;
use crate::process;
use crate::runner::{Live, Phase, Runner};
use crate::task::{Ending, State};

/// How long nothing is started after the machine has run short of something.
const PAUSE_MS: u64 = 1000;

impl Runner<'_> {
    /// Carries out what a plan says, one attempt each; what fails is seen by the next plan.
    pub(crate) fn carry_out(&mut self, plan: &Plan) {
        for step in &plan.steps {
            if let Action::Place { workload, seats } = &step.action {
                self.announce(workload.0 as usize, seats);
            }
        }
        self.write_journal();
        if self.stuck_since_ms.is_some() {
            return;
        }
        let mut failed = BTreeSet::new();
        for step in &plan.steps {
            match &step.action {
                Action::SetMode { gpu, mode } => match self.devices.set_mode(gpu.index, *mode) {
                    Ok(()) => {
                        let _ = self.snapshot.set_mode(*gpu, *mode);
                    }
                    Err(why) => {
                        failed.insert(gpu.index);
                        self.set_aside(gpu.index, &why);
                    }
                },
                // The runner plans without preemption.
                Action::Preempt { .. } => {}
                Action::Place { workload, seats } => {
                    let mut used = seats.iter().flat_map(|seat| &seat.shares);
                    if !used.any(|(index, _)| failed.contains(index)) {
                        failed.extend(self.place(workload.0 as usize, &step.action, seats));
                    }
                }
            }
        }
    }

    /// Books a task's seat and starts it there; the GPU that failed, if one did.
    fn place(&mut self, id: usize, action: &Action, seats: &[Seat]) -> Option<u8> {
        match engine::apply(&mut self.snapshot, action, self.planner.policy()) {
            Ok(()) => seats.first().and_then(|seat| self.start(id, seat)),
            Err(refusal) => {
                self.conclude(id, Ending::NotStarted(refusal.to_string()));
                self.dirty = true;
                None
            }
        }
    }

    /// Notes in the journal what is about to be started.
    fn announce(&mut self, id: usize, seats: &[Seat]) {
        let mut device = String::new();
        for (index, share) in seats.iter().flat_map(|seat| &seat.shares) {
            let _ = write!(device, "gpu{} {} ", self.devices.index(*index), share.kind());
        }
        let (number, attempt) = (self.work.number(id), self.work.tasks[id].attempts + 1);
        let at_ms = Clock::calendar_ms();
        self.journal.note(Entry::Starting { task: id, number, attempt, device, at_ms });
    }

    /// Starts one task on its seat; the GPU that failed, if one did.
    fn start(&mut self, id: usize, seat: &Seat) -> Option<u8> {
        let now_ms = self.clock.now_ms();
        let since_ms = match self.work.tasks[id].state {
            State::Waiting { since_ms } => since_ms,
            State::Held | State::Running { .. } | State::Ended(_) => now_ms,
        };
        let who = format!("{}/{}", self.around.run, self.work.label(id));
        let holder = Holder { who: &who, priority: self.work.workload(id).priority, user: None };
        let mut grants: Vec<(u8, Grant)> = Vec::new();
        for (index, share) in &seat.shares {
            match self.devices.grant(*index, *share, holder) {
                Ok(grant) => grants.push((*index, grant)),
                Err(why) => {
                    self.take_back(&grants);
                    self.vacate(id);
                    self.set_aside(*index, &why);
                    self.requeue(id);
                    return Some(*index);
                }
            }
        }
        self.work.start(id, now_ms);
        self.totals.started(since_ms, now_ms);
        match self.spawn(id, &grants) {
            Ok(pid) => {
                self.is_short = false;
                let start_ticks = start_ticks_of(pid).unwrap_or(0);
                self.journal.note(Entry::Started { task: id, pid, start_ticks });
                if !grants.is_empty() {
                    let held = self.held(&grants);
                    self.journal.note(Entry::Held { task: id, held });
                }
                self.keep(id, pid, start_ticks, grants, now_ms);
            }
            Err(error) => {
                self.take_back(&grants);
                self.vacate(id);
                self.not_started(id, &error);
            }
        }
        None
    }

    /// A process could not be made: for lack of something that may come back, or for good.
    fn not_started(&mut self, id: usize, error: &process::NotStarted) {
        self.containment.clear(&self.work.label(id));
        if error.may_pass() {
            if !std::mem::replace(&mut self.is_short, true) {
                self.watch.told(&format!("{error}; trying again every {} s", PAUSE_MS / 1000));
            }
            self.requeue(id);
            self.paused_until_ms = self.clock.now_ms() + PAUSE_MS;
            return;
        }
        self.conclude(id, Ending::NotStarted(error.to_string()));
        self.dirty = true;
    }

    fn spawn(&mut self, id: usize, grants: &[(u8, Grant)]) -> Result<u32, process::NotStarted> {
        let by_index: Vec<(u32, Grant)> =
            grants.iter().map(|(at, grant)| (self.devices.index(*at), grant.clone())).collect();
        let start = environment::Start {
            id,
            folder: &self.settings.folder,
            grants: &by_index,
            at_s: Clock::calendar_ms() / 1000,
        };
        let env = environment::of(&self.work, &self.around, &start);
        let posted = self.work.job_of(id);
        let command: Vec<OsString> = match (&posted.job.launch.program, &posted.script) {
            (Program::Command(words), _) => words.iter().map(OsString::from).collect(),
            (Program::Script(_), script) => script.iter().map(OsString::from).collect(),
        };
        if let (Program::Script(text), Some(script)) = (&posted.job.launch.program, &posted.script)
        {
            // Somebody may have cleared the state folder away.
            if !script.exists() {
                let _ = prepare::put_away(script, text);
            }
        }
        let paths = files::of_task(&self.work, id, &self.around, &self.settings.folder);
        let start = process::Start {
            command,
            env,
            folder: paths.folder,
            output: paths.output,
            error: paths.error,
            input: paths.input,
            // A second start of a task must not wipe out what the first one said.
            append: posted.job.launch.append || self.work.tasks[id].attempts > 1,
        };
        let given = grants.iter().find_map(|(_, grant)| grant.cgroup.as_deref());
        let cgroup = self.containment.prepare(&self.work.label(id), given);
        process::start(&start, cgroup.as_ref())
    }

    fn keep(
        &mut self,
        id: usize,
        pid: u32,
        start_ticks: u64,
        grants: Vec<(u8, Grant)>,
        now_ms: u64,
    ) {
        let posted = self.work.job_of(id);
        let limit_ms = posted.job.pattern.time_limit_ms;
        let warning = posted.job.launch.warning.as_ref();
        let warn_at_ms = limit_ms
            .zip(warning)
            .map(|(limit_ms, warning)| now_ms + limit_ms.saturating_sub(warning.before_ms));
        let devices: Vec<&str> = grants.iter().map(|(_, grant)| grant.device.as_str()).collect();
        let devices = devices.join(",");
        let live = Live {
            label: self.work.label(id),
            pid,
            start_ticks,
            since_ms: now_ms,
            limit_at_ms: limit_ms.map(|limit_ms| now_ms + limit_ms),
            warn_at_ms,
            phase: Phase::Going,
            disturbed: None,
            grants,
        };
        self.by_pid.insert(pid, id);
        self.live.insert(id, live);
        self.watch.started(&self.work, id, &devices);
    }

    /// What a task holds of GPUs, with what its limiter has written down.
    pub(crate) fn held(&self, grants: &[(u8, Grant)]) -> Vec<Held> {
        let held = |(at, grant): &(u8, Grant)| Held {
            account: self.devices.account(grant),
            ..Held::of(self.devices.index(*at), grant)
        };
        grants.iter().map(held).collect()
    }

    /// Gives shares back to the machine.
    pub(crate) fn take_back(&mut self, grants: &[(u8, Grant)]) {
        for (index, grant) in grants {
            if let Err(why) = self.devices.revoke(grant) {
                self.set_aside(*index, &why);
            }
        }
    }

    /// Takes a task off its seat in the books; says how many thousandths of GPUs it held.
    pub(crate) fn vacate(&mut self, id: usize) -> u64 {
        self.totals.advance(&self.snapshot, self.clock.now_ms());
        let left = self.snapshot.finish(model::WorkloadId(id as u64));
        left.map_or(0, |running| running.usage.gpu_milli)
    }

    /// Puts a task back into the queue.
    pub(crate) fn requeue(&mut self, id: usize) {
        let at_ms = Clock::calendar_ms();
        self.journal.note(Entry::Ended { task: id, ending: None, at_ms });
        self.work.wait(id, self.clock.now_ms());
        self.snapshot.submit(self.work.workload(id).clone());
        self.dirty = true;
    }

    /// Closes a GPU to further tasks.
    pub(crate) fn set_aside(&mut self, index: u8, why: &str) {
        let gpu = GpuId { node: NodeId(0), index };
        let _ = self.snapshot.set_aside(gpu, true);
        self.dirty = true;
        let index = self.devices.index(index);
        self.watch.told(&format!("GPU {index} is set aside: {why}"));
    }

    /// Notes that a task is over.
    pub(crate) fn conclude(&mut self, id: usize, ending: Ending) {
        let at_ms = Clock::calendar_ms();
        if self.work.tasks[id].attempts == 0 {
            // It has no line yet.
            self.announce(id, &[]);
        }
        self.journal.note(Entry::Ended { task: id, ending: Some(ending.clone()), at_ms });
        self.snapshot.withdraw(model::WorkloadId(id as u64));
        self.watch.ended(&self.work, id, &ending);
        self.work.end(id, ending);
    }
}
