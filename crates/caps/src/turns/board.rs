//! The board of one GPU: sitting down, asking, holding, handing on.

use crate::sync::{AtomicU64, Ordering};

use super::next::{SeatView, Views, mean_virtual, next};
use super::seat::{Place, Seat};
use super::word::{Word, own_byte};
use super::{
    BEAT_US, BEHIND_US, BURST_MIN_US, PAUSE_US, POLL_US, QUANTUM_US, SEAT_STALE_US, SEATS,
    TURN_MIN_US, WANT_STALE_US,
};

/// Priorities that have a virtual time of their own.
pub(super) const LEVELS: usize = 8;

/// The turns of one GPU. All bytes 0 is a board at which nobody sits.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Board {
    /// [`Word`].
    pub(super) turn: AtomicU64,
    /// When the turn began.
    pub(super) since_us: AtomicU64,
    /// How far virtual time has come, by priority.
    pub(super) virtual_us: [AtomicU64; LEVELS],
    pub(super) seats: Seats,
}

/// All seats.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Seats([Seat; SEATS]);

impl Default for Seats {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Seat::default()))
    }
}

#[cfg(not(loom))]
#[allow(unsafe_code, reason = "says that the type is made of atomics")]
// SAFETY: `#[repr(C)]`, atomics only, and zeroes are a board at which nobody sits.
unsafe impl crate::shared::Page for Board {
    const LAYOUT: u64 = u64::from_le_bytes(*b"turns\0\0\x01");
}

/// The answer to who asks for the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Launch.
    Yours,
    /// Ask again when the turn changes, and at this time at the latest.
    Wait {
        /// µs.
        until_us: u64,
    },
}

/// What a holder is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The turn is another one's.
    Lost,
    /// Nobody else wants it.
    Alone,
    /// Others wait, but it goes on.
    Wanted,
    /// Launch nothing more, and hand the turn on when the work has run dry.
    Close,
}

/// What became of a turn that was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Another one has it, or whoever asks first: wake those who wait.
    On,
    /// It is the same one's again: nobody else has a better right.
    Kept,
    /// It was not the caller's.
    Lost,
}

impl Board {
    pub(super) fn all(&self) -> &[Seat; SEATS] {
        &self.seats.0
    }

    pub(super) fn seat(&self, seat: usize) -> Option<&Seat> {
        self.seats.0.get(seat)
    }

    pub(super) fn word(&self) -> Word {
        Word::unpack(self.turn.load(Ordering::SeqCst))
    }

