//! What a stream does, one thing after the other. Most is put into the stream's queue on the GPU at
//! once; what waits for a host function or a value in memory is put off, and everything behind it.
//!
//! Data moves when its action is put into the queue, so earlier than on a GPU: no kernel ever looks.

use std::ffi::c_void;

use fake_gpu::{Ticket, Work};

use crate::calls::{Call, Process};
use crate::driver::Driver;
use crate::handles::Handle;
use crate::movement::Movement;
use crate::result::{Error, OUT_OF_MEMORY, Outcome};
use crate::stream::Role;
use crate::worker;

/// A client's function that a stream calls. Stream callbacks get the stream and a result too.
#[derive(Clone, Copy)]
pub(crate) enum HostFunction {
    Plain(extern "C" fn(*mut c_void), Data),
    Callback(extern "C" fn(Handle, u32, *mut c_void), Handle, Data),
}

/// A client's pointer that only the client follows.
#[derive(Clone, Copy)]
pub(crate) struct Data(pub(crate) *mut c_void);

// SAFETY: never followed in here, only handed back.
unsafe impl Send for Data {}

/// A value in memory that a stream waits for or writes.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    pub(crate) address: u64,
    pub(crate) value: u64,
    /// It has 8 bytes, not 4.
    pub(crate) wide: bool,
    /// How it is compared: `CUstreamWaitValue_flags`.
    pub(crate) how: u32,
}

/// One thing that a stream does.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// Kernels and other work of the GPU.
    Work(Work),
    /// Data, and how long moving it takes.
    Move(Movement, Work),
    Host(HostFunction),
    /// Makes the record of an event with that serial.
    Record(Handle, u64),
    /// Waits for the record of an event with that serial.
    Wait(Handle, u64),
    WaitValue(Value),
    WriteValue(Value),
    /// Has memory of a graph's allocation node there: device, bytes and address.
    Alloc(usize, u64, u64),
    /// Frees memory in the order of the stream.
    Free(u64),
}

/// What became of an action.
pub(crate) enum Put {
    /// It is done, or in the queue, or put off.
    Done,
    /// The queue is full: try again later.
    Full(Action),
    /// Something must happen on the host first.
    NotYet(Action),
}

/// A piece that only holds a place in a queue.
const MARKER: Work = Work { ns: 1, sms: 1 };

impl Driver {
    /// Lets a stream do something, now or when what it has put off is done.
    pub(crate) fn put(
        &mut self,
        process: &'static Process,
        stream: Handle,
        action: Action,
    ) -> Result<Put, Error> {
        let serial = self.next_serial();
        let waits = !self.stream(stream)?.put_off.is_empty();
        let put =
            if waits { Put::NotYet(action) } else { self.start(process, stream, action, serial)? };
        let Put::NotYet(action) = put else { return Ok(put) };
        self.stream_mut(stream)?.put_off.push_back((serial, action));
        if !self.putting_off.contains(&stream) {
            self.putting_off.push(stream);
        }
        worker::wake(self, process);
        Ok(Put::Done)
    }

    /// Starts the next thing that a stream does; `before` is the serial with which it was asked for.
    pub(crate) fn start(
        &mut self,
        process: &'static Process,
        stream: Handle,
        action: Action,
        before: u64,
    ) -> Result<Put, Error> {
        if !self.line_up(process, stream, before)? {
            return Ok(Put::NotYet(action));
        }
        let done = match action {
            Action::Work(work) => self.submit(process, stream, work)?,
            Action::Move(movement, work) => {
                let submitted = self.submit(process, stream, work)?;
                if submitted {
                    movement.carry_out();
                }
                submitted
            }
            Action::Host(_) => return Ok(Put::NotYet(action)),
            Action::Record(event, serial) => match self.newest(process, stream, before)? {
                Some(ticket) => {
                    self.record(process, event, serial, ticket);
                    true
                }
                None => false,
            },
            Action::Wait(event, serial) => {
                if !self.wait(process, stream, event, serial)? {
                    return Ok(Put::NotYet(action));
                }
                true
            }
            Action::WaitValue(value) => {
                if !self.is_run_dry(process, stream, before)? || !value.is_there() {
                    return Ok(Put::NotYet(action));
                }
                true
            }
            Action::WriteValue(value) => {
                if !self.is_run_dry(process, stream, before)? {
                    return Ok(Put::NotYet(action));
                }
                value.write();
                true
            }
            Action::Alloc(device, bytes, address) => {
                if !self.is_graph_memory(address) {
                    // A launch that cannot have its memory has failed before.
                    let _ = self.begin_graph_memory(process, device, bytes, address);
                }
                true
            }
            Action::Free(address) => {
                // What is no longer there was freed by the client.
                let _ = self.free(process, address);
                true
            }
        };
        Ok(if done { Put::Done } else { Put::Full(action) })
    }

    /// Puts work into a stream's queue; false if that is full.
    fn submit(&mut self, process: &Process, handle: Handle, work: Work) -> Result<bool, Error> {
        let queue = self.queue(process, handle)?;
        if process.gpus.submit(queue, work).is_none() {
            return Ok(false);
        }
        let stream = self.stream_mut(handle)?;
        stream.only_waits = false;
        let (role, blocking, context) = (stream.role, stream.is_blocking(), stream.context);
        let context = self.context_mut(context)?;
        if role == Role::Legacy {
            context.legacy_work += 1;
        } else if blocking {
            context.blocking_work += 1;
        }
        Ok(true)
    }

