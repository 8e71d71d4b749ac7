//! What a process has in the GPU's queue, and how far the GPU has come with it.

use super::queue::{Entered, Mark, MarkId, Moment, Stream, Waited};
use super::{
    EXEMPT_US, LATE_TIMES, LATE_UNKNOWN_US, LATE_US, MARK_EVERY_US, MARKS, STREAMS, UNKNOWN_NS,
};

/// The work of one process on one GPU that is not known to be done.
#[derive(Debug)]
pub struct Work {
    streams: [Stream; STREAMS],
    marks: [Option<Mark>; MARKS],
    /// In all streams that are not exempt, and in calls of the driver, in ns.
    outstanding_ns: u64,
    /// Launches that the driver is being asked for.
    entering: u32,
    launches: u64,
    next_mark: u32,
    next_serial: u64,
}

impl Work {
    /// None.
    pub fn new() -> Self {
        Self {
            streams: [Stream::default(); STREAMS],
            marks: [None; MARKS],
            outstanding_ns: 0,
            entering: 0,
            launches: 0,
            next_mark: 0,
            next_serial: 1,
        }
    }

    /// The driver is about to be asked for a launch.
    pub fn enter(&mut self, ns: u64) {
        self.entering = self.entering.saturating_add(1);
        self.outstanding_ns = self.outstanding_ns.saturating_add(ns);
    }

    /// The driver has been asked. Says what is to be done.
    ///
    /// * `ns` — as at [`Work::enter`].
    /// * `failed` — nothing was launched.
    /// * `now` — the time in µs, looked at only if it matters.
    pub fn entered(
        &mut self,
        stream: u64,
        ns: u64,
        failed: bool,
        now: impl Fn() -> u64,
    ) -> Entered {
        self.entering = self.entering.saturating_sub(1);
        if failed {
            self.outstanding_ns = self.outstanding_ns.saturating_sub(ns);
            return Entered::default();
        }
        self.launches += 1;
        let launches = self.launches;
        let at = self.find(stream);
        let Some(stream) = self.streams.get_mut(at) else { return Entered::default() };
        stream.newest = launches;
        let homeless = stream.context == 0;
        if stream.exempt_until_us != 0 && stream.exempt_until_us > now() {
            self.outstanding_ns = self.outstanding_ns.saturating_sub(ns);
            return Entered { mark: false, homeless };
        }
        stream.open = true;
        stream.unknown |= ns == UNKNOWN_NS;
        stream.unmarked_ns = stream.unmarked_ns.saturating_add(ns);
        Entered { mark: stream.unmarked_ns >= MARK_EVERY_US * 1000, homeless }
    }

    /// The entry of a stream; a stream more than there are entries takes that of the one that has been
    /// quiet longest.
    fn find(&mut self, key: u64) -> usize {
        let known = |stream: &Stream| stream.key == key && stream.serial != 0;
        if let Some(at) = self.streams.iter().position(known) {
            return at;
        }
        let quiet = |stream: &Stream| (stream.serial != 0, stream.open, stream.newest);
        let found = self.streams.iter().enumerate().min_by_key(|(_, stream)| quiet(stream));
        let at = found.map_or(0, |(at, _)| at);
        if let Some(stream) = self.streams.get_mut(at) {
            if stream.open {
                // Two share the entry from now on; its work is the work of both.
                (stream.key, stream.mixed) = (key, true);
            } else {
                *stream = Stream { key, serial: self.next_serial, ..Stream::default() };
                self.next_serial += 1;
            }
        }
        at
    }

