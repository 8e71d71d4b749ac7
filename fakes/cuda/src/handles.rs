//! Handles: numbers in the shape of pointers, good in one process, never followed. Each says what kind
//! of thing it is and which of all that lay in its slot, so that one that was destroyed is not found.

use std::sync::OnceLock;

/// Makes the driver crash where a real one may.
const STRICT_VARIABLE: &str = "HOTPOT_FAKE_STRICT";

/// Kinds of things that have handles.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Kind {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Library,
    Kernel,
    Pool,
    Block,
    Physical,
    Array,
    Mipmapped,
    External,
    Graph,
    Node,
    Exec,
    UserObject,
}

/// What a handle is in here.
pub(crate) type Handle = usize;

/// Things of one kind by handle.
pub(crate) struct Table<T> {
    kind: Kind,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

struct Slot<T> {
    generation: usize,
    thing: Option<T>,
}

// Bits: 8 for the kind from bit 48, 24 for the slot from bit 20, 16 for the generation from bit 4.
// With the kind set the number is no address that a program could use by mistake.
const SLOT_BITS: usize = 24;
const GENERATION_BITS: usize = 16;

impl<T> Table<T> {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, slots: Vec::new(), free: Vec::new() }
    }

    /// Keeps a thing; its handle.
    pub(crate) fn insert(&mut self, thing: T) -> Handle {
        let at = self.free.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(Slot { generation: 0, thing: None });
        }
        let Some(slot) = self.slots.get_mut(at) else { return 0 };
        slot.generation = (slot.generation + 1) % (1 << GENERATION_BITS);
        slot.thing = Some(thing);
        (self.kind as usize) << 48 | at << 20 | slot.generation << 4
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let (at, generation) = self.place(handle)?;
        let slot = self.slots.get(at)?;
        if slot.generation == generation { slot.thing.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let (at, generation) = self.place(handle)?;
        let slot = self.slots.get_mut(at)?;
        if slot.generation == generation { slot.thing.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let (at, generation) = self.place(handle)?;
        let slot = self.slots.get_mut(at)?;
        let thing = if slot.generation == generation { slot.thing.take() } else { None };
        if thing.is_some() {
            self.free.push(at);
        }
        thing
    }

    /// All that there is, with handles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        let handle =
            |at: usize, generation: usize| (self.kind as usize) << 48 | at << 20 | generation << 4;
        self.slots.iter().enumerate().filter_map(move |(at, slot)| {
            slot.thing.as_ref().map(|thing| (handle(at, slot.generation), thing))
        })
    }

    /// The handles of those for which `wanted` holds.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Vec<Handle> {
        self.iter().filter(|(_, thing)| wanted(thing)).map(|(handle, _)| handle).collect()
    }

    /// Whether a handle is of this kind, alive or not.
    pub(crate) fn is_kind(&self, handle: Handle) -> bool {
        handle >> 48 == self.kind as usize
    }

    /// To be called with handles that clients give. If it was destroyed, a real driver may crash; this one
    /// does if [`STRICT_VARIABLE`] is 1.
    #[allow(clippy::print_stderr, reason = "it is the process's last word")]
    pub(crate) fn used(&self, handle: Handle) {
        static STRICT: OnceLock<bool> = OnceLock::new();
        let destroyed = || {
            let slot = self.place(handle).and_then(|(at, _)| self.slots.get(at));
            slot.is_some() && self.get(handle).is_none()
        };
        let strict = || std::env::var(STRICT_VARIABLE).is_ok_and(|value| value == "1");
        if *STRICT.get_or_init(strict) && destroyed() {
            eprintln!("fake libcuda: {:?} {handle:#x} was destroyed, and is used", self.kind);
            std::process::abort();
        }
    }

    fn place(&self, handle: Handle) -> Option<(usize, usize)> {
        let at = handle >> 20 & ((1 << SLOT_BITS) - 1);
        let generation = handle >> 4 & ((1 << GENERATION_BITS) - 1);
        self.is_kind(handle).then_some((at, generation))
    }
}
