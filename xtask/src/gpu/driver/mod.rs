//! NVIDIA's driver library as a client sees it: loaded by name, so that whatever is preloaded comes first.
//! The only place of these commands with unsafe code; its functions are safe to call.
#![allow(unsafe_code, reason = "calls a C library by pointers that it gives")]

mod monitor;
mod table;

pub(crate) use monitor::Monitor;

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr::null_mut;

use libloading::Library;

use table::{Access, ArrayShape, Functions, Location, NOT_FOUND, Properties};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

/// The CUDA version whose functions are asked for: the oldest whose drivers have all of them.
const ASKED_VERSION: c_int = 12_000;

/// A call that the driver has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The function.
    pub(crate) call: &'static str,
    /// `CUresult`.
    pub(crate) code: i32,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.call, self.code)
    }
}

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        failed.to_string()
    }
}

/// What a call gives.
pub(crate) type Answer<T> = Result<T, Failed>;

/// How functions are looked up, as clients do either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// By the system's loader.
    Dlsym,
    /// By the driver itself, as NVIDIA's runtime does.
    ProcAddress,
}

/// Something that the driver has made: a stream, an event, a function, a graph, an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made(*mut c_void);

/// The default stream.
pub(crate) const DEFAULT_STREAM: Made = Made(null_mut());

/// The driver, with the primary context of a GPU current.
pub(crate) struct Cuda {
    functions: Functions,
    device: c_int,
    // Closed last.
    _library: Library,
}

macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr),*)) => {
        match $cuda.functions.$name {
            None => Err(Failed { call: stringify!($name), code: NOT_FOUND }),
            Some(function) => {
                // SAFETY: pointers are to places of ours that outlive the call, handles are what the
                // driver has given; what else may be wrong it refuses.
                match unsafe { function($($argument),*) } {
                    0 => Ok(()),
                    code => Err(Failed { call: stringify!($name), code }),
                }
            }
        }
    };
}

impl Cuda {
    /// Loads the driver and makes the first visible GPU's primary context current.
    pub(crate) fn open(lookup: Lookup) -> Result<Self, String> {
        let cuda = Self::load(lookup)?;
        let mut context = null_mut();
        call!(cuda, cuDevicePrimaryCtxRetain(&raw mut context, cuda.device))?;
        call!(cuda, cuCtxSetCurrent(context))?;
        Ok(cuda)
    }

    /// Loads and initialises it; no context is made.
    pub(crate) fn load(lookup: Lookup) -> Result<Self, String> {
        // SAFETY: NVIDIA's library, or one that stands for it; loading it has no other effect.
        let library = unsafe { Library::new("libcuda.so.1") };
        let library = library.map_err(|error| format!("libcuda.so.1: {error}"))?;
        // SAFETY: the finders answer with functions of the driver's library.
        let functions = unsafe {
            match lookup {
                Lookup::Dlsym => Functions::find(|name| by_loader(&library, name)),
                Lookup::ProcAddress => Functions::find(|name| by_driver(&library, name)),
            }
        };
        let mut cuda = Self { functions, device: 0, _library: library };
        call!(cuda, cuInit(0))?;
        let mut device = 0;
        call!(cuda, cuDeviceGet(&raw mut device, 0))?;
        cuda.device = device;
        Ok(cuda)
    }

