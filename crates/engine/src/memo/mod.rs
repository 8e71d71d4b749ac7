//! Scores that are remembered from one decision to the next.
//!
//! A placement changes one node, so for every other node the score of a demand stays what it was.
//! The memo keeps a working copy of the fleet and, for each kind of demand met so far, a column with
//! one score per node; a log of changed nodes tells each column what to score anew. Forgetting
//! everything at any moment changes no decision, only the time that it takes.

mod room;
mod scores;

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use model::{
    Beside, Fleet, GpuId, Node, NodeId, Refusal, Seat, SharingMode, Snapshot, Workload, WorkloadId,
};

use crate::backfill;
use crate::fit::Pick;
use crate::interference::Company;
use crate::placement::{Key, Scorer};
use crate::preempt::Ask;
use scores::{ChangeLog, FEASIBLE, Scores, closeness};

/// Most kinds of demand kept.
const COLUMNS_MAX: usize = 1 << 18;

/// Most scores kept (8 bytes each); the scores of one column are kept in any case.
const SCORES_MAX: usize = 16 << 20;

/// A kind of demand: a position among the memo's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnId(usize);

/// The working copy of the fleet with what is known about it.
pub(crate) struct Memo {
    fleet: Fleet,
    scorer: Scorer,
    keys: BTreeMap<Key, ColumnId>,
    columns: Vec<Column>,
    /// What an idle fleet could hold, by the alternatives asked for.
    idle: BTreeMap<(Vec<ColumnId>, bool), Idle>,
    changes: ChangeLog,
    /// Plans made so far.
    cycle: u64,
    /// Scores kept in all columns.
    kept: usize,
    picks: Vec<Pick>,
}

struct Column {
    key: Key,
    scores: Scores,
    /// Times from which each node could hold the demand, negated; filled for heads of the queue.
    starts: Scores,
    /// The last cycle in which somebody asked.
    asked: u64,
}

impl Column {
    /// Numbers kept.
    fn size(&self) -> usize {
        self.scores.len() + self.starts.len()
    }
}

/// Members that an idle fleet could hold; counted no further than asked.
struct Idle {
    counted_to: u32,
    members: u32,
    /// What the nearest node lacks for the first member, if there is no room for any.
    nearest: Option<Refusal>,
}

impl Memo {
    pub(crate) fn new(scorer: Scorer, snapshot: &Snapshot) -> Self {
        Self {
            fleet: snapshot.fleet().clone(),
            scorer,
            keys: BTreeMap::new(),
            columns: Vec::new(),
            idle: BTreeMap::new(),
            changes: ChangeLog::default(),
            cycle: 0,
            kept: 0,
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
        self.changes.bound(4 * theirs.nodes().len() + 1024);
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
            self.columns[known.0].asked = self.cycle;
            return *known;
        }
        let id = ColumnId(self.columns.len());
        self.keys.insert(key.clone(), id);
        let (scores, starts) = (Scores::default(), Scores::default());
        self.columns.push(Column { key, scores, starts, asked: self.cycle });
        id
    }

    /// Starts over once there are too many kinds of demand; only between plans, since columns are
    /// named by position.
    pub(crate) fn bound(&mut self) {
        self.cycle += 1;
        if self.columns.len() > COLUMNS_MAX {
            self.columns.clear();
            self.keys.clear();
            self.idle.clear();
            self.kept = 0;
        }
    }

    /// Makes room for the scores of a column that has none: empties those that have not been asked
    /// for longest, down to half of what may be kept.
    ///
    /// * `in_use` — columns that must stay.
    fn make_room(&mut self, in_use: &[ColumnId]) {
        let nodes = self.fleet.nodes().len();
        if self.kept + nodes > SCORES_MAX {
            let indexed = (0..).map(ColumnId).zip(&mut self.columns);
            let free = indexed.filter(|(id, column)| column.size() > 0 && !in_use.contains(id));
            let mut oldest: Vec<&mut Column> = free.map(|(_, column)| column).collect();
            oldest.sort_by_key(|column| column.asked);
            for column in oldest {
                if self.kept <= SCORES_MAX / 2 {
                    break;
                }
                self.kept -= column.size();
                (column.scores, column.starts) = (Scores::default(), Scores::default());
            }
        }
        self.kept += nodes;
    }

    /// The best node outside `closed` and its score; or, if no node can hold the demand, what the
    /// nearest lacks.
    pub(crate) fn best(
        &mut self,
        column: ColumnId,
        closed: &[NodeId],
    ) -> Result<Option<(NodeId, i64)>, Refusal> {
        self.catch_up(column);
        let scores = &self.columns[column.0].scores;
        match scores.best() {
            Some((best, score)) if score < FEASIBLE => Err(self.refusal(column, best)),
            Some((best, _)) if closed.contains(&best) => Ok(scores.best_outside(closed)),
            Some(best) => Ok(Some(best)),
            None => Err(no_node()),
        }
    }

    /// Every node outside `closed` that can hold the demand.
    pub(crate) fn feasible(&mut self, column: ColumnId, closed: &[NodeId]) -> Vec<NodeId> {
        self.catch_up(column);
        let scores = self.columns[column.0].scores.indexed();
        let able = scores.filter(|(_, score)| *score >= FEASIBLE);
        able.map(|(id, _)| id).filter(|id| !closed.contains(id)).collect()
    }

