//! The operations on a page: who may change it, what fits, what the dead leave.
//!
//! Whether a process lives is asked of the caller, and never inside the lock, for it takes some 20 µs each.

use super::page::{Kind, LedgerPage, Member, Refusals};
use super::{OverCap, lock};
use crate::process::ProcessId;
use crate::sync::{AtomicU64, Ordering};

/// Says whether a process lives.
pub(super) type Alive<'a> = &'a dyn Fn(ProcessId) -> bool;

/// Dead that are cleared in one go.
const DEAD: usize = 32;

/// A row and the process that it is to be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) row: usize,
    pub(super) own: ProcessId,
}

/// Why nothing was booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotBooked {
    /// It does not fit.
    Over(OverCap),
    /// The row is not the process's any more.
    NoRow,
}

impl LedgerPage {
    /// Takes a row for a process that holds nothing yet: its own of before an `exec`, a free one, or one of
    /// the dead. `None` if all are of the living.
    pub(super) fn join(&self, own: ProcessId, space: u64, alive: Alive<'_>) -> Option<Seat> {
        self.try_join(own, space, alive).or_else(|| {
            self.reap(own, alive);
            self.try_join(own, space, alive)
        })
    }

    fn try_join(&self, own: ProcessId, space: u64, alive: Alive<'_>) -> Option<Seat> {
        let _held = self.enter(own, alive);
        let of = |word: u64| move |(_, member): &(usize, &Member)| owner_word(member) == word;
        let rows = || self.members.iter().enumerate();
        let (row, member) = rows().find(of(own.word())).or_else(|| rows().find(of(0)))?;
        if owner_word(member) != 0 {
            clear(member);
            self.hand_on_exports();
            self.sum_up();
        } else {
            // A row without an owner holds nothing, whatever somebody has written there.
            clear(member);
        }
        member.space.store(space, Ordering::Relaxed);
        member.owner.store(own.word(), Ordering::Release);
        Some(Seat { row, own })
    }

    /// Gives a row back with all that it holds.
    pub(super) fn leave(&self, seat: Seat, alive: Alive<'_>) {
        let _held = self.enter(seat.own, alive);
        if let Some(member) = self.member(seat) {
            clear(member);
            self.hand_on_exports();
            self.sum_up();
        }
    }

    /// Books an amount if it fits under the cap, also after the rows of the dead are cleared.
    pub(super) fn reserve(
        &self,
        seat: Seat,
        kind: Kind,
        bytes: u64,
        cap: u64,
        alive: Alive<'_>,
    ) -> Result<(), NotBooked> {
        if kind == Kind::Context {
            // It is the first of a process, which may follow one that died with all that it held: that must not
            // count into the peak. The look costs little beside a context.
            self.clear_dead(seat.own, alive);
        }
        let first = self.try_reserve(seat, kind, bytes, cap, alive);
        if !matches!(first, Err(NotBooked::Over(_))) {
            return first;
        }
        // Nothing is refused by a sum that somebody may have spoiled.
        self.reap(seat.own, alive);
        self.try_reserve(seat, kind, bytes, cap, alive)
    }

    fn try_reserve(
        &self,
        seat: Seat,
        kind: Kind,
        bytes: u64,
        cap: u64,
        alive: Alive<'_>,
    ) -> Result<(), NotBooked> {
        let _held = self.enter(seat.own, alive);
        let member = self.member(seat).ok_or(NotBooked::NoRow)?;
        let held = self.total.load(Ordering::Relaxed);
        match held.checked_add(bytes).filter(|sum| *sum <= cap) {
            Some(total) => self.book(member, kind, bytes, total),
            None => return Err(NotBooked::Over(OverCap { asked: bytes, held, cap })),
        }
        Ok(())
    }

    /// Books an amount that exists already, whatever the cap says.
    pub(super) fn add(&self, seat: Seat, kind: Kind, bytes: u64, alive: Alive<'_>) {
        // What the dead held must not count into the peak.
        self.clear_dead(seat.own, alive);
        let _held = self.enter(seat.own, alive);
        if let Some(member) = self.member(seat) {
            let total = self.total.load(Ordering::Relaxed).saturating_add(bytes);
            self.book(member, kind, bytes, total);
        }
    }

