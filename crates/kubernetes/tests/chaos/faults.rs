//! What goes wrong, by seed: each fault has a beginning and an end, and now and then two of different parts overlap.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use kubernetes_lab::Daemon;
use model::SplitMix;

use super::bench::{Bench, FAKETIME, LEASE_S, Program, REAL, said, signal};
use super::watch::{Shared, is_gated};

/// How long a moment is waited for in which something is to be killed.
const AIM: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_micros(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    ApiServerKilled,
    EtcdPaused,
    WebhookDown,
    LeaderKilled,
    /// As soon as a claim has devices and its pod is still at the gate.
    LeaderKilledAtGate,
    /// For longer than its lease.
    LeaderAsleep,
    AgentKilled,
    /// As soon as something of a claim is written down.
    AgentKilledInPrepare,
    NodeOff,
    ClockAhead,
    ClockBehind,
}

pub(crate) const ALL: [Fault; 11] = [
    Fault::ApiServerKilled,
    Fault::EtcdPaused,
    Fault::WebhookDown,
    Fault::LeaderKilled,
    Fault::LeaderKilledAtGate,
    Fault::LeaderAsleep,
    Fault::AgentKilled,
    Fault::AgentKilledInPrepare,
    Fault::NodeOff,
    Fault::ClockAhead,
    Fault::ClockBehind,
];

/// What a fault hits: two of the same never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Server,
    Webhook,
    Controllers,
    Node,
}

impl Fault {
    fn part(self) -> Part {
        match self {
            Self::ApiServerKilled | Self::EtcdPaused => Part::Server,
            Self::WebhookDown => Part::Webhook,
            Self::LeaderKilled
            | Self::LeaderKilledAtGate
            | Self::LeaderAsleep
            | Self::ClockAhead
            | Self::ClockBehind => Part::Controllers,
            Self::AgentKilled | Self::AgentKilledInPrepare | Self::NodeOff => Part::Node,
        }
    }

    /// How long it lasts, in ms: from, and up to how much more.
    fn lasts_ms(self) -> (u64, u64) {
        match self {
            Self::ApiServerKilled => (500, 3000),
            Self::EtcdPaused => (2000, 4000),
            Self::WebhookDown => (3000, 4000),
            Self::LeaderKilled | Self::LeaderKilledAtGate => (1000, 4000),
            Self::LeaderAsleep => (1000 * LEASE_S + 1500, 3000),
            Self::AgentKilled | Self::AgentKilledInPrepare => (1000, 1000),
            Self::NodeOff => (3000, 7000),
            Self::ClockAhead | Self::ClockBehind => (6000, 6000),
        }
    }
}

/// One that has begun.
struct Open {
    fault: Fault,
    /// The controller that it has hit.
    program: Option<Program>,
    pid: Option<u32>,
    until: Instant,
}

/// Brings faults, and ends them.
pub(crate) struct Faults {
    chance: SplitMix,
    /// Those that are left of this round.
    round: Vec<Fault>,
    open: Vec<Open>,
    next: Instant,
    /// How many have begun of each kind.
    pub(crate) counts: BTreeMap<Fault, usize>,
    /// How often what was aimed for was hit, by kind.
    pub(crate) hits: BTreeMap<Fault, usize>,
    say: fn(&str),
}

impl Faults {
    /// * `say` — is told of each.
    pub(crate) fn new(seed: u64, say: fn(&str)) -> Self {
        let chance = SplitMix::new(seed ^ 0x00c4_a05f_ab1e);
        let (counts, hits) = (BTreeMap::new(), BTreeMap::new());
        let next = Instant::now() + Duration::from_secs(2);
        Self { chance, round: Vec::new(), open: Vec::new(), next, counts, hits, say }
    }

    /// One look: what is due ends or begins.
    pub(crate) fn turn(&mut self, bench: &mut Bench, shared: &Shared) -> Result<(), String> {
        let now = Instant::now();
        let (over, open) =
            std::mem::take(&mut self.open).into_iter().partition(|it| it.until <= now);
        self.open = open;
        self.end(over, bench)?;
        if now < self.next {
            return Ok(());
        }
        if self.round.is_empty() {
            self.round = ALL.to_vec();
            self.chance.shuffle(&mut self.round);
        }
        let Some(fault) = self.round.last().copied() else { return Ok(()) };
        let is_free =
            self.open.len() < 2 && self.open.iter().all(|it| it.fault.part() != fault.part());
        if !is_free {
            return Ok(());
        }
        self.round.pop();
        self.begin(fault, bench, shared)?;
        // A third of them come while the last one lasts.
        let pause_ms = if self.chance.below(3) == 0 { 300 } else { 4000 + self.chance.below(5000) };
        self.next = Instant::now() + Duration::from_millis(pause_ms);
        Ok(())
    }

    /// Ends all.
    pub(crate) fn end_all(&mut self, bench: &mut Bench) -> Result<(), String> {
        let all = std::mem::take(&mut self.open);
        self.end(all, bench)
    }

