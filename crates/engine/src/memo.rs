//! Scores that are remembered from one decision to the next.
//!
//! A placement changes one node, so for every other node the score of a demand stays what it was.
//! The memo keeps a working copy of the fleet and, for each kind of demand met so far, a column with
//! one score per node; a log of changed nodes tells each column what to score anew. Forgetting
//! everything at any moment changes no decision, only the time that it takes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use model::{Fleet, GpuId, Node, NodeId, Refusal, Seat, SharingMode, Snapshot, Workload, WorkloadId};

use crate::backfill;
use crate::fit::Pick;
use crate::placement::{Key, Scorer};

/// Most scores kept (8 bytes each); past it the memo starts over.
const SCORES_MAX: usize = 8 << 20;

/// Scores from here on mean that the node can hold the demand.
const FEASIBLE: i64 = i64::MIN / 2;

/// A kind of demand: a position among the memo's columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnId(usize);

/// The working copy of the fleet with what is known about it.
pub(crate) struct Memo {
    fleet: Fleet,
    scorer: Scorer,
    keys: BTreeMap<Key, ColumnId>,
    columns: Vec<Column>,
    /// Nodes in the order in which they changed; `forgotten` earlier entries have been dropped.
    changes: Vec<NodeId>,
    forgotten: usize,
    picks: Vec<Pick>,
}

struct Column {
    key: Key,
    scores: Scores,
    /// Times from which each node could hold the demand, negated; filled for heads of the queue.
    starts: Scores,
    /// What an idle fleet could hold, once it has been asked.
    idle: Option<Idle>,
}

/// Members that an idle fleet could hold; counted no further than asked.
struct Idle {
    counted_to: u32,
    members: u32,
    /// What the nearest node lacks for the first member, if there is no room for any.
    nearest: Option<Refusal>,
}

/// One number per node, the best of them, and how far the log of changes has been followed.
#[derive(Default)]
struct Scores {
    values: Vec<i64>,
    best: Option<NodeId>,
    seen: usize,
}

impl Memo {
    pub(crate) fn new(scorer: Scorer, snapshot: &Snapshot) -> Self {
        Self {
            fleet: snapshot.fleet().clone(),
            scorer,
            keys: BTreeMap::new(),
            columns: Vec::new(),
            changes: Vec::new(),
            forgotten: 0,
            picks: Vec::new(),
        }
    }

    /// Whether the working copy is of the snapshot's fleet at all.
    pub(crate) fn is_of(&self, snapshot: &Snapshot) -> bool {
        self.fleet.identity() == snapshot.fleet().identity()
    }