    fn change(&self, from: Word, to: Word) -> bool {
        let (order, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        self.turn.compare_exchange(from.raw, to.pack(), order, failed).is_ok()
    }

    /// Whether the turn is this seat's and does not end: one load, for every launch.
    pub fn is_held_by(&self, seat: usize) -> bool {
        self.turn.load(Ordering::SeqCst) & 0xff == own_byte(seat)
    }

    /// The number of the turn, which tells this seat's turns apart; `None` if it is another one's.
    pub fn number(&self, seat: usize) -> Option<u16> {
        let word = self.word();
        (word.holder == Some(seat)).then_some(word.number)
    }

    /// The half of the turn's word that changes whenever the turn changes hands, for waiting (futex).
    pub fn watched(&self) -> &AtomicU64 {
        &self.turn
    }

    /// Asks for the turn. Who is told to wait stays in the queue by asking again.
    pub fn ask(&self, place: Place, now_us: u64) -> Turn {
        let Some(seat) = self.seat(place.seat) else { return Turn::Yours };
        let word = self.word();
        seat.beat_us.store(now_us, Ordering::Relaxed);
        if word.holder == Some(place.seat) && !word.closing {
            return Turn::Yours;
        }
        let wait = Turn::Wait { until_us: now_us + POLL_US };
        self.want(place, seat, now_us);
        let from = seat.eligible_us(BURST_MIN_US, now_us);
        if from > now_us {
            return Turn::Wait { until_us: from.min(now_us + POLL_US) };
        }
        // The turn may have come free since it was first looked at; the want is seen from here on.
        let word = self.word();
        match word.holder {
            Some(holder) if holder == place.seat => wait,
            Some(holder) if word.overdue(now_us) => {
                self.forget_want(holder);
                self.take(word, place, now_us)
            }
            Some(holder) => match self.may_seize(seat, holder, now_us) {
                0 => self.take(word, place, now_us),
                left => Turn::Wait { until_us: now_us + left.min(POLL_US) },
            },
            None => self.take(word, place, now_us),
        }
    }

    /// Notes that a seat waits. A tenant that was away is placed beside the others.
    fn want(&self, place: Place, seat: &Seat, now_us: u64) {
        seat.asked_us.store(now_us, Ordering::Relaxed);
        if seat.want_us.load(Ordering::Relaxed) != 0 {
            return;
        }
        let pause = now_us.saturating_sub(seat.paid_until_us.load(Ordering::Relaxed));
        if pause > PAUSE_US && self.word().holder != Some(place.seat) {
            self.put_beside(place, seat, now_us);
        }
        seat.want_us.store(now_us.max(1), Ordering::SeqCst);
    }

    fn put_beside(&self, place: Place, seat: &Seat, now_us: u64) {
        let level = self.level(seat.terms().priority).load(Ordering::Relaxed);
        let (mean, stretch) =
            mean_virtual(&self.views(now_us), place.seat).unwrap_or((level, 1000));
        let lag = seat.lag_us(now_us).saturating_mul(i64::try_from(stretch).unwrap_or(1000)) / 1000;
        seat.virtual_us.store(mean.saturating_add_signed(-lag), Ordering::Relaxed);
    }

    /// How long the holder may not be disturbed by this seat: 0 if it can be at once.
    fn may_seize(&self, seat: &Seat, holder: usize, now_us: u64) -> u64 {
        let Some(its) = self.seat(holder) else { return 0 };
        if seat.terms().priority <= its.terms().priority {
            return POLL_US;
        }
        let owed = u64::try_from(its.owed_us(0, now_us)).unwrap_or(0);
        owed.saturating_sub(self.age_us(now_us))
    }

    /// How long the turn has lasted. If its beginning was spoilt it has lasted long enough.
    fn age_us(&self, now_us: u64) -> u64 {
        now_us.checked_sub(self.since_us.load(Ordering::Relaxed)).unwrap_or(QUANTUM_US)
    }

    fn take(&self, word: Word, place: Place, now_us: u64) -> Turn {
        if !self.change(word, word.then(Some(place.seat), now_us)) {
            // Somebody was faster; look again soon.
            return Turn::Wait { until_us: now_us + BEAT_US };
        }
        self.since_us.store(now_us, Ordering::Relaxed);
        self.granted(place.seat, now_us);
        Turn::Yours
    }

    /// Settles what waiting has earned.
    fn granted(&self, seat: usize, now_us: u64) {
        let Some(seat) = self.seat(seat) else { return };
        let want = seat.want_us.swap(0, Ordering::SeqCst);
        if want != 0 {
            seat.set_owed(seat.owed_us(want, now_us));
            seat.waited_us.fetch_add(now_us.saturating_sub(want), Ordering::Relaxed);
        }
    }

    /// How far virtual time has come in a priority.
    pub(super) fn level(&self, priority: i32) -> &AtomicU64 {
        let above = priority.saturating_sub(super::PRIORITY_MIN).clamp(0, LEVELS as i32 - 1);
        let [first, ..] = &self.virtual_us;
        self.virtual_us.get(above.unsigned_abs() as usize).unwrap_or(first)
    }

    fn forget_want(&self, seat: usize) {
        if let Some(seat) = self.seat(seat) {
            seat.want_us.store(0, Ordering::SeqCst);
        }
    }

    pub(super) fn stale(&self, seat: &Seat, now_us: u64) -> bool {
        let beat = seat.beat_us.load(Ordering::Relaxed);
        now_us.saturating_sub(beat) > SEAT_STALE_US || beat > now_us.saturating_add(SEAT_STALE_US)
    }

    /// What the board shows.
    pub fn views(&self, now_us: u64) -> Views {
        let mut views = Views::new();
        let holder = self.word().holder;
        for (number, seat) in self.seats.0.iter().enumerate() {
            if seat.owner.load(Ordering::Relaxed) != 0 && !self.stale(seat, now_us) {
                views.push(view(seat, number, holder == Some(number), now_us));
            }
        }
        views
    }

    /// Whether a tenant with a cap of time sits here.
    pub fn has_capped(&self, now_us: u64) -> bool {
        self.seats.0.iter().any(|seat| {
            seat.owner.load(Ordering::Relaxed) != 0
                && seat.terms().share_milli.is_some()
                && !self.stale(seat, now_us)
        })
    }

    /// Whether another tenant waits for the turn.
    pub fn wanted(&self, place: Place, now_us: u64) -> bool {
        let others = self.seats.0.iter().enumerate().filter(|(number, _)| *number != place.seat);
        others.into_iter().any(|(_, seat)| wants(seat, now_us))
    }

    /// The holder shows that it lives, and hears what to do; every [`BEAT_US`] while it computes or others
    /// wait.
    ///
    /// * `unpaid_us` — what it has to pay for so far.
    pub fn tick(&self, place: Place, now_us: u64, unpaid_us: u64) -> Hold {
        let Some(seat) = self.seat(place.seat) else { return Hold::Lost };
        seat.beat_us.store(now_us, Ordering::Relaxed);
        let word = self.word();
        if word.holder != Some(place.seat) {
            return Hold::Lost;
        }
        let hold =
            if word.closing { Hold::Close } else { self.hold(place, seat, now_us, unpaid_us) };
        let beaten = Word { closing: hold == Hold::Close, beat_ms: now_us / 1000, ..word };
        if beaten != word && !self.change(word, beaten) {
            // Taken, or another process of the tenant was here first, with the same aim.
            return match self.word() {
                now if now.holder != Some(place.seat) => Hold::Lost,
                now if now.closing => Hold::Close,
                _ => hold,
            };
        }
        hold
    }

    fn hold(&self, place: Place, seat: &Seat, now_us: u64, unpaid_us: u64) -> Hold {
        let spent = unpaid_us.saturating_mul(1000)
            / seat.terms().share_milli.map_or(1000, |share| u64::from(share.max(1)));
        if seat.eligible_us(0, now_us) > now_us.saturating_sub(spent).max(1) {
            return Hold::Close;
        }
        if !self.wanted(place, now_us) {
            return Hold::Alone;
        }
        let mut views = self.views(now_us);
        let rate = super::effective_milli(&views, place.seat);
        let had = self.age_us(now_us);
        let Some(own) = views.get_mut(place.seat) else { return Hold::Wanted };
        own.wants = true;
        own.want_us = now_us;
        own.virtual_us = own.virtual_us.saturating_add(unpaid_us.saturating_mul(1000) / rate);
        own.owed_us = own.owed_us.saturating_sub_unsigned(had);
        let own = *own;
        let Some(better) = next(&views).and_then(|seat| views.get(seat)) else {
            return Hold::Wanted;
        };
        if better.seat == place.seat {
            return Hold::Wanted;
        }
        let came_back = now_us.saturating_sub(better.want_us) <= had
            && had >= TURN_MIN_US
            && better.virtual_us.saturating_add(BEHIND_US) < own.virtual_us;
        // Another priority does not wait for the end of a quantum: it is higher, or is owed.
        let at_once = better.terms.priority != own.terms.priority;
        if at_once || had >= QUANTUM_US || came_back { Hold::Close } else { Hold::Wanted }
    }

    /// Hands the turn on to who is next, once the holder's work has run dry and been charged.
    pub fn pass(&self, place: Place, now_us: u64) -> Passed {
        loop {
            let word = self.word();
            if word.holder != Some(place.seat) {
                return Passed::Lost;
            }
            let winner = next(&self.views(now_us));
            let since = self.since_us.swap(now_us, Ordering::Relaxed);
            if self.change(word, word.then(winner, now_us)) {
                if let Some(winner) = winner {
                    self.granted(winner, now_us);
                }
                return if winner == Some(place.seat) { Passed::Kept } else { Passed::On };
            }
            // Its own other process beat, or it was taken; then the time is the taker's.
            self.since_us.store(since, Ordering::Relaxed);
        }
    }

    /// Notes whether a process has work on the GPU.
    pub fn set_busy(&self, place: Place, busy: bool, now_us: u64) {
        let process = self.seat(place.seat).and_then(|seat| seat.processes.get(place.row));
        if let Some(process) = process {
            process.busy_us.store(if busy { now_us.max(1) } else { 0 }, Ordering::SeqCst);
        }
    }

    /// Whether other processes of the tenant have work on the GPU.
    pub fn others_busy(&self, place: Place, now_us: u64) -> bool {
        let Some(seat) = self.seat(place.seat) else { return false };
        let others = seat.processes.iter().enumerate().filter(|(row, _)| *row != place.row);
        let mut busy = others.map(|(_, process)| process.busy_us.load(Ordering::SeqCst));
        busy.any(|at| at != 0 && now_us.abs_diff(at) < WANT_STALE_US)
    }
}

/// Whether a seat waits for the turn, and lives.
fn wants(seat: &Seat, now_us: u64) -> bool {
    let asked = seat.asked_us.load(Ordering::Relaxed);
    seat.want_us.load(Ordering::SeqCst) != 0 && now_us.abs_diff(asked) < WANT_STALE_US
}

fn view(seat: &Seat, number: usize, holds: bool, now_us: u64) -> SeatView {
    let want_us = seat.want_us.load(Ordering::SeqCst);
    let least_us = if holds { 0 } else { BURST_MIN_US };
    SeatView {
        seat: number,
        terms: seat.terms(),
        wants: wants(seat, now_us),
        eligible: seat.eligible_us(least_us, now_us) <= now_us,
        holds,
        want_us,
        virtual_us: seat.virtual_us.load(Ordering::Relaxed),
        owed_us: seat.owed_us(want_us, now_us),
    }
}
