//! Who has which queues, on which place.
//!
//! Lists follow from the fields `tenant` of the queues and `slot` of the tenants; [`Works::relink`] makes
//! them anew.

use crate::owner::Owner;
use crate::works::{
    PIECES, PLACES, PLACES_OF_GPU, PlaceKey, QUEUE_BITS, QUEUES, Tenant, Works, slot_in_ring, slots,
};
use crate::{Place, Queue};

/// How long a process counts as alive after the kernel was asked, in ns.
const ALIVE_NS: u64 = 10_000_000;

impl Tenant {
    fn owner(&self) -> Owner {
        Owner { pid: self.pid, start: self.start }
    }
}

impl Works {
    /// The slot of a place; one that nobody uses is given to a new instance.
    pub(crate) fn slot(&mut self, place: Place) -> Option<usize> {
        let first = (place.gpu as usize).checked_mul(PLACES_OF_GPU).filter(|at| *at < PLACES)?;
        let key = PlaceKey::from(place);
        if place.instance.is_none() {
            self.places[first].key = key;
            return Some(first);
        }
        let mut others = first + 1..first + PLACES_OF_GPU;
        let known = others.clone().find(|at| self.places[*at].key == key);
        let slot = known.or_else(|| others.find(|at| self.places[*at].first_tenant == 0))?;
        let state = &mut self.places[slot];
        if state.key != key {
            (state.key, state.holder, state.busy) = (key, 0, 0);
        }
        Some(slot)
    }

    /// The slots of a GPU and their places.
    pub(crate) fn slots_of(&self, gpu: u32) -> Vec<(usize, Place)> {
        let slots = (0..PLACES).filter(|slot| slot / PLACES_OF_GPU == gpu as usize);
        slots.map(|slot| (slot, self.places[slot].key.into())).collect()
    }

    /// Places on which somebody has a queue.
    pub(crate) fn used(&self) -> u128 {
        let used = (0..PLACES).filter(|slot| self.places[*slot].first_tenant != 0);
        used.fold(0, |set, slot| set | 1 << slot)
    }

    /// Makes a queue of a process on a place that is worked out up to now.
    pub(crate) fn open(&mut self, owner: Owner, slot: usize) -> Option<Queue> {
        let tenant = self.tenant(owner, slot)?;
        let free = self.queues.iter().enumerate().filter(|(_, queue)| queue.tenant == 0);
        let (index, _) = free.min_by_key(|(_, queue)| queue.ended)?;
        let queue = &mut self.queues[index];
        let generations = u32::MAX >> QUEUE_BITS;
        queue.generation = (queue.generation % generations) + 1;
        (queue.done, queue.last, queue.closing) = (0, 0, 0);
        queue.tenant = tenant as u32 + 1;
        let number = queue.generation << QUEUE_BITS | index as u32;
        self.link(index);
        Some(Queue(number))
    }

    /// The tenant of a process on a place, a new one if there is none.
    fn tenant(&mut self, owner: Owner, slot: usize) -> Option<usize> {
        let key = self.places[slot].key;
        let known = self.tenants.iter().position(|t| t.owner() == owner && t.key == key);
        if let Some(index) = known {
            self.tenants[index].slot = slot as u32;
            return known;
        }
        let free = self.tenants.iter().enumerate().filter(|(_, tenant)| tenant.listed == 0);
        let (index, _) = free.min_by_key(|(_, tenant)| tenant.ended)?;
        let tenant = &mut self.tenants[index];
        (tenant.pid, tenant.start, tenant.key) = (owner.pid, owner.start, key);
        (tenant.first_queue, tenant.pending, tenant.busy_ns) = (0, 0, 0);
        (tenant.checked_ns, tenant.slot) = (0, slot as u32);
        Some(index)
    }

    /// Puts a queue into its tenant's list, and the tenant into its place's.
    fn link(&mut self, index: usize) {
        let owner = self.queues[index].tenant;
        let tenant = &mut self.tenants[owner as usize - 1];
        let slot = tenant.slot as usize % PLACES;
        (self.queues[index].place, self.queues[index].next) = (slot as u32, tenant.first_queue);
        tenant.first_queue = index as u32 + 1;
        if tenant.listed != 0 {
            return;
        }
        (tenant.listed, tenant.next) = (1, 0);
        let mut at = self.places[slot].first_tenant;
        if at == 0 {
            self.places[slot].first_tenant = owner;
            return;
        }
        while self.tenants[at as usize - 1].next != 0 {
            at = self.tenants[at as usize - 1].next;
        }
        self.tenants[at as usize - 1].next = owner;
    }

