//! Sitting down at a board.

use crate::process::ProcessId;
use crate::sync::Ordering;

use super::board::Board;
use super::seat::{Place, Process, Seat, Terms};
use super::{PROCESSES, SEATS, WANT_STALE_US};

impl Board {
    /// Sits down, or finds the tenant's seat. `None`: all seats or rows are taken.
    ///
    /// * `tenant` — a word that stands for the tenant in all its processes, never 0.
    pub fn join(
        &self,
        tenant: u64,
        terms: Terms,
        process: ProcessId,
        now_us: u64,
    ) -> Option<Place> {
        let seat = self.find_seat(tenant, terms, now_us)?;
        let its = self.seat(seat)?;
        its.terms.store(terms.pack(), Ordering::Relaxed);
        its.beat_us.store(now_us, Ordering::Relaxed);
        Some(Place { seat, row: row(&its.processes, process, now_us), tenant })
    }

    /// Whether the seat is still the tenant's: one that was away for long may find another one in it.
    pub fn is_seated(&self, place: Place) -> bool {
        self.seat(place.seat).is_some_and(|seat| seat.owner.load(Ordering::Relaxed) == place.tenant)
    }

    /// A tenant's process that is seated no more hands on a turn that it still has there.
    pub fn leave(&self, place: Place, now_us: u64) {
        if self.seat(place.seat).is_some_and(|seat| seat.owner.load(Ordering::Acquire) == 0) {
            self.pass(place, now_us);
        }
    }

    fn find_seat(&self, tenant: u64, terms: Terms, now_us: u64) -> Option<usize> {
        // Others may sit down at the same time; then the next look finds another seat, or the tenant's.
        for _ in 0..SEATS {
            if let Some(found) = self.one_seat(tenant) {
                return Some(found);
            }
            let holder = self.word().holder;
            let seats = || self.all().iter().enumerate().filter(|(seat, _)| holder != Some(*seat));
            let free = seats().find(|(_, seat)| owner(seat) == 0);
            let left = || seats().find(|(_, seat)| self.stale(seat, now_us));
            let (_, seat) = free.or_else(left)?;
            let of = owner(seat);
            let before = seat.processes();
            // Before it is ours, so that nobody finds it stale in between.
            let beat = seat.beat_us.fetch_max(now_us, Ordering::Relaxed);
            if beat > now_us {
                seat.beat_us.store(now_us, Ordering::Relaxed);
            }
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            if owner(seat) != tenant
                && seat.owner.compare_exchange(of, tenant, order.0, order.1).is_ok()
            {
                seat.clear(terms, &before, now_us);
            }
        }
        self.one_seat(tenant)
    }

    /// The tenant's seat. Two of its processes that sit down at once may each have taken one: then the first
    /// one stays, and the others are given back by whoever sees them. Who sat there finds out when it next
    /// looks, and moves.
    fn one_seat(&self, tenant: u64) -> Option<usize> {
        let mut seats = self.all().iter().enumerate().filter(|(_, seat)| owner(seat) == tenant);
        let first = seats.next().map(|(number, _)| number);
        for (_, more) in seats {
            let _ = more.owner.compare_exchange(tenant, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        first
    }
}

fn owner(seat: &Seat) -> u64 {
    seat.owner.load(Ordering::SeqCst)
}

/// A row for a process: its own, a free one, one of a process that is gone, or a shared one.
fn row(rows: &[Process; PROCESSES], process: ProcessId, now_us: u64) -> usize {
    let word = process.word();
    if let Some(own) = rows.iter().position(|row| row.id.load(Ordering::Relaxed) == word) {
        return own;
    }
    for (number, row) in rows.iter().enumerate() {
        let of = row.id.load(Ordering::Relaxed);
        let idle = now_us.abs_diff(row.busy_us.load(Ordering::Relaxed)) > WANT_STALE_US;
        let free = of == 0 || idle && ProcessId::from_word(of).is_none_or(|it| !it.is_alive());
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if free && row.id.compare_exchange(of, word, order.0, order.1).is_ok() {
            return number;
        }
    }
    usize::try_from(process.pid()).unwrap_or(0) % PROCESSES
}