    /// The CUDA version of the driver, such as 13000.
    pub(crate) fn version(&self) -> Answer<i32> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&raw mut version))?;
        Ok(version)
    }

    pub(crate) fn name(&self) -> Answer<String> {
        let mut text = [0_u8; 128];
        call!(self, cuDeviceGetName(text.as_mut_ptr().cast(), 128, self.device))?;
        let bytes: Vec<u8> = text.into_iter().take_while(|byte| *byte != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The UUID without the word before it.
    pub(crate) fn uuid(&self) -> Answer<String> {
        let mut bytes = [0; 16];
        call!(self, cuDeviceGetUuid_v2(&raw mut bytes, self.device))?;
        let parts = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
        let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(parts.map(hex).join("-"))
    }

    /// Multiprocessors, and the compute capability in tenths.
    pub(crate) fn shape(&self) -> Answer<(u32, u32)> {
        let attribute = |which: c_int| {
            let mut value = 0;
            call!(self, cuDeviceGetAttribute(&raw mut value, which, self.device))?;
            Ok(value.unsigned_abs())
        };
        Ok((attribute(16)?, attribute(75)? * 10 + attribute(76)?))
    }

    /// Memory as the device has it, in bytes.
    pub(crate) fn total(&self) -> Answer<u64> {
        let mut bytes = 0;
        call!(self, cuDeviceTotalMem_v2(&raw mut bytes, self.device))?;
        Ok(bytes as u64)
    }

    /// Free and all memory, in bytes.
    pub(crate) fn memory(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&raw mut address, bytes as usize))?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) -> Answer<()> {
        call!(self, cuMemFree_v2(address))
    }

    /// Rows of 2 MiB less 4 bytes, as many as come to `bytes`.
    pub(crate) fn alloc_pitch(&self, bytes: u64) -> Answer<u64> {
        let (mut address, mut pitch) = (0, 0);
        let (width, rows) = ((2 << 20) - 4, (bytes >> 21) as usize);
        call!(self, cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, width, rows, 4))?;
        Ok(address)
    }

    pub(crate) fn alloc_managed(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        call!(self, cuMemAllocManaged(&raw mut address, bytes as usize, 1))?;
        Ok(address)
    }

    pub(crate) fn alloc_async(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        call!(self, cuMemAllocAsync(&raw mut address, bytes as usize, null_mut()))?;
        Ok(address)
    }

    pub(crate) fn free_async(&self, address: u64) -> Answer<()> {
        call!(self, cuMemFreeAsync(address, null_mut()))
    }

    /// Physical memory, mapped; the handle is let go at once, so that the mapping alone holds it.
    pub(crate) fn create_mapped(&self, bytes: u64) -> Answer<u64> {
        let location = || Location { kind: 1, id: self.device };
        let properties = Properties {
            kind: 1,
            handle_types: 0,
            location: location(),
            security: null_mut(),
            flags: [0; 8],
        };
        let (mut handle, mut address, bytes) = (0, 0, bytes as usize);
        call!(self, cuMemCreate(&raw mut handle, bytes, &raw const properties, 0))?;
        call!(self, cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0))?;
        call!(self, cuMemMap(address, bytes, 0, handle, 0))?;
        let access = Access { location: location(), flags: 3 };
        call!(self, cuMemSetAccess(address, bytes, &raw const access, 1))?;
        call!(self, cuMemRelease(handle))?;
        Ok(address)
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Answer<()> {
        call!(self, cuMemUnmap(address, bytes as usize))?;
        call!(self, cuMemAddressFree(address, bytes as usize))
    }

    /// An array of 4 KiB wide rows of floats.
    pub(crate) fn array(&self, bytes: u64) -> Answer<Made> {
        let height = (bytes >> 12) as usize;
        let shape = ArrayShape { width: 1024, height, format: 0x20, channels: 1 };
        let mut array = null_mut();
        call!(self, cuArrayCreate_v2(&raw mut array, &raw const shape))?;
        Ok(Made(array))
    }

    pub(crate) fn destroy_array(&self, array: Made) -> Answer<()> {
        call!(self, cuArrayDestroy(array.0))
    }

    /// Copies words from the GPU.
    pub(crate) fn read(&self, address: u64, words: &mut [u64]) -> Answer<()> {
        let bytes = size_of_val(words);
        call!(self, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, bytes))
    }

    /// Compiles PTX text.
    pub(crate) fn module(&self, text: &str) -> Answer<Made> {
        let (text, mut module) = (CString::new(text).unwrap_or_default(), null_mut());
        call!(self, cuModuleLoadData(&raw mut module, text.as_ptr().cast()))?;
        Ok(Made(module))
    }

    pub(crate) fn function(&self, module: Made, name: &str) -> Answer<Made> {
        let (name, mut function) = (CString::new(name).unwrap_or_default(), null_mut());
        call!(self, cuModuleGetFunction(&raw mut function, module.0, name.as_ptr()))?;
        Ok(Made(function))
    }

    /// Launches a kernel of ours; there is a word for each of its parameters.
    pub(crate) fn launch(
        &self,
        function: Made,
        grid: (u32, u32),
        stream: Made,
        parameters: &mut [u64; 4],
    ) -> Answer<()> {
        let mut places =
            parameters.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let ((blocks, threads), places) = (grid, places.as_mut_ptr());
        let (stream, none) = (stream.0, null_mut());
        call!(
            self,
            cuLaunchKernel(function.0, blocks, 1, 1, threads, 1, 1, 0, stream, places, none)
        )
    }

    /// A stream that does not wait for the default one.
    ///
    /// * `urgent` — of the highest priority that the device has.
    pub(crate) fn stream(&self, urgent: bool) -> Answer<Made> {
        let (mut least, mut greatest, mut stream) = (0, 0, null_mut());
        call!(self, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))?;
        let priority = if urgent { greatest } else { least };
        call!(self, cuStreamCreateWithPriority(&raw mut stream, 1, priority))?;
        Ok(Made(stream))
    }

    pub(crate) fn synchronize(&self, stream: Made) -> Answer<()> {
        call!(self, cuStreamSynchronize(stream.0))
    }

    pub(crate) fn synchronize_context(&self) -> Answer<()> {
        call!(self, cuCtxSynchronize())
    }

    /// Records what `work` puts into a stream, as a graph that can be launched.
    pub(crate) fn graph(&self, stream: Made, work: impl FnOnce() -> Answer<()>) -> Answer<Made> {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        call!(self, cuStreamBeginCapture_v2(stream.0, 1))?;
        work()?;
        call!(self, cuStreamEndCapture(stream.0, &raw mut graph))?;
        call!(self, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))?;
        Ok(Made(executable))
    }

    pub(crate) fn launch_graph(&self, graph: Made, stream: Made) -> Answer<()> {
        call!(self, cuGraphLaunch(graph.0, stream.0))
    }

    pub(crate) fn event(&self) -> Answer<Made> {
        let mut event = null_mut();
        call!(self, cuEventCreate(&raw mut event, 0))?;
        Ok(Made(event))
    }

    pub(crate) fn record(&self, event: Made, stream: Made) -> Answer<()> {
        call!(self, cuEventRecord(event.0, stream.0))
    }

    pub(crate) fn wait(&self, event: Made) -> Answer<()> {
        call!(self, cuEventSynchronize(event.0))
    }

    /// GPU time between two events, in ms.
    pub(crate) fn elapsed_ms(&self, from: Made, to: Made) -> Answer<f64> {
        let mut ms = 0.0;
        call!(self, cuEventElapsedTime(&raw mut ms, from.0, to.0))?;
        Ok(f64::from(ms))
    }
}

fn by_loader(library: &Library, name: &str) -> *mut c_void {
    // SAFETY: only the pointer is taken; its type is given where it is used.
    let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
    found.map_or(null_mut(), |symbol| *symbol)
}

/// Asks the driver by the name without version, as its users do.
fn by_driver(library: &Library, name: &str) -> *mut c_void {
    type Ask =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;
    // SAFETY: the type is that of NVIDIA's header.
    let Ok(ask) = (unsafe { library.get::<Ask>(b"cuGetProcAddress_v2") }) else {
        return null_mut();
    };
    let plain = CString::new(name.trim_end_matches("_v2")).unwrap_or_default();
    let (mut found, mut status) = (null_mut(), 0);
    // SAFETY: places of ours.
    let code = unsafe { ask(plain.as_ptr(), &raw mut found, ASKED_VERSION, 0, &raw mut status) };
    if code == 0 { found } else { null_mut() }
}
