//! One GPU of this process: the board on which its tenants arrange turns, and this process's place there.

use std::ops::Deref;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::pace::{Member, Moment, Tick};
use caps::turns::{Board, Terms};
use caps::{Mapped, ProcessId};

use crate::abi::Device;
use crate::tenant::{self, Gpu, Now};
use crate::{driver, log};

use super::marks::Marks;
use super::streams::Stream;
use super::{Awaited, capture, clock, watch};

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

/// Where turns are arranged.
enum Turns {
    /// With all tenants of the GPU.
    Shared(Mapped<Board>),
    /// With nobody: there is no page that can be used.
    Alone(Box<Board>),
}

impl Deref for Turns {
    type Target = Board;
    fn deref(&self) -> &Board {
        match self {
            Self::Shared(board) => board,
            Self::Alone(board) => board,
        }
    }
}

/// What is done under the lock.
pub(crate) struct Inner {
    pub(crate) member: Member,
    pub(crate) marks: Marks,
    /// Launches and µs that are in the books already.
    counted: (u64, u64),
    /// Launches that were held back, and for how long in µs; not yet in the books.
    pub(crate) held_back: (u64, u64),
    counted_us: u64,
}

/// One GPU of this process. Lives until the process ends.
pub(crate) struct Pacer {
    turns: Turns,
    inner: Mutex<Inner>,
    gpu: &'static Gpu,
}

/// The pacer of the thread's GPU; `None` if the process has no cap of time there.
#[inline]
pub(crate) fn current() -> Option<&'static Pacer> {
    match STATE.load(Ordering::Acquire) {
        NONE => None,
        UNKNOWN => learn(),
        _ => known(),
    }
}

/// The same, if a launch has been seen before: for calls that matter only then.
#[inline]
pub(crate) fn known() -> Option<&'static Pacer> {
    match STATE.load(Ordering::Acquire) {
        ONE => of(0),
        MANY => driver::device().and_then(of),
        _ => None,
    }
}

/// All of them.
pub(crate) fn each(mut what: impl FnMut(&'static Pacer)) {
    if STATE.load(Ordering::Acquire) > NONE {
        (0..GPUS).filter_map(|at| of(Device::try_from(at).ok()?)).for_each(&mut what);
    }
}

#[inline]
fn of(device: Device) -> Option<&'static Pacer> {
    let at = PACERS.get(usize::try_from(device).ok()?)?;
    // SAFETY: null, or made by `learn` and never freed.
    unsafe { at.load(Ordering::Acquire).as_ref() }
}

#[cold]
fn learn() -> Option<&'static Pacer> {
    {
        let _one = LEARNING.lock().unwrap_or_else(PoisonError::into_inner);
        if STATE.load(Ordering::Acquire) == UNKNOWN {
            STATE.store(sit_down(), Ordering::Release);
        }
    }
    known()
}

/// Sits down at the boards of all GPUs on which the process has a cap of time.
fn sit_down() -> u32 {
    let Now::Capped(tenant) = tenant::now() else { return NONE };
    let Ok(Some((caps, _))) = tenant::load_caps() else { return NONE };
    watch_forks();
    let mut seated = 0u32;
    for gpu in tenant.gpus() {
        if gpu.given.compute.is_none() && gpu.given.board.is_none() {
            continue;
        }
        let at = usize::try_from(gpu.device).ok().and_then(|device| PACERS.get(device));
        if let (Some(at), Some(pacer)) = (at, Pacer::new(gpu, word_of(&caps.tenant))) {
            at.store(Box::into_raw(Box::new(pacer)), Ordering::Release);
            seated = seated.saturating_add(1);
        }
    }
    let mut count = 0;
    // SAFETY: a place of ours.
    unsafe { driver::device_count(&raw mut count) };
    match seated {
        0 => NONE,
        1 if count == 1 => ONE,
        _ => MANY,
    }
}

