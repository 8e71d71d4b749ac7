//! A machine in virtual time: one GPU, tenants with a launching thread and a watcher each, wake-ups that
//! come late. What decides is the real board and the real pace; only the driver is simulated.

mod faulty;
mod gpu;
mod measured;
mod tenant;

pub(crate) use faulty::Faulty;
pub(crate) use measured::Measured;
pub(crate) use tenant::{Style, Tenant};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use caps::ProcessId;
use caps::pace::{Launch, MarkId, Member, Moment, Tick, Waited};
use caps::turns::Board;

use gpu::Gpu;

/// What a launch costs its thread, and an event.
const LAUNCH_NS: u64 = 4_000;
const EVENT_NS: u64 = 1_500;
/// How often a thread looks whether an event is done.
const LOOK_NS: u64 = 50_000;
/// How often the figures are read.
pub(crate) const PROBE_NS: u64 = 2_000_000;

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    App(usize),
    Watcher(usize),
    Probe,
}

/// What holds a tenant back.
enum Limiter {
    Ours(Box<Member>),
    Theirs(Faulty),
    /// Ours, from the first launch on.
    Later,
}

struct Process {
    tenant: Tenant,
    limiter: Limiter,
    marks: BTreeMap<u32, MarkId>,
    next_mark: u32,
    /// The launching thread waits for the turn.
    queued: bool,
    /// The launching thread waits for its work, launched before this moment.
    syncing: Option<Moment>,
    /// When each of the two is due; an event of another time is old.
    app_due: u64,
    watcher_due: u64,
    /// Since when a launch waits to be let in; the longest such wait, and the longest wait for a result.
    asked: Option<u64>,
    longest_wait: u64,
}

/// The machine.
pub(crate) struct Machine {
    now: u64,
    board: Board,
    gpu: Gpu,
    processes: Vec<Process>,
    events: BinaryHeap<Reverse<(u64, Actor)>>,
    random: u64,
    measured: Measured,
}

/// A tenant's process sits down, as it does before its first launch.
fn sit(board: &Board, number: usize, tenant: &Tenant, now_us: u64) -> Limiter {
    let process = ProcessId::from_word(number as u64 + 1).unwrap();
    let member = Member::sit(board, number as u64 + 77, tenant.terms, process, now_us);
    Limiter::Ours(Box::new(member.unwrap()))
}

impl Machine {
    pub(crate) fn new(tenants: &[Tenant], seed: u64) -> Self {
        Self::with(tenants, seed, |board, number, tenant| match tenant.from_ns {
            0 => sit(board, number, tenant, 1),
            _ => Limiter::Later,
        })
    }

    /// The same under the field's limiter.
    pub(crate) fn faulty(tenants: &[Tenant], sms: u64, seed: u64) -> Self {
        Self::with(tenants, seed, |_, _, tenant| Limiter::Theirs(Faulty::new(tenant, sms)))
    }

    fn with(
        tenants: &[Tenant],
        seed: u64,
        limiter: impl Fn(&Board, usize, &Tenant) -> Limiter,
    ) -> Self {
        let board = Board::default();
        let process = |(number, tenant): (usize, &Tenant)| Process {
            tenant: *tenant,
            limiter: limiter(&board, number, tenant),
            marks: BTreeMap::new(),
            next_mark: 0,
            queued: false,
            syncing: None,
            app_due: u64::MAX,
            watcher_due: u64::MAX,
            asked: None,
            longest_wait: 0,
        };
        let processes: Vec<Process> = tenants.iter().enumerate().map(process).collect();
        let mut machine = Self {
            now: 1_000_000,
            board,
            gpu: Gpu::new(processes.len()),
            processes,
            events: BinaryHeap::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            measured: Measured::new(tenants),
        };
        for (number, tenant) in tenants.iter().enumerate() {
            machine.app_at(number, tenant.wants_from(machine.now).max(machine.now));
            if let Limiter::Theirs(_) = machine.processes[number].limiter {
                let first = machine.now + machine.between(0, faulty::WATCH_NS);
                machine.watcher_at(number, first);
            }
        }
        machine.events.push(Reverse((machine.now, Actor::Probe)));
        machine
    }

