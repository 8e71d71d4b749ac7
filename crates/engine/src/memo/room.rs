//! Whether and when there is room: on an idle fleet, and once residents have left.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use model::{Node, NodeId, Refusal, Seat};

use super::{ColumnId, Idle, Memo, keep_roomiest, no_node};
use crate::backfill;
use crate::fit::Pick;
use crate::placement::{Key, Scorer};

/// What a resident is expected to overstay by at least.
const OVERSTAY_MS: u64 = 60_000;

/// Starts at or below this do not come: the node is too small, or a resident never leaves.
const NOT_EVER: i64 = -i64::MAX;

impl Memo {
    /// When `members` can start and on which nodes (ascending), if all leave in time and any
    /// alternative will do. Not before `now_ms`: whoever overstays is expected to stay for as long
    /// again, at least [`OVERSTAY_MS`].
    pub(crate) fn soonest(
        &mut self,
        columns: &[ColumnId],
        members: u32,
        apart: bool,
        now_ms: u64,
    ) -> Option<(u64, Vec<NodeId>)> {
        columns.iter().for_each(|column| self.catch_up_starts(*column, columns));
        if members == 1 {
            let best = |column: &ColumnId| self.columns[column.0].starts.best();
            let able = columns.iter().filter_map(best).filter(|(_, start)| *start > NOT_EVER);
            let (start_ms, id) = able.map(|(id, start)| (start.unsigned_abs(), id)).min()?;
            if start_ms >= now_ms {
                return Some((start_ms, [id].to_vec()));
            }
        }
        let mut starts: Vec<_> = self.starts(columns, now_ms);
        let count = members as usize;
        if starts.len() < count {
            return if apart { None } else { self.soonest_crowded(columns, members, &starts) };
        }
        starts.select_nth_unstable(count.checked_sub(1)?);
        let last_ms = starts[..count].iter().map(|(start_ms, _)| *start_ms).max()?;
        let mut nodes: Vec<_> = starts[..count].iter().map(|(_, id)| *id).collect();
        nodes.sort_unstable();
        if members > 1 && !apart {
            // Several members on one node may start earlier still; only these nodes can help.
            starts.retain(|(start_ms, _)| *start_ms <= last_ms);
            let crowded = self.soonest_crowded(columns, members, &starts);
            if let Some(earlier) = crowded.filter(|(start_ms, _)| *start_ms < last_ms) {
                return Some((earlier.0.max(now_ms), earlier.1));
            }
        }
        Some((last_ms, nodes))
    }

    /// From when each node could hold one member, by the alternative that can soonest; ascending by
    /// node.
    fn starts(&self, columns: &[ColumnId], now_ms: u64) -> Vec<(u64, NodeId)> {
        let mut starts: BTreeMap<NodeId, u64> = BTreeMap::new();
        for column in columns {
            let able = self.columns[column.0].starts.indexed();
            for (id, start) in able.filter(|(_, start)| *start > NOT_EVER) {
                let start_ms = match start.unsigned_abs() {
                    0 => now_ms,
                    past_ms if past_ms < now_ms => {
                        now_ms.saturating_add(OVERSTAY_MS.max(now_ms - past_ms))
                    }
                    later_ms => later_ms,
                };
                let known = starts.entry(id).or_insert(u64::MAX);
                *known = start_ms.min(*known);
            }
        }
        starts.into_iter().map(|(id, start_ms)| (start_ms, id)).collect()
    }

    /// Every node that could hold one member once all have left, ascending.
    pub(crate) fn ever_able(&mut self, columns: &[ColumnId]) -> Vec<NodeId> {
        columns.iter().for_each(|column| self.catch_up_starts(*column, columns));
        self.starts(columns, 0).into_iter().map(|(_, id)| id).collect()
    }

    /// As [`Memo::soonest`] for more members than there are nodes that can hold any.
    fn soonest_crowded(
        &mut self,
        columns: &[ColumnId],
        members: u32,
        able: &[(u64, NodeId)],
    ) -> Option<(u64, Vec<NodeId>)> {
        let Self { fleet, scorer, columns: all, picks, .. } = self;
        let keys: Vec<&Key> = columns.iter().map(|column| &all[column.0].key).collect();
        let mut able: Vec<_> = able.iter().map(|(_, id)| *id).collect();
        able.sort_unstable();
        let able: Vec<_> = able.into_iter().map(|id| (id, &fleet.nodes()[id.index()])).collect();
        backfill::gang_start_ms(&able, members, |id, node, most| {
            room(scorer, id, node, &keys, most, picks).0
        })
    }

    /// Members, up to `members`, that an idle fleet could hold by any of the alternatives; and if
    /// not all, what the nearest node lacks for one more.
    pub(crate) fn idle_room(
        &mut self,
        columns: &[ColumnId],
        members: u32,
        apart: bool,
    ) -> (u32, Refusal) {
        let none = match apart {
            true => Refusal::NoSuchPlace { place: "other node that could hold one".into() },
            false => no_node(),
        };
        let lacks = |idle: &Idle| idle.nearest.clone().unwrap_or_else(|| none.clone());
        let enough = |idle: &&Idle| members <= idle.counted_to || idle.members < idle.counted_to;
        let asked = (columns.to_vec(), apart);
        if let Some(known) = self.idle.get(&asked).filter(enough) {
            return (known.members, lacks(known));
        }
        let Self { fleet, scorer, columns: all, picks, .. } = self;
        let keys: Vec<&Key> = columns.iter().map(|column| &all[column.0].key).collect();
        let mut found = Idle { counted_to: members, members: 0, nearest: None };
        for (id, node) in fleet.indexed() {
            let wanted = (members - found.members).min(if apart { 1 } else { members });
            let (here, refusal) = room(scorer, id, &node.emptied(), &keys, wanted, picks);
            found.members += here;
            if let Some(refusal) = refusal {
                found.nearest = Some(Refusal::nearer(found.nearest, refusal));
            }
            if found.members >= members {
                break;
            }
        }
        let answer = (found.members, lacks(&found));
        self.idle.insert(asked, found);
        answer
    }
}

/// Members, up to `most`, that a node could hold beside its residents, each by the first
/// alternative that has room; and why not one more.
fn room(
    scorer: &Scorer,
    id: NodeId,
    node: &Node,
    keys: &[&Key],
    most: u32,
    picks: &mut Vec<Pick>,
) -> (u32, Option<Refusal>) {
    let mut node = node.clone();
    for held in 0..most {
        let mut nearest = None;
        let seated = keys.iter().find(|key| match scorer.options(&node, key, picks) {
            Ok(()) => true,
            Err(refusal) => {
                nearest = Some(Refusal::nearer(nearest.take(), refusal));
                false
            }
        });
        let Some(key) = seated else { return (held, nearest) };
        keep_roomiest(picks, key.demand.gpu_count());
        let shares = picks.iter().map(|pick| (pick.gpu, pick.share)).collect();
        for pick in picks.iter() {
            // The GPU is idle if its mode is another one: `options` has seen to that.
            let _ = node.set_mode(pick.gpu, pick.mode);
        }
        let seat = Seat { node: id, shares };
        if let Err(refusal) = node.admit(&key.stand_in().into(), &seat, u64::MAX) {
            return (held, Some(refusal));
        }
    }
    (most, None)
}
