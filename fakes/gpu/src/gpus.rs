//! [`Gpus`]: all GPUs of one machine, as every process that has the machine's file sees them.

use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;

use fake_machine::Machine;

use crate::owner::Owner;
use crate::shape::Shape;
use crate::shared::{self, Guard, Mapping, Myself, Shared, clock_ns};
use crate::works::{GPUS, Works};
use crate::{Claim, Full, Held, MemoryKind, Place, Queue, Ticket, Work};

/// How long [`Gpus::after`] sleeps before it looks again whether a full queue has room.
const FULL: Duration = Duration::from_micros(50);

/// Longest turn, in ns: 30 years, so that sums of times stay numbers.
const SLICE_MAX: u64 = 1_000_000_000_000_000_000;

/// All GPUs of one machine. Any number of processes and threads may use it at once; a process that dies
/// at any moment leaves the others whole.
pub struct Gpus {
    shared: Mapping<Shared>,
    myself: Mapping<Myself>,
    shape: Shape,
}

impl Gpus {
    /// Opens the GPUs of a machine. Their file is made if there is none yet, and replaced if it belongs
    /// to a machine that was in the folder before.
    ///
    /// # Errors
    /// The machine or the file cannot be used.
    pub fn open(machine: &Machine) -> Result<Self> {
        let shape = Shape::new(Machine::open(machine.folder()).map_err(Error::other)?);
        let shared = shared::open(machine.folder(), shape.created_ms())?;
        Ok(Self { shared, myself: shared::myself()?, shape })
    }

    /// The same for who only looks: `None` if no process has used the machine's GPUs yet.
    ///
    /// # Errors
    /// As [`Gpus::open`].
    pub fn open_existing(machine: &Machine) -> Result<Option<Self>> {
        let created_ms = machine.read().created_ms;
        let Some(shared) = shared::open_existing(machine.folder(), created_ms)? else {
            return Ok(None);
        };
        let shape = Shape::new(Machine::open(machine.folder()).map_err(Error::other)?);
        Ok(Some(Self { shared, myself: shared::myself()?, shape }))
    }

    /// When the machine was made that these GPUs belong to, in ms since 1970. If the machine tells
    /// another time, it is another machine in the same folder.
    pub fn created_ms(&self) -> u64 {
        self.shared.created_ms.load(Ordering::Relaxed)
    }

    /// Takes memory for the calling process, which holds it until it gives it back or ends.
    ///
    /// # Errors
    /// The place has not so much left, or a memory limit of a cgroup leaves less to its processes, or the
    /// tables of processes or claims are full.
    pub fn take(
        &self,
        place: Place,
        kind: MemoryKind,
        bytes: u64,
    ) -> std::result::Result<Claim, Full> {
        let room = self.shape.room(place);
        let owner = self.me();
        self.shared.books.lock().take(owner, place, (kind, bytes), &room, clock_ns())
    }

    /// Lets the calling process hold memory too, or once more, as with memory that it has imported. It
    /// stays until each hold was given back or its process has ended, and is booked to the first that is
    /// left. False if there is no such claim, or there are 20 holds of it.
    pub fn keep(&self, claim: Claim) -> bool {
        let owner = self.me();
        self.shared.books.lock().keep(owner, claim)
    }

    /// Ends one hold of the calling process. False if it had none.
    pub fn give(&self, claim: Claim) -> bool {
        let owner = self.me();
        self.shared.books.lock().give(owner, claim)
    }

    /// Ends all holds that the calling process's number has from before an `exec`, which closes what a
    /// process has of the driver.
    pub fn renounce(&self) {
        let owner = self.me();
        self.shared.books.lock().renounce(owner);
    }

    /// What a claim is for, and its bytes; `None` if there is no such claim.
    pub fn bytes(&self, claim: Claim) -> Option<(Place, MemoryKind, u64)> {
        self.shared.books.lock().bytes(claim)
    }

    /// Bytes of a place that are left. Compute instances of one GPU instance share its memory.
    pub fn free(&self, place: Place) -> u64 {
        let room = self.shape.room(place);
        let mut books = self.shared.books.lock();
        books.sweep_if_due(clock_ns());
        books.free(place, room.bytes)
    }

    /// What living processes hold, by process and place.
    pub fn held(&self) -> Vec<Held> {
        self.shared.books.lock().held(clock_ns())
    }

    /// A new queue of the calling process.
    ///
    /// # Errors
    /// There is no such GPU, or the tables of queues, processes or instances are full.
    pub fn queue(&self, place: Place) -> Result<Queue> {
        if place.gpu as usize >= GPUS {
            return Err(Error::new(ErrorKind::InvalidInput, "no such GPU"));
        }
        let owner = self.me();
        let mut works = self.shared.works.lock();
        let now_ns = self.now_ns();
        let used = works.used();
        works.bury(used, owner, now_ns, true);
        let full = || Error::new(ErrorKind::QuotaExceeded, "too many queues");
        let slot = works.slot(place).ok_or_else(full)?;
        works.advance(slot, owner, now_ns);
        works.places[slot].sms = self.shape.sms(place, works.settings_of(slot).sms);
        works.open(owner, slot).ok_or_else(full)
    }

    /// Lets a queue go once all in it is done. Its tickets stay good.
    pub fn drop_queue(&self, queue: Queue) {
        let (mut works, ..) = self.advanced(queue);
        works.close(queue);
    }

