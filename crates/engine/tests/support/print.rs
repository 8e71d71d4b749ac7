//! Prints a plan for people: each step with its reason, then who waits and why.

use std::fmt::Write as _;

use engine::{apply, check, plan};
use model::{
    Action, Gpu, GpuId, NodeId, Placement, Plan, Policy, Reason, Seat, Share, SharingMode,
    Snapshot, WorkloadId,
};

use crate::scenario::Scenario;

/// What the engine makes of a scenario. Plans are checked before they are printed.
pub(crate) fn outcome(scenario: &Scenario) -> String {
    let mut printer = Printer { scenario, out: String::new() };
    let mut snapshot = scenario.snapshot.clone();
    printer.plan(&snapshot, &scenario.policy);
    if scenario.again {
        let first = plan(&snapshot, &scenario.policy);
        for step in &first.steps {
            apply(&mut snapshot, &step.action, &scenario.policy).expect("a legal step");
        }
        printer.out.push_str("again\n");
        printer.plan(&snapshot, &scenario.policy);
    }
    if scenario.compare {
        printer.others();
    }
    printer.out
}

struct Printer<'a> {
    scenario: &'a Scenario,
    out: String,
}

impl Printer<'_> {
    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn plan(&mut self, snapshot: &Snapshot, policy: &Policy) {
        let made = plan(snapshot, policy);
        assert_eq!(check(snapshot, &made, policy), [], "{made:?}");
        for step in &made.steps {
            let (what, why) = (self.action(&step.action), self.reason(&step.because));
            self.line(&format!("{what:<58} because {why}"));
        }
        for (id, refusal) in &made.waiting {
            self.line(&format!("wait {}: {refusal}", self.workload(*id)));
        }
        if made.steps.is_empty() && made.waiting.is_empty() {
            self.line("nothing to do");
        }
    }

    /// One line for each other policy (but the random one) that would do something else, and a last one for those that
    /// would not.
    fn others(&mut self) {
        let mine = places(&plan(&self.scenario.snapshot, &self.scenario.policy));
        let mut alike = Vec::new();
        for name in Placement::NAMES {
            let placement = Placement::parse(name).expect("a policy's own name");
            let drawn = matches!(placement, Placement::Random { .. });
            if drawn || placement.name() == self.scenario.policy.placement.name() {
                continue;
            }
            let policy = Policy { placement, ..self.scenario.policy.clone() };
            let theirs = places(&plan(&self.scenario.snapshot, &policy));
            if theirs == mine {
                alike.push(name);
                continue;
            }
            let seats: Vec<_> = theirs.iter().map(|(id, seats)| self.seats(*id, seats)).collect();
            self.line(&format!("{name} instead: {}", seats.join("; ")));
        }
        if !alike.is_empty() {
            self.line(&format!("the same: {}", alike.join(", ")));
        }
    }

    fn action(&self, action: &Action) -> String {
        match action {
            Action::SetMode { gpu, mode } => {
                format!("set {} to {}", self.gpu_id(*gpu), self::mode(*mode))
            }
            Action::Place { workload, seats } => format!("place {}", self.seats(*workload, seats)),
            Action::Preempt { workload, by_ms } => {
                format!("ask {} to leave by {by_ms}", self.workload(*workload))
            }
        }
    }

    fn seats(&self, id: WorkloadId, seats: &[Seat]) -> String {
        let seats: Vec<_> = seats.iter().map(|seat| self.seat(seat)).collect();
        format!("{} on {}", self.workload(id), seats.join(" and "))
    }

    fn seat(&self, seat: &Seat) -> String {
        let mut text = self.node(seat.node).to_owned();
        for (index, share) in &seat.shares {
            let gpu = &self.scenario.snapshot.fleet().nodes()[seat.node.index()].gpus()
                [usize::from(*index)];
            write!(text, " gpu{index} {}", self::share(gpu, *share)).expect("to a string");
        }
        text
    }

    fn reason(&self, reason: &Reason) -> String {
        match reason {
            Reason::NeededBy(id) => format!("{} needs it", self.workload(*id)),
            Reason::Best { score, beside } => format!("best ({score}){}", beside_whom(*beside)),
            Reason::Backfill { head, head_starts_ms, score, beside } => format!(
                "backfill, {} starts at {head_starts_ms} ({score}){}",
                self.workload(*head),
                beside_whom(*beside)
            ),
            Reason::Gang { members } => format!("all {members} members fit"),
            Reason::MakesRoomFor(id) => format!("{} needs the room", self.workload(*id)),
        }
    }

    fn workload(&self, id: WorkloadId) -> String {
        format!("{id} {}", self.scenario.names[id.0 as usize])
    }

    fn node(&self, id: NodeId) -> &str {
        self.scenario.snapshot.fleet().nodes()[id.index()].name()
    }

    fn gpu_id(&self, id: GpuId) -> String {
        format!("{} gpu{}", self.node(id.node), id.index)
    }
}

/// Who is placed where, for comparing plans of two policies.
pub(crate) fn places(plan: &Plan) -> Vec<(WorkloadId, Vec<Seat>)> {
    let place = |action: &Action| match action {
        Action::Place { workload, seats } => Some((*workload, seats.clone())),
        Action::SetMode { .. } | Action::Preempt { .. } => None,
    };
    plan.steps.iter().filter_map(|step| place(&step.action)).collect()
}

fn mode(mode: SharingMode) -> String {
    match mode {
        SharingMode::Exclusive | SharingMode::Mig => mode.kind().to_string(),
        SharingMode::TimeSlice { tenants_max }
        | SharingMode::Mps { tenants_max }
        | SharingMode::MemoryCapped { tenants_max } => {
            format!("{} (at most {tenants_max})", mode.kind())
        }
    }
}

fn share(gpu: &Gpu, share: Share) -> String {
    let kind = share.kind();
    match share {
        Share::Exclusive => kind.to_string(),
        Share::TimeSlice { memory_mib } => format!("{kind} {memory_mib}MiB"),
        Share::Mps { compute_milli, memory_mib }
        | Share::MemoryCapped { compute_milli, memory_mib } => {
            format!("{kind} {compute_milli}/{memory_mib}MiB")
        }
        Share::Mig { profile, start } => {
            let found = gpu.model().mig.as_ref().and_then(|geometry| geometry.profile(profile));
            format!("{kind} {}@{start}", found.map_or("?", |profile| profile.name.as_str()))
        }
    }
}

fn beside_whom(beside: Option<model::Beside>) -> String {
    beside.map_or_else(String::new, |one| {
        let model::Beside { tenants, speed_milli, slowest_milli } = one;
        format!(", beside {tenants} at {speed_milli}, slowest there {slowest_milli}")
    })
}