    /// Takes over what has changed in the snapshot since the last call.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot) {
        let theirs = snapshot.fleet();
        for at in differing(self.fleet.fingerprints(), theirs.fingerprints()) {
            self.fleet.copy_node(at, &theirs.nodes()[at.index()]);
            self.changes.push(at);
        }
        self.forget_old_changes();
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        self.fleet.nodes()
    }

    /// Columns for the alternatives of a workload, best first.
    pub(crate) fn columns(&mut self, workload: &Workload) -> Vec<ColumnId> {
        let keys = self.scorer.keys(workload);
        keys.into_iter().map(|key| self.column(key)).collect()
    }

    fn column(&mut self, key: Key) -> ColumnId {
        if let Some(known) = self.keys.get(&key) {
            return *known;
        }
        let id = ColumnId(self.columns.len());
        self.keys.insert(key.clone(), id);
        self.columns.push(Column {
            key,
            scores: Scores::default(),
            starts: Scores::default(),
            idle: None,
        });
        id
    }

    /// Drops every column once they have become too many; only between plans, since columns are
    /// named by position.
    pub(crate) fn bound(&mut self) {
        if self.columns.len() * self.fleet.nodes().len() * 2 > SCORES_MAX {
            self.columns.clear();
            self.keys.clear();
        }
    }

    /// The best node outside `kept` and its score; or, if no node can hold the demand, what the
    /// nearest lacks.
    pub(crate) fn best(
        &mut self,
        column: ColumnId,
        kept: &[NodeId],
    ) -> Result<Option<(NodeId, i64)>, Refusal> {
        self.catch_up(column);
        let scores = &self.columns[column.0].scores;
        let Some(best) = scores.best else {
            return Err(Refusal::GpuModel { asked: "".into(), offered: "".into() });
        };
        let score = scores.values[best.index()];
        if score < FEASIBLE {
            return Err(self.refusal(column, best));
        }
        if !kept.contains(&best) {
            return Ok(Some((best, score)));
        }
        let mut found: Option<(NodeId, i64)> = None;
        for (id, score) in (0u32..).map(NodeId).zip(scores.values.iter().copied()) {
            let better = found.is_none_or(|(_, best)| score > best);
            if score >= FEASIBLE && better && !kept.contains(&id) {
                found = Some((id, score));
            }
        }
        Ok(found)
    }

    /// Every node outside `kept` that can hold the demand.
    pub(crate) fn feasible(&mut self, column: ColumnId, kept: &[NodeId]) -> Vec<NodeId> {
        self.catch_up(column);
        let values = self.columns[column.0].scores.values.iter();
        let able = (0u32..).map(NodeId).zip(values).filter(|(_, score)| **score >= FEASIBLE);
        able.map(|(id, _)| id).filter(|id| !kept.contains(id)).collect()
    }

    /// The shares that the policy takes on a node, with the modes that they need.
    pub(crate) fn picks(&mut self, column: ColumnId, node: NodeId) -> Result<&[Pick], Refusal> {
        let key = &self.columns[column.0].key;
        self.scorer.seat(node, &self.fleet.nodes()[node.index()], key, &mut self.picks)?;
        Ok(&self.picks)
    }

    /// When `members` can start and on which nodes (ascending), if all leave in time: one node per
    /// member where there are enough nodes.
    pub(crate) fn soonest(&mut self, column: ColumnId, members: u32) -> Option<(u64, Vec<NodeId>)> {
        self.catch_up_starts(column);
        let count = members as usize;
        let values = self.columns[column.0].starts.values.iter();
        let mut starts: Vec<_> = values
            .zip(0u32..)
            .filter(|(start, _)| **start != i64::MIN)
            .map(|(start, id)| (start.unsigned_abs(), NodeId(id)))
            .collect();
        if starts.len() < count {
            starts.sort_unstable_by_key(|(_, id)| *id);
            return self.soonest_crowded(column, members, &starts);
        }
        starts.select_nth_unstable(count - 1);
        starts.truncate(count);
        let last = starts.iter().map(|(start, _)| *start).max()?;
        let mut nodes: Vec<_> = starts.into_iter().map(|(_, id)| id).collect();
        nodes.sort_unstable();
        Some((last, nodes))
    }

    /// As [`Memo::soonest`] for more members than there are nodes that can hold any.
    fn soonest_crowded(
        &mut self,
        column: ColumnId,
        members: u32,
        starts: &[(u64, NodeId)],
    ) -> Option<(u64, Vec<NodeId>)> {
        let Self { fleet, scorer, columns, picks, .. } = self;
        let key = &columns[column.0].key;
        let able: Vec<_> = starts.iter().map(|(_, id)| (*id, &fleet.nodes()[id.index()])).collect();
        backfill::gang_start_ms(&able, members, |id, node, most| {
            room(scorer, id, node, key, most, picks).0
        })
    }

    /// Members, up to `members`, that an idle fleet could hold; and if none, what the nearest node
    /// lacks.
    pub(crate) fn idle_room(&mut self, column: ColumnId, members: u32) -> (u32, Option<Refusal>) {
        if let Some(known) = &self.columns[column.0].idle {
            if members <= known.counted_to || known.members < known.counted_to {
                return (known.members, known.nearest.clone());
            }
        }
        let Self { fleet, scorer, columns, picks, .. } = self;
        let Column { key, idle, .. } = &mut columns[column.0];
        let mut found = Idle { counted_to: members, members: 0, nearest: None };
        for (id, node) in fleet.indexed() {
            let wanted = members - found.members;
            let (here, refusal) = room(scorer, id, &node.emptied(), key, wanted, picks);
            found.members += here;
            if let Some(refusal) = refusal {
                if found.nearest.as_ref().is_none_or(|seen| refusal.nearness() > seen.nearness()) {
                    found.nearest = Some(refusal);
                }
            }
            if found.members >= members {
                break;
            }
        }
        let answer = (found.members, found.nearest.clone());
        *idle = Some(found);
        answer
    }

    /// Seats one member on the working copy.
    pub(crate) fn admit(
        &mut self,
        workload: &Workload,
        seat: &Seat,
        until_ms: u64,
    ) -> Result<(), Refusal> {
        self.fleet.admit(workload, seat, until_ms)?;
        self.changes.push(seat.node);
        Ok(())
    }

    /// Changes a GPU's mode on the working copy.
    pub(crate) fn set_mode(
        &mut self,
        gpu: GpuId,
        mode: SharingMode,
    ) -> Result<(), Refusal> {
        self.fleet.set_mode(gpu, mode)?;
        self.changes.push(gpu.node);
        Ok(())
    }

    /// Takes a workload off a node of the working copy.
    pub(crate) fn release(&mut self, node: NodeId, workload: WorkloadId) {
        self.fleet.release(node, workload);
        self.changes.push(node);
    }

    fn refusal(&mut self, column: ColumnId, node: NodeId) -> Refusal {
        let key = &self.columns[column.0].key;
        match self.scorer.seat(node, &self.fleet.nodes()[node.index()], key, &mut self.picks) {
            Err(refusal) => refusal,
            Ok(_) => Refusal::GpuModel { asked: "".into(), offered: "".into() },
        }
    }

    fn catch_up(&mut self, column: ColumnId) {
        let Self { fleet, scorer, columns, changes, forgotten, picks, .. } = self;
        let Column { key, scores, .. } = &mut columns[column.0];
        let nodes = fleet.nodes();
        scores.follow(changes, *forgotten, nodes.len(), |id| {
            match scorer.seat(id, &nodes[id.index()], key, picks) {
                Ok(score) => score,
                Err(refusal) => closeness(&refusal),
            }
        });
    }

    fn catch_up_starts(&mut self, column: ColumnId) {
        let Self { fleet, scorer, columns, changes, forgotten, picks, .. } = self;
        let Column { key, starts, .. } = &mut columns[column.0];
        let nodes = fleet.nodes();
        starts.follow(changes, *forgotten, nodes.len(), |id| {
            let fits = |node: &Node| scorer.seat(id, node, key, picks).is_ok();
            let start = backfill::earliest_ms(&nodes[id.index()], fits);
            start.map_or(i64::MIN, |ms| -i64::try_from(ms).unwrap_or(i64::MAX))
        });
    }

    /// Keeps the log at a few times the fleet's size; columns that have not looked for longer than
    /// that are filled anew.
    fn forget_old_changes(&mut self) {
        let limit = 4 * self.fleet.nodes().len() + 1024;
        if self.changes.len() > limit {
            let dropped = self.changes.len() / 2;
            self.changes.drain(..dropped);
            self.forgotten += dropped;
        }
    }
}

