//! Events of ours in the client's streams: marks, and pairs around launches that are measured.

use caps::pace::{MARKS, MarkId, Member};

use crate::abi::Handle;
use crate::driver;

use super::asks;
use super::streams::Stream;

/// Launches that are measured at a time.
const SAMPLES: usize = 16;
/// Events that are kept for use; more are ended.
const KEPT: usize = 128;

/// An event, which belongs to a context.
#[derive(Clone, Copy)]
struct Event {
    handle: Handle,
    context: u64,
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

/// The events of one GPU. All functions but [`Marks::context_gone`] ask the driver, so they are called
/// through [`super::capture::asking`].
pub(crate) struct Marks {
    marks: Vec<Mark>,
    samples: Vec<Sample>,
    free: Vec<Event>,
    free_timed: Vec<Event>,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self {
            marks: Vec::with_capacity(MARKS),
            samples: Vec::with_capacity(SAMPLES),
            free: Vec::with_capacity(KEPT),
            free_timed: Vec::with_capacity(KEPT),
        }
    }

    /// An event of the thread's context.
    fn take(&mut self, timed: bool) -> Option<Event> {
        let context = driver::context();
        let free = if timed { &mut self.free_timed } else { &mut self.free };
        if let Some(at) = free.iter().rposition(|event| event.context == context) {
            return Some(free.swap_remove(at));
        }
        asks::event(timed).map(|handle| Event { handle, context })
    }

    fn give(&mut self, event: Event, timed: bool) {
        let free = if timed { &mut self.free_timed } else { &mut self.free };
        if free.len() < KEPT {
            free.push(event);
        } else {
            // SAFETY: an event of ours that nobody uses any more.
            unsafe { asks::destroy_event(event.handle) };
        }
    }

    /// Puts a mark into a stream of the thread's context.
    pub(crate) fn put(&mut self, member: &mut Member, stream: Stream, now_us: u64) {
        let Some(id) = member.work.begin_mark(stream.number(), now_us) else { return };
        let event = self.take(false);
        let recorded = event.is_some_and(|event| asks::record(event.handle, stream.handle()));
        member.work.recorded(id, !recorded);
        match event {
            Some(event) if recorded => self.marks.push(Mark { id, event }),
            Some(event) => self.give(event, false),
            None => {}
        }
    }

    /// The same from the watcher's thread, which has no context of its own.
    pub(crate) fn put_from_outside(&mut self, member: &mut Member, stream: Stream, now_us: u64) {
        let context = self.marks.last().map(|mark| mark.event.context);
        let context = context.or_else(|| self.free.last().map(|event| event.context));
        if let Some(context) = context {
            asks::within(context, || self.put(member, stream, now_us));
        }
    }

    /// Begins to measure a launch.
    pub(crate) fn begin(&mut self, stream: Stream, kind: u64, now_us: u64) -> Option<Begun> {
        if self.samples.len() >= SAMPLES {
            return None;
        }
        let begin = self.take(true)?;
        if !asks::record(begin.handle, stream.handle()) {
            self.give(begin, true);
            return None;
        }
        Some(Begun { kind, launched_us: now_us, begin })
    }

    /// The launch has been made, or has failed.
    pub(crate) fn end(&mut self, member: &mut Member, begun: Begun, stream: Stream, failed: bool) {
        let end = if failed { None } else { self.take(true) };
        match end {
            Some(end) if asks::record(end.handle, stream.handle()) => {
                let Begun { kind, launched_us, begin } = begun;
                self.samples.push(Sample { kind, launched_us, begin, end });
            }
            other => {
                if let Some(end) = other {
                    self.give(end, true);
                }
                self.give(begun.begin, true);
                member.costs.lost(begun.kind);
            }
        }
    }

    /// Looks whether a mark has passed; `true` if so, or if it is not known any more.
    pub(crate) fn look(&mut self, member: &mut Member, id: MarkId) -> bool {
        let Some(at) = self.marks.iter().position(|mark| mark.id == id) else {
            member.work.finish(id);
            return true;
        };
        let passed = self.marks.get(at).is_some_and(|mark| asks::has_passed(mark.event.handle));
        if passed {
            let mark = self.marks.swap_remove(at);
            self.give(mark.event, false);
            member.work.finish(id);
        }
        passed
    }

    /// Looks at all marks and measurements.
    pub(crate) fn look_at_all(&mut self, member: &mut Member) {
        let contexts = self.marks.first().map(|mark| mark.event.context);
        let contexts = contexts.or_else(|| self.samples.first().map(|sample| sample.end.context));
        if let Some(context) = contexts {
            asks::within(context, || self.look_within(member));
        }
    }

    fn look_within(&mut self, member: &mut Member) {
        let mut at = 0;
        while let Some(mark) = self.marks.get(at) {
            let id = mark.id;
            if !self.look(member, id) {
                at = at.saturating_add(1);
            }
        }
        let mut at = 0;
        while let Some(sample) = self.samples.get(at) {
            if !asks::has_passed(sample.end.handle) {
                at = at.saturating_add(1);
                continue;
            }
            let Sample { kind, launched_us, begin, end } = self.samples.swap_remove(at);
            match asks::between(begin.handle, end.handle) {
                Some(ns) => member.sampled(kind, launched_us, ns),
                None => member.costs.lost(kind),
            }
            self.give(begin, true);
            self.give(end, true);
        }
    }

    /// The events of a context are gone with it.
    pub(crate) fn context_gone(&mut self, member: &mut Member, context: u64) {
        let gone = |event: &Event| event.context == context;
        for mark in self.marks.iter().filter(|mark| gone(&mark.event)) {
            member.work.finish(mark.id);
        }
        self.marks.retain(|mark| !gone(&mark.event));
        for sample in self.samples.iter().filter(|sample| gone(&sample.begin)) {
            member.costs.lost(sample.kind);
        }
        self.samples.retain(|sample| !gone(&sample.begin));
        self.free.retain(|event| !gone(event));
        self.free_timed.retain(|event| !gone(event));
    }
}
