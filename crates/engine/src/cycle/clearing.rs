//! Making room for workloads that find none: whoever is asked to leave, and what is kept until they
//! have left.
//!
//! Nothing is remembered from plan to plan. On the working copy those asked are gone and the newcomer
//! sits there, so that the next one counts on neither; in truth they still sit there, so nobody starts
//! on such a node in this plan. The next plan finds them leaving, at no cost, and clears the same.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use model::{
    Action, Node, NodeId, Owner, Reason, Refusal, Running, Seat, Step, Workload, WorkloadId,
};

use super::Cycle;
use super::seating::Tentative;
use crate::apply::expected_end_ms;
use crate::memo::ColumnId;
use crate::preempt::{self, Guest, Site};

/// Most members of all workloads of one plan for which somebody to leave is looked for.
const SEARCHES_MAX: u32 = 64;
/// Most such members of one workload, so that a large gang leaves something to those behind it.
const MEMBERS_MAX: u32 = 32;

/// Residents looked at in one plan after which no further search begins: a search of a fleet that is
/// densely shared takes long before it tries the first set.
const GUESTS_MAX: usize = 300_000;

/// What one plan clears.
#[derive(Default)]
pub(super) struct Clearing {
    steps: Vec<Step>,
    nodes: BTreeMap<NodeId, Cleared>,
    /// Those asked by this plan.
    asked: BTreeSet<WorkloadId>,
    /// What the newcomers will count for their owners.
    held_milli: BTreeMap<Owner, u64>,
    searches: u32,
    /// Residents looked at.
    guests: usize,
    /// Sets of workloads looked at.
    tries: u32,
    in_vain: BTreeSet<Question>,
    /// The lowest priority of those that may be asked, by node; the lowest of all where somebody
    /// leaves anyway. Known once somebody has asked.
    movable: Option<BTreeMap<NodeId, i32>>,
    /// The lowest of all nodes.
    lowest: i32,
}

/// A node that nobody else starts on for now.
#[derive(Clone)]
struct Cleared {
    newcomer: WorkloadId,
    /// Who has to leave before the newcomer starts, and by when they are gone.
    leaving: BTreeSet<WorkloadId>,
    by_ms: u64,
}

/// Two workloads with the same question get the same answer: what is asked for and by how many
/// members, whether apart, the priority, and whether the head's nodes are kept from it.
type Question = (Vec<ColumnId>, u32, bool, i32, bool);

/// Room for one workload, as far as it has been found.
#[derive(Default)]
struct Draft {
    /// When those asked now are gone.
    by_ms: u64,
    tentative: Tentative,
    victims: BTreeSet<WorkloadId>,
    searches: u32,
    /// Nodes as they were.
    before: BTreeMap<NodeId, Node>,
}

impl Clearing {
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        core::mem::take(&mut self.steps)
    }

    fn is_spent(&self) -> bool {
        self.searches >= SEARCHES_MAX || self.guests >= GUESTS_MAX
    }

    /// Nodes that nobody starts on in this plan.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// When those that leave are gone from all of the nodes; 0 if nobody is asked to.
    pub(super) fn cleared_ms(&self, nodes: &[NodeId]) -> u64 {
        let cleared = nodes.iter().filter_map(|node| self.nodes.get(node));
        cleared.map(|cleared| cleared.by_ms).max().unwrap_or(0)
    }

    /// Thousandths of GPUs that an owner's newcomers will count for.
    pub(super) fn held_milli(&self, owner: &Owner) -> u64 {
        self.held_milli.get(owner).copied().unwrap_or(0)
    }
}

