//! One GPU of this process: the board on which its tenants arrange turns, and this process's place there.

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::pace::{Member, Moment, Tick, Waited};
use caps::turns::{Board, Terms};
use caps::{Mapped, ProcessId};

use crate::abi::Device;
use crate::tenant::{self, Gpu, Now};
use crate::{driver, log};

use super::door::Shut;
use super::marks::Marks;
use super::streams::Stream;
use super::{Awaited, capture, clock, door, watch};

/// GPUs of one process.
const GPUS: usize = 64;

/// Nobody has looked yet.
const UNKNOWN: u32 = 0;
/// No GPU has a cap of time.
const NONE: u32 = 1;
/// The process sees one GPU, and it has one.
const ONE: u32 = 2;
/// Which GPU has one is to be looked up.
const MANY: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
static PACERS: [AtomicPtr<Pacer>; GPUS] = [const { AtomicPtr::new(null_mut()) }; GPUS];
static LEARNING: Mutex<()> = Mutex::new(());

/// What is done under the lock.
pub(crate) struct Inner {
    pub(crate) member: Member,
    pub(crate) marks: Marks,
    /// Launches and µs that are in the books already.
    counted: (u64, u64),
    /// Launches that were held back, and for how long in µs; not yet in the books.
    held_back: (u64, u64),
    counted_us: u64,
}

impl Inner {
    /// A launch goes that has waited so long for the turn.
    #[inline]
    pub(crate) fn held_back(&mut self, waited_us: u64) {
        if waited_us != 0 {
            let (launches, us) = self.held_back;
            self.held_back = (launches.saturating_add(1), us.saturating_add(waited_us));
        }
    }
}

/// One GPU of this process. Lives until the process ends.
pub(crate) struct Pacer {
    /// Where turns are arranged: with all tenants of the GPU, or, where there is no page that can be used or
    /// no seat, on a board of this process alone. Never freed.
    board: AtomicPtr<Board>,
    inner: Mutex<Inner>,
    gpu: &'static Gpu,
}

/// The pacer of the thread's GPU; `None` if the process has no cap of time there.
#[inline]
pub(crate) fn current() -> Option<&'static Pacer> {
    match STATE.load(Ordering::Acquire) {
        NONE => None,
        UNKNOWN if door::inside() => None,
        UNKNOWN => learn(),
        _ => known(),
    }
}

/// Whether there are any.
#[inline]
pub(crate) fn any() -> bool {
    STATE.load(Ordering::Acquire) > NONE
}

/// Whether one of them knows a stream.
pub(crate) fn knows(stream: Stream) -> bool {
    let mut known = false;
    each(|pacer| known |= pacer.lock().member.work.knows(stream.number()));
    known
}

/// The same, if a launch has been seen before: for calls that matter only then.
#[inline]
pub(crate) fn known() -> Option<&'static Pacer> {
    if door::inside() {
        return None;
    }
    match STATE.load(Ordering::Acquire) {
        ONE => of(0),
        MANY => driver::device().and_then(of),
        _ => None,
    }
}

/// All of them.
pub(crate) fn each(mut what: impl FnMut(&'static Pacer)) {
    if any() && !door::inside() {
        (0..GPUS).filter_map(|at| of(Device::try_from(at).ok()?)).for_each(&mut what);
    }
}

/// The one of a GPU.
#[inline]
pub(crate) fn of(device: Device) -> Option<&'static Pacer> {
    let at = PACERS.get(usize::try_from(device).ok()?)?;
    // SAFETY: null, or made by `learn` and never freed.
    unsafe { at.load(Ordering::Acquire).as_ref() }
}

