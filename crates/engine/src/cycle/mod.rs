//! One pass over the queue: who is next, where could it sit, which place is best, and what if none
//! is free.

mod clearing;
mod limits;
mod seating;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use model::{
    Action, Owner, Plan, Policy, Reason, Refusal, Snapshot, Step, Usage, Workload, WorkloadId,
};

use crate::apply::expected_end_ms;
use crate::backfill::Promise;
use crate::fit;
use crate::memo::{ColumnId, Memo};
use crate::order::Queue;
use clearing::Clearing;
use seating::Tentative;

/// Largest gang; a larger one is refused for good, which bounds the work on one workload.
const MEMBERS_MAX: u32 = 65_536;

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
    /// What it is promised, if anything can be; found out when somebody behind it comes.
    promise: Option<Promise>,
    asked_for_promise: bool,
    /// What is cleared for workloads that find room once others have left.
    clearing: Clearing,
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy, memo: &'a mut Memo) -> Self {
        let queue = Queue::new(snapshot, policy);
        let (arrays, quota_kept) = (BTreeMap::new(), BTreeSet::new());
        Self {
            snapshot,
            policy,
            memo,
            queue,
            arrays,
            quota_kept,
            head: None,
            promise: None,
            asked_for_promise: false,
            clearing: Clearing::default(),
        }
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
                    let before_seating = self.note_limit(&workload, &refusal);
                    looked_at += u32::from(!before_seating && !refusal.is_never());
                    plan.waiting.insert(id, refusal);
                    plan.steps.extend(self.clearing.take_steps());
                }
            }
        }
        self.name_the_rest(&mut plan);
        plan
    }

    fn try_start(&mut self, workload: &Arc<Workload>) -> Result<Vec<Step>, Refusal> {
        let columns = self.memo.columns(workload);
        self.ever(workload, &columns)?;
        self.within_limits(workload)?;
        if let (Some(head), false) = (&self.head, self.policy.backfill) {
            return Err(Refusal::BehindHead { head: head.id });
        }
        self.promise_to_head();
        let seated = self.seat_all(workload, &columns, self.end_ms(workload));
        match seated.and_then(|tentative| self.within_quota(workload, tentative)) {
            Ok(tentative) => Ok(self.start(workload, tentative)),
            Err(refusal) if refusal.is_of_limits() => Err(refusal),
            Err(refusal) => {
                if let Some(waits) = self.make_room(workload, &columns) {
                    return Err(waits);
                }
                if self.head.is_none() {
                    self.head = Some(Arc::clone(workload));
                }
                Err(refusal)
            }
        }
    }

    /// Puts the finished seats into the plan's terms and counts them.
    fn start(&mut self, workload: &Workload, tentative: Tentative) -> Vec<Step> {
        let Tentative { mut steps, seats, score, beside, gpu_milli, .. } = tentative;
        let cpu_milli = workload.demand.cpu_milli.saturating_mul(seats.len() as u64);
        let usage = Usage { gpu_milli, cpu_milli };
        self.queue.charge(&workload.owner, usage);
        if let Some(member) = workload.array {
            *self.arrays.entry(member.array).or_default() += 1;
        }
        let because = match (&self.promise, seats.len()) {
            (Some(promise), _) => {
                let (head, head_starts_ms) = (promise.head, promise.starts_ms);
                Reason::Backfill { head, head_starts_ms, score, beside }
            }
            (None, 1) => Reason::Best { score, beside },
            (None, _) => Reason::Gang { members: seats.len() as u32 },
        };
        steps.push(Step { action: Action::Place { workload: workload.id, seats }, because });
        steps
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
        let Some(head) = self.head.clone().filter(|_| !self.asked_for_promise) else { return };
        self.asked_for_promise = true;
        let columns = self.memo.columns(&head);
        let now_ms = self.snapshot.now_ms;
        let soonest = self.memo.soonest(&columns, head.members.max(1), head.apart, now_ms);
        let waited_ms = now_ms.saturating_sub(head.submitted_ms);
        self.promise = soonest.map(|(starts_ms, nodes)| {
            // Promises can be missed, by residents that overstay or by workloads ahead of the head.
            // Whoever has waited too long gets every node that could hold it kept free.
            let patient = waited_ms <= self.policy.patience_ms;
            let nodes = if patient { nodes } else { self.memo.ever_able(&columns) };
            // On the working copy whoever was asked to leave is gone; in truth that takes until then.
            let starts_ms = starts_ms.max(self.clearing.cleared_ms(&nodes));
            Promise { head: head.id, starts_ms, nodes }
        });
    }

    fn end_ms(&self, workload: &Workload) -> u64 {
        expected_end_ms(self.snapshot.now_ms, workload, self.policy)
    }
}
