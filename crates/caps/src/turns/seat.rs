//! A tenant's seat on the board: what it has been given, what it wants, what it has had.

use crate::given::ComputeCap;
use crate::sync::{AtomicU64, Ordering};

use super::{
    AHEAD_US, BURST_MIN_US, BURST_US, DUE_MAX_US, FLOOR_AHEAD_US, FLOOR_SAVED_US, FORGET_US,
    LAG_US, PROCESSES,
};

/// Lowest priority that is told apart; lower ones count as this.
pub const PRIORITY_MIN: i32 = -4;
/// Highest priority that is told apart; higher ones count as this.
pub const PRIORITY_MAX: i32 = 3;

/// What a tenant has been given of a GPU's time, as it lies on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its share in thousandths, 1 to 1000; `None` without a cap: then it gets what the capped ones leave.
    pub share_milli: Option<u16>,
    /// How time that others leave is divided; from 1.
    pub weight: u16,
    /// [`PRIORITY_MIN`] to [`PRIORITY_MAX`].
    pub priority: i32,
    /// What a higher priority must leave, in thousandths, at most 500.
    pub floor_milli: u16,
    /// Whether it must keep to its share even if nobody else wants the GPU.
    pub strict: bool,
}

impl Terms {
    /// As an agent has given it; `None` for a tenant without a cap.
    pub fn of(cap: Option<&ComputeCap>) -> Self {
        let narrow = |value: u32, max: u32| u16::try_from(value.min(max)).unwrap_or(0);
        match cap {
            Some(cap) => Self {
                share_milli: Some(narrow(cap.share_milli.max(1), 1000)),
                weight: narrow(cap.weight.max(1), 10_000),
                priority: cap.priority.clamp(PRIORITY_MIN, PRIORITY_MAX),
                floor_milli: narrow(cap.floor_milli.min(cap.share_milli), 500),
                strict: !cap.conserving,
            },
            None => {
                Self { share_milli: None, weight: 1, priority: 0, floor_milli: 50, strict: false }
            }
        }
    }

    /// Bits: 0-15 share (0 without a cap), 16-31 weight, 32-47 floor, 48-55 priority from the lowest, 56
    /// strict.
    pub(super) fn pack(self) -> u64 {
        let priority = self.priority.clamp(PRIORITY_MIN, PRIORITY_MAX) - PRIORITY_MIN;
        u64::from(self.share_milli.unwrap_or(0))
            | u64::from(self.weight) << 16
            | u64::from(self.floor_milli) << 32
            | u64::from(priority.unsigned_abs()) << 48
            | u64::from(self.strict) << 56
    }

    /// From any bits.
    pub(super) fn unpack(word: u64) -> Self {
        let part = |shift: u32| (word >> shift & 0xffff) as u16;
        let above = i32::try_from(word >> 48 & 0xff).unwrap_or(0);
        Self {
            share_milli: Some(part(0).min(1000)).filter(|share| *share > 0),
            weight: part(16).clamp(1, 10_000),
            priority: (PRIORITY_MIN + above).min(PRIORITY_MAX),
            floor_milli: part(32).min(500),
            strict: word >> 56 & 1 != 0,
        }
    }
}

/// One process at the board: its tenant's seat and its own row in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tenant's seat.
    pub seat: usize,
    /// The process's row.
    pub row: usize,
    /// The word that stands for the tenant.
    pub tenant: u64,
}

/// A process of a tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Process {
    /// [`crate::ProcessId`] as a word; 0 for nobody.
    pub(super) id: AtomicU64,
    /// Last time at which it had work on the GPU; 0 when it has none.
    pub(super) busy_us: AtomicU64,
}

/// A tenant.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Word that stands for the tenant; 0 for nobody.
    pub(super) owner: AtomicU64,
    /// [`Terms`].
    pub(super) terms: AtomicU64,
    /// Last sign of life.
    pub(super) beat_us: AtomicU64,
    /// Since when it waits for the turn; 0 if it does not.
    pub(super) want_us: AtomicU64,
    /// Last time at which it asked.
    pub(super) asked_us: AtomicU64,
    /// GPU time that it has had.
    pub(super) used_us: AtomicU64,
    /// Virtual time: GPU time by what it has a right to.
    pub(super) virtual_us: AtomicU64,
    /// How far it was behind the others when it last paid, in virtual µs, plus [`AHEAD_US`].
    pub(super) lag_us: AtomicU64,
    /// Until when time is paid; so that processes of one tenant do not pay for the same time twice.
    pub(super) paid_until_us: AtomicU64,
    /// Strict share: when the savings would be 0 again ("theoretical arrival time" of the generic cell
    /// rate algorithm, ITU-T I.371).
    pub(super) due_us: AtomicU64,
    /// What it is owed by its floor, plus [`FLOOR_AHEAD_US`].
    pub(super) floor_us: AtomicU64,
    /// Time in which it waited for the turn, ever.
    pub(super) waited_us: AtomicU64,
    /// Its processes.
    pub(super) processes: [Process; PROCESSES],
}

