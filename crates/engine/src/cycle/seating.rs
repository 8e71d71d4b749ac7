//! Seating a workload's members on the working copy of the fleet: all or none.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use model::{
    Action, Beside, GpuId, NodeId, Placement, Reason, Refusal, Seat, SharingMode, Step, Workload,
    WorkloadId,
};

use super::Cycle;
use crate::backfill::Promise;
use crate::fit::{self, Pick};
use crate::lottery::Lottery;
use crate::memo::ColumnId;

/// A workload's members on the working copy of the fleet.
#[derive(Default)]
pub(super) struct Tentative {
    pub(super) steps: Vec<Step>,
    pub(super) seats: Vec<Seat>,
    pub(super) score: i64,
    /// Whom the last member sits beside.
    pub(super) beside: Option<Beside>,
    /// What the shares count for their owner.
    pub(super) gpu_milli: u64,
    /// Whether members take the GPUs with the most left, whatever the policy likes.
    roomiest: bool,
    /// Modes before the change, to be set back if the gang does not fit.
    changed: Vec<(GpuId, SharingMode)>,
}

impl Cycle<'_> {
    /// Seats every member on the working copy, or none.
    pub(super) fn seat_all(
        &mut self,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
        until_ms: u64,
    ) -> Result<Tentative, Refusal> {
        let mut tentative = Tentative::default();
        let members = workload.members.max(1);
        while (tentative.seats.len() as u32) < members {
            let Err(refusal) = self.seat_one(workload, columns, until_ms, &mut tentative) else {
                continue;
            };
            self.undo(workload.id, &tentative);
            if members == 1 {
                return Err(refusal);
            }
            if tentative.roomiest {
                let (offered, because) = (tentative.seats.len() as u32, Box::new(refusal));
                return Err(Refusal::Gang { asked: members, offered, because });
            }
            // What the policy likes best for one member may leave no room for the next.
            tentative = Tentative { roomiest: true, ..Tentative::default() };
        }
        Ok(tentative)
    }

    fn seat_one(
        &mut self,
        workload: &Arc<Workload>,
        columns: &[ColumnId],
        until_ms: u64,
        tentative: &mut Tentative,
    ) -> Result<(), Refusal> {
        let mut lottery = None;
        if let (Placement::Random { seed }, false) = (&self.policy.placement, tentative.roomiest) {
            lottery = Some(Lottery::new(*seed, workload.id, tentative.seats.len()));
        }
        let mut closed = Vec::new();
        if workload.apart {
            closed.extend(tentative.seats.iter().map(|seat| seat.node));
        }
        let chosen = self.choose(columns, until_ms, closed, &mut lottery);
        let (column, node, score) =
            chosen.map_err(|refusal| fit::for_all_alternatives(refusal, &workload.demand))?;
        let picks = match (&mut lottery, &workload.demand.gpus) {
            (Some(lottery), Some(gpus)) => lottery.picks(self.memo.options(column, node)?, gpus),
            _ if tentative.roomiest => self.memo.roomiest(column, node)?,
            _ => self.memo.picks(column, node)?.to_vec(),
        };
        (tentative.score, tentative.beside) = (score, self.memo.beside(column, node, &picks));
        self.take(workload, node, &picks, until_ms, tentative)
    }

    /// Gives one member those shares of a node on the working copy.
    pub(super) fn take(
        &mut self,
        workload: &Arc<Workload>,
        node: NodeId,
        picks: &[Pick],
        until_ms: u64,
        tentative: &mut Tentative,
    ) -> Result<(), Refusal> {
        for pick in picks {
            let gpu = GpuId { node, index: pick.gpu };
            let found = &self.memo.nodes()[node.index()].gpus()[usize::from(pick.gpu)];
            let before = found.mode();
            tentative.gpu_milli += u64::from(found.share_milli(pick.mode, pick.share));
            if before != pick.mode {
                self.memo.set_mode(gpu, pick.mode)?;
                tentative.changed.push((gpu, before));
                tentative.steps.push(Step {
                    action: Action::SetMode { gpu, mode: pick.mode },
                    because: Reason::NeededBy(workload.id),
                });
            }
        }
        let shares = picks.iter().map(|pick| (pick.gpu, pick.share)).collect();
        let seat = Seat { node, shares };
        self.memo.admit(workload, &seat, until_ms)?;
        tentative.seats.push(seat);
        Ok(())
    }

    /// The best node for one member by the first alternative that has any.
    pub(super) fn choose(
        &mut self,
        columns: &[ColumnId],
        until_ms: u64,
        mut closed: Vec<NodeId>,
        lottery: &mut Option<Lottery>,
    ) -> Result<(ColumnId, NodeId, i64), Refusal> {
        closed.extend(self.promise.as_ref().map_or(&[][..], |p| p.kept_from(until_ms)));
        let open = closed.len();
        closed.extend(self.clearing.nodes());
        let mut nearest: Option<Refusal> = None;
        for column in columns {
            let refusal = match (self.memo.best(*column, &closed), &self.promise) {
                (Ok(Some((best, score))), _) => {
                    let drawn = lottery
                        .as_mut()
                        .and_then(|lottery| lottery.node(&self.memo.feasible(*column, &closed)));
                    return Ok((*column, drawn.unwrap_or(best), score));
                }
                (Ok(None), promise) => {
                    let kept = promise.as_ref().map(kept);
                    match self.cleared_for(*column, &closed[..open]) {
                        Some(cleared) => cleared,
                        // Only members that sit apart leave nodes out otherwise.
                        None => kept.unwrap_or(Refusal::NoSuchPlace {
                            place: "other node with room".into(),
                        }),
                    }
                }
                (Err(refusal), _) => refusal,
            };
            nearest = Some(Refusal::nearer(nearest, refusal));
        }
        // No alternative at all: `Memo::columns` gives at least one.
        Err(nearest.unwrap_or(Refusal::NoSuchPlace { place: "node".into() }))
    }

    pub(super) fn undo(&mut self, workload: WorkloadId, tentative: &Tentative) {
        for seat in &tentative.seats {
            self.memo.release(seat.node, workload);
        }
        for (gpu, mode) in tentative.changed.iter().rev() {
            // The GPU is idle again and was in that mode before: nothing can be in the way.
            let _ = self.memo.set_mode(*gpu, *mode);
        }
    }
}

fn kept(promise: &Promise) -> Refusal {
    Refusal::KeptForHead { head: promise.head, until_ms: promise.starts_ms }
}
