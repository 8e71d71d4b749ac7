//! Prints what calls of the fake driver cost, in ns: pairs of `cuMemAlloc` and `cuMemFree`, launches.
//! Needs HOTPOT_FAKE_MACHINE and, as its argument, the built library.
#![allow(unsafe_code, clippy::print_stdout, reason = "a program that measures a C library")]
#![allow(clippy::unwrap_used, reason = "it ends when something is wrong")]

use std::ffi::{CString, c_void};
use std::time::{Duration, Instant};

type Function = extern "C" fn(usize, usize, usize, usize, usize) -> u32;
type Launch = extern "C" fn(usize, u32, u32, u32, u32, u32, u32, u32, usize, usize, usize) -> u32;

const PTX: &[u8] = b"// hotpot-kernel short block_ns=100\n.visible .entry short() { ret; }\0";

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: the library stays loaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null());
    found
}

fn function(library: *mut c_void, name: &str) -> Function {
    // SAFETY: all functions that are used take numbers and pointers only.
    unsafe { std::mem::transmute::<*mut c_void, Function>(symbol(library, name)) }
}

/// The least of some averages, in ns, with a pause after each so that the GPU catches up.
fn measure(mut what: impl FnMut()) -> f64 {
    let rounds = (0..200).map(|_| {
        let start = Instant::now();
        (0..500).for_each(|_| what());
        let ns = start.elapsed().as_nanos() as f64 / 500.0;
        std::thread::sleep(Duration::from_millis(1));
        ns
    });
    rounds.fold(f64::MAX, f64::min)
}

fn main() {
    let path = CString::new(std::env::args().nth(1).unwrap()).unwrap();
    // SAFETY: the fake driver's initialisers do nothing.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    let call = |name: &str, args: [usize; 3]| {
        assert_eq!(function(library, name)(args[0], args[1], args[2], 0, 0), 0, "{name}");
    };
    let mut word = 0_usize;
    let to = (&raw mut word).expose_provenance();
    let read = || std::hint::black_box(&raw const word);
    // SAFETY: the word lives as long as the program and only the calls before have written it.
    let word = || unsafe { read().read_volatile() };
    call("cuInit", [0; 3]);
    call("cuDevicePrimaryCtxRetain", [to, 0, 0]);
    call("cuCtxSetCurrent", [word(), 0, 0]);
    let (alloc, free) = (function(library, "cuMemAlloc_v2"), function(library, "cuMemFree_v2"));
    for bytes in [1000, 100 << 20] {
        let pair = measure(|| {
            alloc(to, bytes, 0, 0, 0);
            free(word(), 0, 0, 0, 0);
        });
        println!("cuMemAlloc and cuMemFree, {bytes} bytes: {pair:.0} ns");
    }
    call("cuModuleLoadData", [to, PTX.as_ptr().expose_provenance(), 0]);
    call("cuModuleGetFunction", [to, word(), c"short".as_ptr().expose_provenance()]);
    let kernel = word();
    // SAFETY: as declared in cuda.h.
    let launch =
        unsafe { std::mem::transmute::<*mut c_void, Launch>(symbol(library, "cuLaunchKernel")) };
    let one = measure(|| {
        launch(kernel, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    });
    println!("cuLaunchKernel, legacy stream: {one:.0} ns");
    call("cuStreamCreate", [to, 1, 0]);
    let stream = word();
    let one = measure(|| {
        launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0);
    });
    println!("cuLaunchKernel, own stream: {one:.0} ns");
}
