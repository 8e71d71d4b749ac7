//! All that a process has of the driver, and its initialisation.

use std::collections::BTreeMap;
use std::ffi::c_int;

use fake_gpu::Gpus;
use fake_machine::{MACHINE_VARIABLE, Machine, State};

use crate::addresses::Addresses;
use crate::array::{Array, Mipmapped};
use crate::calls::{self, Call, Counter, Process, exports};
use crate::capture::Capture;
use crate::context::Context;
use crate::event::Event;
use crate::external::External;
use crate::function::Function;
use crate::graph::{Graph, Node};
use crate::graph_exec::Exec;
use crate::graph_memory::GraphMemory;
use crate::handles::{Handle, Kind, Table};
use crate::library::{Kernel, Library};
use crate::memory::{Allocation, Block};
use crate::module::Module;
use crate::physical::Physical;
use crate::pointers::put;
use crate::pool::Pool;
use crate::result::{
    Error, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED, OPERATING_SYSTEM, Outcome,
    UNKNOWN,
};
use crate::stream::Stream;
use crate::user_object::UserObject;
use crate::visible::{Device, visible};

/// Tables of everything that has a handle or an address.
pub(crate) struct Driver {
    pub(crate) devices: Vec<Device>,
    pub(crate) arena: Addresses,
    pub(crate) contexts: Table<Context>,
    /// Primary contexts and how often each is held, by device.
    pub(crate) primaries: Vec<Option<Handle>>,
    /// Flags of primary contexts, by device; they outlive the context.
    pub(crate) primary_flags: Vec<u32>,
    pub(crate) streams: Table<Stream>,
    /// Streams that have put something off.
    pub(crate) putting_off: Vec<Handle>,
    /// The thread that runs what streams put off has been started.
    pub(crate) has_worker: bool,
    pub(crate) events: Table<Event>,
    pub(crate) blocks: Table<Block>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) pools: Table<Pool>,
    /// The default and the current pool of each device.
    pub(crate) device_pools: Vec<(Handle, Handle)>,
    pub(crate) physical: Table<Physical>,
    /// Reserved addresses: start and length.
    pub(crate) reserved: BTreeMap<u64, u64>,
    pub(crate) arrays: Table<Array>,
    pub(crate) mipmapped: Table<Mipmapped>,
    pub(crate) external: Table<External>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) libraries: Table<Library>,
    pub(crate) kernels: Table<Kernel>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) nodes: Table<Node>,
    pub(crate) execs: Table<Exec>,
    pub(crate) graph_memory: Vec<GraphMemory>,
    pub(crate) user_objects: Table<UserObject>,
    pub(crate) captures: Vec<Capture>,
    serial: u64,
}

impl Driver {
    fn new(devices: Vec<Device>) -> Option<Self> {
        let mut driver = Self {
            arena: Addresses::reserve()?,
            contexts: Table::new(Kind::Context),
            primaries: devices.iter().map(|_| None).collect(),
            primary_flags: devices.iter().map(|_| 0).collect(),
            streams: Table::new(Kind::Stream),
            putting_off: Vec::new(),
            has_worker: false,
            events: Table::new(Kind::Event),
            blocks: Table::new(Kind::Block),
            allocations: BTreeMap::new(),
            pools: Table::new(Kind::Pool),
            device_pools: Vec::new(),
            physical: Table::new(Kind::Physical),
            reserved: BTreeMap::new(),
            arrays: Table::new(Kind::Array),
            mipmapped: Table::new(Kind::Mipmapped),
            external: Table::new(Kind::External),
            modules: Table::new(Kind::Module),
            functions: Table::new(Kind::Function),
            libraries: Table::new(Kind::Library),
            kernels: Table::new(Kind::Kernel),
            graphs: Table::new(Kind::Graph),
            nodes: Table::new(Kind::Node),
            execs: Table::new(Kind::Exec),
            graph_memory: devices.iter().map(|_| GraphMemory::default()).collect(),
            user_objects: Table::new(Kind::UserObject),
            captures: Vec::new(),
            serial: 0,
            devices,
        };
        for device in 0..driver.devices.len() {
            let pool = driver.pools.insert(Pool::default_of(device));
            driver.device_pools.push((pool, pool));
        }
        Some(driver)
    }

    /// A number that no other thing of the process has.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// The device of a number, and the number as an index.
    pub(crate) fn device(&self, number: c_int) -> Result<(usize, &Device), Error> {
        let at = usize::try_from(number).map_err(|_| INVALID_DEVICE)?;
        self.devices.get(at).map(|device| (at, device)).ok_or(INVALID_DEVICE)
    }
}

/// Fails if the driver no longer reaches the GPU of a device.
pub(crate) fn needs_reachable(state: &State, device: &Device) -> Outcome {
    let gpu = state.gpu(device.place.gpu).map_err(|_| UNKNOWN)?;
    if gpu.lost { Err(UNKNOWN) } else { Ok(()) }
}

fn init(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    if calls::is_forked() {
        return Err(NOT_INITIALIZED);
    }
    let folder = std::env::var_os(MACHINE_VARIABLE).ok_or(NO_DEVICE)?;
    static COUNTER: Counter = Counter::new("cuInit");
    COUNTER.count();
    let machine = Machine::open(folder).map_err(|_| NO_DEVICE)?;
    let state = machine.read();
    calls::planned(&machine, &state, &COUNTER)?;
    if calls::process().is_ok() {
        return Ok(());
    }
    let devices = if state.unloaded { Vec::new() } else { visible(&state) };
    if devices.is_empty() {
        return Err(NO_DEVICE);
    }
    let gpus = Gpus::open(&machine).map_err(|_| OPERATING_SYSTEM)?;
    gpus.renounce();
    let driver = Driver::new(devices).ok_or(OPERATING_SYSTEM)?;
    let (driver, wake) = (std::sync::Mutex::new(driver), std::sync::Condvar::new());
    calls::set_process(Process { machine, gpus, driver, wake });
    Ok(())
}

/// The newest CUDA of the driver of a machine.
fn version() -> Result<c_int, Error> {
    if let Ok(process) = calls::process() {
        return Ok(process.machine.read().cuda);
    }
    let machine = std::env::var_os(MACHINE_VARIABLE).and_then(|path| Machine::open(path).ok());
    Ok(machine.map_or(crate::entry::NEWEST, |machine| machine.read().cuda))
}

impl Call {
    /// The device of a number, if the driver still reaches it.
    pub(crate) fn needs_device(&self, driver: &Driver, number: c_int) -> Result<usize, Error> {
        let (at, device) = driver.device(number)?;
        needs_reachable(&self.state, device)?;
        Ok(at)
    }
}

exports! { DRIVER;
    "cuInit" 2000 bare fn cuInit(flags: u32) |_| { init(flags) }

    "cuDriverGetVersion" 2020 bare fn cuDriverGetVersion(to: *mut c_int) |_| { put(to, version()?) }

    "cuProfilerStart" 4000 call fn cuProfilerStart() |_| { Ok(()) }

    "cuProfilerStop" 4000 call fn cuProfilerStop() |_| { Ok(()) }

    "cuFlushGPUDirectRDMAWrites" 11030 call fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32)
    |_| { Ok(()) }
}