    /// The shares that the policy takes on a node, with the modes that they need.
    pub(crate) fn picks(&mut self, column: ColumnId, node: NodeId) -> Result<&[Pick], Refusal> {
        let key = &self.columns[column.0].key;
        self.scorer.seat(node, &self.fleet.nodes()[node.index()], key, &mut self.picks)?;
        Ok(&self.picks)
    }

    /// Every share that the GPUs of a node could grant, by index.
    pub(crate) fn options(&self, column: ColumnId, node: NodeId) -> Result<Vec<Pick>, Refusal> {
        let mut options = Vec::new();
        let key = &self.columns[column.0].key;
        self.scorer.options(&self.fleet.nodes()[node.index()], key, &mut options)?;
        Ok(options)
    }

    /// Whom shares of a node are beside, where the policy minds that.
    pub(crate) fn beside(&self, column: ColumnId, node: NodeId, picks: &[Pick]) -> Option<Beside> {
        let key = &self.columns[column.0].key;
        self.scorer.beside(&self.fleet.nodes()[node.index()], key, picks)
    }

    /// What is remembered of pairs of tenants, for the next memo.
    pub(crate) fn into_company(self) -> Company {
        self.scorer.into_company()
    }

    /// The shares of the GPUs with the most left: what leaves most room for a gang's next member.
    pub(crate) fn roomiest(&self, column: ColumnId, node: NodeId) -> Result<Vec<Pick>, Refusal> {
        let mut picks = self.options(column, node)?;
        keep_roomiest(&mut picks, self.columns[column.0].key.demand.gpu_count());
        Ok(picks)
    }

    /// Seats one member on the working copy.
    pub(crate) fn admit(
        &mut self,
        workload: &Arc<Workload>,
        seat: &Seat,
        until_ms: u64,
    ) -> Result<(), Refusal> {
        self.fleet.admit(workload, seat, until_ms)?;
        self.changes.push(seat.node);
        Ok(())
    }

    /// Changes a GPU's mode on the working copy.
    pub(crate) fn set_mode(&mut self, gpu: GpuId, mode: SharingMode) -> Result<(), Refusal> {
        self.fleet.set_mode(gpu, mode)?;
        self.changes.push(gpu.node);
        Ok(())
    }

    /// Takes a workload off a node of the working copy.
    pub(crate) fn release(&mut self, node: NodeId, workload: WorkloadId) {
        self.fleet.release(node, workload);
        self.changes.push(node);
    }

    /// Makes a node of the working copy what it was.
    pub(crate) fn restore(&mut self, id: NodeId, node: &Node) {
        self.fleet.copy_node(id, node);
        self.changes.push(id);
    }

    /// What one member asks for, to be put to nodes that are not as in the working copy.
    pub(crate) fn ask(&self, columns: &[ColumnId]) -> Ask<'_> {
        let keys = columns.iter().map(|column| &self.columns[column.0].key);
        Ask::new(&self.scorer, keys.collect())
    }

    fn refusal(&mut self, column: ColumnId, node: NodeId) -> Refusal {
        let key = &self.columns[column.0].key;
        match self.scorer.seat(node, &self.fleet.nodes()[node.index()], key, &mut self.picks) {
            Err(refusal) => refusal,
            Ok(_) => no_node(),
        }
    }

    fn catch_up(&mut self, column: ColumnId) {
        if self.columns[column.0].scores.len() == 0 {
            self.make_room(&[column]);
        }
        let Self { fleet, scorer, columns, changes, picks, .. } = self;
        let Column { key, scores, .. } = &mut columns[column.0];
        let nodes = fleet.nodes();
        scores.follow(changes, nodes.len(), |id| {
            match scorer.seat(id, &nodes[id.index()], key, picks) {
                Ok(score) => score,
                Err(refusal) => closeness(&refusal),
            }
        });
    }

    /// * `in_use` — the columns that are caught up together.
    fn catch_up_starts(&mut self, column: ColumnId, in_use: &[ColumnId]) {
        if self.columns[column.0].starts.len() == 0 {
            self.make_room(in_use);
        }
        let Self { fleet, scorer, columns, changes, picks, .. } = self;
        let Column { key, starts, .. } = &mut columns[column.0];
        let nodes = fleet.nodes();
        starts.follow(changes, nodes.len(), |id| {
            let fits = |node: &Node| scorer.seat(id, node, key, picks).is_ok();
            let start = backfill::earliest_ms(&nodes[id.index()], fits);
            start.map_or(i64::MIN, |ms| -i64::try_from(ms).unwrap_or(i64::MAX))
        });
    }
}

/// The refusal of a fleet without nodes.
fn no_node() -> Refusal {
    Refusal::NoSuchPlace { place: "node".to_string() }
}

/// Of the GPUs on offer, those that could grant the most such shares, by index.
fn keep_roomiest(picks: &mut Vec<Pick>, count: usize) {
    let copies = |pick: &Pick| pick.left_milli / (pick.left_milli - pick.left_after_milli).max(1);
    picks.sort_by_key(|pick| Reverse((copies(pick), pick.left_milli)));
    picks.truncate(count);
    picks.sort_by_key(|pick| pick.gpu);
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
