//! The physics: who runs when, and how fast.
//!
//! Nobody serves the GPUs. Whoever asks first works out what has happened up to now, from event to event:
//! an event is the end of a piece, of a turn or of a change of process.

use crate::owner::Owner;
use crate::works::{FRACTION_BITS, Works, slots};

/// Length of a turn unless set, in ns.
const SLICE_NS: u64 = 2_000_000;

/// What it costs to go from one process to another, in ns: pending work is drained, and registers and
/// shared memory are saved and loaded. The order of magnitude of what is seen on hardware.
pub(crate) const SWITCH_NS: u64 = 20_000;

/// Never, as a time.
const NEVER: u64 = u64::MAX;

impl Works {
    /// Works out what happens on a place up to now, and on all others if queues wait for other places.
    pub(crate) fn advance(&mut self, slot: usize, myself: Owner, now_ns: u64) {
        let places = if self.foreign_waits > 0 { self.used() | 1 << slot } else { 1 << slot };
        self.advance_all(places, myself, now_ns);
    }

    /// Lets what was just put into a queue begin, on a place that is worked out up to now.
    pub(crate) fn begin(&mut self, slot: usize) {
        let now = self.places[slot].at;
        self.settle(1 << slot, now);
        self.plan(slot, now);
    }

    /// Works out what happens on some places up to now.
    pub(crate) fn advance_all(&mut self, places: u128, myself: Owner, now_ns: u64) {
        self.bury(places, myself, now_ns, false);
        // Places that were looked at last at different times first catch up with the latest.
        let latest = slots(places).map(|slot| self.places[slot].at).max().unwrap_or(0);
        if places.count_ones() > 1 {
            for slot in slots(places) {
                self.run_until(1 << slot, latest.min(now_ns));
            }
        }
        self.run_until(places, now_ns);
    }

    /// Runs places that are at the same time.
    fn run_until(&mut self, places: u128, end_ns: u64) {
        loop {
            let Some(now) = slots(places).map(|slot| self.places[slot].at).max() else { return };
            self.settle(places, now);
            let next = slots(places).map(|slot| self.plan(slot, now)).min().unwrap_or(NEVER);
            if now >= end_ns {
                return;
            }
            for slot in slots(places) {
                self.run(slot, next.min(end_ns));
            }
        }
    }

    /// Ends what needs no time: waits that are over, and pieces without length.
    fn settle(&mut self, places: u128, now: u64) {
        loop {
            let mut changed = false;
            for slot in slots(places) {
                let mut at = self.places[slot].first_tenant;
                while at != 0 {
                    let tenant = &self.tenants[at as usize - 1];
                    at = tenant.next;
                    if tenant.pending > 0 {
                        changed |= self.settle_queues(tenant.first_queue, now);
                    }
                }
            }
            if !changed || self.waits == 0 {
                return;
            }
        }
    }

    fn settle_queues(&mut self, first: u32, now: u64) -> bool {
        let (mut changed, mut at) = (false, first);
        while at != 0 {
            let index = at as usize - 1;
            at = self.queues[index].next;
            while let Some(head) = self.head(index) {
                let over = if head.is_wait() { self.is_over(head) } else { head.left == 0 };
                if !over {
                    break;
                }
                self.pop(index, now);
                changed = true;
            }
        }
        changed
    }

    /// Decides who has the place now, and returns when that next changes by itself.
    fn plan(&mut self, slot: usize, now: u64) -> u64 {
        if self.settings_of(slot).together != 0 {
            let (need, shortest) = self.load_of_place(slot);
            return self.end_of(slot, need, shortest, now);
        }
        if self.places[slot].switch_ends > now {
            return self.places[slot].switch_ends;
        }
        self.pass_on(slot, now);
        let place = &self.places[slot];
        if place.switch_ends > now {
            return place.switch_ends;
        }
        if place.busy == 0 || place.holder == 0 {
            return NEVER;
        }
        let (need, shortest) = self.load(place.holder as usize - 1, slot);
        let end = self.end_of(slot, need, shortest, now);
        // While nobody else wants the place, the ends of turns are no events.
        let wanted = self.next_after(slot, place.holder) != Some(place.holder);
        if wanted { end.min(place.turn_ends) } else { end }
    }

    /// Gives the turn to the next process if the present one has had it or has nothing to run.
    fn pass_on(&mut self, slot: usize, now: u64) {
        let slice = match self.settings_of(slot).slice_ns {
            0 => SLICE_NS,
            set => set,
        };
        let holder = self.places[slot].holder;
        let place = &self.places[slot];
        if place.busy != 0 && holder != 0 && self.runs(holder as usize - 1) {
            let place = &mut self.places[slot];
            if now > place.turn_ends {
                // Turns have gone by unnoticed, because nobody else wanted the place.
                place.turn_ends += (now - place.turn_ends).div_ceil(slice) * slice;
            }
            if now < place.turn_ends {
                return;
            }
        }
        let next = self.next_after(slot, holder);
        let place = &mut self.places[slot];
        match next {
            None => place.busy = 0,
            Some(next) if next == holder && place.busy != 0 => {}
            Some(next) => {
                // Who comes to an idle GPU starts at once: the change was made while it idled.
                let change = if place.busy != 0 { SWITCH_NS } else { 0 };
                (place.holder, place.busy) = (next, 1);
                place.switch_ends = now + change;
                place.turn_ends = now + change + slice;
            }
        }
    }

