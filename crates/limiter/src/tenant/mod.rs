//! Whose process this is, and what it may take of each GPU.

mod gpu;
mod phase;

pub(crate) use gpu::Gpu;
pub(crate) use phase::{begin, has_begun, now};

use std::ffi::{CString, c_int};
use std::path::{Path, PathBuf};

use caps::{Caps, GpuCaps, Ledger, ProcessId, Source, Standing, Which};

use crate::abi::{Code, Device, OPERATING_SYSTEM, SUCCESS};
use crate::memory::kept::Kept;
use crate::memory::pools::Pools;
use crate::memory::virtual_memory::Pieces;
use crate::{driver, log};

/// How the calling process stands to caps.
pub(crate) enum Now {
    /// There are none, or the driver has not begun.
    Free,
    /// There are, and they cannot be kept: nothing that takes memory is allowed.
    Refused(Code),
    /// It has them.
    Capped(&'static Tenant),
}

/// How it stands to one GPU.
pub(crate) enum Place {
    /// No caps.
    Free,
    /// Not the tenant's.
    Foreign,
    /// It has been given a part.
    Given(Box<Gpu>),
}

/// The calling process as one of its tenant's. Lives until the process ends.
pub(crate) struct Tenant {
    /// Its name.
    pub(crate) name: String,
    /// By the number that CUDA gives the GPU.
    places: Vec<Place>,
    /// What the process holds, by address or handle.
    pub(crate) kept: Kept,
    /// Its memory pools.
    pub(crate) pools: Pools,
    /// Its physical memory.
    pub(crate) pieces: Pieces,
}

impl Tenant {
    /// How the tenant stands to a GPU. A number that CUDA never gave is left to the driver.
    pub(crate) fn place(&self, device: Device) -> &Place {
        usize::try_from(device).ok().and_then(|at| self.places.get(at)).unwrap_or(&Place::Free)
    }

    /// The GPU, if the tenant has been given a part of it.
    pub(crate) fn gpu(&self, device: Device) -> Option<&Gpu> {
        match self.place(device) {
            Place::Given(gpu) => Some(&**gpu),
            Place::Free | Place::Foreign => None,
        }
    }

    /// All GPUs that the tenant has been given a part of.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        self.places.iter().filter_map(|place| match place {
            Place::Given(gpu) => Some(&**gpu),
            Place::Free | Place::Foreign => None,
        })
    }

    /// Reads the caps and opens the books. `None` without caps.
    fn load() -> Result<Option<Self>, Code> {
        let Some((caps, source)) = load_caps()? else { return Ok(None) };
        let own = ProcessId::own();
        let mut places = Vec::new();
        for ordinal in 0..devices() {
            places.push(place(&caps, &source, own, ordinal)?);
        }
        Ok(Some(Self {
            name: caps.tenant,
            places,
            kept: Kept::default(),
            pools: Pools::default(),
            pieces: Pieces::default(),
        }))
    }
}

/// The caps of this process. What cannot be read is an error, and said in the log.
pub(crate) fn load_caps() -> Result<Option<(Caps, Source)>, Code> {
    Caps::load().map_err(|error| {
        log::line(format_args!("caps cannot be read, so nothing is allowed: {error}"));
        OPERATING_SYSTEM
    })
}

/// How many GPUs the process sees; 0 while the driver has not begun.
fn devices() -> c_int {
    let mut count = 0;
    // SAFETY: a place of ours.
    if unsafe { driver::device_count(&raw mut count) } == SUCCESS { count } else { 0 }
}

/// How the tenant stands to a GPU, with its books open.
fn place(caps: &Caps, source: &Source, own: ProcessId, ordinal: c_int) -> Result<Place, Code> {
    let mut device = 0;
    // SAFETY: a place of ours.
    if unsafe { driver::device_get(&raw mut device, ordinal) } != SUCCESS {
        return Ok(Place::Free);
    }
    let names = names(device);
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let given = match caps.standing(&known, ordinal.unsigned_abs()) {
        Standing::Free => return Ok(Place::Free),
        Standing::Foreign => return Ok(Place::Foreign),
        Standing::Given(given) => given,
    };
    let name = names.first().map_or("", String::as_str);
    let path = ledger_path(given, name);
    let failed = |error: &dyn std::fmt::Display| {
        log::line(format_args!("books at {} cannot be used: {error}", path.display()));
        OPERATING_SYSTEM
    };
    let ledger = open_ledger(&path, source).map_err(|error| failed(&error))?;
    let slot = ledger.join(own).map_err(|error| failed(&error))?;
    let uuid = CString::new(name).unwrap_or_default();
    Ok(Place::Given(Box::new(Gpu::new(device, uuid, given.clone(), (ledger, slot), own))))
}

/// The file of a GPU's books.
///
/// * `name` — of the device, if the caps do not name it themselves.
pub(crate) fn ledger_path(given: &GpuCaps, name: &str) -> PathBuf {
    let name = match &given.gpu {
        Which::Uuid(uuid) => uuid,
        Which::Ordinal(_) | Which::Any => name,
    };
    for_gpu(&given.ledger, name)
}

/// A file's name with that of a GPU in the place of `{gpu}`.
pub(crate) fn for_gpu(path: &Path, name: &str) -> PathBuf {
    match path.to_str() {
        Some(text) => PathBuf::from(text.replace("{gpu}", name)),
        None => path.to_owned(),
    }
}

/// What an agent has told has its books made by the agent: if they are gone, something is wrong. Who has
/// told it itself makes them itself.
fn open_ledger(path: &Path, source: &Source) -> std::io::Result<Ledger> {
    match source {
        Source::File(_) if !caps::is_own_ledger(path) => Ledger::open(path),
        Source::File(_) | Source::Variables => Ledger::make(path, 0o600),
    }
}

/// The names of a device: its own, and that of the GPU that it is a part of.
fn names(device: Device) -> Vec<String> {
    let (mut own, mut whole) = ([0; 16], [0; 16]);
    // SAFETY: places of ours.
    let (has_own, has_whole) = unsafe {
        (
            driver::uuid_of_device(&raw mut own, device) == SUCCESS,
            driver::uuid_of_gpu(&raw mut whole, device) == SUCCESS,
        )
    };
    match (has_own, has_whole) {
        (true, true) if own != whole => vec![text("MIG", own), text("GPU", whole)],
        (true, _) => vec![text("GPU", own)],
        (false, true) => vec![text("GPU", whole)],
        (false, false) => Vec::new(),
    }
}

/// A UUID as NVML and `nvidia-smi` write it.
fn text(prefix: &str, uuid: [u8; 16]) -> String {
    use std::fmt::Write;
    let mut text = String::from(prefix);
    for (at, byte) in uuid.iter().enumerate() {
        let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}
