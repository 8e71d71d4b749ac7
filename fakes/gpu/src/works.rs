//! The queues of work and what is in them. Who has which is in `tenants`, how they are run in `turns`.
//!
//! Numbers that name an entry of a table, but for slots, are 1 more than its index; 0 stands for none.

use crate::{Place, Queue, Ticket, Work};

/// GPUs of a machine.
pub(crate) const GPUS: usize = 16;
/// Places of a GPU: itself, and compute instances in MIG mode.
pub(crate) const PLACES_OF_GPU: usize = 8;
/// Places of a machine; a set of them is the bits of a `u128`.
pub(crate) const PLACES: usize = GPUS * PLACES_OF_GPU;
/// Pairs of a process and a place, those of ended processes included.
const TENANTS: usize = 512;
/// Queues of a machine.
pub(crate) const QUEUES: usize = 1024;
/// Bits of a queue's number that are its index; the others tell queues with the same index apart.
pub(crate) const QUEUE_BITS: u32 = QUEUES.trailing_zeros();
/// Pieces in a queue that are not done, and ends of pieces that are remembered.
pub(crate) const PIECES: usize = 1024;
/// Parts of a ns in which work is counted, as a power of 2.
pub(crate) const FRACTION_BITS: u32 = 16;

#[repr(C)]
pub(crate) struct Works {
    pub(crate) tenants: [Tenant; TENANTS],
    pub(crate) places: [PlaceState; PLACES],
    pub(crate) queues: [QueueState; QUEUES],
    pub(crate) settings: [Settings; GPUS],
    /// Waits that are in queues.
    pub(crate) waits: u32,
    /// Waits for work of another place that are in queues.
    pub(crate) foreign_waits: u32,
    /// Counts ends, of tenants and of queues, to know the oldest.
    pub(crate) ends: u64,
    pub(crate) rings: [Ring; QUEUES],
}

/// A place as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PlaceKey {
    pub(crate) gpu: u32,
    /// GPU instance plus 1, or 0 for the whole GPU.
    instance: u32,
    compute: u32,
}

impl From<Place> for PlaceKey {
    fn from(place: Place) -> Self {
        let (instance, compute) =
            place.instance.map_or((0, 0), |(id, part)| (id.saturating_add(1), part));
        Self { gpu: place.gpu, instance, compute }
    }
}

impl From<PlaceKey> for Place {
    fn from(key: PlaceKey) -> Self {
        let instance = key.instance.checked_sub(1).map(|instance| (instance, key.compute));
        Self { gpu: key.gpu, instance }
    }
}

/// What is set for one GPU.
#[repr(C)]
pub(crate) struct Settings {
    /// 0 for as many as the model has.
    pub(crate) sms: u32,
    /// Not 0: processes run at the same time.
    pub(crate) together: u32,
    /// 0 for the default.
    pub(crate) slice_ns: u64,
}

/// The turns of one place.
#[repr(C)]
pub(crate) struct PlaceState {
    pub(crate) key: PlaceKey,
    pub(crate) sms: u32,
    pub(crate) first_tenant: u32,
    /// The tenant whose turn it is, plus 1.
    pub(crate) holder: u32,
    /// Not 0: somebody has work.
    pub(crate) busy: u32,
    /// The moment up to which all is worked out.
    pub(crate) at: u64,
    pub(crate) turn_ends: u64,
    /// Nobody runs before.
    pub(crate) switch_ends: u64,
}

/// A process on a place.
#[repr(C)]
pub(crate) struct Tenant {
    /// 0 for one that never was.
    pub(crate) pid: u32,
    /// Whether it is in the list of its place, which it is while it has queues.
    pub(crate) listed: u32,
    pub(crate) start: u64,
    pub(crate) key: PlaceKey,
    /// Of its place, while it is in the list.
    pub(crate) slot: u32,
    pub(crate) next: u32,
    pub(crate) first_queue: u32,
    /// Entries in its queues.
    pub(crate) pending: u32,
    pub(crate) busy_ns: u64,
    /// When it was last seen alive.
    pub(crate) checked_ns: u64,
    /// When it was last taken from the list, as a count of ends.
    pub(crate) ended: u64,
}

/// A queue. Entries have numbers from 1; those above `done` and up to `last` are in it.
#[repr(C)]
pub(crate) struct QueueState {
    /// Plus 1; 0 while it is free.
    pub(crate) tenant: u32,
    pub(crate) place: u32,
    pub(crate) generation: u32,
    pub(crate) closing: u32,
    pub(crate) next: u32,
    pub(crate) done: u64,
    pub(crate) last: u64,
    pub(crate) ended: u64,
}

/// The entries of a queue by their number, and when those that are done were.
#[repr(C)]
pub(crate) struct Ring {
    pub(crate) entries: [Entry; PIECES],
    pub(crate) done_at: [u64; PIECES],
}

/// A piece of work, or, with 0 SMs, a wait for a ticket.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Entry {
    /// What is left of it when alone, in parts of a ns.
    pub(crate) left: u64,
    /// Of the ticket.
    number: u64,
    pub(crate) sms: u32,
    /// Of the ticket.
    queue: u32,
    /// Not 0: the ticket is of another place.
    pub(crate) foreign: u32,
}

impl Entry {
    pub(crate) fn is_wait(&self) -> bool {
        self.sms == 0
    }
}

impl Works {
    /// Settings of the GPU of a slot.
    pub(crate) fn settings_of(&self, slot: usize) -> &Settings {
        &self.settings[slot / PLACES_OF_GPU]
    }