    /// Takes an amount off the books. More than is there leaves 0.
    pub(super) fn release(&self, seat: Seat, kind: Kind, bytes: u64, alive: Alive<'_>) {
        let _held = self.enter(seat.own, alive);
        let Some(held) = self.member(seat).and_then(|member| member.held.get(kind as usize)) else {
            return;
        };
        let before = held.load(Ordering::Relaxed);
        let taken = before.min(bytes);
        held.store(before - taken, Ordering::Relaxed);
        let total = self.total.load(Ordering::Relaxed);
        self.total.store(total.saturating_sub(taken), Ordering::Relaxed);
    }

    /// Clears the rows of the dead and makes the sum anew; what is held then.
    pub(super) fn reap(&self, own: ProcessId, alive: Alive<'_>) -> u64 {
        if !self.clear_dead(own, alive) {
            let _held = self.enter(own, alive);
            self.sum_up();
        }
        self.total.load(Ordering::Relaxed)
    }

    /// Clears the rows of the dead; whether there were any.
    pub(super) fn clear_dead(&self, own: ProcessId, alive: Alive<'_>) -> bool {
        let mut any = false;
        loop {
            let (dead, count) = self.dead(own, alive);
            let found = dead.iter().take(count);
            if count > 0 {
                any = true;
                let _held = self.enter(own, alive);
                for (row, word) in found {
                    // Meanwhile it may have been cleared, and be another's.
                    if let Some(member) =
                        self.members.get(*row).filter(|it| owner_word(it) == *word)
                    {
                        clear(member);
                    }
                }
                self.hand_on_exports();
                self.sum_up();
            }
            if count < DEAD {
                return any;
            }
        }
    }

    /// Rows of the dead, and their owners; how many.
    fn dead(&self, own: ProcessId, alive: Alive<'_>) -> ([(usize, u64); DEAD], usize) {
        let (mut found, mut count) = ([(0, 0); DEAD], 0);
        for (row, member) in self.members.iter().enumerate() {
            let owner = ProcessId::from_word(member.owner.load(Ordering::Acquire));
            let Some(owner) = owner.filter(|owner| *owner != own) else { continue };
            if let Some(slot) = found.get_mut(count)
                && !alive(owner)
            {
                *slot = (row, owner.word());
                count += 1;
            }
        }
        (found, count)
    }

    /// A process's row, while it is its own.
    pub(super) fn member(&self, seat: Seat) -> Option<&Member> {
        self.members.get(seat.row).filter(|member| owner_word(member) == seat.own.word())
    }

    /// The row of a process.
    pub(super) fn row_of(&self, owner: ProcessId) -> Option<(usize, &Member)> {
        self.members.iter().enumerate().find(|(_, member)| owner_word(member) == owner.word())
    }

    pub(super) fn enter(&self, own: ProcessId, alive: Alive<'_>) -> Inside<'_> {
        let broken = lock::take(&self.lock, own, alive);
        let inside = Inside { page: self, own };
        if broken {
            self.sum_up();
        }
        inside
    }

    fn book(&self, member: &Member, kind: Kind, bytes: u64, total: u64) {
        if let Some(held) = member.held.get(kind as usize) {
            held.store(held.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
            self.total.store(total, Ordering::Relaxed);
            if total > self.peak.load(Ordering::Relaxed) {
                self.peak.store(total, Ordering::Relaxed);
            }
        }
    }

    /// Makes the sum anew. Only inside the lock.
    pub(super) fn sum_up(&self) {
        let owned = self.members.iter().filter(|member| owner_word(member) != 0);
        let amounts = owned.flat_map(|member| &member.held);
        let sum = amounts.fold(0_u64, |sum, held| sum.saturating_add(held.load(Ordering::Relaxed)));
        self.total.store(sum, Ordering::Relaxed);
    }
}

/// Inside the lock.
pub(super) struct Inside<'page> {
    page: &'page LedgerPage,
    own: ProcessId,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        lock::give(&self.page.lock, self.own);
    }
}

pub(super) fn owner_word(member: &Member) -> u64 {
    member.owner.load(Ordering::Relaxed)
}

/// The amounts go first: a row without an owner holds nothing.
fn clear(member: &Member) {
    for held in &member.held {
        held.store(0, Ordering::Relaxed);
    }
    member.owner.store(0, Ordering::Release);
}

/// Counts a refusal, with the figures of the last.
pub(super) fn note(refusals: &Refusals, asked: u64, held: u64, limit: u64) {
    let set = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
    set(&refusals.asked, asked);
    set(&refusals.held, held);
    set(&refusals.limit, limit);
    set(&refusals.pid, u64::from(std::process::id()));
    refusals.count.fetch_add(1, Ordering::Release);
}