impl Cycle<'_> {
    /// Makes room for a workload that finds none, if the policy allows that: what it waits for then.
    pub(super) fn make_room(
        &mut self,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
    ) -> Option<Refusal> {
        let grace_ms = self.policy.preemption.filter(|_| workload.preempts)?.grace_ms;
        let by_ms = self.snapshot.now_ms.saturating_add(grace_ms);
        let end_ms = expected_end_ms(by_ms, workload, self.policy);
        let kept =
            self.promise.as_ref().map_or(&[][..], |promise| promise.kept_from(end_ms)).to_vec();
        let (members, apart) = (workload.members.max(1), workload.apart);
        let question = (columns.to_vec(), members, apart, workload.priority, !kept.is_empty());
        let nobody = self.lowest() >= workload.priority;
        if nobody || self.clearing.is_spent() || self.clearing.in_vain.contains(&question) {
            return None;
        }
        let mut draft = Draft { by_ms, ..Draft::default() };
        let mut found = self.clear_all(workload, columns, &kept, end_ms, &mut draft);
        if members > 1 {
            found = found.and_then(|()| self.seat_gang(workload, columns, end_ms, &mut draft));
        }
        found = found.filter(|()| self.waits_for_some(&draft));
        if found.is_none() {
            self.clearing.in_vain.insert(question);
        }
        // How much it counts for its owner shows on the seats alone.
        if found.is_none() || self.quota(workload, draft.tentative.gpu_milli).is_err() {
            self.undo(workload.id, &draft.tentative);
            draft.before.iter().for_each(|(id, node)| self.memo.restore(*id, node));
            return None;
        }
        Some(self.keep(workload, draft))
    }

    /// Finds every member a place on the working copy, where those that have to leave are gone.
    fn clear_all(
        &mut self,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
        kept: &[NodeId],
        end_ms: u64,
        draft: &mut Draft,
    ) -> Option<()> {
        for _ in 0..workload.members.max(1) {
            let mut closed = kept.to_vec();
            if workload.apart {
                closed.extend(draft.tentative.seats.iter().map(|seat| seat.node));
            }
            let mut free = None;
            if workload.members > 1 {
                // One alone has been refused where there is room; members of a gang may find some.
                closed.extend(self.clearing.nodes());
                free = self.choose(columns, end_ms, closed.clone(), &mut None).ok();
            }
            let node = match free {
                Some((_, node, _)) => node,
                None => self.clear_one(workload, columns, &closed, draft)?,
            };
            self.seat_on(node, workload, columns, end_ms, draft)?;
        }
        Some(())
    }

    /// Seats a gang as an ordinary plan will once its victims are gone, which may be otherwise than
    /// they were found, or not at all.
    fn seat_gang(
        &mut self,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
        end_ms: u64,
        draft: &mut Draft,
    ) -> Option<()> {
        draft.tentative = Tentative::default();
        for (id, node) in &draft.before {
            self.memo.restore(*id, node);
            draft.victims.iter().for_each(|victim| self.memo.release(*id, *victim));
        }
        draft.tentative = self.seat_all(workload, columns, end_ms).ok()?;
        let seated: BTreeSet<NodeId> = draft.tentative.seats.iter().map(|seat| seat.node).collect();
        for (id, node) in draft.before.iter().filter(|(id, _)| !seated.contains(id)) {
            self.memo.restore(*id, node);
        }
        Some(())
    }

    /// Takes those off a node who have to leave it for one member.
    fn clear_one(
        &mut self,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
        closed: &[NodeId],
        draft: &mut Draft,
    ) -> Option<NodeId> {
        let spent = self.clearing.is_spent() || draft.searches >= MEMBERS_MAX;
        if spent {
            return None;
        }
        self.clearing.searches += 1;
        draft.searches += 1;
        let sites = self.sites(workload, closed, draft);
        let guests = sites.iter().map(|site| site.guests.len()).sum::<usize>();
        let mut tries = self.clearing.tries;
        let choice = preempt::search(&sites, &mut self.memo.ask(columns), &mut tries);
        drop(sites);
        self.clearing.tries = tries;
        self.clearing.guests += guests;
        let choice = choice?;
        let node = choice.node;
        draft.remember(node, &self.memo.nodes()[node.index()]);
        for victim in choice.victims {
            self.memo.release(node, victim);
            draft.victims.insert(victim);
        }
        Some(node)
    }

    /// Seats one member on a node of the working copy, by the first alternative that has room.
    fn seat_on(
        &mut self,
        node: NodeId,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
        end_ms: u64,
        draft: &mut Draft,
    ) -> Option<()> {
        let gang = workload.members > 1;
        let picks = columns.iter().find_map(|column| match gang {
            true => self.memo.roomiest(*column, node).ok(),
            false => self.memo.picks(*column, node).ok().map(<[_]>::to_vec),
        })?;
        draft.remember(node, &self.memo.nodes()[node.index()]);
        self.take(workload, node, &picks, end_ms, &mut draft.tentative).ok()
    }

    /// Nodes outside `closed` with those of their residents that may be counted on to leave.
    fn sites(&self, workload: &Workload, closed: &[NodeId], draft: &Draft) -> Vec<Site<'_>> {
        let movable = self.clearing.movable.iter().flatten();
        let movable = movable.filter(|(_, lowest)| **lowest < workload.priority);
        let ids = movable.map(|(id, _)| *id).filter(|id| !closed.contains(id));
        let guest = |id: WorkloadId| {
            let running = self.snapshot.running().get(&id)?;
            let leaving = self.leaves(running) || draft.victims.contains(&id);
            let may = running.workload.preemptible && running.workload.priority < workload.priority;
            (may || leaving).then(|| self.guest(running, leaving, draft.by_ms))
        };
        let site = |id: NodeId| {
            let node = &self.memo.nodes()[id.index()];
            let residents: BTreeSet<_> = node.residents().iter().map(|r| r.workload).collect();
            Site { id, node, guests: residents.into_iter().filter_map(guest).collect() }
        };
        ids.map(site).collect()
    }

    fn guest(&self, running: &Running, leaving: bool, by_ms: u64) -> Guest {
        let members = running.seats.len().max(1) as u32;
        let ran_ms = self.snapshot.now_ms.saturating_sub(running.since_ms);
        Guest {
            priority: running.workload.priority,
            lost_ms: ran_ms.saturating_mul(u64::from(members)),
            workload: running.workload.id,
            members,
            leaving,
            by_ms: running.leaves_by_ms.unwrap_or(by_ms),
        }
    }

    fn leaves(&self, running: &Running) -> bool {
        running.leaves_by_ms.is_some() || self.clearing.asked.contains(&running.workload.id)
    }

    /// The lowest priority of those that may be asked to leave, wherever they sit; found out once.
    fn lowest(&mut self) -> i32 {
        if self.clearing.movable.is_none() {
            let mut movable = BTreeMap::new();
            for found in self.snapshot.running().values() {
                let priority = match (found.leaves_by_ms, found.workload.preemptible) {
                    (Some(_), _) => i32::MIN,
                    (None, true) => found.workload.priority,
                    (None, false) => continue,
                };
                for seat in &found.seats {
                    let lowest = movable.entry(seat.node).or_insert(priority);
                    *lowest = priority.min(*lowest);
                }
            }
            self.clearing.lowest = movable.values().copied().min().unwrap_or(i32::MAX);
            self.clearing.movable = Some(movable);
        }
        self.clearing.lowest
    }

    /// Whether the places of a draft are taken yet by somebody who leaves.
    fn waits_for_some(&self, draft: &Draft) -> bool {
        let cleared = |seat: &Seat| self.clearing.nodes.contains_key(&seat.node);
        !draft.victims.is_empty() || draft.tentative.seats.iter().any(cleared)
    }

    /// Asks those to leave that stay so far, and keeps the places for the newcomer.
    fn keep(&mut self, workload: &Workload, draft: Draft) -> Refusal {
        let nodes: BTreeSet<NodeId> = draft.tentative.seats.iter().map(|seat| seat.node).collect();
        let mut all = Cleared { newcomer: workload.id, leaving: draft.victims, by_ms: 0 };
        for id in all.leaving.clone() {
            all.by_ms = all.by_ms.max(self.ask_to_leave(id, workload.id, draft.by_ms));
        }
        // Where somebody else is making room already, those have to leave as well.
        for earlier in nodes.iter().filter_map(|node| self.clearing.nodes.get(node)) {
            all.leaving.extend(&earlier.leaving);
            all.by_ms = all.by_ms.max(earlier.by_ms);
        }
        self.clearing.nodes.extend(nodes.iter().map(|node| (*node, all.clone())));
        *self.clearing.held_milli.entry(workload.owner.clone()).or_default() +=
            draft.tentative.gpu_milli;
        if let Some(member) = workload.array {
            *self.arrays.entry(member.array).or_default() += 1;
        }
        Refusal::MakingRoom { leaving: all.leaving.len() as u32, by_ms: all.by_ms }
    }

    /// When a victim is gone; asks it by a step of the plan if nobody has.
    fn ask_to_leave(&mut self, id: WorkloadId, newcomer: WorkloadId, by_ms: u64) -> u64 {
        let Some(running) = self.snapshot.running().get(&id) else { return by_ms };
        if let Some(leaves_by_ms) = running.leaves_by_ms {
            return leaves_by_ms;
        }
        if self.clearing.asked.insert(id) {
            let action = Action::Preempt { workload: id, by_ms };
            self.clearing.steps.push(Step { action, because: Reason::MakesRoomFor(newcomer) });
            let movable = self.clearing.movable.get_or_insert_default();
            movable.extend(running.seats.iter().map(|seat| (seat.node, i32::MIN)));
            self.clearing.lowest = i32::MIN;
        }
        by_ms
    }

    /// Why nobody else starts where only nodes that are being cleared could hold the demand.
    pub(super) fn cleared_for(&mut self, column: ColumnId, closed: &[NodeId]) -> Option<Refusal> {
        if self.clearing.nodes.is_empty() {
            return None;
        }
        let able = self.memo.feasible(column, closed);
        let cleared = able.iter().find_map(|node| self.clearing.nodes.get(node))?;
        Some(Refusal::KeptForHead { head: cleared.newcomer, until_ms: cleared.by_ms })
    }
}

impl Draft {
    /// Keeps a node as it was before the first change.
    fn remember(&mut self, id: NodeId, node: &Node) {
        self.before.entry(id).or_insert_with(|| node.clone());
    }
}
