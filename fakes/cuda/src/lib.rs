//! `libcuda.so.1` over a simulated machine: what clients use of CUDA's driver API, with the real ABI.
//!
//! `HOTPOT_FAKE_MACHINE` names the folder of the machine. Memory and work are booked in `fake-gpu`'s
//! file there, which all processes share; bytes are real, kernels only take time. `calls` defines the
//! exported functions and lets planned faults happen, `driver` is all that a process has, `action` is
//! what streams do. With `HOTPOT_FAKE_STRICT=1` a handle that was destroyed is not refused but ends the
//! process, as it may with a real driver. How long kernels take is said in `image`.
#![allow(
    unsafe_code,
    reason = "a C interface: functions are exported and pointers come from outside"
)]
#![allow(non_snake_case, reason = "the functions have CUDA's names")]

mod action;
mod addresses;
mod array;
mod attributes;
mod calls;
mod capture;
mod context;
mod context_settings;
mod copy;
mod copy_boxes;
mod device;
mod driver;
mod entry;
mod event;
mod external;
mod fill;
mod function;
mod graph;
mod graph_exec;
mod graph_memory;
mod graph_nodes;
mod graph_params;
mod green;
mod handles;
mod host_memory;
mod image;
mod ipc;
mod launch;
mod layouts;
mod library;
mod mapping;
mod memory;
mod memory_calls;
mod module;
mod movement;
mod physical;
mod pointers;
mod pool;
mod pool_calls;
mod pool_sharing;
mod primary;
mod result;
mod sharing;
mod stream;
mod stream_functions;
mod unsupported;
mod user_object;
mod visible;
mod waiting;
mod worker;
