//! The entries of what is on its way: streams, and marks in them.

/// An event in a stream: when it is done, the work before it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkId(pub(super) u32);

/// A moment between launches: what was launched before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) u64);

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// One stream, by its number.
    Stream(u64),
    /// All streams of one context.
    Context(u64),
    /// Everything.
    All,
}

/// What is to be done after a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// Put a mark into the stream.
    pub mark: bool,
    /// The stream's context is not known: tell it by [`Work::in_context`](super::Work::in_context).
    pub homeless: bool,
}

/// A stream, or an entry that is free.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// Its handle's word.
    pub(super) key: u64,
    /// Tells it from one that has had the same handle or entry before; 0 for an entry that is free.
    pub(super) serial: u64,
    /// Its context, or the newest of them; 0 if it is not known.
    pub(super) context: u64,
    /// Launches in several contexts have gone by this handle.
    pub(super) mixed: bool,
    /// Launched since the newest mark, in ns.
    pub(super) unmarked_ns: u64,
    /// Among it are launches of unknown cost.
    pub(super) unknown: bool,
    /// Launches of which nothing has shown yet that they are done.
    pub(super) open: bool,
    /// The newest launch.
    pub(super) newest: u64,
    /// Nobody waits for it until then.
    pub(super) exempt_until_us: u64,
}

/// A mark that has not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) id: MarkId,
    /// Serial of its stream.
    pub(super) stream: u64,
    pub(super) context: u64,
    pub(super) ns: u64,
    /// The newest launch before it.
    pub(super) newest: u64,
    pub(super) late_us: u64,
    /// There is no event: at `late_us` it counts as done.
    pub(super) presumed: bool,
}
