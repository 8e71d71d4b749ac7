//! What happens on the GPUs of a simulated machine: who holds how much memory, and which kernels run
//! when. One file in the machine's folder, mapped by every process that loads a fake driver.
//!
//! [`Gpus`] is the door. `books` keeps memory, `works` the queues, `tenants` who has them, `turns` is the
//! physics of running them, `shared` maps the file and holds its locks, `shape` says what a place has.

mod books;
mod gpus;
mod owner;
mod shape;
mod shared;
mod tenants;
mod turns;
mod works;

pub use gpus::Gpus;

/// Where a context lives: a GPU, or one compute instance of it in MIG mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the GPU.
    pub gpu: u32,
    /// GPU instance and compute instance.
    pub instance: Option<(u32, u32)>,
}

/// What memory was taken for. Only for whoever reads the books: all of it counts alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryKind {
    /// What a context takes by itself.
    Context,
    /// Code and variables of a module.
    Module,
    /// `cuMemAlloc`, pitch too.
    Plain,
    /// `cuMemAllocManaged`.
    Managed,
    /// A memory pool: what it has reserved, in use or not.
    Pool,
    /// `cuMemCreate`.
    Physical,
    /// Arrays and mipmapped arrays.
    Array,
    /// Allocation nodes of graphs.
    Graph,
}

/// How many kinds there are.
pub const KINDS: usize = 8;

/// Memory that is held. Copies mean the same memory; each process gives it back as often as it has taken
/// and kept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(pub u64);

/// There is not so much memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Asked for, in bytes.
    pub asked: u64,
    /// Left, in bytes.
    pub free: u64,
}

/// What one process holds of one place, in bytes by [`MemoryKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The process.
    pub pid: u32,
    /// Where.
    pub place: Place,
    /// Bytes.
    pub bytes: [u64; KINDS],
}

/// Work as it is put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// How long it takes alone on the place, in ns.
    pub ns: u64,
    /// Multiprocessors that it keeps busy, from 1; more than there are counts as all.
    pub sms: u32,
}

/// A queue: work in it is done in order. A stream has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue(pub u32);

/// A piece of work in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The queue.
    pub queue: Queue,
    /// Its number in the queue, from 1.
    pub number: u64,
}
