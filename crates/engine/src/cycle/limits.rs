//! Limits that have nothing to do with the fleet: quotas and arrays.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use model::{Action, Plan, Refusal, Workload, WorkloadId};

use super::Cycle;
use super::seating::Tentative;

impl Cycle<'_> {
    /// What stops one workload at its limit stops those behind it in the same lane. Returns whether
    /// it was stopped so, before anybody looked for a seat.
    pub(super) fn note_limit(&mut self, workload: &Workload, refusal: &Refusal) -> bool {
        // Where the size shows on the seat alone, it may be less on another: nobody is held up.
        let quota = matches!(refusal, Refusal::Quota { asked_milli, .. }
            if *asked_milli == least_milli(workload));
        if quota {
            self.quota_kept.insert(workload.owner.clone());
        }
        let stopped = quota || matches!(refusal, Refusal::ArrayLimit { .. });
        if stopped {
            self.queue.park();
        }
        stopped
    }

    /// Gives a reason to those who were not looked at, unless they are more than a plan looks at.
    pub(super) fn name_the_rest(&self, plan: &mut Plan) {
        let waiting = self.snapshot.waiting();
        if waiting.len() > self.policy.depth as usize {
            return;
        }
        let placed = plan.steps.iter().filter_map(|step| match &step.action {
            Action::Place { workload, .. } => Some(*workload),
            Action::SetMode { .. } | Action::Preempt { .. } => None,
        });
        let placed: BTreeSet<WorkloadId> = placed.collect();
        for (id, workload) in waiting.iter().filter(|(id, _)| !placed.contains(id)) {
            plan.waiting.entry(*id).or_insert_with(|| {
                let limit = self.within_limits(workload).err();
                limit.unwrap_or(Refusal::BeyondDepth { depth: self.policy.depth })
            });
        }
    }

    /// Limits that have nothing to do with the fleet: quota and array.
    pub(super) fn within_limits(&self, workload: &Workload) -> Result<(), Refusal> {
        if let Some(member) = workload.array {
            let here = self.arrays.get(&member.array).copied().unwrap_or(0);
            let running = self.snapshot.array_running(member.array) + here;
            if member.at_once_max > 0 && running >= member.at_once_max {
                return Err(Refusal::ArrayLimit { at_once_max: member.at_once_max });
            }
        }
        let asked_milli = least_milli(workload);
        if let Err(refusal) = self.quota(workload, asked_milli) {
            let limit_milli = self.policy.quota(&workload.owner).gpu_milli_max;
            // The least that the workload can count for may be more than its owner can ever use.
            let never = limit_milli.is_some_and(|limit_milli| asked_milli > limit_milli);
            let because = Box::new(refusal);
            return Err(if never { Refusal::Never { because } } else { *because });
        }
        Ok(())
    }

    /// Whether the owner may use so much more. Nobody takes the quota from under an earlier workload
    /// of the same owner that waits for it.
    pub(super) fn quota(&self, workload: &Workload, asked_milli: u64) -> Result<(), Refusal> {
        let Some(limit_milli) = self.policy.quota(&workload.owner).gpu_milli_max else {
            return Ok(());
        };
        if workload.demand.gpus.is_none() {
            return Ok(());
        }
        let held_milli = self.clearing.held_milli(&workload.owner);
        let used_milli = self.queue.usage(&workload.owner).gpu_milli.saturating_add(held_milli);
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
    pub(super) fn within_quota(
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
}

/// The least that a workload can count for its owner: 0 where the size depends on the seat.
fn least_milli(workload: &Workload) -> u64 {
    workload.demand.gpu_milli().saturating_mul(u64::from(workload.members.max(1)))
}
