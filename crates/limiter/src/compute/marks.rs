//! Events of ours in the client's streams: marks, and pairs around launches that are measured.
//!
//! The functions of [`Pacer`] here ask the driver, so they are called through the door
//! ([`super::door`]). Each decides under the pacer's lock, asks without it, and notes under it what came
//! of that. An event that is asked about is out of the lists meanwhile, so that it is one thread's alone.

use caps::pace::{MARKS, MarkId, Work};

use crate::abi::Handle;

use super::pacer::Pacer;
use super::streams::Stream;
use super::{asks, clock};

/// Launches that are measured at a time.
const SAMPLES: usize = 16;

/// An event, which belongs to a context.
#[derive(Clone, Copy)]
struct Event {
    handle: Handle,
    context: u64,
    /// Contexts that had ended when it was taken.
    ended: u32,
}

// SAFETY: a name that the driver knows in all threads.
unsafe impl Send for Event {}

struct Mark {
    id: MarkId,
    event: Event,
}

/// A launch that is measured.
struct Sample {
    kind: u64,
    launched_us: u64,
    begin: Event,
    end: Event,
}

/// A measurement that has begun.
pub(crate) struct Begun {
    kind: u64,
    launched_us: u64,
    begin: Event,
}

/// What is known of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has passed.
    Passed,
    /// It has not.
    Waits,
    /// Another thread is asking about it, or records it.
    Asked,
}

/// The events of one GPU.
pub(crate) struct Marks {
    marks: Vec<Mark>,
    samples: Vec<Sample>,
    /// Measurements of which the launch is under way.
    measuring: usize,
    free: Vec<Event>,
    free_timed: Vec<Event>,
    /// Contexts that have ended.
    ended: u32,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self {
            marks: Vec::with_capacity(MARKS),
            samples: Vec::with_capacity(SAMPLES),
            measuring: 0,
            free: Vec::with_capacity(MARKS),
            free_timed: Vec::with_capacity(SAMPLES),
            ended: 0,
        }
    }

    fn free(&mut self, timed: bool) -> &mut Vec<Event> {
        if timed { &mut self.free_timed } else { &mut self.free }
    }

    /// A free event of a context; one without a handle, to be made, if there is none.
    fn take(&mut self, context: u64, timed: bool) -> Event {
        let ended = self.ended;
        let free = self.free(timed);
        let at = free.iter().rposition(|event| event.context == context);
        let handle = at.map_or(std::ptr::null_mut(), |at| free.swap_remove(at).handle);
        Event { handle, context, ended }
    }

    /// Whether the event's context may have ended since it was taken: then it is not used any more.
    fn is_doubtful(&self, event: Event) -> bool {
        event.handle.is_null() || event.ended != self.ended
    }

    fn give(&mut self, event: Event, timed: bool) {
        if !self.is_doubtful(event) {
            self.free(timed).push(event);
        }
    }

    /// A measurement comes to nothing. Asks nothing of the driver.
    pub(crate) fn lose(&mut self, begun: &Begun) {
        self.measuring = self.measuring.saturating_sub(1);
        self.give(begun.begin, true);
    }

    /// The events of a context are gone with it. Gives the kinds whose measurements are lost.
    pub(crate) fn context_gone(&mut self, work: &mut Work, context: u64) -> Vec<u64> {
        self.ended = self.ended.wrapping_add(1);
        let gone = |event: &Event| event.context == context;
        for mark in self.marks.iter().filter(|mark| gone(&mark.event)) {
            work.finish(mark.id);
        }
        self.marks.retain(|mark| !gone(&mark.event));
        let lost = self.samples.iter().filter(|sample| gone(&sample.begin));
        let lost = lost.map(|sample| sample.kind).collect();
        self.samples.retain(|sample| !gone(&sample.begin));
        self.free.retain(|event| !gone(event));
        self.free_timed.retain(|event| !gone(event));
        let ended = self.ended;
        let kept = self.marks.iter_mut().map(|mark| &mut mark.event);
        let begins =
            self.samples.iter_mut().flat_map(|sample| [&mut sample.begin, &mut sample.end]);
        kept.chain(begins).for_each(|event| event.ended = ended);
        lost
    }
}

/// Puts an event into a stream of the thread's context, and makes it first if it has no handle.
fn recorded(event: &mut Event, stream: Handle, timed: bool) -> bool {
    if event.handle.is_null() {
        let Some(handle) = asks::event(timed) else { return false };
        event.handle = handle;
    }
    asks::record(event.handle, stream)
}

impl Pacer {
    /// Puts a mark into a stream. What cannot be marked from here counts as done when it should be.
    ///
    /// * `context` — of the stream.
    pub(crate) fn put(&self, stream: Stream, context: u64) {
        let (number, now_us) = (stream.number(), clock::now_us());
        let mut inner = self.lock();
        let (Some(handle), true) = (stream.handle(), context != 0) else {
            return inner.member.work.presume(number, now_us);
        };
        let Some(id) = inner.member.work.begin_mark(number, now_us) else { return };
        let mut event = inner.marks.take(context, false);
        drop(inner);
        let put = asks::within(context, || recorded(&mut event, handle, false)).unwrap_or(false);
        let mut inner = self.lock();
        let put = put && !inner.marks.is_doubtful(event);
        inner.member.work.recorded(id, !put);
        if put {
            inner.marks.marks.push(Mark { id, event });
        } else {
            inner.marks.give(event, false);
        }
    }