    /// The next tenant with something to run, round the list from the one after `holder`; `holder` itself
    /// comes last.
    fn next_after(&self, slot: usize, holder: u32) -> Option<u32> {
        let first = self.places[slot].first_tenant;
        let (mut before, mut passed, mut at) = (None, holder == 0, first);
        while at != 0 {
            if self.runs(at as usize - 1) {
                if passed && at != holder {
                    return Some(at);
                }
                before = before.or(Some(at));
            }
            passed |= at == holder;
            at = self.tenants[at as usize - 1].next;
        }
        before
    }

    /// Whether a tenant has something to run.
    fn runs(&self, tenant: usize) -> bool {
        let mut at =
            if self.tenants[tenant].pending > 0 { self.tenants[tenant].first_queue } else { 0 };
        while at != 0 {
            if self.head(at as usize - 1).is_some_and(|head| !head.is_wait()) {
                return true;
            }
            at = self.queues[at as usize - 1].next;
        }
        false
    }

    /// The SMs that the first pieces of a tenant's queues need together, and what is left of the shortest.
    fn load(&self, tenant: usize, slot: usize) -> (u64, u64) {
        let sms = self.places[slot].sms.max(1);
        let (mut need, mut shortest, mut at) = (0, NEVER, self.tenants[tenant].first_queue);
        while at != 0 {
            let index = at as usize - 1;
            at = self.queues[index].next;
            if let Some(head) = self.head(index).filter(|head| !head.is_wait()) {
                need += u64::from(head.sms.min(sms));
                shortest = shortest.min(head.left);
            }
        }
        (need, shortest)
    }

    /// The same over all tenants of a place.
    fn load_of_place(&self, slot: usize) -> (u64, u64) {
        let (mut need, mut shortest, mut at) = (0, NEVER, self.places[slot].first_tenant);
        while at != 0 {
            let tenant = at as usize - 1;
            at = self.tenants[tenant].next;
            if self.tenants[tenant].pending > 0 {
                let (more, left) = self.load(tenant, slot);
                (need, shortest) = (need + more, shortest.min(left));
            }
        }
        (need, shortest)
    }

    /// When a piece of which `shortest` is left ends if pieces that need so many SMs run from now.
    fn end_of(&self, slot: usize, need: u64, shortest: u64, now: u64) -> u64 {
        if need == 0 {
            return NEVER;
        }
        let sms = u64::from(self.places[slot].sms.max(1));
        if need <= sms {
            return now.saturating_add(shortest.div_ceil(1 << FRACTION_BITS));
        }
        let whole = u128::from(sms) << FRACTION_BITS;
        let ns = (u128::from(shortest) * u128::from(need)).div_ceil(whole);
        now.saturating_add(u64::try_from(ns).unwrap_or(NEVER))
    }

    /// Lets a place run up to a time at or before the next event.
    fn run(&mut self, slot: usize, to: u64) {
        let place = &self.places[slot];
        let Some(ns) = to.checked_sub(place.at).filter(|ns| *ns > 0) else { return };
        let switching = place.switch_ends > place.at;
        let (holder, busy) = (place.holder, place.busy != 0);
        self.places[slot].at = to;
        if self.settings_of(slot).together != 0 {
            let (need, _) = self.load_of_place(slot);
            let mut at = self.places[slot].first_tenant;
            while at != 0 {
                let tenant = at as usize - 1;
                at = self.tenants[tenant].next;
                self.run_tenant(tenant, slot, need, ns);
            }
        } else if busy && !switching && holder != 0 {
            let (need, _) = self.load(holder as usize - 1, slot);
            self.run_tenant(holder as usize - 1, slot, need, ns);
        }
    }

    /// Lets the first pieces of a tenant's queues run for a while, with all on the place needing so many
    /// SMs. If they are more than there are, each piece slows down alike.
    fn run_tenant(&mut self, tenant: usize, slot: usize, need: u64, ns: u64) {
        let sms = u64::from(self.places[slot].sms.max(1));
        let now = self.places[slot].at;
        let parts = u128::from(ns) << FRACTION_BITS;
        let parts = if need <= sms { parts } else { parts * u128::from(sms) / u128::from(need) };
        let progress = u64::try_from(parts).unwrap_or(NEVER);
        let (mut ran, mut at) = (false, self.tenants[tenant].first_queue);
        while at != 0 {
            let index = at as usize - 1;
            at = self.queues[index].next;
            let Some(head) = self.head_mut(index).filter(|head| !head.is_wait()) else { continue };
            ran = true;
            head.left = head.left.saturating_sub(progress);
            if head.left == 0 {
                self.pop(index, now);
            }
        }
        if ran {
            self.tenants[tenant].busy_ns += ns;
        }
    }

    /// Sets the clock of all places to another time; what is under way goes on there.
    pub(crate) fn set_clock(&mut self, now_ns: u64) {
        for place in &mut self.places {
            let left = |end: u64| now_ns.saturating_add(end.saturating_sub(place.at));
            (place.turn_ends, place.switch_ends) = (left(place.turn_ends), left(place.switch_ends));
            place.at = now_ns;
        }
    }
}