impl Scores {
    /// Brings the values up to date with the log of changes.
    fn follow(
        &mut self,
        changes: &[NodeId],
        forgotten: usize,
        nodes: usize,
        mut score: impl FnMut(NodeId) -> i64,
    ) {
        let now = forgotten + changes.len();
        if self.values.len() != nodes || self.seen < forgotten || now - self.seen > nodes {
            self.values.clear();
            self.values.extend((0..nodes as u32).map(|id| score(NodeId(id))));
            self.find_best();
        } else if now > self.seen {
            let mut lost = false;
            for id in &changes[self.seen - forgotten..] {
                lost |= self.update(*id, score(*id));
            }
            if lost {
                self.find_best();
            }
        }
        self.seen = now;
    }

    /// Enters a value; true if the best node may have lost its rank.
    fn update(&mut self, id: NodeId, value: i64) -> bool {
        let before = self.values[id.index()];
        self.values[id.index()] = value;
        let Some(best) = self.best else { return true };
        if id == best {
            return value < before;
        }
        let record = self.values[best.index()];
        if value > record || (value == record && id < best) {
            self.best = Some(id);
        }
        false
    }

    fn find_best(&mut self) {
        self.best = None;
        let mut record = i64::MIN;
        for (id, value) in (0u32..).map(NodeId).zip(&self.values) {
            if self.best.is_none() || *value > record {
                record = *value;
                self.best = Some(id);
            }
        }
    }
}

/// Members, up to `most`, that a node could hold beside its residents, and why not one more.
fn room(
    scorer: &mut Scorer,
    id: NodeId,
    node: &Node,
    key: &Key,
    most: u32,
    picks: &mut Vec<Pick>,
) -> (u32, Option<Refusal>) {
    let mut node = node.clone();
    let workload = key.stand_in();
    for held in 0..most {
        if let Err(refusal) = scorer.seat(id, &node, key, picks) {
            return (held, Some(refusal));
        }
        let shares = picks.iter().map(|pick| (pick.gpu, pick.share)).collect();
        for pick in picks.iter() {
            // The GPU is idle if its mode is another one: `seat` has seen to that.
            let _ = node.set_mode(pick.gpu, pick.mode);
        }
        if let Err(refusal) = node.admit(&workload, &Seat { node: id, shares }, u64::MAX) {
            return (held, Some(refusal));
        }
    }
    (most, None)
}

/// Nodes whose fingerprints differ. Whole blocks are compared first: nearly all are equal.
fn differing(mine: &[u64], theirs: &[u64]) -> Vec<NodeId> {
    const BLOCK: usize = 64;
    let mut found = Vec::new();
    for (block, (mine, theirs)) in mine.chunks(BLOCK).zip(theirs.chunks(BLOCK)).enumerate() {
        if mine != theirs {
            let differs = |at: &usize| mine[*at] != theirs[*at];
            let here = (0..mine.len()).filter(differs).map(|at| block * BLOCK + at);
            found.extend(here.map(|at| NodeId(at as u32)));
        }
    }
    found
}

/// Encodes how near a refusal is, below every feasible score.
fn closeness(refusal: &Refusal) -> i64 {
    let (rank, offered) = refusal.nearness();
    let offered = offered.min((1 << 56) - 1) as i64;
    i64::MIN + 1 + (i64::from(rank) << 56) + offered
}