    fn begin(&mut self, fault: Fault, bench: &mut Bench, shared: &Shared) -> Result<(), String> {
        let (from, more) = fault.lasts_ms();
        let lasts = Duration::from_millis(from + self.chance.below(more));
        let any = Program::Controller(u8::try_from(self.chance.below(2)).unwrap_or_default());
        let leader = bench.leader().unwrap_or(any);
        let mut open = Open { fault, program: None, pid: None, until: Instant::now() + lasts };
        (self.say)(&format!("{fault:?} for {} ms", lasts.as_millis()));
        match fault {
            Fault::ApiServerKilled => bench.cluster.kill(&Daemon::ApiServer),
            Fault::EtcdPaused => {
                open.pid = bench.cluster.process(&Daemon::Etcd);
                open.pid.into_iter().for_each(|pid| signal("-STOP", pid));
            }
            Fault::WebhookDown => bench.kill(Program::Webhook),
            Fault::LeaderKilled => {
                bench.kill(leader);
                open.program = Some(leader);
            }
            Fault::LeaderKilledAtGate => {
                let is_hit = at_gate(bench, shared, leader);
                *self.hits.entry(fault).or_default() += usize::from(is_hit);
                bench.kill(leader);
                open.program = Some(leader);
            }
            Fault::LeaderAsleep => {
                open.pid = bench.pid(leader);
                open.pid.into_iter().for_each(|pid| signal("-STOP", pid));
            }
            Fault::AgentKilled => bench.kill(Program::Agent),
            Fault::AgentKilledInPrepare => {
                let place = self.chance.position(3);
                let is_hit = in_prepare(bench, place);
                *self.hits.entry(fault).or_default() += usize::from(is_hit);
                bench.kill(Program::Agent);
            }
            Fault::NodeOff => {
                bench.kill(Program::Agent);
                bench.is_on = false;
                bench.cluster.power_off(REAL).map_err(said)?;
            }
            Fault::ClockAhead | Fault::ClockBehind => {
                if !Path::new(FAKETIME).exists() {
                    (self.say)("  left out: libfaketime is not installed");
                    return Ok(());
                }
                let skew = if fault == Fault::ClockAhead { "+10m" } else { "-10m" };
                bench.start_at(leader, Some(skew))?;
                open.program = Some(leader);
            }
        }
        *self.counts.entry(fault).or_default() += 1;
        open.until = Instant::now() + lasts;
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self, over: Vec<Open>, bench: &mut Bench) -> Result<(), String> {
        for Open { fault, program, pid, .. } in over {
            (self.say)(&format!("  {fault:?} is over"));
            match fault {
                Fault::ApiServerKilled => bench.cluster.start(&Daemon::ApiServer).map_err(said)?,
                Fault::EtcdPaused | Fault::LeaderAsleep => {
                    pid.into_iter().for_each(|pid| signal("-CONT", pid));
                }
                Fault::WebhookDown => bench.start(Program::Webhook)?,
                Fault::LeaderKilled
                | Fault::LeaderKilledAtGate
                | Fault::ClockAhead
                | Fault::ClockBehind => {
                    program.into_iter().try_for_each(|program| bench.start(program))?;
                }
                Fault::AgentKilled | Fault::AgentKilledInPrepare => bench.start(Program::Agent)?,
                Fault::NodeOff => {
                    bench.cluster.power_on(REAL).map_err(said)?;
                    bench.is_on = true;
                    bench.start(Program::Agent)?;
                }
            }
        }
        Ok(())
    }
}

/// Has the leader killed by whoever sees a claim with devices whose pod is still at the gate; whether its gate was still closed after that.
fn at_gate(bench: &Bench, shared: &Shared, leader: Program) -> bool {
    {
        let mut seen = shared.seen();
        (seen.aim, seen.hit) = (bench.pid(leader).into_iter().collect(), None);
    }
    let end = Instant::now() + AIM;
    while Instant::now() < end && shared.seen().hit.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // What the leader had sent before is seen by then.
    std::thread::sleep(Duration::from_millis(300));
    let mut seen = shared.seen();
    seen.aim.clear();
    let hit = seen.hit.take();
    hit.is_some_and(|pod| seen.pods.get(&pod).is_some_and(is_gated))
}

/// Kills the agent as soon as a file of its work changes; whether one did.
///
/// * `place` — which one: the folder of CDI files, the machine's journal or the checkpoint.
fn in_prepare(bench: &Bench, place: usize) -> bool {
    let Some(pid) = bench.pid(Program::Agent) else { return false };
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let file = ["run/cdi", "var/lib/hotpot/state.db-wal", "var/lib/hotpot/claims.json"][place];
    let file = root.join(file);
    let changed = || -> Option<SystemTime> { fs::metadata(&file).ok()?.modified().ok() };
    let (before, end) = (changed(), Instant::now() + AIM);
    while Instant::now() < end {
        if changed() != before {
            signal("-KILL", pid);
            return true;
        }
        std::thread::sleep(POLL);
    }
    false
}