/// A word that stands for a tenant (FNV-1a; Fowler, Noll and Vo), never 0.
fn word_of(tenant: &str) -> u64 {
    let step = |word: u64, byte: u8| (word ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    tenant.bytes().fold(0xcbf2_9ce4_8422_2325, step) | 1
}

/// Registers [`forked`], once.
fn watch_forks() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: the function stays, for this library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// A forked process sits nowhere. What it has inherited may be locked by threads that it has not.
unsafe extern "C" fn forked() {
    STATE.store(UNKNOWN, Ordering::Release);
    PACERS.iter().for_each(|pacer| pacer.store(null_mut(), Ordering::Release));
    capture::forked();
    watch::forked();
}

/// The file in which turns are arranged. Without one that others share, the tenant's own processes do it
/// beside their books.
fn path(gpu: &Gpu) -> PathBuf {
    let uuid = gpu.uuid().to_str().unwrap_or("");
    match &gpu.given.board {
        Some(path) => match path.to_str() {
            Some(text) => PathBuf::from(text.replace("{gpu}", uuid)),
            None => path.clone(),
        },
        None => {
            let mut path = tenant::ledger_path(&gpu.given, uuid).into_os_string();
            path.push(".turns");
            PathBuf::from(path)
        }
    }
}

impl Pacer {
    /// Sits down at the board of a GPU. Without one the tenant keeps to its share at all times, for it
    /// knows of nobody who could leave it more.
    fn new(gpu: &'static Gpu, tenant: u64) -> Option<Self> {
        let mut terms = Terms::of(gpu.given.compute.as_ref());
        let path = path(gpu);
        let board = match &gpu.given.board {
            Some(_) => Mapped::open(&path),
            None => Mapped::make(&path, 0o600),
        };
        let turns = match board {
            Ok(board) => Turns::Shared(board),
            Err(error) => {
                log::line(format_args!("no turns by {}: {error}", path.display()));
                Turns::Alone(Box::default())
            }
        };
        let alone = gpu.given.board.is_none() || matches!(turns, Turns::Alone(_));
        if alone && terms.share_milli.is_none() {
            return None;
        }
        terms.strict |= alone;
        let now_us = clock::now_us();
        let Some(member) = Member::sit(&turns, tenant, terms, ProcessId::own(), now_us) else {
            log::line(format_args!("no seat at {}: too many tenants", path.display()));
            return None;
        };
        let marks = Marks::new();
        let inner = Inner { member, marks, counted: (0, 0), held_back: (0, 0), counted_us: now_us };
        Some(Self { turns, inner: Mutex::new(inner), gpu })
    }

    pub(crate) fn board(&self) -> &Board {
        &self.turns
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn moment(&self) -> Moment {
        self.lock().member.moment()
    }

    /// A wait for the GPU has ended: what was launched before it is done.
    pub(crate) fn waited(&self, since: Moment, what: Awaited) {
        let mut inner = self.lock();
        match what {
            Awaited::Stream(stream, per_thread) => {
                let stream = Stream::of(stream, per_thread).number();
                inner.member.work.synced(Some(stream), since);
            }
            Awaited::All => inner.member.work.synced(None, since),
            Awaited::Event => {}
        }
        if inner.member.work.is_idle() {
            self.tick(&mut inner, clock::now_us());
        }
    }

    /// Looks after the turn.
    pub(crate) fn tick(&self, inner: &mut Inner, now_us: u64) -> Tick {
        let tick = inner.member.tick(&self.turns, now_us);
        if tick.wake {
            clock::wake_shared(self.turns.watched());
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
            let now_us = clock::now_us();
            let all = inner.member.moment();
            inner.member.work.synced(None, all);
            inner.member.tick(&self.turns, now_us);
            let place = inner.member.place();
            self.turns.set_busy(place, false, now_us);
            if !self.turns.others_busy(place, now_us) {
                self.turns.pass(place, now_us);
            }
            clock::wake_shared(self.turns.watched());
            self.count(&mut inner, now_us, true);
        }
    }

    /// A stream is about to go.
    pub(crate) fn stream_goes(&self, stream: Stream) {
        let mut inner = self.lock();
        let Inner { member, marks, .. } = &mut *inner;
        if member.work.unmarked() == Some(stream.number()) {
            capture::asking(|| marks.put(member, stream, clock::now_us()));
        }
    }

    /// A context is gone, and the work in it.
    pub(crate) fn context_gone(&self, context: u64) {
        let mut inner = self.lock();
        let Inner { member, marks, .. } = &mut *inner;
        marks.context_gone(member, context);
        let now = member.moment();
        member.work.synced(None, now);
        self.tick(&mut inner, clock::now_us());
    }
}
