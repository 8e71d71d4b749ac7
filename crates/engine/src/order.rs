//! Who is next: by priority, then by fair share of the owner, then by age.
//!
//! Fair share is dominant-resource fairness (Ghodsi et al., NSDI'11): an owner's usage is the larger
//! of its parts of all GPUs and of all vCPUs, divided by the owner's weight. What the plan grants
//! counts at once, so owners of equal standing take turns within one plan.

use alloc::collections::btree_set;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::iter::Peekable;

use model::{Owner, Policy, Snapshot, Usage, WorkloadId};

/// Waiting workloads in the order in which they are to be looked at.
pub(crate) struct Queue<'a> {
    capacity: Usage,
    /// Lanes of one owner and priority each; sorted by priority from high to low.
    lanes: Vec<Lane<'a>>,
    owners: Vec<Account<'a>>,
}

struct Lane<'a> {
    priority: i32,
    account: usize,
    entries: Peekable<btree_set::Iter<'a, (u64, WorkloadId)>>,
}

struct Account<'a> {
    owner: &'a Owner,
    weight: u64,
    usage: Usage,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        let mut owners: Vec<Account<'a>> = Vec::new();
        let mut lanes = Vec::new();
        for (priority, owner, entries) in snapshot.lanes() {
            let known = owners.iter().position(|account| account.owner == owner);
            let account = known.unwrap_or(owners.len());
            if known.is_none() {
                let weight = u64::from(policy.quota(owner).weight.max(1));
                owners.push(Account { owner, weight, usage: snapshot.usage(owner) });
            }
            lanes.push(Lane { priority, account, entries: entries.iter().peekable() });
        }
        Self { capacity: snapshot.capacity(), lanes, owners }
    }

    /// The next workload in line.
    pub(crate) fn next(&mut self) -> Option<WorkloadId> {
        self.lanes.retain_mut(|lane| lane.entries.peek().is_some());
        let priority = self.lanes.first()?.priority;
        let rivals = self.lanes.iter().take_while(|lane| lane.priority == priority).count();
        let mut first = 0;
        for other in 1..rivals {
            if self.goes_before(other, first) {
                first = other;
            }
        }
        self.lanes.get_mut(first)?.entries.next().map(|(_, id)| *id)
    }

    /// What an owner uses, the plan's grants included.
    pub(crate) fn usage(&self, owner: &Owner) -> Usage {
        let account = self.owners.iter().find(|account| account.owner == owner);
        account.map(|account| account.usage).unwrap_or_default()
    }

    /// Counts a grant of the plan towards its owner.
    pub(crate) fn charge(&mut self, owner: &Owner, usage: Usage) {
        if let Some(account) = self.owners.iter_mut().find(|account| account.owner == owner) {
            account.usage = account.usage.plus(usage);
        }
    }

    fn goes_before(&mut self, one: usize, other: usize) -> bool {
        let (left, right) = (self.account(one), self.account(other));
        // Shares are compared as fractions, a / w < b / v being a · v < b · w.
        let fairness = (self.dominant(left) * u128::from(right.weight))
            .cmp(&(self.dominant(right) * u128::from(left.weight)));
        match fairness {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.age(one) < self.age(other),
        }
    }

    fn account(&self, lane: usize) -> &Account<'a> {
        &self.owners[self.lanes[lane].account]
    }

    fn age(&mut self, lane: usize) -> Option<(u64, WorkloadId)> {
        self.lanes[lane].entries.peek().map(|entry| **entry)
    }

    /// Dominant share of the fleet in billionths.
    fn dominant(&self, account: &Account<'_>) -> u128 {
        let part = |used: u64, all: u64| u128::from(used) * 1_000_000_000 / u128::from(all.max(1));
        part(account.usage.gpu_milli, self.capacity.gpu_milli)
            .max(part(account.usage.cpu_milli, self.capacity.cpu_milli))
    }
}
