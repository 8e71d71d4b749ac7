//! Events: moments in streams.

use fake_gpu::{Gpus, Ticket};

use crate::action::Action;
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::pointers::put;
use crate::result::{CAPTURED_EVENT, Error, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome};

/// An event.
pub(crate) struct Event {
    pub(crate) context: Handle,
    pub(crate) flags: u32,
    /// Serial of its newest record; 0 without one.
    pub(crate) wanted: u64,
    /// Serial of its newest record that has reached a queue.
    made: u64,
    /// The piece of work that it stands behind.
    ticket: Option<Ticket>,
    /// When it was recorded.
    at_ns: u64,
    /// The capture in which it was recorded last, and what it stands behind there.
    pub(crate) captured: Option<(u64, Vec<Handle>)>,
}

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const ALL_FLAGS: u32 = 7;
/// Flag of `cuEventRecordWithFlags` and `cuStreamWaitEvent`: in a capture it becomes a node of its own.
const EXTERNAL: u32 = 1;

impl Event {
    /// Keeps that a record has been made behind a piece of work.
    pub(crate) fn make(&mut self, serial: u64, ticket: Option<Ticket>, at_ns: u64) {
        if serial >= self.made {
            (self.made, self.ticket, self.at_ns) = (serial, ticket, at_ns);
        }
    }

    /// Whether the record with a serial, or a newer one, has been made.
    pub(crate) fn is_made(&self, serial: u64) -> bool {
        self.made >= serial
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    fn is_done(&self, gpus: &Gpus) -> bool {
        self.is_made(self.wanted) && self.ticket.is_none_or(|ticket| gpus.done(ticket))
    }

    /// When it was done: at the end of the work before it, or when it was recorded if there was none.
    fn done_at_ns(&self, gpus: &Gpus) -> u64 {
        let end = self.ticket.and_then(|ticket| gpus.done_at_ns(ticket));
        end.map_or(self.at_ns, |end| end.max(self.at_ns))
    }
}

impl Driver {
    pub(crate) fn event(&self, handle: Handle) -> Result<&Event, Error> {
        self.events.get(handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn event_mut(&mut self, handle: Handle) -> Result<&mut Event, Error> {
        self.events.get_mut(handle).ok_or(INVALID_HANDLE)
    }

    /// Whether all before an event is done.
    fn is_event_done(&mut self, gpus: &Gpus, handle: Handle) -> Result<bool, Error> {
        let event = self.event(handle)?;
        if let Some((capture, _)) = &event.captured {
            let capture = *capture;
            self.invalidate(capture);
            return Err(CAPTURED_EVENT);
        }
        Ok(self.event(handle)?.is_done(gpus))
    }
}

impl Call {
    fn create_event(&self, to: *mut Handle, flags: u32) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        let bad = flags > ALL_FLAGS || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS;
        if bad || to.is_null() {
            return Err(INVALID_VALUE);
        }
        let event =
            Event { context, flags, wanted: 0, made: 0, ticket: None, at_ns: 0, captured: None };
        put(to, driver.events.insert(event))
    }

    pub(crate) fn record_event(&self, event: Handle, stream: Handle, flags: u32) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        driver.events.used(event);
        driver.event(event)?;
        if driver.takes_captured(stream)? {
            if flags & EXTERNAL != 0 {
                return driver.capture(stream, NodeKind::Record(event)).map(|_| ());
            }
            let of = driver.stream(stream)?;
            let captured = of.capture.map(|capture| (capture, of.tail.clone()));
            driver.event_mut(event)?.captured = captured;
            return Ok(());
        }
        let action = driver.begin_record(event)?;
        drop(driver);
        self.act(stream, action)
    }

    /// Makes a stream wait for an event.
    fn wait_event(&self, stream: Handle, event: Handle, flags: u32) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        driver.events.used(event);
        let found = driver.event(event)?;
        let serial = found.wanted;
        if let Some((capture, behind)) = found.captured.clone() {
            return driver.join_capture(stream, capture, &behind);
        }
        if driver.takes_captured(stream)? {
            if flags & EXTERNAL == 0 {
                let capture = driver.stream(stream)?.capture;
                capture.into_iter().for_each(|capture| driver.invalidate(capture));
                return Err(crate::result::STREAM_CAPTURE_ISOLATION);
            }
            return driver.capture(stream, NodeKind::Wait(event)).map(|_| ());
        }
        drop(driver);
        self.act(stream, Action::Wait(event, serial))
    }

