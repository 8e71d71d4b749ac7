//! One process at the board of one GPU: may it launch, is its work done, does it hand the turn on?

use crate::process::ProcessId;
use crate::turns::{Board, DRAIN_MAX_US, Hold, Passed, Place, Terms, Turn, UNUSED_US};

use super::advice::{Launch, Tick};
use super::cost::Costs;
use super::queue::{Entered, Moment};
use super::work::Work;
use super::{DRAIN_POLL_US, FILLED_PERCENT, FREE_LOOK_US, LINGER_US, PAY_US, RUN_AHEAD_US};

/// One process at a board. All calls under one lock of the caller's.
#[derive(Debug)]
pub struct Member {
    place: Place,
    terms: Terms,
    process: ProcessId,
    /// What launches cost.
    pub costs: Costs,
    /// What is on its way.
    pub work: Work,
    /// Number of the turn that we know to be ours.
    turn: Option<u16>,
    turn_since_us: u64,
    /// Until when this process's work is paid; work that began later begins there.
    busy_since_us: Option<u64>,
    /// Cost of what was launched since then, in ns.
    launched_ns: u64,
    closing_since_us: Option<u64>,
    /// Since when there is no work.
    dry_since_us: Option<u64>,
    /// Whether others waited when the work had run dry.
    dry_wanted: bool,
    /// Usual time between running dry and the next launch, in µs.
    think_us: u64,
    thinking: bool,
    room_us: u64,
    launches: u64,
    paid_us: u64,
    /// When the turn was last lost with work on its way.
    lost_us: u64,
    /// Whether nobody at the board has a cap of time.
    free: bool,
    /// When to look whether that is still so.
    free_until_us: u64,
}

impl Member {
    /// Sits down at a board; `None` if there is no room, see [`Board::join`].
    pub fn sit(
        board: &Board,
        tenant: u64,
        terms: Terms,
        process: ProcessId,
        now_us: u64,
    ) -> Option<Self> {
        let place = board.join(tenant, terms, process, now_us)?;
        Some(Self {
            place,
            terms,
            process,
            costs: Costs::new(),
            work: Work::new(),
            turn: None,
            turn_since_us: 0,
            busy_since_us: None,
            launched_ns: 0,
            closing_since_us: None,
            dry_since_us: None,
            dry_wanted: false,
            think_us: 0,
            thinking: false,
            room_us: RUN_AHEAD_US,
            launches: 0,
            paid_us: 0,
            lost_us: 0,
            free: false,
            free_until_us: 0,
        })
    }

    /// Its place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Launches so far.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    /// GPU time that it has paid for so far, in µs.
    pub fn paid_us(&self) -> u64 {
        self.paid_us
    }

    /// Sits down at another board, with other terms. Work on its way is paid there.
    pub fn move_to(&mut self, board: &Board, terms: Terms, now_us: u64) {
        if let Some(place) = board.join(self.place.tenant, terms, self.process, now_us) {
            (self.place, self.terms, self.turn) = (place, terms, None);
        }
    }

    /// Asks for a launch of a kind ([`super::key`]) in a stream.
    ///
    /// * `now` — the time in µs; it is looked at only if it matters, as that costs as much as the rest.
    pub fn launch(
        &mut self,
        board: &Board,
        kind: u64,
        stream: u64,
        now: impl Fn() -> u64,
    ) -> Launch {
        if self.terms.share_milli.is_none() && self.is_free(board, now()) {
            self.launches += 1;
            return Launch::Free;
        }
        if self.thinking {
            self.thought(now());
        }
        if self.busy_since_us.is_none() && !self.keep_seat(board, now()) {
            return Launch::Unseated;
        }
        if !board.is_held_by(self.place.seat)
            && let Turn::Wait { until_us } = board.ask(self.place, now())
        {
            return Launch::Turn { until_us };
        }
        if board.number(self.place.seat) != self.turn {
            self.follow(board, now());
        }
        if let Some(wait) = self.settle(kind, stream, &now) {
            return wait;
        }
        let (ns, sample) = self.go(board, kind, now);
        Launch::Go { ns, sample }
    }

    /// Lets a launch go that cannot be waited for, as what is in the queue cannot be looked at. It is paid
    /// like others. Gives what it is expected to cost, in ns, and whether to measure it.
    pub fn go(&mut self, board: &Board, kind: u64, now: impl Fn() -> u64) -> (u64, bool) {
        let (ns, sample) = self.costs.ask(kind);
        if self.busy_since_us.is_none() {
            self.begin(board, now());
        }
        self.launches += 1;
        self.launched_ns = self.launched_ns.saturating_add(ns);
        self.work.enter(ns);
        (ns, sample)
    }