impl Seat {
    pub(super) fn terms(&self) -> Terms {
        Terms::unpack(self.terms.load(Ordering::Relaxed))
    }

    /// What it is owed by its floor at the moment, if it has been waiting since `want_us` (0: it has not):
    /// the floor's part of the time, on top of what was left before. Negative: it has had more.
    pub(super) fn owed_us(&self, want_us: u64, now_us: u64) -> i64 {
        let floor = u64::from(self.terms().floor_milli);
        let waited = if want_us == 0 { 0 } else { now_us.saturating_sub(want_us).min(60_000_000) };
        // While it waits it gains for the time of its service too: f / (1 - f).
        let gained = waited * floor / (1000 - floor);
        let saved = self.floor_us.load(Ordering::Relaxed).saturating_add(gained);
        let owed = saved.min(FLOOR_AHEAD_US + FLOOR_SAVED_US);
        i64::try_from(owed).unwrap_or(0) - FLOOR_AHEAD_US as i64
    }

    /// How far it is behind the others (negative: ahead) when it comes back.
    pub(super) fn lag_us(&self, now_us: u64) -> i64 {
        let pause = now_us.saturating_sub(self.paid_until_us.load(Ordering::Relaxed));
        let kept = FORGET_US.saturating_sub(pause) as i64;
        let lag =
            self.lag_us.load(Ordering::Relaxed).min(AHEAD_US + LAG_US) as i64 - AHEAD_US as i64;
        lag * kept / FORGET_US as i64
    }

    /// Writes down how far it is behind.
    pub(super) fn set_lag(&self, lag_us: i64) {
        let lag = lag_us.clamp(-(AHEAD_US as i64), LAG_US as i64) + AHEAD_US as i64;
        self.lag_us.store(lag.unsigned_abs(), Ordering::Relaxed);
    }

    /// Writes down what it is owed.
    pub(super) fn set_owed(&self, owed_us: i64) {
        let ahead = FLOOR_AHEAD_US as i64;
        let owed = owed_us.clamp(-ahead, FLOOR_SAVED_US as i64) + ahead;
        self.floor_us.store(owed.unsigned_abs(), Ordering::Relaxed);
    }

    /// Strict share: from when on it may begin; 0 for others.
    ///
    /// * `least_us` — GPU time that must have been saved.
    pub(super) fn eligible_us(&self, least_us: u64, now_us: u64) -> u64 {
        let terms = self.terms();
        match terms.share_milli {
            Some(share) if terms.strict => {
                let due = self.due_us.load(Ordering::Relaxed);
                // Further ahead than it is ever set: it was spoilt.
                let due = if due > now_us.saturating_add(DUE_MAX_US) { 0 } else { due };
                due.saturating_add(least_us * 1000 / u64::from(share))
            }
            _ => 0,
        }
    }

    /// Strict share: takes GPU time from the savings, which were full at most when the time began.
    pub(super) fn spend(&self, us: u64, from_us: u64, now_us: u64) {
        let Some(share) = self.terms().share_milli.map(u64::from) else { return };
        let oldest = from_us.min(now_us).saturating_sub(BURST_US * 1000 / share);
        let due = self.due_us.load(Ordering::Relaxed).max(oldest);
        let due = due.saturating_add(us.saturating_mul(1000) / share);
        self.due_us.store(due.min(now_us.saturating_add(DUE_MAX_US)), Ordering::Relaxed);
    }

    /// Who is in the rows now: process and when it was last busy.
    pub(super) fn processes(&self) -> [(u64, u64); PROCESSES] {
        std::array::from_fn(|row| {
            self.processes.get(row).map_or((0, 0), |process| {
                (process.id.load(Ordering::Acquire), process.busy_us.load(Ordering::Relaxed))
            })
        })
    }

    /// What a tenant finds that sits down: nothing had, nothing owed.
    ///
    /// * `before` — who was in the rows before the seat was the tenant's. Other processes of the tenant may
    ///   have come in since.
    pub(super) fn clear(&self, terms: Terms, before: &[(u64, u64); PROCESSES], now_us: u64) {
        let oldest = match terms.share_milli {
            Some(share) => now_us.saturating_sub(BURST_MIN_US * 1000 / u64::from(share.max(1))),
            None => 0,
        };
        for word in [&self.want_us, &self.asked_us, &self.used_us, &self.virtual_us] {
            word.store(0, Ordering::Relaxed);
        }
        self.waited_us.store(0, Ordering::Relaxed);
        // Away for ever: so it is put beside the others when it first wants the turn.
        self.paid_until_us.store(0, Ordering::Relaxed);
        self.due_us.store(oldest, Ordering::Relaxed);
        self.floor_us.store(FLOOR_AHEAD_US, Ordering::Relaxed);
        self.lag_us.store(AHEAD_US, Ordering::Relaxed);
        for (process, (id, busy_us)) in self.processes.iter().zip(*before) {
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if process.id.compare_exchange(id, 0, order.0, order.1).is_ok() {
                let _ = process.busy_us.compare_exchange(busy_us, 0, order.0, order.1);
            }
        }
        self.terms.store(terms.pack(), Ordering::Relaxed);
    }
}
