//! Launching kernels: how long they take is what their module's image says.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use fake_gpu::Work;

use crate::action::{Action, Put};
use crate::attributes::THREADS_PER_BLOCK;
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::image::Timing;
use crate::layouts::{KernelParamsV1, LaunchConfig, MultiDeviceLaunch};
use crate::mapping;
use crate::pointers::{get, get_at};
use crate::result::{Error, INVALID_HANDLE, INVALID_VALUE, Outcome};

/// A kernel that a graph launches.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) parameters: Arc<Parameters>,
    pub(crate) work: Work,
}

/// A copy of the values that a kernel is given, and pointers to them.
pub(crate) struct Parameters {
    /// Only what the pointers lead to.
    _values: Vec<Box<[u8]>>,
    pointers: Vec<usize>,
}

impl Parameters {
    /// What `kernelParams` of a node is told to be.
    pub(crate) fn as_pointer(&self) -> *mut *mut c_void {
        if self.pointers.is_empty() {
            return std::ptr::null_mut();
        }
        self.pointers.as_ptr().cast::<*mut c_void>().cast_mut()
    }
}

/// The first parameter of a kernel, as 8 bytes.
fn first_parameter(of: &KernelParamsV1) -> Result<u64, Error> {
    const END: usize = 0;
    const BUFFER: usize = 1;
    if !of.params.is_null() {
        return get(get(of.params)?.cast_const().cast());
    }
    for at in (0..16).step_by(2) {
        match get_at(of.extra, at)?.addr() {
            END => break,
            BUFFER => return get(get_at(of.extra, at + 1)?.cast_const().cast()),
            _ => {}
        }
    }
    Err(INVALID_VALUE)
}

impl Driver {
    /// The work that a launch is: as many waves as the blocks need with one on a multiprocessor.
    fn work_of(&self, call: &Call, of: &KernelParamsV1) -> Result<Work, Error> {
        let function = self.function(of.function)?;
        let place = self.context(function.context)?.place;
        let sms = u64::from(call.process.gpus.sms(place).max(1));
        let blocks = of.grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
        let threads = of.block.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
        if blocks == 0 || threads == 0 || threads > THREADS_PER_BLOCK.unsigned_abs().into() {
            return Err(INVALID_VALUE);
        }
        let ns = match function.entry.timing {
            Timing::Block(ns) => ns.saturating_mul(blocks.div_ceil(sms)),
            Timing::FirstParameter => first_parameter(of)?,
        };
        let sms = u32::try_from(blocks.min(sms)).unwrap_or(u32::MAX);
        Ok(Work { ns: ns.max(1), sms })
    }

    /// A launch as a graph keeps it, parameters included.
    pub(crate) fn launch_of(&self, call: &Call, of: &KernelParamsV1) -> Result<Launch, Error> {
        let work = self.work_of(call, of)?;
        let known = self.function(of.function)?.entry.parameters.as_deref().unwrap_or_default();
        let mut values: Vec<Box<[u8]>> = Vec::new();
        if !of.params.is_null() {
            for (at, (_, size)) in known.iter().enumerate() {
                let value = get_at(of.params, at)?;
                if value.is_null() {
                    return Err(INVALID_VALUE);
                }
                values.push(mapping::bytes(value.expose_provenance() as u64, *size).into());
            }
        }
        let mut pointers = Vec::new();
        for value in &values {
            pointers.push(value.as_ptr().expose_provenance());
        }
        let parameters = Arc::new(Parameters { _values: values, pointers });
        let KernelParamsV1 { function, grid, block, shared, .. } = *of;
        Ok(Launch { function, grid, block, shared, parameters, work })
    }
}