    fn destroy_event(&self, event: Handle) -> Outcome {
        let mut driver = self.lock();
        driver.events.used(event);
        driver.events.remove(event).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    fn elapsed(&self, to: *mut f32, start: Handle, end: Handle) -> Outcome {
        let mut driver = self.lock();
        let gpus = &self.process.gpus;
        driver.events.used(start);
        driver.events.used(end);
        let done = driver.is_event_done(gpus, start)? && driver.is_event_done(gpus, end)?;
        let (start, end) = (driver.event(start)?, driver.event(end)?);
        let untimed = (start.flags | end.flags) & DISABLE_TIMING != 0;
        if untimed || start.wanted == 0 || end.wanted == 0 {
            return Err(INVALID_HANDLE);
        }
        if !done {
            return Err(NOT_READY);
        }
        let (from, to_ns) = (start.done_at_ns(gpus), end.done_at_ns(gpus));
        let nanoseconds = to_ns as f64 - from as f64;
        put(to, (nanoseconds / 1e6) as f32)
    }
}

impl Driver {
    /// Notes that an event is to be recorded anew; what a stream has to do for it.
    pub(crate) fn begin_record(&mut self, event: Handle) -> Result<Action, Error> {
        let serial = self.next_serial();
        let found = self.event_mut(event)?;
        found.wanted = serial;
        found.captured = None;
        Ok(Action::Record(event, serial))
    }
}

exports! { EVENT;
    "cuEventCreate" 2000 call fn cuEventCreate(to: *mut Handle, flags: u32) |call| {
        call.create_event(to, flags)
    }

    "cuEventRecord" 2000 call [cuEventRecord_ptsz 7000] fn cuEventRecord(
        event: Handle, stream: Handle,
    ) |call| { call.record_event(event, stream, 0) }

    "cuEventRecordWithFlags" 11010 call [cuEventRecordWithFlags_ptsz 11010] fn cuEventRecordWithFlags(
        event: Handle, stream: Handle, flags: u32,
    ) |call| { call.record_event(event, stream, flags) }

    "cuStreamWaitEvent" 3020 call [cuStreamWaitEvent_ptsz 7000] fn cuStreamWaitEvent(
        stream: Handle, event: Handle, flags: u32,
    ) |call| { call.wait_event(stream, event, flags) }

    "cuEventQuery" 2000 call fn cuEventQuery(event: Handle) |call| {
        let mut driver = call.lock();
        driver.events.used(event);
        driver.event(event)?;
        driver.forbid_unsafe()?;
        if driver.is_event_done(&call.process.gpus, event)? { Ok(()) } else { Err(NOT_READY) }
    }

    "cuEventSynchronize" 2000 call fn cuEventSynchronize(event: Handle) |call| {
        let mut driver = call.lock();
        driver.events.used(event);
        let context = driver.event(event)?.context;
        driver.forbid_unsafe()?;
        drop(driver);
        call.wait_until(|| call.lock().is_event_done(&call.process.gpus, event))?;
        call.lock().trim_pools(call.process, context);
        Ok(())
    }

    "cuEventElapsedTime" 2000 call fn cuEventElapsedTime(to: *mut f32, start: Handle, end: Handle)
    |call| { call.elapsed(to, start, end) }

    "cuEventElapsedTime" 12080 call fn cuEventElapsedTime_v2(
        to: *mut f32, start: Handle, end: Handle,
    ) |call| { call.elapsed(to, start, end) }

    "cuEventDestroy" 2000 call fn cuEventDestroy(event: Handle) |call| { call.destroy_event(event) }

    "cuEventDestroy" 4000 call fn cuEventDestroy_v2(event: Handle) |call| {
        call.destroy_event(event)
    }
}