    /// Frees a queue that has nothing in it. What was done in it stays known until it is used again.
    pub(crate) fn free(&mut self, index: usize) {
        let tenant = self.queues[index].tenant as usize - 1;
        let (mut before, mut at) = (0, self.tenants[tenant].first_queue);
        while at != 0 && at as usize - 1 != index {
            (before, at) = (at, self.queues[at as usize - 1].next);
        }
        let next = self.queues[index].next;
        match before {
            0 => self.tenants[tenant].first_queue = next,
            before => self.queues[before as usize - 1].next = next,
        }
        self.ends += 1;
        (self.queues[index].tenant, self.queues[index].ended) = (0, self.ends);
        if self.tenants[tenant].first_queue == 0 {
            self.leave(tenant);
        }
    }

    /// Takes a tenant without queues from the list of its place.
    fn leave(&mut self, tenant: usize) {
        let slot = self.tenants[tenant].slot as usize % PLACES;
        let (mut before, mut at) = (0, self.places[slot].first_tenant);
        while at != 0 && at as usize - 1 != tenant {
            (before, at) = (at, self.tenants[at as usize - 1].next);
        }
        let next = self.tenants[tenant].next;
        match before {
            0 => self.places[slot].first_tenant = next,
            before => self.tenants[before as usize - 1].next = next,
        }
        let place = &mut self.places[slot];
        if place.holder as usize == tenant + 1 {
            place.holder = 0;
        }
        let left = &mut self.tenants[tenant];
        (left.listed, left.pending, left.ended) = (0, 0, self.ends);
    }

    /// Lets a queue go, at once or when it has run dry.
    pub(crate) fn close(&mut self, queue: Queue) {
        let Some(index) = self.index(queue) else { return };
        let state = &mut self.queues[index];
        if state.tenant == 0 {
            return;
        }
        state.closing = 1;
        if state.done == state.last {
            self.free(index);
        }
    }

    /// Takes away the queues of processes on some places that have ended. Those without work are only
    /// asked for if `idle` ones are meant too.
    pub(crate) fn bury(&mut self, places: u128, myself: Owner, now_ns: u64, idle: bool) {
        for slot in slots(places) {
            let mut at = self.places[slot].first_tenant;
            while at != 0 {
                let tenant = at as usize - 1;
                let state = &mut self.tenants[tenant];
                at = state.next;
                let due = now_ns.abs_diff(state.checked_ns) >= ALIVE_NS;
                let asked = (idle || state.pending > 0) && due && state.owner() != myself;
                if asked {
                    state.checked_ns = now_ns;
                    if !state.owner().lives() {
                        self.evict(tenant);
                    }
                }
            }
        }
    }

    /// Empties and frees all queues of a tenant.
    fn evict(&mut self, tenant: usize) {
        while let Some(index) = self.tenants[tenant].first_queue.checked_sub(1) {
            let index = index as usize;
            let (done, last) = (self.queues[index].done, self.queues[index].last);
            for number in done + 1..=last {
                let entry = self.rings[index].entries[slot_in_ring(number)];
                self.forget_wait(&entry);
            }
            self.queues[index].last = done;
            self.free(index);
        }
    }

    /// Makes all that follows anew: lists and counts.
    pub(crate) fn relink(&mut self) {
        for place in &mut self.places {
            place.first_tenant = 0;
        }
        for tenant in &mut self.tenants {
            (tenant.listed, tenant.first_queue, tenant.pending, tenant.next) = (0, 0, 0, 0);
        }
        (self.waits, self.foreign_waits) = (0, 0);
        for index in 0..QUEUES {
            let state = &self.queues[index];
            if state.tenant != 0 {
                self.recount(index);
                self.link(index);
            }
        }
    }

    /// Counts the entries of a queue.
    fn recount(&mut self, index: usize) {
        let state = &mut self.queues[index];
        state.last = state.last.clamp(state.done, state.done + PIECES as u64);
        let tenant = &mut self.tenants[state.tenant as usize - 1];
        tenant.pending += (state.last - state.done) as u32;
        for number in state.done + 1..=state.last {
            let entry = &self.rings[index].entries[slot_in_ring(number)];
            if entry.is_wait() {
                self.waits += 1;
                self.foreign_waits += entry.foreign;
            }
        }
    }
}
