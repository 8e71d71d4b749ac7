//! Waiting for critical errors (Xid).

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fake_machine::{Code, Xid};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t};

use crate::calls::nvml;
use crate::handles::{self, Object};
use crate::pointers::put;

/// Single and double bit ECC errors, P-states, Xid, clocks, power source, MIG configuration.
const KNOWN: u64 = 0x1 | 0x2 | 0x4 | XID | 0x10 | 0x80 | 0x100;
const XID: u64 = 0x8;

/// How often a waiting call looks.
const PAUSE: Duration = Duration::from_millis(2);

/// The sets of this process.
static SETS: Mutex<Sets> = Mutex::new(Sets { last: 0, by_number: BTreeMap::new() });

struct Sets {
    last: u32,
    by_number: BTreeMap<u32, EventSet>,
}

#[derive(Clone, Default)]
struct EventSet {
    /// Event types by index of the GPU.
    types: BTreeMap<u32, u64>,
    /// The last event that it has been given or that was before it.
    seen: u64,
}

impl EventSet {
    fn next<'a>(&self, xids: &'a [Xid]) -> Option<&'a Xid> {
        let wanted = |xid: &&Xid| self.types.get(&xid.gpu).is_some_and(|types| types & XID != 0);
        xids.iter().filter(|xid| xid.sequence > self.seen).find(wanted)
    }
}

fn sets<T>(use_them: impl FnOnce(&mut Sets) -> T) -> T {
    use_them(&mut SETS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn change(number: u32, change: impl FnOnce(&mut EventSet)) -> Result<(), Code> {
    sets(|sets| sets.by_number.get_mut(&number).map(change)).ok_or(Code::InvalidArgument)
}

nvml! {
    fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, to: *mut u64) |call| {
        call.gpu(device)?;
        put(to, KNOWN)
    }

    fn nvmlEventSetCreate(to: *mut nvmlEventSet_t) |call| {
        let seen = call.state.xids.last().map_or(0, |last| last.sequence);
        let number = sets(|sets| {
            sets.last += 1;
            sets.by_number.insert(sets.last, EventSet { seen, ..EventSet::default() });
            sets.last
        });
        put(to, handles::of_object(Object::EventSet, number))
    }

    fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, types: u64, set: nvmlEventSet_t) |call| {
        let (index, _) = call.gpu(device)?;
        if types & !KNOWN != 0 {
            return Err(Code::NotSupported);
        }
        change(handles::object(Object::EventSet, set)?, |set| *set.types.entry(index).or_default() |= types)
    }

    fn nvmlEventSetWait_v2(
        set: nvmlEventSet_t, to: *mut nvmlEventData_t, timeout_ms: c_uint
    ) |call| {
        let number = handles::object(Object::EventSet, set)?;
        let until = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let set = sets(|sets| sets.by_number.get(&number).cloned());
            let set = set.ok_or(Code::InvalidArgument)?;
            let state = call.look_again();
            if let Some(xid) = set.next(&state.xids) {
                change(number, |set| set.seen = xid.sequence)?;
                return put(to, nvmlEventData_t {
                    device: handles::of_gpu(xid.gpu),
                    eventType: XID,
                    eventData: xid.code,
                    gpuInstanceId: xid.instance.map_or(u32::MAX, |(instance, _)| instance),
                    computeInstanceId: xid.instance.map_or(u32::MAX, |(_, part)| part),
                });
            }
            // A GPU that falls off the bus ends the wait.
            let lost = |index: &u32| state.gpu(*index).is_ok_and(|gpu| gpu.lost);
            if set.types.keys().any(lost) {
                return Err(Code::GpuIsLost);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Code::Timeout);
            }
            std::thread::sleep(left.min(PAUSE));
        }
    }

    fn nvmlEventSetFree(set: nvmlEventSet_t) |_| {
        let number = handles::object(Object::EventSet, set)?;
        let gone = sets(|sets| sets.by_number.remove(&number));
        gone.map(|_| ()).ok_or(Code::InvalidArgument)
    }
}

/// The first version of the call writes an event without the instances: its callers may have no room
/// for them.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait(
    set: nvmlEventSet_t,
    to: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
    let mut event = std::mem::MaybeUninit::<nvmlEventData_t>::zeroed();
    let code = nvmlEventSetWait_v2(set, event.as_mut_ptr(), timeout_ms);
    if code != 0 {
        return code;
    }
    // SAFETY: written by the call above, and zeros would be good too: numbers and a pointer.
    let event = unsafe { event.assume_init() };
    let (device, types, data) = (event.device, event.eventType, event.eventData);
    let short = Short { device, eventType: types, eventData: data };
    put(to.cast(), short).map_or_else(|code| code as u32, |()| 0)
}

/// An event of the first version.
#[repr(C)]
struct Short {
    device: nvmlDevice_t,
    eventType: u64,
    eventData: u64,
}