    /// The same for a stream of which only the number is at hand.
    pub(crate) fn put_by_number(&self, stream: u64) {
        let context = self.lock().member.work.context(stream).unwrap_or(0);
        self.put(Stream::numbered(stream), context);
    }

    /// Begins to measure a launch of this thread's.
    pub(crate) fn begin_sample(&self, stream: Stream, kind: u64) -> Option<Begun> {
        let (handle, context) = (stream.handle()?, stream.context());
        let mut inner = self.lock();
        let busy = inner.marks.samples.len().saturating_add(inner.marks.measuring);
        if busy >= SAMPLES {
            return None;
        }
        inner.marks.measuring = inner.marks.measuring.saturating_add(1);
        let mut begin = inner.marks.take(context, true);
        drop(inner);
        let put = asks::within(context, || recorded(&mut begin, handle, true)).unwrap_or(false);
        let begun = Begun { kind, launched_us: clock::now_us(), begin };
        if !put {
            self.lock().marks.lose(&begun);
            return None;
        }
        Some(begun)
    }

    /// The launch has been made.
    pub(crate) fn end_sample(&self, begun: Begun, stream: Stream) {
        let Begun { kind, launched_us, begin } = begun;
        let mut end = self.lock().marks.take(begin.context, true);
        let put = stream
            .handle()
            .and_then(|stream| asks::within(begin.context, || recorded(&mut end, stream, true)));
        let mut inner = self.lock();
        if put == Some(true) && !inner.marks.is_doubtful(begin) && !inner.marks.is_doubtful(end) {
            inner.marks.measuring = inner.marks.measuring.saturating_sub(1);
            inner.marks.samples.push(Sample { kind, launched_us, begin, end });
        } else {
            inner.marks.give(end, true);
            inner.marks.lose(&begun);
            inner.member.costs.lost(kind);
        }
    }

    /// Looks whether a mark has passed, or is not known any more.
    pub(crate) fn look(&self, id: MarkId) -> Look {
        let mut inner = self.lock();
        let Some(at) = inner.marks.marks.iter().position(|mark| mark.id == id) else {
            return match () {
                () if !inner.member.work.is_open(id) => Look::Passed,
                () if inner.member.work.is_presumed(id) => Look::Waits,
                () => Look::Asked,
            };
        };
        let mark = inner.marks.marks.swap_remove(at);
        drop(inner);
        let passed = self.has_passed(mark.event);
        let mut inner = self.lock();
        if passed || inner.marks.is_doubtful(mark.event) {
            inner.marks.give(mark.event, false);
            inner.member.work.finish(id);
            return Look::Passed;
        }
        inner.marks.marks.push(mark);
        Look::Waits
    }

    /// What is in a context that is gone has passed.
    fn has_passed(&self, event: Event) -> bool {
        asks::within(event.context, || asks::has_passed(event.handle)).unwrap_or(true)
    }

    /// Looks at all marks and measurements.
    pub(crate) fn look_at_all(&self) {
        // The oldest of a stream first: while it has not passed, the others have not either.
        let mut after = None;
        while let Some(id) = self.next_front(after) {
            self.look(id);
            after = Some(id);
        }
        let mut left = self.lock().marks.samples.len();
        while left > 0 {
            left = left.saturating_sub(1);
            self.look_at_sample();
        }
    }

    /// The next mark that is the oldest of its stream.
    fn next_front(&self, after: Option<MarkId>) -> Option<MarkId> {
        self.lock().member.work.front_after(after)
    }

    /// Looks at the measurement that has not been looked at for longest.
    fn look_at_sample(&self) {
        let mut inner = self.lock();
        if inner.marks.samples.is_empty() {
            return;
        }
        let sample = inner.marks.samples.remove(0);
        inner.marks.measuring = inner.marks.measuring.saturating_add(1);
        drop(inner);
        let passed = self.has_passed(sample.end);
        let took = if passed {
            asks::within(sample.end.context, || {
                asks::between(sample.begin.handle, sample.end.handle)
            })
        } else {
            None
        };
        let mut inner = self.lock();
        inner.marks.measuring = inner.marks.measuring.saturating_sub(1);
        let Sample { kind, launched_us, begin, end } = sample;
        let doubtful = inner.marks.is_doubtful(end);
        if !passed && !doubtful {
            return inner.marks.samples.push(Sample { kind, launched_us, begin, end });
        }
        match took.flatten().filter(|_| !doubtful) {
            Some(ns) => inner.member.sampled(kind, launched_us, ns),
            None => inner.member.costs.lost(kind),
        }
        inner.marks.give(begin, true);
        inner.marks.give(end, true);
    }
}