    /// Puts work into a queue. A piece of 0 ns is done as soon as all before it is, whoever has the GPU.
    /// `None` if the queue is full or was let go; the caller waits, as a real driver does.
    pub fn submit(&self, queue: Queue, work: Work) -> Option<Ticket> {
        let (mut works, ..) = self.advanced(queue);
        let ticket = works.push(queue, work)?;
        let slot = works.slot_of(queue)?;
        works.begin(slot);
        Some(ticket)
    }

    /// Lets later work of a queue start only when a ticket of the same process, on whatever place, is
    /// done. The wait is an entry of the queue, so that [`Gpus::last`] names it. Sleeps until there is room
    /// for it; while time stands still somebody else has to move it on.
    pub fn after(&self, queue: Queue, ticket: Ticket) {
        while !self.try_after(queue, ticket) {
            std::thread::sleep(FULL);
        }
    }

    fn try_after(&self, queue: Queue, ticket: Ticket) -> bool {
        let (mut works, owner, now_ns) = self.advanced(ticket.queue);
        if ticket.queue == queue || works.is_done(ticket) || works.is_closed(queue) {
            return true;
        }
        let Some(slot) = works.slot_of(queue) else { return true };
        // From now on places depend on each other: all have to be at the same time.
        let used = works.used();
        works.advance_all(used, owner, now_ns);
        let waits = works.push_wait(queue, ticket).is_some();
        works.begin(slot);
        waits
    }

    /// Whether a piece is done. Those of queues that are gone are.
    pub fn done(&self, ticket: Ticket) -> bool {
        let already = self.shared.works.lock().is_done(ticket);
        already || self.advanced(ticket.queue).0.is_done(ticket)
    }

    /// When a piece was done, by [`Gpus::now_ns`]. `None` if it is not, or if that is forgotten: the last
    /// 1024 of each queue are remembered, and a queue that was let go until another takes its number.
    pub fn done_at_ns(&self, ticket: Ticket) -> Option<u64> {
        self.advanced(ticket.queue).0.done_at(ticket)
    }

    /// The newest entry of a queue; number 0 if there was none.
    pub fn last(&self, queue: Queue) -> Ticket {
        self.shared.works.lock().last(queue)
    }

    /// GPU time that each process has had of each place, in ns: the time in which it had the turn and at
    /// least one piece ran. Of the last hundreds of ended processes too.
    pub fn busy_ns(&self) -> Vec<(u32, Place, u64)> {
        self.all_advanced().busy_ns()
    }

    /// Sets how many multiprocessors a GPU has, from 1; its instances have their parts of them.
    pub fn set_sms(&self, gpu: u32, sms: u32) {
        let mut works = self.all_advanced();
        let Some(settings) = works.settings.get_mut(gpu as usize) else { return };
        settings.sms = sms;
        for (slot, place) in works.slots_of(gpu) {
            works.places[slot].sms = self.shape.sms(place, sms);
        }
    }

    /// Multiprocessors of a place.
    pub fn sms(&self, place: Place) -> u32 {
        let works = self.shared.works.lock();
        let set = works.settings.get(place.gpu as usize).map_or(0, |settings| settings.sms);
        drop(works);
        self.shape.sms(place, set)
    }

    /// Sets how long a turn is, in ns; 0 for the default of 2 ms.
    pub fn set_slice_ns(&self, gpu: u32, ns: u64) {
        let mut works = self.all_advanced();
        if let Some(settings) = works.settings.get_mut(gpu as usize) {
            settings.slice_ns = ns.min(SLICE_MAX);
        }
    }

    /// Sets whether processes run at the same time, as with MPS, or take turns.
    pub fn set_together(&self, gpu: u32, on: bool) {
        let mut works = self.all_advanced();
        if let Some(settings) = works.settings.get_mut(gpu as usize) {
            settings.together = on.into();
        }
    }

    /// The time that counts here, in ns: the monotonic clock's, or the virtual one.
    pub fn now_ns(&self) -> u64 {
        match self.shared.virtual_ns.load(Ordering::Acquire) {
            0 => clock_ns(),
            plus_one => plus_one - 1,
        }
    }

    /// Lets time stand still at a moment for all processes, or go by the monotonic clock again.
    pub fn set_virtual_ns(&self, at_ns: Option<u64>) {
        let mut works = self.all_advanced();
        let plus_one = at_ns.map_or(0, |ns| ns.saturating_add(1));
        self.shared.virtual_ns.store(plus_one, Ordering::Release);
        works.set_clock(self.now_ns());
    }

    /// Moves the virtual time on; without one nothing happens.
    pub fn advance_ns(&self, ns: u64) {
        let _works = self.shared.works.lock();
        let plus_one = self.shared.virtual_ns.load(Ordering::Acquire);
        if plus_one != 0 {
            self.shared.virtual_ns.store(plus_one.saturating_add(ns), Ordering::Release);
        }
    }

    fn me(&self) -> Owner {
        Owner::myself(&self.myself)
    }

    /// The works with the place of a queue worked out up to now.
    fn advanced(&self, queue: Queue) -> (Guard<'_, Works>, Owner, u64) {
        let owner = self.me();
        let mut works = self.shared.works.lock();
        let now_ns = self.now_ns();
        if let Some(slot) = works.slot_of(queue) {
            works.advance(slot, owner, now_ns);
        }
        (works, owner, now_ns)
    }

    /// The works with all places worked out up to now.
    fn all_advanced(&self) -> Guard<'_, Works> {
        let mut works = self.shared.works.lock();
        let (used, now_ns) = (works.used(), self.now_ns());
        works.advance_all(used, self.me(), now_ns);
        works
    }
}
