//! One pass over the queue: who is next, where could it sit, which place is best, and what if none
//! is free.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use model::{
    Action, GpuId, NodeId, Owner, Placement, Plan, Policy, Reason, Refusal, Seat, SharingMode,
    Snapshot, Step, Usage, Workload, WorkloadId,
};

use crate::apply::expected_end_ms;
use crate::backfill::Promise;
use crate::fit;
use crate::lottery::Lottery;
use crate::memo::{ColumnId, Memo};
use crate::order::Queue;

/// Largest gang; a larger one is refused for good, which bounds the work on one workload.
const MEMBERS_MAX: u32 = 65_536;

/// A workload's members on the working copy of the fleet.
#[derive(Default)]
struct Tentative {
    steps: Vec<Step>,
    seats: Vec<Seat>,
    score: i64,
    /// What the shares count for their owner.
    gpu_milli: u64,
    /// Whether members take the GPUs with the most left, whatever the policy likes.
    roomiest: bool,
    /// Modes before the change, to be set back if the gang does not fit.
    changed: Vec<(GpuId, SharingMode)>,
}

/// One pass over the queue.
pub(crate) struct Cycle<'a> {
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    memo: &'a mut Memo,
    queue: Queue<'a>,
    /// Tasks of arrays started by this plan.
    arrays: BTreeMap<WorkloadId, u32>,
    /// Owners with a workload that waits for their quota.
    quota_kept: BTreeSet<Owner>,
    /// The first workload that found no place and waits for one.
    head: Option<Arc<Workload>>,
    /// What it is promised; computed when somebody behind it asks.
    promise: Option<Promise>,
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy, memo: &'a mut Memo) -> Self {
        let queue = Queue::new(snapshot, policy);
        let (arrays, quota_kept) = (BTreeMap::new(), BTreeSet::new());
        Self { snapshot, policy, memo, queue, arrays, quota_kept, head: None, promise: None }
    }

    pub(crate) fn run(mut self) -> Plan {
        let mut plan = Plan { at_ms: self.snapshot.now_ms, ..Plan::default() };
        let mut looked_at = 0;
        while looked_at < self.policy.depth.max(1) {
            let Some(id) = self.queue.next() else { break };
            let Some(workload) = self.snapshot.waiting().get(&id).cloned() else { continue };
            match self.try_start(&workload) {
                Ok(steps) => {
                    looked_at += 1;
                    plan.steps.extend(steps);
                }
                Err(refusal) => {
                    looked_at += u32::from(!refusal.is_of_limits());
                    self.note_limit(&workload, &refusal);
                    plan.waiting.insert(id, refusal);
                }
            }
        }
        self.name_the_rest(&mut plan);
        plan
    }

    /// What stops one workload at its limit stops those behind it in the same lane.
    fn note_limit(&mut self, workload: &Workload, refusal: &Refusal) {
        // Where it is too large for the quota on this seat, it may count for less on another.
        let quota = matches!(refusal, Refusal::Quota { asked_milli, limit_milli, .. }
            if asked_milli <= limit_milli);
        if quota {
            self.quota_kept.insert(workload.owner.clone());
        }
        if quota || matches!(refusal, Refusal::ArrayLimit { .. }) {
            self.queue.park();
        }
    }

    /// Gives a reason to those who were not looked at, unless they are more than a plan looks at.
    fn name_the_rest(&self, plan: &mut Plan) {
        let waiting = self.snapshot.waiting();
        if waiting.len() > self.policy.depth as usize {
            return;
        }
        let placed = plan.steps.iter().filter_map(|step| match &step.action {
            Action::Place { workload, .. } => Some(*workload),
            Action::SetMode { .. } => None,
        });
        let placed: BTreeSet<WorkloadId> = placed.collect();
        for (id, workload) in waiting.iter().filter(|(id, _)| !placed.contains(id)) {
            plan.waiting.entry(*id).or_insert_with(|| {
                let limit = self.within_limits(workload).err();
                limit.unwrap_or(Refusal::BeyondDepth { depth: self.policy.depth })
            });
        }
    }

    fn try_start(&mut self, workload: &Arc<Workload>) -> Result<Vec<Step>, Refusal> {
        self.within_limits(workload)?;
        if let (Some(head), false) = (&self.head, self.policy.backfill) {
            return Err(Refusal::BehindHead { head: head.id });
        }
        let columns = self.memo.columns(workload);
        self.ever(workload, &columns)?;
        self.promise_to_head();
        let seated = self.seat_all(workload, &columns, self.end_ms(workload));
        match seated.and_then(|tentative| self.within_quota(workload, tentative)) {
            Ok(tentative) => Ok(self.start(workload, tentative)),
            Err(refusal) if refusal.is_of_limits() => Err(refusal),
            Err(refusal) => {
                if self.head.is_none() {
                    self.head = Some(Arc::clone(workload));
                }
                Err(refusal)
            }
        }
    }

    /// Limits that have nothing to do with the fleet: quota and array.
    fn within_limits(&self, workload: &Workload) -> Result<(), Refusal> {
        let members = u64::from(workload.members.max(1));
        let asked_milli = workload.demand.gpu_milli().saturating_mul(members);
        if let Err(refusal) = self.quota(workload, asked_milli) {
            let limit_milli = self.policy.quota(&workload.owner).gpu_milli_max;
            // The least that the workload can count for may be more than its owner can ever use.
            let never = limit_milli.is_some_and(|limit_milli| asked_milli > limit_milli);
            let because = Box::new(refusal);
            return Err(if never { Refusal::Never { because } } else { *because });
        }
        if let Some(member) = workload.array {
            let here = self.arrays.get(&member.array).copied().unwrap_or(0);
            let running = self.snapshot.array_running(member.array) + here;
            if member.at_once_max > 0 && running >= member.at_once_max {
                return Err(Refusal::ArrayLimit { at_once_max: member.at_once_max });
            }
        }
        Ok(())
    }

    /// Whether the owner may use so much more. Nobody takes the quota from under an earlier workload
    /// of the same owner that waits for it.
    fn quota(&self, workload: &Workload, asked_milli: u64) -> Result<(), Refusal> {
        let Some(limit_milli) = self.policy.quota(&workload.owner).gpu_milli_max else {
            return Ok(());
        };
        if workload.demand.gpus.is_none() {
            return Ok(());
        }
        let used_milli = self.queue.usage(&workload.owner).gpu_milli;
        let owner = workload.owner.as_str().into();
        let refusal = Refusal::Quota { owner, asked_milli, used_milli, limit_milli };
        let kept = self.quota_kept.contains(&workload.owner);
        if kept || used_milli.saturating_add(asked_milli) > limit_milli {
            return Err(refusal);
        }
        Ok(())
    }

    /// The quota once more, now that the seats and so the shares' true sizes are known: a profile
    /// or an amount of memory says little before.
    fn within_quota(
        &mut self,
        workload: &Workload,
        tentative: Tentative,
    ) -> Result<Tentative, Refusal> {
        let verdict = self.quota(workload, tentative.gpu_milli);
        if verdict.is_err() {
            self.undo(workload.id, &tentative);
        }
        verdict.map(|()| tentative)
    }

    /// Seats every member on the working copy, or none.
    fn seat_all(
        &mut self,
        workload: &Workload,
        columns: &[ColumnId],
        until_ms: u64,
    ) -> Result<Tentative, Refusal> {
        let mut tentative = Tentative::default();
        let members = workload.members.max(1);
        while (tentative.seats.len() as u32) < members {
            let Err(refusal) = self.seat_one(workload, columns, until_ms, &mut tentative) else {
                continue;
            };
            self.undo(workload.id, &tentative);
            if members == 1 {
                return Err(refusal);
            }
            if tentative.roomiest {
                let (offered, because) = (tentative.seats.len() as u32, Box::new(refusal));
                return Err(Refusal::Gang { asked: members, offered, because });
            }
            // What the policy likes best for one member may leave no room for the next.
            tentative = Tentative { roomiest: true, ..Tentative::default() };
        }
        Ok(tentative)
    }

    fn seat_one(
        &mut self,
        workload: &Workload,
        columns: &[ColumnId],
        until_ms: u64,
        tentative: &mut Tentative,
    ) -> Result<(), Refusal> {
        let mut lottery = None;
        if let (Placement::Random { seed }, false) = (&self.policy.placement, tentative.roomiest) {
            lottery = Some(Lottery::new(*seed, workload.id, tentative.seats.len()));
        }
        let mut closed = Vec::new();
        if workload.apart {
            closed.extend(tentative.seats.iter().map(|seat| seat.node));
        }
        let chosen = self.choose(columns, until_ms, closed, &mut lottery);
        let (column, node, score) =
            chosen.map_err(|refusal| fit::for_all_alternatives(refusal, &workload.demand))?;
        let picks = match (&mut lottery, &workload.demand.gpus) {
            (Some(lottery), Some(gpus)) => lottery.picks(self.memo.options(column, node)?, gpus),
            _ if tentative.roomiest => self.memo.roomiest(column, node)?,
            _ => self.memo.picks(column, node)?.to_vec(),
        };
        for pick in &picks {
            let gpu = GpuId { node, index: pick.gpu };
            let found = &self.memo.nodes()[node.index()].gpus()[usize::from(pick.gpu)];
            let before = found.mode();
            tentative.gpu_milli += u64::from(found.share_milli(pick.mode, pick.share));
            if before != pick.mode {
                self.memo.set_mode(gpu, pick.mode)?;
                tentative.changed.push((gpu, before));
                tentative.steps.push(Step {
                    action: Action::SetMode { gpu, mode: pick.mode },
                    because: Reason::NeededBy(workload.id),
                });
            }
        }
        let shares = picks.iter().map(|pick| (pick.gpu, pick.share)).collect();
        let seat = Seat { node, shares };
        self.memo.admit(workload, &seat, until_ms)?;
        tentative.seats.push(seat);
        tentative.score = score;
        Ok(())
    }

    /// The best node for one member by the first alternative that has any.
    fn choose(
        &mut self,
        columns: &[ColumnId],
        until_ms: u64,
        mut closed: Vec<NodeId>,
        lottery: &mut Option<Lottery>,
    ) -> Result<(ColumnId, NodeId, i64), Refusal> {
        closed.extend(self.promise.as_ref().map_or(&[][..], |p| p.kept_from(until_ms)));
        let mut nearest: Option<Refusal> = None;
        for column in columns {
            let refusal = match (self.memo.best(*column, &closed), &self.promise) {
                (Ok(Some((best, score))), _) => {
                    let drawn = lottery
                        .as_mut()
                        .and_then(|lottery| lottery.node(&self.memo.feasible(*column, &closed)));
                    return Ok((*column, drawn.unwrap_or(best), score));
                }
                (Ok(None), Some(promise)) => kept(promise),
                // Only members that sit apart leave nodes out without a promise.
                (Ok(None), None) => Refusal::NoSuchPlace { place: "other node with room".into() },
                (Err(refusal), _) => refusal,
            };
            nearest = Some(Refusal::nearer(nearest, refusal));
        }
        // No alternative at all: `Memo::columns` gives at least one.
        Err(nearest.unwrap_or(Refusal::NoSuchPlace { place: "node".into() }))
    }

    /// Puts the finished seats into the plan's terms and counts them.
    fn start(&mut self, workload: &Workload, tentative: Tentative) -> Vec<Step> {
        let Tentative { mut steps, seats, score, gpu_milli, .. } = tentative;
        let cpu_milli = workload.demand.cpu_milli.saturating_mul(seats.len() as u64);
        let usage = Usage { gpu_milli, cpu_milli };
        self.queue.charge(&workload.owner, usage);
        if let Some(member) = workload.array {
            *self.arrays.entry(member.array).or_default() += 1;
        }
        let because = match (&self.promise, seats.len()) {
            (Some(promise), _) => {
                Reason::Backfill { head: promise.head, head_starts_ms: promise.starts_ms, score }
            }
            (None, 1) => Reason::Best { score },
            (None, _) => Reason::Gang { members: seats.len() as u32 },
        };
        steps.push(Step { action: Action::Place { workload: workload.id, seats }, because });
        steps
    }

    fn undo(&mut self, workload: WorkloadId, tentative: &Tentative) {
        for seat in &tentative.seats {
            self.memo.release(seat.node, workload);
        }
        for (gpu, mode) in tentative.changed.iter().rev() {
            // The GPU is idle again and was in that mode before: nothing can be in the way.
            let _ = self.memo.set_mode(*gpu, *mode);
        }
    }

    /// Whether an idle fleet could hold the workload; a refusal that says so if not.
    fn ever(&mut self, workload: &Workload, columns: &[ColumnId]) -> Result<(), Refusal> {
        let asked = workload.members.max(1);
        let because = if asked > MEMBERS_MAX {
            Refusal::GangTooLarge { asked, members_max: MEMBERS_MAX }
        } else {
            match self.memo.idle_room(columns, asked, workload.apart) {
                (offered, _) if offered >= asked => return Ok(()),
                (_, because) if asked == 1 => because,
                (offered, because) => Refusal::Gang { asked, offered, because: Box::new(because) },
            }
        };
        let because = Box::new(fit::for_all_alternatives(because, &workload.demand));
        Err(Refusal::Never { because })
    }

    fn promise_to_head(&mut self) {
        let (Some(head), None) = (self.head.clone(), &self.promise) else { return };
        let columns = self.memo.columns(&head);
        let now_ms = self.snapshot.now_ms;
        let soonest = self.memo.soonest(&columns, head.members.max(1), head.apart, now_ms);
        let waited_ms = now_ms.saturating_sub(head.submitted_ms);
        self.promise = soonest.map(|(starts_ms, nodes)| {
            // Promises can be missed, by residents that overstay or by workloads ahead of the head.
            // Whoever has waited too long gets every node that could hold it kept free.
            let patient = waited_ms <= self.policy.patience_ms;
            let nodes = if patient { nodes } else { self.memo.ever_able(&columns) };
            Promise { head: head.id, starts_ms, nodes }
        });
    }

    fn end_ms(&self, workload: &Workload) -> u64 {
        expected_end_ms(self.snapshot.now_ms, workload, self.policy)
    }
}

fn kept(promise: &Promise) -> Refusal {
    Refusal::KeptForHead { head: promise.head, until_ms: promise.starts_ms }
}