/// Looks at the first launch. Before the driver has begun nothing is decided, and no lock is taken: in a
/// forked process a thread may have it that is no more.
#[cold]
fn learn() -> Option<&'static Pacer> {
    let now = tenant::now();
    if !tenant::has_begun() {
        return None;
    }
    let mut devices = 0;
    // SAFETY: a place of ours.
    unsafe { driver::device_count(&raw mut devices) };
    {
        let _one = LEARNING.lock().unwrap_or_else(PoisonError::into_inner);
        if STATE.load(Ordering::Acquire) == UNKNOWN {
            STATE.store(sit_down(now, devices), Ordering::Release);
        }
    }
    known()
}

/// Sits down at the boards of all GPUs on which the process has a cap of time.
fn sit_down(now: Now, devices: Device) -> u32 {
    let Now::Capped(tenant) = now else { return NONE };
    let mut seated = 0u32;
    for gpu in tenant.gpus() {
        if gpu.given.compute.is_none() && gpu.given.board.is_none() {
            continue;
        }
        let at = usize::try_from(gpu.device).ok().and_then(|device| PACERS.get(device));
        if let (Some(at), Some(pacer)) = (at, Pacer::new(gpu, word_of(&tenant.name))) {
            at.store(Box::into_raw(Box::new(pacer)), Ordering::Release);
            seated = seated.saturating_add(1);
        }
    }
    match seated {
        0 => NONE,
        1 if devices == 1 => ONE,
        _ => MANY,
    }
}

/// A word that stands for a tenant, never 0.
fn word_of(tenant: &str) -> u64 {
    crate::hash::fnv1a(tenant.as_bytes()) | 1
}

/// A forked process sits nowhere. What it has inherited may be locked by threads that it has not.
pub(crate) fn forked() {
    STATE.store(UNKNOWN, Ordering::Release);
    PACERS.iter().for_each(|pacer| pacer.store(null_mut(), Ordering::Release));
    capture::forked();
    door::forked();
    watch::forked();
}

/// The file in which turns are arranged. Without one that others share, the tenant's own processes do it
/// beside their books.
fn path(gpu: &Gpu) -> PathBuf {
    let uuid = gpu.uuid().to_str().unwrap_or("");
    match &gpu.given.board {
        Some(path) => tenant::for_gpu(path, uuid),
        None => {
            let mut path = tenant::ledger_path(&gpu.given, uuid).into_os_string();
            path.push(".turns");
            PathBuf::from(path)
        }
    }
}

/// What the agent has given. Who arranges turns with nobody keeps to its share at all times, for it knows of
/// nobody who could leave it more.
fn terms(gpu: &Gpu, alone: bool) -> Terms {
    let mut terms = Terms::of(gpu.given.compute.as_ref());
    terms.strict |= alone;
    terms
}

fn never_freed<T>(thing: T) -> &'static T {
    Box::leak(Box::new(thing))
}