impl Call {
    /// Launches a kernel in a stream, or captures it.
    fn launch(&self, mut of: KernelParamsV1, stream: Handle) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        let context = driver.stream(stream)?.context;
        of.function = self.function_in(&mut driver, of.function, context)?;
        if driver.function(of.function)?.context != context {
            return Err(INVALID_HANDLE);
        }
        if driver.takes_captured(stream)? {
            let launch = driver.launch_of(self, &of)?;
            return driver.capture(stream, NodeKind::Kernel(launch)).map(|_| ());
        }
        let work = driver.work_of(self, &of)?;
        let put = driver.put(self.process, stream, Action::Work(work))?;
        drop(driver);
        match put {
            Put::Full(action) => self.act(stream, action),
            Put::Done | Put::NotYet(_) => Ok(()),
        }
    }

    fn launch_with(&self, config: &LaunchConfig, mut of: KernelParamsV1) -> Outcome {
        const PROGRAMMATIC_EVENT: u32 = 7;
        const COMPLETION_EVENT: u32 = 12;
        (of.grid, of.block, of.shared) = (config.grid, config.block, config.shared);
        self.launch(of, config.stream)?;
        for at in 0..config.attribute_count as usize {
            let attribute = get_at(config.attributes, at)?;
            if matches!(attribute.id, PROGRAMMATIC_EVENT | COMPLETION_EVENT) {
                let event = usize::try_from(attribute.value[0]).map_err(|_| INVALID_HANDLE)?;
                self.record_event(event, config.stream, 0)?;
            }
        }
        Ok(())
    }
}

fn kernel(function: Handle, grid: [u32; 3], block: [u32; 3], shared: u32) -> KernelParamsV1 {
    KernelParamsV1 { function, grid, block, shared, ..KernelParamsV1::default() }
}

exports! { LAUNCH;
    "cuLaunchKernel" 4000 call [cuLaunchKernel_ptsz 7000] fn cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared: u32, stream: Handle, params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |call| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        call.launch(KernelParamsV1 { function, grid, block, shared, params, extra }, stream)
    }

    "cuLaunchKernelEx" 11060 call [cuLaunchKernelEx_ptsz 11060] fn cuLaunchKernelEx(
        config: *const LaunchConfig, function: Handle, params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |call| {
        let of = KernelParamsV1 { function, params, extra, ..KernelParamsV1::default() };
        call.launch_with(&get(config)?, of)
    }

    "cuLaunchCooperativeKernel" 9000 call [cuLaunchCooperativeKernel_ptsz 9000] fn cuLaunchCooperativeKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared: u32, stream: Handle, params: *mut *mut c_void,
    ) |call| {
        let of = kernel(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared);
        call.launch(KernelParamsV1 { params, ..of }, stream)
    }

    "cuLaunchCooperativeKernelMultiDevice" 9000 call fn cuLaunchCooperativeKernelMultiDevice(
        list: *const MultiDeviceLaunch, count: u32, _flags: u32,
    ) |call| {
        for at in 0..count as usize {
            let one = get_at(list, at)?;
            let of = kernel(one.function, one.grid, one.block, one.shared);
            call.launch(KernelParamsV1 { params: one.params, ..of }, one.stream)?;
        }
        Ok(())
    }

    // The launches of CUDA 3: blocks of one thread, parameters that are not read.
    "cuLaunch" 2000 call fn cuLaunch(function: Handle) |call| {
        call.launch(kernel(function, [1; 3], [1; 3], 0), 0)
    }

    "cuLaunchGrid" 2000 call fn cuLaunchGrid(function: Handle, width: c_int, height: c_int) |call| {
        let grid = [width.unsigned_abs(), height.unsigned_abs(), 1];
        call.launch(kernel(function, grid, [1; 3], 0), 0)
    }

    "cuLaunchGridAsync" 2000 call fn cuLaunchGridAsync(
        function: Handle, width: c_int, height: c_int, stream: Handle,
    ) |call| {
        let grid = [width.unsigned_abs(), height.unsigned_abs(), 1];
        call.launch(kernel(function, grid, [1; 3], 0), stream)
    }
}
