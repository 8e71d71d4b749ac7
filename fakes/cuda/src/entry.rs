//! `cuGetProcAddress`: a function by name, CUDA version and kind of default stream.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::calls::{self, Entry, exports};
use crate::pointers::{get_text, put, put_if};
use crate::result::{INVALID_VALUE, NOT_FOUND, Outcome};

/// The newest CUDA whose functions are here.
pub(crate) const NEWEST: c_int = 13_050;

/// With it addresses differ from those of the exported functions, as a driver's may.
const THUNKS_VARIABLE: &str = "HOTPOT_FAKE_THUNKS";

/// `CUdriverProcAddress_flags`.
const PER_THREAD: u64 = 2;
const ALL_FLAGS: u64 = 3;

/// What a look-up came to: `CUdriverProcAddressQueryResult`.
const FOUND: u32 = 0;
const NO_SUCH_NAME: u32 = 1;
const VERSION_TOO_OLD: u32 = 2;

/// The tables of all files.
static TABLES: &[&[Entry]] = &[
    crate::array::ARRAY,
    crate::capture::CAPTURE,
    crate::context::CONTEXT,
    crate::context_settings::CONTEXT_SETTINGS,
    crate::copy::COPY,
    crate::copy_boxes::COPY_BOXES,
    crate::device::DEVICE,
    crate::driver::DRIVER,
    crate::event::EVENT,
    crate::external::EXTERNAL,
    crate::fill::FILL,
    crate::function::FUNCTION,
    crate::graph::GRAPH,
    crate::graph_exec::GRAPH_EXEC,
    crate::graph_memory::GRAPH_MEMORY,
    crate::graph_nodes::GRAPH_NODES,
    crate::graph_params::GRAPH_PARAMS,
    crate::green::GREEN_CONTEXTS,
    crate::host_memory::HOST_MEMORY,
    crate::ipc::IPC,
    crate::launch::LAUNCH,
    crate::library::LIBRARY,
    crate::memory_calls::MEMORY,
    crate::module::MODULE,
    crate::physical::PHYSICAL,
    crate::pool_calls::POOL,
    crate::pool_sharing::POOL_SHARING,
    crate::primary::PRIMARY,
    crate::result::RESULT,
    crate::stream::STREAM,
    crate::stream_functions::STREAM_FUNCTIONS,
    crate::unsupported::UNSUPPORTED,
    crate::user_object::USER_OBJECT,
    ENTRY,
];

/// Functions by name without suffixes, the oldest first.
fn by_name() -> &'static BTreeMap<&'static str, Vec<&'static Entry>> {
    static ALL: OnceLock<BTreeMap<&'static str, Vec<&'static Entry>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
        for entry in TABLES.iter().copied().flatten() {
            all.entry(entry.base).or_default().push(entry);
        }
        all.values_mut().for_each(|entries| entries.sort_by_key(|entry| entry.since));
        all
    })
}

/// The function that a name means for a client of a version; the status says why there is none.
fn find(name: &str, version: c_int, per_thread: bool) -> Result<&'static Entry, u32> {
    // From CUDA 12 on the name of cuda.h stands for the function with flags.
    let name = if name == "cuGraphInstantiate" && version >= 12_000 {
        "cuGraphInstantiateWithFlags"
    } else {
        name
    };
    let missing = |symbol: &str| {
        let symbol = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let process = calls::process().ok();
        process.is_some_and(|p| p.machine.read().missing.iter().any(|name| name == symbol))
    };
    let entries = by_name().get(name).ok_or(NO_SUCH_NAME)?;
    let known = || entries.iter().copied().filter(|entry| !missing(entry.symbol));
    let old_enough = || known().filter(|entry| entry.since <= version);
    let twin = old_enough().rfind(|entry| per_thread && entry.per_thread);
    let found = twin.or_else(|| old_enough().rfind(|entry| !entry.per_thread));
    found.ok_or(if known().next().is_none() { NO_SUCH_NAME } else { VERSION_TOO_OLD })
}

fn look_up(
    name: *const c_char,
    to: *mut *const c_void,
    version: c_int,
    flags: u64,
    status: *mut u32,
) -> Outcome {
    let name = get_text(name)?;
    if to.is_null() || flags > ALL_FLAGS {
        return Err(INVALID_VALUE);
    }
    match find(&name, version, flags & PER_THREAD != 0) {
        Ok(entry) => {
            put_if(status, FOUND);
            let unlike = std::env::var_os(THUNKS_VARIABLE).is_some();
            let address = if unlike { &entry.thunk } else { &entry.address };
            put(to, address.0.cast())
        }
        Err(why) => {
            put_if(status, why);
            put(to, std::ptr::null())?;
            // With the status the caller is told there.
            if status.is_null() { Err(NOT_FOUND) } else { Ok(()) }
        }
    }
}

exports! { ENTRY;
    "cuGetProcAddress" 11030 bare fn cuGetProcAddress(
        name: *const c_char, to: *mut *const c_void, version: c_int, flags: u64,
    ) |_| { look_up(name, to, version, flags, std::ptr::null_mut()) }

    "cuGetProcAddress" 12000 bare [cuGetProcAddress_v2_ptsz 12000] fn cuGetProcAddress_v2(
        name: *const c_char, to: *mut *const c_void, version: c_int, flags: u64,
        status: *mut u32,
    ) |_| { look_up(name, to, version, flags, status) }

    "cuGetExportTable" 3000 bare fn cuGetExportTable(to: *mut *const c_void, id: *const [u8; 16]) |_| {
        if id.is_null() { return Err(INVALID_VALUE) }
        put(to, std::ptr::null())?;
        Err(NOT_FOUND)
    }
}
