//! Who is next: by priority, then by fair share of the owner, then by age.
//!
//! Fair share is dominant-resource fairness (Ghodsi et al., NSDI'11): an owner's usage is the larger
//! of its parts of all GPUs and of all vCPUs, divided by the owner's weight. What the plan grants
//! counts at once, so owners of equal standing take turns within one plan.

use alloc::collections::{BTreeMap, BTreeSet, btree_set};
use alloc::vec::Vec;

use model::{Lane, Owner, Policy, Snapshot, Usage, WorkloadId};

/// Waiting workloads in the order in which they are to be looked at.
pub(crate) struct Queue<'a> {
    capacity: Usage,
    /// Lanes with how far each has been followed; sorted by priority from high to low.
    lines: Vec<Line<'a>>,
    /// Lanes of the priority in turn that have entries left, the next one first.
    turn: BTreeSet<Standing>,
    /// First lane of the priorities after that.
    later: usize,
    accounts: BTreeMap<&'a Owner, Account>,
    /// Lane of the workload that was last given out.
    last: usize,
}

struct Line<'a> {
    lane: Lane<'a>,
    entries: btree_set::Iter<'a, (u64, WorkloadId)>,
    /// Its place in `turn`, while it has one.
    standing: Option<Standing>,
    /// Whether nobody in it can get any further in this plan.
    parked: bool,
}

/// Weighted dominant share of the owner, then the age of the lane's first entry, then the lane.
type Standing = (u128, (u64, WorkloadId), usize);

struct Account {
    weight: u64,
    usage: Usage,
    /// The owner's lanes in turn.
    lanes: Vec<usize>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        let mut accounts = BTreeMap::new();
        let mut lines = Vec::new();
        for lane in snapshot.lanes() {
            accounts.entry(lane.owner).or_insert_with(|| {
                let weight = u64::from(policy.quota(lane.owner).weight.max(1));
                Account { weight, usage: snapshot.usage(lane.owner), lanes: Vec::new() }
            });
            let entries = lane.entries.iter();
            lines.push(Line { lane, entries, standing: None, parked: false });
        }
        let (turn, later, last) = (BTreeSet::new(), 0, 0);
        Self { capacity: snapshot.capacity(), lines, turn, later, accounts, last }
    }

    /// The next workload in line.
    pub(crate) fn next(&mut self) -> Option<WorkloadId> {
        if self.turn.is_empty() {
            self.take_next_priority();
        }
        let (_, (_, id), lane) = self.turn.pop_first()?;
        self.lines[lane].standing = None;
        self.lines[lane].entries.next();
        self.last = lane;
        self.stand(lane);
        Some(id)
    }

    /// Leaves out the rest of the lane from which the last workload came: what stopped that one
    /// stops them all.
    pub(crate) fn park(&mut self) {
        if let Some(line) = self.lines.get_mut(self.last) {
            line.parked = true;
            if let Some(standing) = line.standing.take() {
                self.turn.remove(&standing);
            }
        }
    }

    /// What an owner uses, the plan's grants included.
    pub(crate) fn usage(&self, owner: &Owner) -> Usage {
        self.accounts.get(owner).map(|account| account.usage).unwrap_or_default()
    }

    /// Counts a grant of the plan towards its owner.
    pub(crate) fn charge(&mut self, owner: &Owner, usage: Usage) {
        let Some(account) = self.accounts.get_mut(owner) else { return };
        account.usage = account.usage.plus(usage);
        for lane in account.lanes.clone() {
            if let Some(standing) = self.lines[lane].standing.take() {
                self.turn.remove(&standing);
            }
            self.stand(lane);
        }
    }

    fn take_next_priority(&mut self) {
        let Some(first) = self.lines.get(self.later) else { return };
        let priority = first.lane.priority;
        self.accounts.values_mut().for_each(|account| account.lanes.clear());
        while let Some(line) = self.lines.get(self.later) {
            if line.lane.priority != priority {
                break;
            }
            if let Some(account) = self.accounts.get_mut(line.lane.owner) {
                account.lanes.push(self.later);
            }
            self.stand(self.later);
            self.later += 1;
        }
    }

    /// Gives a lane its place among those in turn, if it has entries left.
    fn stand(&mut self, lane: usize) {
        let line = &self.lines[lane];
        let Some(first) = line.entries.clone().next().filter(|_| !line.parked) else { return };
        let standing = (self.share(line.lane.owner), *first, lane);
        self.lines[lane].standing = Some(standing);
        self.turn.insert(standing);
    }

    /// An owner's dominant share of the fleet over its weight, in 10⁻¹⁸.
    fn share(&self, owner: &Owner) -> u128 {
        let Some(account) = self.accounts.get(owner) else { return 0 };
        let part = |used: u64, all: u64| {
            u128::from(used) * 1_000_000_000_000_000_000 / u128::from(all.max(1))
        };
        let gpus = part(account.usage.gpu_milli, self.capacity.gpu_milli);
        let cpus = part(account.usage.cpu_milli, self.capacity.cpu_milli);
        gpus.max(cpus) / u128::from(account.weight)
    }
}