    /// Whether no turns need be taken: equal turns are what the driver gives anyway.
    fn is_free(&mut self, board: &Board, now_us: u64) -> bool {
        if now_us >= self.free_until_us {
            self.free = !board.has_capped(now_us);
            self.free_until_us = now_us + FREE_LOOK_US;
        }
        self.free
    }

    /// Sits down anew if the seat was given on meanwhile; whether there is one.
    fn keep_seat(&mut self, board: &Board, now_us: u64) -> bool {
        if board.is_seated(self.place) {
            return true;
        }
        self.turn = None;
        board.leave(self.place, now_us);
        let again = board.join(self.place.tenant, self.terms, self.process, now_us);
        self.place = again.unwrap_or(self.place);
        again.is_some()
    }

    /// The driver has been asked. Says what is to be done then.
    ///
    /// * `now` — as in [`Member::launch`].
    pub fn launched(
        &mut self,
        stream: u64,
        ns: u64,
        failed: bool,
        now: impl Fn() -> u64,
    ) -> Entered {
        self.work.entered(stream, ns, failed, now)
    }

    /// What to wait for before the next launch, if for anything.
    fn settle(&self, kind: u64, stream: u64, now: impl Fn() -> u64) -> Option<Launch> {
        let outstanding = self.work.outstanding_ns();
        let full = outstanding > 0 && outstanding / 1000 >= self.room_us;
        if !full && !self.costs.is_first(kind) || self.work.is_exempt(stream, now()) {
            return None;
        }
        match self.work.oldest() {
            Some((mark, until_us)) => Some(Launch::Settle { mark, until_us }),
            None => self.work.unmarked().map(|stream| Launch::Mark { stream }),
        }
    }

    /// Work begins where there was none.
    fn begin(&mut self, board: &Board, now_us: u64) {
        // Time for which the turn was kept without work, while others waited, is paid like work.
        let kept = self.dry_since_us.filter(|_| self.dry_wanted && self.turn.is_some());
        self.busy_since_us = Some(kept.unwrap_or(now_us));
        (self.dry_since_us, self.dry_wanted) = (None, false);
        self.launched_ns = 0;
        board.set_busy(self.place, true, now_us);
    }

    /// Learns how long the process takes between two pieces of work.
    fn thought(&mut self, now_us: u64) {
        self.thinking = false;
        if let Some(dry) = self.dry_since_us {
            let gap = now_us.saturating_sub(dry).min(10 * LINGER_US);
            self.think_us = (self.think_us * 3 + gap) / 4;
        }
    }

    /// Notices that the turn was taken away or is a new one.
    fn follow(&mut self, board: &Board, now_us: u64) {
        let number = board.number(self.place.seat);
        if number == self.turn {
            return;
        }
        if self.turn.is_some() && self.busy_since_us.is_some() {
            // Since when it was another one's is not known: pay for the work.
            self.pay(board, now_us, false);
            self.lost_us = now_us;
        }
        self.turn = number;
        self.turn_since_us = now_us;
        self.closing_since_us = None;
        if number.is_some() {
            self.room_us = board.room_us(self.place, now_us, RUN_AHEAD_US);
            if self.busy_since_us.is_some() {
                self.busy_since_us = Some(now_us);
            }
            (self.dry_since_us, self.dry_wanted) = (None, false);
        }
    }

    /// Pays for what was done until now.
    ///
    /// * `all` — the GPU was kept for us, so the time counts, whatever was done in it.
    fn pay(&mut self, board: &Board, now_us: u64, all: bool) {
        let Some(since) = self.busy_since_us else { return };
        let wall = now_us.saturating_sub(since);
        let open = self.work.outstanding_ns().min(self.launched_ns);
        let filled = self.is_filled(wall);
        let cost = if all || filled { wall } else { wall.min((self.launched_ns - open) / 1000) };
        self.paid_us += board.charge(self.place, since, now_us, cost);
        self.busy_since_us = Some(now_us);
        let paid_ns = if filled { wall.saturating_mul(1000) } else { 0 };
        self.launched_ns = self.launched_ns.saturating_sub(paid_ns).min(open);
    }

    /// Whether the work launched fills so much time, by and large: then all of it is paid. If not, the GPU
    /// stood still, which may have been noticed late.
    fn is_filled(&self, wall_us: u64) -> bool {
        self.launched_ns / 10 >= wall_us.saturating_mul(FILLED_PERCENT)
    }

