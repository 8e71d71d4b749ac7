//! A planner that lives on from cycle to cycle and remembers what it has scored.

use alloc::vec::Vec;

use model::{MixShape, Plan, Policy, Snapshot};

use crate::cycle::Cycle;
use crate::memo::Memo;
use crate::mix;
use crate::placement::Scorer;

/// Plans cycle after cycle under one policy. What it remembers makes it faster, never different.
pub struct Planner {
    policy: Policy,
    /// The mix read off the last snapshot, where the policy brings none.
    observed: Vec<MixShape>,
    memo: Option<Memo>,
}

impl Planner {
    /// A planner that has seen nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, observed: Vec::new(), memo: None }
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// See [`plan`](crate::plan).
    pub fn plan(&mut self, snapshot: &Snapshot) -> Plan {
        let mut memo = self.recall(snapshot);
        let plan = Cycle::new(snapshot, &self.policy, &mut memo).run();
        self.memo = Some(memo);
        plan
    }

    /// What is remembered of this fleet and this mix, brought up to date; or a fresh start.
    fn recall(&mut self, snapshot: &Snapshot) -> Memo {
        let observed = mix::observed(&self.policy, snapshot);
        let known = self.memo.take().filter(|memo| memo.is_of(snapshot));
        if let Some(mut memo) = known.filter(|_| self.observed == observed) {
            memo.follow(snapshot);
            memo.bound();
            return memo;
        }
        self.observed = observed;
        Memo::new(Scorer::new(&self.policy, &self.observed, snapshot.fleet()), snapshot)
    }
}