    /// Runs on for so long and gives the figures so far.
    pub(crate) fn run(&mut self, ns: u64) -> &Measured {
        let end = self.now + ns;
        while let Some(Reverse((at, actor))) = self.events.pop() {
            if at >= end {
                self.events.push(Reverse((at, actor)));
                break;
            }
            self.now = at;
            match actor {
                Actor::App(number) if self.processes[number].app_due == at => self.app(number),
                Actor::Watcher(number) if self.processes[number].watcher_due == at => {
                    self.watcher(number);
                }
                Actor::Probe => self.probe(),
                Actor::App(_) | Actor::Watcher(_) => {}
            }
        }
        self.now = end;
        &self.measured
    }

    /// The longest that a launch of this tenant had to wait to be let in, in ns.
    pub(crate) fn longest_wait(&self, number: usize) -> u64 {
        self.processes[number].longest_wait
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        from + self.random % (to - from + 1)
    }

    /// How late a sleeping thread is.
    fn latency(&mut self) -> u64 {
        self.between(50_000, 150_000)
    }

    fn app_at(&mut self, number: usize, at: u64) {
        if at < u64::MAX && at < self.processes[number].tenant.dies_ns {
            self.processes[number].app_due = at;
            self.events.push(Reverse((at, Actor::App(number))));
        }
    }

    fn watcher_at(&mut self, number: usize, at: u64) {
        if at < self.processes[number].tenant.dies_ns {
            self.processes[number].watcher_due = at;
            self.events.push(Reverse((at, Actor::Watcher(number))));
        }
    }

    fn probe(&mut self) {
        let now = self.now;
        for (number, process) in self.processes.iter().enumerate() {
            if now >= process.tenant.dies_ns {
                self.gpu.kill(number, now);
            }
        }
        let used = (0..self.processes.len()).map(|number| self.gpu.used(number, now)).collect();
        let wanting = |(number, process): (usize, &Process)| {
            let alive = now < process.tenant.dies_ns;
            let pending = process.asked.is_some() || !self.gpu.is_empty(number, now);
            alive && (process.tenant.wants(now) || pending)
        };
        let wanting = self.processes.iter().enumerate().map(wanting).collect();
        self.measured.push(used, wanting);
        self.events.push(Reverse((now + PROBE_NS, Actor::Probe)));
    }

    /// The launching thread goes on until it has to wait, or until somebody else is to act.
    fn app(&mut self, number: usize) {
        self.processes[number].app_due = u64::MAX;
        self.processes[number].queued = false;
        let others = self.events.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        loop {
            if let Some(moment) = self.processes[number].syncing {
                if !self.gpu.is_empty(number, self.now) {
                    return self.app_at(number, self.now + 10_000);
                }
                return self.synced(number, moment);
            }
            let tenant = self.processes[number].tenant;
            // A launch that has been asked for does not vanish.
            if !tenant.wants(self.now) && self.processes[number].asked.is_none() {
                return self.app_at(number, tenant.wants_from(self.now));
            }
            if let Some(at) = self.launch(number) {
                return self.app_at(number, at);
            }
            if self.now >= others {
                return self.app_at(number, self.now);
            }
        }
    }

    /// One try to launch. Until when to sleep, if it must.
    fn launch(&mut self, number: usize) -> Option<u64> {
        let now = self.now;
        let process = &mut self.processes[number];
        if matches!(process.limiter, Limiter::Later) {
            process.limiter = sit(&self.board, number, &process.tenant, now / 1000);
        }
        let asked = *process.asked.get_or_insert(now);
        let member = match &mut process.limiter {
            Limiter::Ours(member) => member,
            Limiter::Later => unreachable!("it has sat down"),
            Limiter::Theirs(limiter) => {
                if limiter.launch(&process.tenant) {
                    self.gpu.kernel(number, process.tenant.kernel_ns, None, now);
                    self.now += LAUNCH_NS;
                    return None;
                }
                return Some(now + faulty::SLEEP_NS + self.latency());
            }
        };
        match member.launch(&self.board, process.tenant.kernel_ns | 1, 0, || now / 1000) {
            Launch::Go { ns, sample } => {
                process.longest_wait = process.longest_wait.max(now - asked);
                process.asked = None;
                self.go(number, ns, sample)
            }
            Launch::Free => {
                process.asked = None;
                self.gpu.kernel(number, process.tenant.kernel_ns, None, now);
                self.now += LAUNCH_NS;
                None
            }
            Launch::Turn { until_us } => {
                process.queued = true;
                Some((until_us * 1000).max(now) + self.latency())
            }
            Launch::Settle { mark, until_us } => {
                let own = process.marks.iter().find(|(_, known)| **known == mark);
                let event = own.map(|(event, _)| *event);
                let done = event.is_none_or(|event| self.gpu.is_done(number, event, now));
                if done {
                    process.marks.retain(|_, known| *known != mark);
                    member.work.finish(mark);
                } else if now / 1000 >= until_us {
                    member.work.late(mark, now / 1000);
                } else {
                    return Some(now + LOOK_NS + self.latency());
                }
                None
            }
            Launch::Unseated => unreachable!("there are seats for all"),
            Launch::Mark { .. } => {
                self.mark(number);
                None
            }
        }
    }

