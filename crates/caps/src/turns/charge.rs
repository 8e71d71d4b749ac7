//! What a turn costs, and what the board knows of who has had how much.

use crate::sync::Ordering;

use super::board::Board;
use super::next::{effective_milli, mean_virtual};
use super::seat::Place;

/// What a tenant has had so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Had {
    /// GPU time paid for, in µs.
    pub used_us: u64,
    /// Time in which it waited for the turn, in µs.
    pub waited_us: u64,
}

impl Board {
    /// A tenant pays for a stretch of time. What another process of it has paid for already is not paid
    /// twice: together they pay no more than the time that went by.
    ///
    /// * `from_us`, `to_us` — the stretch.
    /// * `cost_us` — what it costs, at most its length.
    ///
    /// Gives what was paid, in µs.
    pub fn charge(&self, place: Place, from_us: u64, to_us: u64, cost_us: u64) -> u64 {
        let Some(seat) = self.seat(place.seat) else { return 0 };
        let paid = seat.paid_until_us.fetch_max(to_us, Ordering::Relaxed);
        // Beyond now it was spoilt.
        let from = if paid > to_us.saturating_add(1_000_000) {
            seat.paid_until_us.store(to_us, Ordering::Relaxed);
            from_us
        } else {
            from_us.max(paid)
        };
        let us = cost_us.min(to_us.saturating_sub(from));
        if us == 0 {
            return 0;
        }
        let views = self.views(to_us);
        let rate = effective_milli(&views, place.seat);
        let before = seat.virtual_us.load(Ordering::Relaxed);
        let after = before.saturating_add(us.saturating_mul(1000) / rate);
        seat.virtual_us.store(after, Ordering::Relaxed);
        match mean_virtual(&views, place.seat) {
            Some((mean, stretch)) => {
                // The mean of all, itself too, is nearer by as much as a lag is stretched later.
                let apart = i64::try_from(mean).unwrap_or(i64::MAX).saturating_sub_unsigned(after);
                seat.set_lag(apart.saturating_mul(1000) / i64::try_from(stretch).unwrap_or(1000));
                self.level(seat.terms().priority).fetch_max(mean, Ordering::Relaxed);
            }
            None => {
                seat.set_lag(0);
                self.level(seat.terms().priority).fetch_max(after, Ordering::Relaxed);
            }
        }
        seat.used_us.fetch_add(us, Ordering::Relaxed);
        let terms = seat.terms();
        if terms.strict {
            seat.spend(us, from, to_us);
        }
        let higher = |view: &&super::SeatView| view.terms.priority > terms.priority;
        if views.iter().filter(higher).any(|view| view.wants || view.holds) {
            let owed = seat.owed_us(0, to_us);
            seat.set_owed(owed.saturating_sub(i64::try_from(us).unwrap_or(i64::MAX)));
        }
        us
    }

    /// What a tenant has had so far.
    pub fn had(&self, seat: usize) -> Had {
        self.seat(seat).map_or(Had::default(), |seat| Had {
            used_us: seat.used_us.load(Ordering::Relaxed),
            waited_us: seat.waited_us.load(Ordering::Relaxed),
        })
    }

    /// The most work that a holder may have in the GPU's queue at a time: less where a higher priority
    /// may come at any moment, and no more than a floor allows while one waits.
    ///
    /// * `most_us` — the bound for who has no higher ones above.
    pub fn room_us(&self, place: Place, now_us: u64, most_us: u64) -> u64 {
        let Some(seat) = self.seat(place.seat) else { return most_us };
        let priority = seat.terms().priority;
        let views = self.views(now_us);
        let mut higher = views.iter().filter(|view| view.terms.priority > priority).peekable();
        if higher.peek().is_none() {
            return most_us;
        }
        if higher.any(|view| view.wants || view.holds) {
            let owed = u64::try_from(seat.owed_us(0, now_us)).unwrap_or(0);
            return most_us.min(owed);
        }
        most_us.min(super::FLOOR_SAVED_US)
    }
}
