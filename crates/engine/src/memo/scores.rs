//! One number per node, kept up to date along a log of changed nodes.

use alloc::vec::Vec;

use model::{NodeId, Refusal};

/// Scores from here on mean that the node can hold the demand.
pub(crate) const FEASIBLE: i64 = i64::MIN / 2;

/// Nodes in the order in which they changed. Old entries are dropped; whoever has not followed for
/// that long starts over.
#[derive(Default)]
pub(crate) struct ChangeLog {
    nodes: Vec<NodeId>,
    dropped: usize,
}

impl ChangeLog {
    pub(crate) fn push(&mut self, node: NodeId) {
        self.nodes.push(node);
    }

    /// Drops the older half if there are more than `limit` entries.
    pub(crate) fn bound(&mut self, limit: usize) {
        if self.nodes.len() > limit {
            let older = self.nodes.len() / 2;
            self.nodes.drain(..older);
            self.dropped += older;
        }
    }

    fn end(&self) -> usize {
        self.dropped + self.nodes.len()
    }

    /// Entries from a position on; `None` if some of them have been dropped.
    fn since(&self, position: usize) -> Option<&[NodeId]> {
        self.nodes.get(position.checked_sub(self.dropped)?..)
    }
}

/// One number per node, the best of them, and how far the log of changes has been followed.
#[derive(Default)]
pub(crate) struct Scores {
    values: Vec<i64>,
    best: Option<NodeId>,
    followed: usize,
}

impl Scores {
    /// Brings the values up to date with the log of changes.
    pub(crate) fn follow(
        &mut self,
        log: &ChangeLog,
        nodes: usize,
        mut score: impl FnMut(NodeId) -> i64,
    ) {
        let news = log.since(self.followed).filter(|news| news.len() <= nodes);
        match news.filter(|_| self.values.len() == nodes) {
            Some(news) => {
                let mut lost = false;
                for id in news {
                    lost |= self.update(*id, score(*id));
                }
                if lost {
                    self.find_best();
                }
            }
            None => {
                self.values.clear();
                self.values.extend((0..nodes as u32).map(|id| score(NodeId(id))));
                self.find_best();
            }
        }
        self.followed = log.end();
    }

    /// Numbers kept.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The highest value and the first node that has it.
    pub(crate) fn best(&self) -> Option<(NodeId, i64)> {
        self.best.map(|best| (best, self.values[best.index()]))
    }

    /// The same among feasible nodes outside `closed`.
    pub(crate) fn best_outside(&self, closed: &[NodeId]) -> Option<(NodeId, i64)> {
        let mut found: Option<(NodeId, i64)> = None;
        for (id, score) in self.indexed().filter(|(_, score)| *score >= FEASIBLE) {
            if found.is_none_or(|(_, best)| score > best) && !closed.contains(&id) {
                found = Some((id, score));
            }
        }
        found
    }

    /// Every value with its node.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (NodeId, i64)> {
        (0..=u32::MAX).map(NodeId).zip(self.values.iter().copied())
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
        let mut best: Option<(NodeId, i64)> = None;
        for (id, value) in self.indexed() {
            if best.is_none_or(|(_, record)| value > record) {
                best = Some((id, value));
            }
        }
        self.best = best.map(|(id, _)| id);
    }
}

/// Encodes how near a refusal is, below every feasible score.
pub(crate) fn closeness(refusal: &Refusal) -> i64 {
    let (rank, offered) = refusal.nearness();
    let offered = offered.min((1 << 56) - 1) as i64;
    i64::MIN + 1 + (i64::from(rank) << 56) + offered
}
