//! A planner that lives on from cycle to cycle and remembers what it has scored.

use alloc::vec::Vec;

use model::{MixShape, Plan, Policy, Snapshot};

use crate::cycle::Cycle;
use crate::interference::{Company, Interference};
use crate::memo::Memo;
use crate::mix;
use crate::placement::Scorer;

/// Plans cycle after cycle under one policy. What it remembers makes it faster, never different.
pub struct Planner {
    policy: Policy,
    /// The mix read off the last snapshot, where the policy brings none.
    observed: Vec<MixShape>,
    memo: Option<Memo>,
    /// What is known of pairs of tenants before the first plan.
    company: Company,
}

impl Planner {
    /// A planner that has seen nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, observed: Vec::new(), memo: None, company: Company::default() }
    }

    /// The same with a model of interference that has learned, in place of the shipped one.
    #[must_use]
    pub fn with_interference(self, model: Interference) -> Self {
        Self { memo: None, company: Company::new(model), ..self }
    }

    /// The same, but nobody is asked to leave.
    #[must_use]
    pub fn without_preemption(mut self) -> Self {
        self.policy.preemption = None;
        self
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
        let company = match self.memo.take() {
            Some(mut memo) if memo.is_of(snapshot) && self.observed == observed => {
                memo.follow(snapshot);
                memo.bound();
                return memo;
            }
            Some(memo) => memo.into_company(),
            None => core::mem::take(&mut self.company),
        };
        self.observed = observed;
        let scorer = Scorer::new(&self.policy, &self.observed, snapshot.fleet(), company);
        Memo::new(scorer, snapshot)
    }
}