    fn known(&self, key: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.key == key && stream.serial != 0)
    }

    fn known_mut(&mut self, key: u64) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.key == key && stream.serial != 0)
    }

    /// Whether anything is known of a stream.
    pub fn knows(&self, stream: u64) -> bool {
        self.known(stream).is_some()
    }

    /// Notes the context of a stream. A handle that stands for streams of several contexts belongs to none
    /// of them: its work is followed by marks only.
    pub fn in_context(&mut self, stream: u64, context: u64) {
        if let Some(stream) = self.known_mut(stream).filter(|known| known.context != context) {
            stream.mixed |= stream.context != 0;
            stream.context = context;
        }
    }

    /// The context of a stream, the newest if there are several.
    pub fn context(&self, stream: u64) -> Option<u64> {
        self.known(stream).map(|stream| stream.context).filter(|context| *context != 0)
    }

    /// A mark for all that has been launched in the stream, to be recorded now. `None`: too many are on
    /// their way.
    pub fn begin_mark(&mut self, stream: u64, now_us: u64) -> Option<MarkId> {
        let free = self.marks.iter().position(Option::is_none)?;
        let outstanding_us = self.outstanding_ns / 1000;
        let id = MarkId(self.next_mark.wrapping_add(1));
        let of = self.known_mut(stream)?;
        let least = if std::mem::take(&mut of.unknown) { LATE_UNKNOWN_US } else { LATE_US };
        let patience = outstanding_us.saturating_mul(LATE_TIMES).max(least);
        let mark = Mark {
            id,
            stream: of.serial,
            context: if of.mixed { 0 } else { of.context },
            ns: std::mem::take(&mut of.unmarked_ns),
            newest: of.newest,
            late_us: now_us.saturating_add(patience),
            presumed: false,
        };
        *self.marks.get_mut(free)? = Some(mark);
        self.next_mark = id.0;
        Some(id)
    }

    /// The mark is in the stream, or could not be put there: then nobody waits for it.
    pub fn recorded(&mut self, mark: MarkId, failed: bool) {
        if failed {
            self.finish(mark);
        }
    }

    /// For work that no event can stand behind: it counts as done when all that is on its way should be, by
    /// what is known of costs.
    pub fn presume(&mut self, stream: u64, now_us: u64) {
        let due_us = now_us.saturating_add(self.outstanding_ns / 1000);
        let Some(id) = self.begin_mark(stream, now_us) else { return };
        if let Some(mark) = self.marks.iter_mut().flatten().find(|mark| mark.id == id) {
            (mark.presumed, mark.late_us) = (true, due_us);
        }
    }

    /// Work of which it was presumed that it would be done by now is.
    pub fn presume_done(&mut self, now_us: u64) {
        let due = |mark: &&Mark| mark.presumed && mark.late_us <= now_us;
        while let Some(id) = self.marks.iter().flatten().find(due).map(|mark| mark.id) {
            self.finish(id);
        }
    }

    /// The mark is done, and with it all that was launched in its stream before.
    pub fn finish(&mut self, mark: MarkId) {
        if let Some(mark) = self.mark(mark) {
            self.finish_until(mark.stream, mark.newest);
        }
    }

    fn mark(&self, id: MarkId) -> Option<Mark> {
        self.marks.iter().flatten().find(|known| known.id == id).copied()
    }

    /// Whether the mark is one that is waited for.
    pub fn is_open(&self, mark: MarkId) -> bool {
        self.mark(mark).is_some()
    }

    /// Whether there is no event, so that time is all that it waits for.
    pub fn is_presumed(&self, mark: MarkId) -> bool {
        self.mark(mark).is_some_and(|mark| mark.presumed)
    }

    fn finish_until(&mut self, serial: u64, newest: u64) {
        self.finish_marks(|mark| mark.stream == serial && mark.newest <= newest);
        let stream = self.streams.iter_mut().find(|stream| stream.serial == serial);
        if let Some(stream) = stream.filter(|stream| serial != 0 && stream.newest <= newest) {
            self.outstanding_ns = self.outstanding_ns.saturating_sub(stream.unmarked_ns);
            (stream.unmarked_ns, stream.open, stream.unknown) = (0, false, false);
        }
        if self.is_idle() {
            self.outstanding_ns = 0;
        }
    }

    fn finish_marks(&mut self, done: impl Fn(&Mark) -> bool) {
        for slot in &mut self.marks {
            if slot.as_ref().is_some_and(&done) {
                let ns = slot.take().map_or(0, |mark| mark.ns);
                self.outstanding_ns = self.outstanding_ns.saturating_sub(ns);
            }
        }
    }

    /// Now: to be asked for before the driver is told to wait for a stream.
    pub fn moment(&self) -> Moment {
        Moment(self.launches)
    }

    /// What was waited for and was launched before `moment` is done.
    pub fn synced(&mut self, what: Waited, moment: Moment) {
        // Also of streams that are gone.
        match what {
            Waited::Context(context) => {
                self.finish_marks(|mark| mark.context == context && mark.newest <= moment.0);
            }
            Waited::All => self.finish_marks(|mark| mark.newest <= moment.0),
            Waited::Stream(_) => {}
        }
        let meant = |stream: &Stream| match what {
            Waited::Stream(key) => stream.key == key && !stream.mixed,
            Waited::Context(context) => stream.context == context && !stream.mixed,
            Waited::All => true,
        };
        for at in 0..STREAMS {
            let of = self.streams.get(at).filter(|of| of.serial != 0 && of.open && meant(of));
            if let Some(serial) = of.map(|of| of.serial) {
                self.finish_until(serial, moment.0);
            }
        }
        if self.is_idle() {
            self.outstanding_ns = 0;
        }
    }

    /// A stream goes: its handle may soon be another's. Its work goes on; what no mark stands behind counts
    /// as done when it should be.
    pub fn forget(&mut self, stream: u64, now_us: u64) {
        if self.is_unmarked(stream) {
            self.presume(stream, now_us);
        }
        let Some(serial) = self.known(stream).map(|stream| stream.serial) else { return };
        if self.is_unmarked(stream) {
            self.finish_until(serial, u64::MAX);
        }
        if let Some(stream) = self.known_mut(stream) {
            *stream = Stream::default();
        }
    }

    /// A context is gone, with its streams and all that was in them.
    pub fn context_gone(&mut self, context: u64) {
        self.synced(Waited::Context(context), self.moment());
        for stream in self.streams.iter_mut().filter(|stream| stream.context == context) {
            match stream.open {
                true => stream.context = 0,
                false => *stream = Stream::default(),
            }
        }
    }

    /// Whether nothing is known to be on its way.
    pub fn is_idle(&self) -> bool {
        let open = || self.streams.iter().any(|stream| stream.open);
        self.entering == 0 && !open() && self.marks.iter().all(Option::is_none)
    }

    /// Estimated work on its way, in ns.
    pub fn outstanding_ns(&self) -> u64 {
        self.outstanding_ns
    }

    /// The oldest mark, and when it counts as late, in µs; for one without an event, when it counts as done.
    pub fn oldest(&self) -> Option<(MarkId, u64)> {
        let oldest = self.marks.iter().flatten().min_by_key(|mark| mark.newest);
        oldest.map(|mark| (mark.id, mark.late_us))
    }

    /// The marks that are the oldest of their streams, one after the other in the order of their launches.
    pub fn front_after(&self, after: Option<MarkId>) -> Option<MarkId> {
        let marks = || self.marks.iter().flatten().filter(|mark| !mark.presumed);
        let is_front = |mark: &&Mark| {
            !marks().any(|other| other.stream == mark.stream && other.newest < mark.newest)
        };
        let later = |mark: &&Mark| after.is_none_or(|after| mark.id.0 > after.0);
        marks().filter(later).filter(is_front).min_by_key(|mark| mark.id).map(|mark| mark.id)
    }

    /// A stream that has work after its newest mark: the one with the most.
    pub fn unmarked(&self) -> Option<u64> {
        self.bare().max_by_key(|stream| stream.unmarked_ns).map(|stream| stream.key)
    }

    /// Whether a stream has work after its newest mark.
    pub fn is_unmarked(&self, stream: u64) -> bool {
        self.bare().any(|known| known.key == stream)
    }

    /// The streams that have work after their newest mark.
    fn bare(&self) -> impl Iterator<Item = &Stream> {
        let marked = |of: &Stream| {
            let mut marks = self.marks.iter().flatten();
            marks.any(|mark| mark.stream == of.serial && mark.newest >= of.newest)
        };
        let open = self.streams.iter().filter(|stream| stream.serial != 0 && stream.open);
        open.filter(move |stream| !marked(stream))
    }

    /// Whether a stream is left alone.
    pub fn is_exempt(&self, stream: u64, now_us: u64) -> bool {
        self.known(stream).is_some_and(|known| known.exempt_until_us > now_us)
    }

    /// The mark took too long: its stream seems to wait for the host, and is left alone for a while. One
    /// without an event is done.
    pub fn late(&mut self, mark: MarkId, now_us: u64) {
        let Some(mark) = self.mark(mark) else { return };
        if mark.presumed {
            return self.finish_until(mark.stream, mark.newest);
        }
        let mut streams = self.streams.iter_mut();
        if let Some(stream) = streams.find(|stream| stream.serial == mark.stream) {
            stream.exempt_until_us = now_us.saturating_add(EXEMPT_US);
        }
        self.finish_until(mark.stream, u64::MAX);
    }

    /// Costs were wrong, not the streams: none is left alone.
    pub fn trust(&mut self) {
        for stream in &mut self.streams {
            stream.exempt_until_us = 0;
        }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new()
    }
}