    /// The index of a queue, unless it was let go and its index given to another.
    pub(crate) fn index(&self, queue: Queue) -> Option<usize> {
        let index = queue.0 as usize % QUEUES;
        let same = self.queues[index].generation == queue.0 >> QUEUE_BITS;
        (same && queue.0 >> QUEUE_BITS != 0).then_some(index)
    }

    /// The slot of the place of a queue that is in use.
    pub(crate) fn slot_of(&self, queue: Queue) -> Option<usize> {
        let state = &self.queues[self.index(queue)?];
        (state.tenant != 0).then_some(state.place as usize % PLACES)
    }

    /// Whether a queue takes no more entries, ever.
    pub(crate) fn is_closed(&self, queue: Queue) -> bool {
        let state = self.index(queue).map(|index| &self.queues[index]);
        state.is_none_or(|state| state.tenant == 0 || state.closing != 0)
    }

    /// Puts work at the end of a queue, if it has room.
    pub(crate) fn push(&mut self, queue: Queue, work: Work) -> Option<Ticket> {
        let left = work.ns.min(u64::MAX >> FRACTION_BITS) << FRACTION_BITS;
        let sms = work.sms.max(1);
        self.append(queue, Entry { left, number: 0, sms, queue: 0, foreign: 0 })
    }

    /// Puts a wait for a ticket at the end of a queue, if it has room.
    pub(crate) fn push_wait(&mut self, queue: Queue, ticket: Ticket) -> Option<Ticket> {
        let foreign = u32::from(self.slot_of(queue) != self.slot_of(ticket.queue));
        // A ticket that was not given out yet stands for the newest that was.
        let newest = self.index(ticket.queue).map_or(0, |index| self.queues[index].last);
        let number = ticket.number.min(newest);
        let wait = Entry { left: 0, number, sms: 0, queue: ticket.queue.0, foreign };
        let given = self.append(queue, wait)?;
        self.waits += 1;
        self.foreign_waits += foreign;
        Some(given)
    }

    fn append(&mut self, queue: Queue, entry: Entry) -> Option<Ticket> {
        if self.is_closed(queue) {
            return None;
        }
        let index = self.index(queue)?;
        let state = &mut self.queues[index];
        if state.last - state.done >= PIECES as u64 {
            return None;
        }
        let number = state.last + 1;
        self.rings[index].entries[slot_in_ring(number)] = entry;
        state.last = number;
        self.tenants[state.tenant as usize - 1].pending += 1;
        Some(Ticket { queue, number })
    }

    /// The first entry of a queue that is not done.
    pub(crate) fn head(&self, index: usize) -> Option<&Entry> {
        let state = &self.queues[index];
        let ring = &self.rings[index];
        (state.done < state.last).then(|| &ring.entries[slot_in_ring(state.done + 1)])
    }

    /// The same, to be changed.
    pub(crate) fn head_mut(&mut self, index: usize) -> Option<&mut Entry> {
        let state = &self.queues[index];
        let ring = &mut self.rings[index];
        (state.done < state.last).then(|| &mut ring.entries[slot_in_ring(state.done + 1)])
    }

    /// Takes the first entry out: it was done at that time.
    pub(crate) fn pop(&mut self, index: usize, at_ns: u64) {
        let Some(entry) = self.head(index).copied() else { return };
        let state = &mut self.queues[index];
        let number = state.done + 1;
        self.rings[index].done_at[slot_in_ring(number)] = at_ns;
        state.done = number;
        let pending = &mut self.tenants[state.tenant as usize - 1].pending;
        *pending = pending.saturating_sub(1);
        let ends = state.closing != 0 && state.done == state.last;
        self.forget_wait(&entry);
        if ends {
            self.free(index);
        }
    }

    pub(crate) fn forget_wait(&mut self, entry: &Entry) {
        if entry.is_wait() {
            self.waits = self.waits.saturating_sub(1);
            self.foreign_waits = self.foreign_waits.saturating_sub(entry.foreign);
        }
    }

    /// Whether what a wait waits for is done, or gone.
    pub(crate) fn is_over(&self, wait: &Entry) -> bool {
        self.is_done(Ticket { queue: Queue(wait.queue), number: wait.number })
    }

    /// Whether a piece is done, or its queue gone.
    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        let Some(index) = self.index(ticket.queue) else { return true };
        self.queues[index].done >= ticket.number || self.queues[index].tenant == 0
    }

    /// When a piece was done, if that is still remembered.
    pub(crate) fn done_at(&self, ticket: Ticket) -> Option<u64> {
        let index = self.index(ticket.queue)?;
        let done = self.queues[index].done;
        let known = ticket.number > 0 && ticket.number <= done;
        let kept = known && done - ticket.number < PIECES as u64;
        kept.then(|| self.rings[index].done_at[slot_in_ring(ticket.number)])
    }

    /// The newest entry of a queue.
    pub(crate) fn last(&self, queue: Queue) -> Ticket {
        let number = self.index(queue).map_or(0, |index| self.queues[index].last);
        Ticket { queue, number }
    }

    /// GPU time by process and place, of ended processes too.
    pub(crate) fn busy_ns(&self) -> Vec<(u32, Place, u64)> {
        let known = self.tenants.iter().filter(|tenant| tenant.pid != 0);
        known.map(|tenant| (tenant.pid, tenant.key.into(), tenant.busy_ns)).collect()
    }
}

pub(crate) fn slot_in_ring(number: u64) -> usize {
    (number % PIECES as u64) as usize
}

/// The members of a set of places.
pub(crate) fn slots(mut places: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (places != 0).then(|| places.trailing_zeros() as usize)?;
        places &= places - 1;
        Some(slot)
    })
}