    /// Looks after the turn: to be called when [`Tick::again_us`] says so, when a launch has begun work,
    /// and when a mark or a wait of the process's own has shown that work is done.
    pub fn tick(&mut self, board: &Board, now_us: u64) -> Tick {
        self.work.presume_done(now_us);
        if !self.keep_seat(board, now_us) {
            // The next launch sees to it.
            let again_us = (!self.work.is_idle()).then_some(now_us + crate::turns::BEAT_US);
            return Tick { again_us, mark: self.work.unmarked(), wake: false };
        }
        self.follow(board, now_us);
        let busy = !self.work.is_idle();
        let mut tick = Tick { mark: self.work.unmarked(), ..Tick::default() };
        if busy {
            board.set_busy(self.place, true, now_us);
        }
        if self.turn.is_none() {
            if busy {
                tick.again_us = Some(now_us + crate::turns::BEAT_US);
            } else {
                self.dry(board, now_us, false, false);
            }
            return tick;
        }
        let unpaid = self.busy_since_us.map_or(0, |since| now_us.saturating_sub(since));
        match board.tick(self.place, now_us, unpaid) {
            Hold::Lost => tick.again_us = Some(now_us + DRAIN_POLL_US),
            Hold::Close => self.close(board, now_us, busy, &mut tick),
            Hold::Alone => self.keep(board, now_us, busy, false, &mut tick),
            Hold::Wanted => self.keep(board, now_us, busy, true, &mut tick),
        }
        tick
    }

    fn keep(&mut self, board: &Board, now_us: u64, busy: bool, wanted: bool, tick: &mut Tick) {
        self.closing_since_us = None;
        if busy {
            if let Some(since) = self.busy_since_us
                && (wanted && now_us.saturating_sub(since) >= PAY_US
                    || !wanted && self.is_filled(now_us.saturating_sub(since)))
            {
                self.pay(board, now_us, wanted);
            }
            tick.again_us = Some(now_us + crate::turns::BEAT_US);
            return;
        }
        self.dry(board, now_us, wanted, wanted);
        let until = match self.dry_since_us {
            Some(since) if self.think_us <= LINGER_US => since + LINGER_US,
            Some(since) => since,
            None => self.turn_since_us + UNUSED_US,
        };
        if wanted && now_us < until {
            tick.again_us = Some(until.min(now_us + crate::turns::BEAT_US));
        } else {
            self.hand_on(board, now_us, tick);
        }
    }

    fn close(&mut self, board: &Board, now_us: u64, busy: bool, tick: &mut Tick) {
        let since = *self.closing_since_us.get_or_insert(now_us);
        if busy && now_us.saturating_sub(since) < DRAIN_MAX_US {
            tick.again_us = Some(now_us + DRAIN_POLL_US);
            return;
        }
        if busy {
            self.pay(board, now_us, true);
            self.lost_us = now_us;
        } else {
            self.dry(board, now_us, true, false);
        }
        self.hand_on(board, now_us, tick);
    }

    /// The work has run dry, now or before.
    ///
    /// * `all` — as for paying.
    fn dry(&mut self, board: &Board, now_us: u64, all: bool, wanted: bool) {
        if self.busy_since_us.is_some() {
            self.pay(board, now_us, all);
            self.busy_since_us = None;
            self.dry_since_us = Some(now_us);
            self.dry_wanted = wanted;
            self.thinking = true;
            board.set_busy(self.place, false, now_us);
        }
    }

    fn hand_on(&mut self, board: &Board, now_us: u64, tick: &mut Tick) {
        if board.others_busy(self.place, now_us) {
            tick.again_us = Some(now_us + crate::turns::BEAT_US);
            return;
        }
        if let Some(dry) = self.dry_since_us.filter(|_| self.dry_wanted) {
            let kept = now_us.saturating_sub(dry);
            self.paid_us += board.charge(self.place, dry, now_us, kept);
            self.dry_wanted = false;
        }
        let passed = board.pass(self.place, now_us);
        tick.wake = passed != Passed::Lost;
        let before = std::mem::take(&mut self.turn);
        self.closing_since_us = None;
        if passed == Passed::Kept {
            self.turn = before;
            self.follow(board, now_us);
        }
        if self.turn.is_some() || !self.work.is_idle() {
            tick.again_us = Some(now_us + crate::turns::BEAT_US);
        }
    }

    /// Before the driver is told to wait for work: see [`Work::synced`].
    pub fn moment(&self) -> Moment {
        self.work.moment()
    }

    /// A launch was measured.
    ///
    /// * `launched_us` — when it was launched.
    /// * `ns` — time between an event before and one after it.
    pub fn sampled(&mut self, kind: u64, launched_us: u64, ns: u64) {
        let ns = if self.lost_us > launched_us {
            // The turn was taken away meanwhile, and since then two processes took half of the GPU each.
            let alone = (self.lost_us - launched_us).saturating_mul(1000).min(ns);
            alone + (ns - alone) / 2
        } else {
            ns
        };
        let (expected, far) = self.costs.sampled(kind, ns);
        // What it was taken for when it was launched is put right.
        self.launched_ns = self.launched_ns.saturating_add(ns).saturating_sub(expected);
        if far {
            self.work.trust();
        }
    }
}