    /// The queue of a stream.
    fn queue(&mut self, process: &Process, handle: Handle) -> Result<fake_gpu::Queue, Error> {
        let stream = self.stream(handle)?;
        if let Some(queue) = stream.queue {
            return Ok(queue);
        }
        let place = self.context(stream.context)?.place;
        let queue = process.gpus.queue(place).map_err(|_| OUT_OF_MEMORY)?;
        self.stream_mut(handle)?.queue = Some(queue);
        Ok(queue)
    }

    /// Makes later work of a stream wait for a piece of another one.
    fn go_after(&mut self, process: &Process, handle: Handle, ticket: Ticket) -> Outcome {
        if process.gpus.done(ticket) {
            return Ok(());
        }
        let queue = self.queue(process, handle)?;
        if queue != ticket.queue {
            process.gpus.after(queue, ticket);
            self.stream_mut(handle)?.only_waits = true;
        }
        Ok(())
    }

    /// Keeps the order between the legacy stream and blocking ones; false if that must wait for
    /// something which the other was asked for before this, by its serial, and has put off.
    fn line_up(&mut self, process: &Process, handle: Handle, before: u64) -> Result<bool, Error> {
        let stream = self.stream(handle)?;
        let (lined_up, context) = (stream.lined_up, self.context(stream.context)?);
        let (others, reached) = if stream.role == Role::Legacy {
            if context.blocking_work == lined_up && self.putting_off.is_empty() {
                return Ok(true);
            }
            let of = stream.context;
            let blocking = self.streams.find(|other| other.context == of && other.is_blocking());
            (blocking, context.blocking_work)
        } else if stream.is_blocking() {
            if context.legacy_work == lined_up && self.putting_off.is_empty() {
                return Ok(true);
            }
            (vec![context.legacy], context.legacy_work)
        } else {
            return Ok(true);
        };
        for other in others {
            let other = self.stream(other)?;
            if other.put_off.front().is_some_and(|(serial, _)| *serial < before) {
                return Ok(false);
            }
            if let Some(queue) = other.queue {
                self.go_after(process, handle, process.gpus.last(queue))?;
            }
        }
        self.stream_mut(handle)?.lined_up = reached;
        Ok(true)
    }

    /// The newest piece of a stream, after all that it waits for; none if it never had work, and an
    /// outer `None` if that must be asked again later.
    pub(crate) fn newest(
        &mut self,
        process: &Process,
        handle: Handle,
        before: u64,
    ) -> Result<Option<Option<Ticket>>, Error> {
        if !self.line_up(process, handle, before)? {
            return Ok(None);
        }
        let only_waits = self.stream(handle)?.only_waits;
        if only_waits && !self.submit(process, handle, MARKER)? {
            return Ok(None);
        }
        let queue = self.stream(handle)?.queue;
        Ok(Some(queue.map(|queue| process.gpus.last(queue))))
    }

    /// Whether all that a stream has put into its queue is done, and what it goes in step with.
    pub(crate) fn is_run_dry(
        &mut self,
        process: &Process,
        handle: Handle,
        before: u64,
    ) -> Result<bool, Error> {
        let newest = self.newest(process, handle, before)?;
        Ok(newest.is_some_and(|ticket| ticket.is_none_or(|ticket| process.gpus.done(ticket))))
    }

    /// Makes an event stand behind a piece of work.
    fn record(&mut self, process: &Process, event: Handle, serial: u64, ticket: Option<Ticket>) {
        let now = process.gpus.now_ns();
        if let Some(event) = self.events.get_mut(event) {
            event.make(serial, ticket, now);
        }
    }

    /// Makes a stream wait for an event; false if the event's record has been put off.
    fn wait(
        &mut self,
        process: &Process,
        stream: Handle,
        event: Handle,
        serial: u64,
    ) -> Result<bool, Error> {
        let Some(found) = self.events.get(event) else { return Ok(true) };
        if !found.is_made(serial) {
            return Ok(false);
        }
        if let Some(ticket) = found.ticket() {
            self.go_after(process, stream, ticket)?;
        }
        Ok(true)
    }
}

impl Call {
    /// Lets a stream do something; waits while its queue is full, as the driver does.
    pub(crate) fn act(&self, stream: Handle, mut action: Action) -> Outcome {
        loop {
            match self.lock().put(self.process, stream, action)? {
                Put::Done | Put::NotYet(_) => return Ok(()),
                Put::Full(back) => action = back,
            }
            std::thread::sleep(worker::STEP);
        }
    }
}

impl Value {
    /// Whether the value is what the stream waits for.
    fn is_there(&self) -> bool {
        let found = self.read();
        let bits = if self.wide { 64 } else { 32 };
        let below = |value: u64| if bits == 32 { value & 0xffff_ffff } else { value };
        match self.how & 3 {
            // "Cyclic": the difference as a signed number is not negative.
            0 => below(found.wrapping_sub(self.value)) >> (bits - 1) == 0,
            1 => found == below(self.value),
            2 => found & self.value != 0,
            _ => below(!(found | self.value)) != 0,
        }
    }

    fn read(&self) -> u64 {
        let address = std::ptr::with_exposed_provenance::<u64>(self.address as usize);
        // SAFETY: the caller of the stream operation says that the address is good and aligned until
        // the stream has done it; others may write at any time, so that it is read as volatile.
        unsafe {
            if self.wide {
                address.read_volatile()
            } else {
                u64::from(address.cast::<u32>().read_volatile())
            }
        }
    }

    fn write(&self) {
        let address = std::ptr::with_exposed_provenance_mut::<u64>(self.address as usize);
        // SAFETY: as above.
        unsafe {
            if self.wide {
                address.write_volatile(self.value);
            } else {
                address.cast::<u32>().write_volatile((self.value & 0xffff_ffff) as u32);
            }
        }
    }
}
