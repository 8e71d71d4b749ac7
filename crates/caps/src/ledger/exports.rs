//! Memory that several processes of the tenant hold: it counts once, for as long as one of them has it.
//!
//! Each holder has a row. The exporter pays by its own allocation; whoever opens it pays nothing while
//! somebody of the tenant pays. If the one who pays goes, the next holder pays from then on.

use super::books::{Alive, Seat};
use super::page::{Export, Kind, LedgerPage, Member};
use crate::process::ProcessId;
use crate::sync::Ordering;

/// How a row's memory is in the books.
const OPENED: u64 = 0;
/// By the exporter's allocation.
const ALLOCATED: u64 = 1;
/// As [`Kind::Imported`] of the row's process.
const INHERITED: u64 = 2;

impl LedgerPage {
    /// See [`super::Ledger::export`].
    pub(super) fn export(&self, seat: Seat, key: u64, bytes: u64, alive: Alive<'_>) {
        let _held = self.enter(seat.own, alive);
        let own = |row: &&Export| is(row, key) && owner(row) == Some(seat.own);
        if !self.exports.iter().any(|row| own(&row)) {
            self.add_hold(seat.own, key, bytes, ALLOCATED);
        }
    }

    /// See [`super::Ledger::open_export`].
    pub(super) fn open_export(&self, seat: Seat, key: u64, alive: Alive<'_>) -> bool {
        self.clear_dead(seat.own, alive);
        let _held = self.enter(seat.own, alive);
        let paid = self.exports.iter().find(|row| is(row, key) && pays(row));
        paid.is_some_and(|row| {
            self.add_hold(seat.own, key, row.bytes.load(Ordering::Relaxed), OPENED)
        })
    }

    /// See [`super::Ledger::close_export`].
    pub(super) fn close_export(&self, seat: Seat, key: u64, alive: Alive<'_>) {
        let _held = self.enter(seat.own, alive);
        let own = |row: &&Export| is(row, key) && owner(row) == Some(seat.own);
        let Some(row) = self.exports.iter().find(own) else { return };
        if row.paid.load(Ordering::Relaxed) == INHERITED
            && let Some(held) = self.member(seat).and_then(imported)
        {
            let bytes = row.bytes.load(Ordering::Relaxed);
            held.store(held.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
        }
        let did_pay = pays(row);
        forget(row);
        if did_pay {
            self.inherit(key);
        }
        self.sum_up();
    }

    /// See [`super::Ledger::exported`].
    pub(super) fn exported(&self, own: ProcessId, key: u64, alive: Alive<'_>) -> bool {
        self.clear_dead(own, alive);
        let _held = self.enter(own, alive);
        self.exports.iter().any(|row| is(row, key) && pays(row))
    }

    /// Ends the holds of processes that have no row any more. Only inside the lock; the sum is the
    /// caller's.
    pub(super) fn hand_on_exports(&self) {
        let gone = |row: &&Export| owner(row).is_some_and(|owner| self.row_of(owner).is_none());
        for row in self.exports.iter().filter(gone) {
            let (key, did_pay) = (row.key.load(Ordering::Relaxed), pays(row));
            forget(row);
            if did_pay {
                self.inherit(key);
            }
        }
    }

    /// Has the next holder pay, if there is one and nobody pays.
    fn inherit(&self, key: u64) {
        if self.exports.iter().any(|row| is(row, key) && pays(row)) {
            return;
        }
        let heir = self.exports.iter().find_map(|row| {
            let of_key = is(row, key).then(|| owner(row)).flatten();
            of_key.and_then(|owner| self.row_of(owner)).map(|(_, member)| (row, member))
        });
        if let Some((row, held)) = heir.and_then(|(row, member)| Some((row, imported(member)?))) {
            let bytes = row.bytes.load(Ordering::Relaxed);
            row.paid.store(INHERITED, Ordering::Relaxed);
            held.store(held.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
        }
    }

    fn add_hold(&self, own: ProcessId, key: u64, bytes: u64, paid: u64) -> bool {
        let free = |row: &&Export| row.key.load(Ordering::Relaxed) == 0;
        let Some(row) = self.exports.iter().find(free) else { return false };
        row.bytes.store(bytes, Ordering::Relaxed);
        row.paid.store(paid, Ordering::Relaxed);
        row.owner.store(own.word(), Ordering::Relaxed);
        // The key goes last: a row without one says nothing.
        row.key.store(key, Ordering::Release);
        true
    }
}

fn is(row: &Export, key: u64) -> bool {
    row.key.load(Ordering::Relaxed) == key
}

fn pays(row: &Export) -> bool {
    row.paid.load(Ordering::Relaxed) != OPENED
}

fn owner(row: &Export) -> Option<ProcessId> {
    let used = row.key.load(Ordering::Relaxed) != 0;
    ProcessId::from_word(row.owner.load(Ordering::Relaxed)).filter(|_| used)
}

fn forget(row: &Export) {
    row.key.store(0, Ordering::Relaxed);
    row.owner.store(0, Ordering::Relaxed);
}

fn imported(member: &Member) -> Option<&crate::sync::AtomicU64> {
    member.held.get(Kind::Imported as usize)
}
