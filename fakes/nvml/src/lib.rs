//! `libnvidia-ml.so.1` over a simulated machine.
//!
//! Every function goes through `calls::call`, which counts it, lets planned faults happen, finds
//! the machine and turns the answer into NVML's return code. `HOTPOT_FAKE_MACHINE` names the folder
//! of the machine; `HOTPOT_FAKE_KILL_BEFORE=N` and `HOTPOT_FAKE_KILL_AFTER=N` end the process with
//! SIGKILL at its N-th call.
#![allow(
    unsafe_code,
    reason = "a C interface: functions are exported and pointers come from outside"
)]
#![allow(non_snake_case, reason = "the functions have NVML's names")]

mod accounting;
mod calls;
mod compute_instances;
mod enumerate;
mod events;
mod fields;
mod gpm;
mod gpu_instances;
mod handles;
mod health;
mod holders;
mod layouts;
mod life;
mod links;
mod memory;
mod memory_limits;
mod mig_devices;
mod modes;
mod pointers;
mod processes;
mod sensors;