impl Pacer {
    /// Sits down at the board of a GPU, or at one of its own.
    fn new(gpu: &'static Gpu, tenant: u64) -> Option<Self> {
        let path = path(gpu);
        let page = match &gpu.given.board {
            Some(_) => Mapped::open(&path),
            None => Mapped::make(&path, 0o600),
        };
        let failed = |error| log::line(format_args!("no turns by {}: {error}", path.display()));
        let page: Option<&Board> = page.map_err(failed).ok().map(|page| &**never_freed(page));
        let alone = gpu.given.board.is_none() || page.is_none();
        if alone && gpu.given.compute.is_none() {
            return None;
        }
        let now_us = clock::now_us();
        let sit = |board: &'static Board, alone: bool| {
            let own = ProcessId::own();
            Some((Member::sit(board, tenant, terms(gpu, alone), own, now_us)?, board))
        };
        let seated = page.and_then(|page| sit(page, alone));
        if page.is_some() && seated.is_none() {
            log::line(format_args!("no seat at {}: too many tenants", path.display()));
        }
        let (member, board) = match seated {
            Some(seated) => seated,
            None if gpu.given.compute.is_none() => return None,
            None => sit(never_freed(Board::default()), true)?,
        };
        let marks = Marks::new();
        let inner = Inner { member, marks, counted: (0, 0), held_back: (0, 0), counted_us: now_us };
        let board = AtomicPtr::new(std::ptr::from_ref(board).cast_mut());
        Some(Self { board, inner: Mutex::new(inner), gpu })
    }

    /// All seats are taken by now: goes on alone.
    #[cold]
    pub(crate) fn be_alone(&self, inner: &mut Inner) {
        log::line(format_args!("no seat any more: too many tenants"));
        let own = never_freed(Board::default());
        inner.member.move_to(own, terms(self.gpu, true), clock::now_us());
        self.board.store(std::ptr::from_ref(own).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn board(&self) -> &'static Board {
        // SAFETY: made from a reference to a board that is never freed; only its atomics are written.
        unsafe { &*self.board.load(Ordering::Acquire) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn moment(&self) -> Moment {
        self.lock().member.moment()
    }

    /// A wait for the GPU has ended: what was launched before it is done.
    pub(crate) fn waited(&self, since: Moment, what: Awaited) {
        let what = match what {
            Awaited::Stream(stream, per_thread) => {
                Some(Waited::Stream(Stream::of(stream, per_thread).number()))
            }
            Awaited::All => Some(Waited::Context(driver::context())),
            Awaited::Event => None,
        };
        let mut inner = self.lock();
        if let Some(what) = what {
            inner.member.work.synced(what, since);
        }
        if inner.member.work.is_idle() {
            self.tick(&mut inner, clock::now_us());
        }
    }

    /// Looks after the turn.
    pub(crate) fn tick(&self, inner: &mut Inner, now_us: u64) -> Tick {
        let board = self.board();
        let tick = inner.member.tick(board, now_us);
        if tick.wake {
            clock::wake_shared(board.watched());
        }
        self.count(inner, now_us, tick.again_us.is_none());
        tick
    }

    /// Puts into the books what was launched and had, ten times a second.
    pub(crate) fn count(&self, inner: &mut Inner, now_us: u64, now: bool) {
        if !now && now_us.saturating_sub(inner.counted_us) < 100_000 {
            return;
        }
        inner.counted_us = now_us;
        let (launches, us) = (inner.member.launches(), inner.member.paid_us());
        let (before, before_us) = std::mem::replace(&mut inner.counted, (launches, us));
        let held_back = std::mem::take(&mut inner.held_back);
        let (ledger, _) = self.gpu.ledger();
        ledger.count(launches.saturating_sub(before), us.saturating_sub(before_us), held_back);
    }

    /// The process ends, and its work with it.
    pub(crate) fn leave(&self) {
        // A thread that holds the lock will not give it back if it has ended already.
        if let Ok(mut inner) = self.inner.try_lock() {
            let (now_us, board) = (clock::now_us(), self.board());
            let all = inner.member.moment();
            inner.member.work.synced(Waited::All, all);
            inner.member.tick(board, now_us);
            let place = inner.member.place();
            board.set_busy(place, false, now_us);
            if !board.others_busy(place, now_us) {
                board.pass(place, now_us);
            }
            clock::wake_shared(board.watched());
            self.count(&mut inner, now_us, true);
        }
    }

    /// A stream is about to go: what is in it is marked, and its handle is used no more.
    ///
    /// * `context` — the stream's; 0 if it is not known.
    pub(crate) fn stream_goes(&self, stream: Stream, context: u64, shut: &Shut) {
        if self.lock().member.work.is_unmarked(stream.number()) {
            shut.asking(|| self.put(stream, context));
        }
        self.lock().member.work.forget(stream.number(), clock::now_us());
    }

    /// A context is gone, and the work in it.
    pub(crate) fn context_gone(&self, context: u64) {
        let mut inner = self.lock();
        let Inner { member, marks, .. } = &mut *inner;
        for kind in marks.context_gone(&mut member.work, context) {
            member.costs.lost(kind);
        }
        member.work.context_gone(context);
        self.tick(&mut inner, clock::now_us());
    }
}
