//! What a ledger's file contains.

#[cfg(not(loom))]
use crate::shared::Page;
use crate::sync::AtomicU64;

/// Processes of one tenant on one GPU at once.
#[cfg(not(loom))]
pub const PROCESSES_MAX: usize = 1024;
/// As few as show what can go wrong.
#[cfg(loom)]
pub const PROCESSES_MAX: usize = 2;

/// Holds of exported memory of one tenant on one GPU at once: its exporter's, and one for each process
/// that has opened it.
#[cfg(not(loom))]
pub const EXPORTS_MAX: usize = 1024;
/// As few as show what can go wrong.
#[cfg(loom)]
pub const EXPORTS_MAX: usize = 2;

/// How many kinds of memory there are.
pub const KINDS: usize = 9;

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// What a context takes by itself.
    Context,
    /// Code and variables of modules.
    Module,
    /// `cuMemAlloc` and its pitched form.
    Plain,
    /// Managed memory, counted as if all of it lay on the GPU.
    Managed,
    /// What memory pools have reserved, in use or not.
    Pool,
    /// `cuMemCreate`.
    Virtual,
    /// Arrays and mipmapped arrays.
    Array,
    /// Allocation nodes of graphs.
    Graph,
    /// Memory of others: opened, imported.
    Imported,
}

impl Kind {
    /// All of them, in the order of the books.
    pub const ALL: [Self; KINDS] = [
        Self::Context,
        Self::Module,
        Self::Plain,
        Self::Managed,
        Self::Pool,
        Self::Virtual,
        Self::Array,
        Self::Graph,
        Self::Imported,
    ];

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Module => "module",
            Self::Plain => "plain",
            Self::Managed => "managed",
            Self::Pool => "pool",
            Self::Virtual => "virtual",
            Self::Array => "array",
            Self::Graph => "graph",
            Self::Imported => "imported",
        }
    }
}

/// One process.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Member {
    /// [`crate::ProcessId`], 0 for none.
    pub(super) owner: AtomicU64,
    /// Its pid namespace; 0 if it could not tell.
    pub(super) space: AtomicU64,
    /// Bytes by [`Kind`].
    pub(super) held: [AtomicU64; KINDS],
}

/// A process's hold of memory that was exported.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Export {
    /// What it is known by; 0 for none.
    pub(super) key: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// The process that holds it.
    pub(super) owner: AtomicU64,
    /// [`super::exports`]: in whose books it is.
    pub(super) paid: AtomicU64,
}

/// The last refusal of a sort, and how many there were.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Refusals {
    pub(super) count: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) held: AtomicU64,
    /// The cap, or what the card had left.
    pub(super) limit: AtomicU64,
    pub(super) pid: AtomicU64,
}

/// The books of one tenant on one GPU. Amounts are bytes and µs.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LedgerPage {
    /// The process that changes the books now, 0 for none.
    pub(super) lock: AtomicU64,
    /// Sum over all members and kinds.
    pub(super) total: AtomicU64,
    /// The most that `total` has been.
    pub(super) peak: AtomicU64,
    /// What the cap refused.
    pub(super) over_cap: Refusals,
    /// What the driver refused although the cap had room.
    pub(super) card_full: Refusals,
    /// Kernels and graphs launched.
    pub(super) launches: AtomicU64,
    /// GPU time had.
    pub(super) gpu_us: AtomicU64,
    /// Time that launches were held back.
    pub(super) throttled_us: AtomicU64,
    /// Launches held back.
    pub(super) throttled: AtomicU64,
    pub(super) members: [Member; PROCESSES_MAX],
    pub(super) exports: [Export; EXPORTS_MAX],
}

#[cfg(loom)]
impl LedgerPage {
    /// A page on which nothing has happened.
    pub(super) fn empty() -> Self {
        let word = || AtomicU64::new(0);
        let refusals =
            || Refusals { count: word(), asked: word(), held: word(), limit: word(), pid: word() };
        let member =
            |_| Member { owner: word(), space: word(), held: std::array::from_fn(|_| word()) };
        Self {
            lock: word(),
            total: word(),
            peak: word(),
            over_cap: refusals(),
            card_full: refusals(),
            launches: word(),
            gpu_us: word(),
            throttled_us: word(),
            throttled: word(),
            members: std::array::from_fn(member),
            exports: std::array::from_fn(|_| Export {
                key: word(),
                bytes: word(),
                owner: word(),
                paid: word(),
            }),
        }
    }
}

#[cfg(not(loom))]
#[allow(unsafe_code, reason = "the page's promise")]
// SAFETY: atomics only, `repr(C)`; zeros mean that nobody holds anything.
unsafe impl Page for LedgerPage {
    const LAYOUT: u64 = 0x686f_7470_6f74_4c03;
}