    fn go(&mut self, number: usize, ns: u64, sample: bool) -> Option<u64> {
        let tenant = self.processes[number].tenant;
        let kind = sample.then_some(tenant.kernel_ns | 1);
        self.gpu.kernel(number, tenant.kernel_ns, kind, self.now);
        self.now += LAUNCH_NS + if sample { 2 * EVENT_NS } else { 0 };
        let Limiter::Ours(member) = &mut self.processes[number].limiter else { return None };
        let mark = member.launched(0, ns, false, || self.now / 1000);
        let moment = member.moment();
        if mark.mark || sample {
            self.mark(number);
        }
        if self.processes[number].watcher_due == u64::MAX {
            let at = self.now + self.latency();
            self.watcher_at(number, at);
        }
        if let Style::Synchronous(_) = tenant.style {
            self.processes[number].syncing = Some(moment);
        }
        None
    }

    fn mark(&mut self, number: usize) {
        let process = &mut self.processes[number];
        let Limiter::Ours(member) = &mut process.limiter else { return };
        let Some(mark) = member.work.begin_mark(0, self.now / 1000) else { return };
        process.next_mark += 1;
        process.marks.insert(process.next_mark, mark);
        self.gpu.mark(number, process.next_mark, self.now);
        member.work.recorded(mark, false);
        self.now += EVENT_NS;
    }

    /// The thread's wait for its work is over.
    fn synced(&mut self, number: usize, moment: Moment) {
        self.now += self.between(5_000, 15_000);
        self.processes[number].syncing = None;
        let now_us = self.now / 1000;
        let Style::Synchronous(think) = self.processes[number].tenant.style else { return };
        let samples = self.gpu.samples(number);
        if let Limiter::Ours(member) = &mut self.processes[number].limiter {
            for (kind, launched, ns) in samples {
                member.sampled(kind, launched / 1000, ns);
            }
            member.work.synced(Waited::Stream(0), moment);
            let tick = member.tick(&self.board, now_us);
            self.follow(number, tick);
        }
        self.app_at(number, self.now + think);
    }

    fn watcher(&mut self, number: usize) {
        self.processes[number].watcher_due = u64::MAX;
        let now = self.now;
        let process = &mut self.processes[number];
        let member = match &mut process.limiter {
            Limiter::Ours(member) => member,
            Limiter::Later => return,
            Limiter::Theirs(limiter) => {
                limiter.watch(self.gpu.used(number, now), now);
                return self.watcher_at(number, now + faulty::WATCH_NS);
            }
        };
        let mut done = |event: &u32| self.gpu.is_done(number, *event, now);
        let done: Vec<u32> = process.marks.keys().copied().filter(|event| done(event)).collect();
        for event in done {
            if let Some(mark) = process.marks.remove(&event) {
                member.work.finish(mark);
            }
        }
        for (kind, launched, ns) in self.gpu.samples(number) {
            member.sampled(kind, launched / 1000, ns);
        }
        let tick = member.tick(&self.board, now / 1000);
        self.follow(number, tick);
    }

    /// Does what the watcher was told.
    fn follow(&mut self, number: usize, tick: Tick) {
        if tick.mark.is_some() {
            self.mark(number);
        }
        if tick.wake {
            for other in 0..self.processes.len() {
                if self.processes[other].queued {
                    let at = self.now + self.latency();
                    if at < self.processes[other].app_due {
                        self.app_at(other, at);
                    }
                }
            }
        }
        if let Some(again) = tick.again_us {
            let at = (again * 1000).max(self.now) + self.latency();
            self.watcher_at(number, at);
        }
    }
}
