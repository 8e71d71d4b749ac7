//! What a process has in the GPU's queue, and how far the GPU has come with it.

use super::{
    EXEMPT_US, LATE_TIMES, LATE_UNKNOWN_US, LATE_US, MARK_EVERY_US, MARKS, STREAMS, UNKNOWN_NS,
};

/// An event in a stream: when it is done, the work before it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkId(u32);

/// A moment between launches: what was launched before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Its handle's word; `used` says whether there is one.
    key: u64,
    used: bool,
    /// Launched since the newest mark, in ns.
    unmarked_ns: u64,
    /// Among it are launches of unknown cost.
    unknown: bool,
    /// Launches of which nothing has shown yet that they are done.
    open: bool,
    /// The newest launch.
    newest: u64,
    /// Nobody waits for it until then.
    exempt_until_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    id: MarkId,
    stream: usize,
    ns: u64,
    /// The newest launch before it.
    newest: u64,
    began_us: u64,
    late_us: u64,
    recorded: bool,
}

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
        }
    }

    /// The driver is about to be asked for a launch.
    pub fn enter(&mut self, ns: u64) {
        self.entering = self.entering.saturating_add(1);
        self.outstanding_ns = self.outstanding_ns.saturating_add(ns);
    }

    /// The driver has been asked. Says whether to put a mark in.
    ///
    /// * `ns` — as at [`Work::enter`].
    /// * `failed` — nothing was launched.
    /// * `now` — the time in µs, looked at only if it matters.
    pub fn entered(&mut self, stream: u64, ns: u64, failed: bool, now: impl Fn() -> u64) -> bool {
        self.entering = self.entering.saturating_sub(1);
        if failed {
            self.outstanding_ns = self.outstanding_ns.saturating_sub(ns);
            return false;
        }
        self.launches += 1;
        let launches = self.launches;
        let at = self.find(stream);
        let Some(stream) = self.streams.get_mut(at) else { return false };
        stream.newest = launches;
        if stream.exempt_until_us != 0 && stream.exempt_until_us > now() {
            self.outstanding_ns = self.outstanding_ns.saturating_sub(ns);
            return false;
        }
        stream.open = true;
        stream.unknown |= ns == UNKNOWN_NS;
        stream.unmarked_ns = stream.unmarked_ns.saturating_add(ns);
        stream.unmarked_ns >= MARK_EVERY_US * 1000
    }

    /// The entry of a stream; a stream more than there are entries takes that of the one that has been
    /// quiet longest.
    fn find(&mut self, key: u64) -> usize {
        if let Some(at) = self.streams.iter().position(|stream| stream.used && stream.key == key) {
            return at;
        }
        let quiet = |stream: &Stream| (stream.used, stream.open, stream.newest);
        let found = self.streams.iter().enumerate().min_by_key(|(_, stream)| quiet(stream));
        let at = found.map_or(0, |(at, _)| at);
        if let Some(stream) = self.streams.get_mut(at) {
            // Marks of the one that was here stay: their numbers tell what they stand for.
            stream.key = key;
            stream.used = true;
        }
        at
    }

    /// A mark for all that has been launched in the stream, to be recorded now. `None`: too many are on
    /// their way.
    pub fn begin_mark(&mut self, stream: u64, now_us: u64) -> Option<MarkId> {
        let free = self.marks.iter().position(Option::is_none)?;
        let at = self.streams.iter().position(|known| known.used && known.key == stream)?;
        let of = self.streams.get_mut(at)?;
        let least = if std::mem::take(&mut of.unknown) { LATE_UNKNOWN_US } else { LATE_US };
        let patience = (self.outstanding_ns / 1000).saturating_mul(LATE_TIMES).max(least);
        self.next_mark = self.next_mark.wrapping_add(1);
        let mark = Mark {
            id: MarkId(self.next_mark),
            stream: at,
            ns: std::mem::take(&mut of.unmarked_ns),
            newest: of.newest,
            began_us: now_us,
            late_us: now_us.saturating_add(patience),
            recorded: false,
        };
        *self.marks.get_mut(free)? = Some(mark);
        Some(mark.id)
    }

    /// The mark is in the stream, or could not be put there: then nobody waits for it.
    pub fn recorded(&mut self, mark: MarkId, failed: bool) {
        if failed {
            self.finish(mark);
        } else if let Some(mark) = self.marks.iter_mut().flatten().find(|known| known.id == mark) {
            mark.recorded = true;
        }
    }

    /// The mark is done, and with it all that was launched in its stream before.
    pub fn finish(&mut self, mark: MarkId) {
        let found = self.marks.iter().flatten().find(|known| known.id == mark);
        if let Some((stream, newest)) = found.map(|mark| (mark.stream, mark.newest)) {
            self.finish_until(stream, newest);
        }
    }

    fn finish_until(&mut self, stream: usize, newest: u64) {
        for slot in &mut self.marks {
            if slot.is_some_and(|mark| mark.stream == stream && mark.newest <= newest) {
                let ns = slot.take().map_or(0, |mark| mark.ns);
                self.outstanding_ns = self.outstanding_ns.saturating_sub(ns);
            }
        }
        if let Some(stream) = self.streams.get_mut(stream)
            && stream.newest <= newest
        {
            self.outstanding_ns = self.outstanding_ns.saturating_sub(stream.unmarked_ns);
            (stream.unmarked_ns, stream.open, stream.unknown) = (0, false, false);
        }
        if self.is_idle() {
            self.outstanding_ns = 0;
        }
    }

    /// Now: to be asked for before the driver is told to wait for a stream.
    pub fn moment(&self) -> Moment {
        Moment(self.launches)
    }

    /// All that was launched before `moment` is done: in one stream, or in all.
    pub fn synced(&mut self, stream: Option<u64>, moment: Moment) {
        for at in 0..STREAMS {
            let of = self.streams.get(at).filter(|known| known.used && known.open);
            if of.is_some_and(|known| stream.is_none_or(|key| known.key == key)) {
                self.finish_until(at, moment.0);
            }
        }
    }

    /// A stream is gone.
    pub fn forget(&mut self, stream: u64) {
        if let Some(at) = self.streams.iter().position(|known| known.used && known.key == stream) {
            self.finish_until(at, u64::MAX);
            if let Some(stream) = self.streams.get_mut(at) {
                *stream = Stream::default();
            }
        }
    }

    /// Whether nothing is known to be on its way.
    pub fn is_idle(&self) -> bool {
        self.entering == 0 && !self.streams.iter().any(|stream| stream.open)
    }

    /// Estimated work on its way, in ns.
    pub fn outstanding_ns(&self) -> u64 {
        self.outstanding_ns
    }

    /// The oldest mark that is in its stream, and when it counts as late, in µs.
    pub fn oldest(&self) -> Option<(MarkId, u64)> {
        let recorded = self.marks.iter().flatten().filter(|mark| mark.recorded);
        recorded.min_by_key(|mark| mark.newest).map(|mark| (mark.id, mark.late_us))
    }

    /// The oldest mark of each stream.
    pub fn fronts(&self) -> impl Iterator<Item = MarkId> {
        let recorded = || self.marks.iter().flatten().filter(|mark| mark.recorded);
        recorded()
            .filter(move |mark| {
                !recorded().any(|other| other.stream == mark.stream && other.newest < mark.newest)
            })
            .map(|mark| mark.id)
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
        let marked = |at: usize, newest: u64| {
            self.marks.iter().flatten().any(|mark| mark.stream == at && mark.newest >= newest)
        };
        let open = self.streams.iter().enumerate().filter(|(_, stream)| stream.used && stream.open);
        open.filter(move |(at, stream)| !marked(*at, stream.newest)).map(|(_, stream)| stream)
    }

    /// Whether a stream is left alone.
    pub fn is_exempt(&self, stream: u64, now_us: u64) -> bool {
        let mut known = self.streams.iter().filter(|known| known.used && known.key == stream);
        known.any(|known| known.exempt_until_us > now_us)
    }

    /// The mark took too long: its stream seems to wait for the host, and is left alone for a while.
    pub fn late(&mut self, mark: MarkId, now_us: u64) {
        let found = self.marks.iter().flatten().find(|known| known.id == mark);
        let Some(at) = found.map(|mark| mark.stream) else { return };
        if let Some(stream) = self.streams.get_mut(at) {
            stream.exempt_until_us = now_us.saturating_add(EXEMPT_US);
        }
        self.finish_until(at, u64::MAX);
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
