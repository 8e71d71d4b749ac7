//! `libhotpot_limiter.so`: preloaded into a tenant's processes, it holds all of them together to the
//! caps of memory and time that the tenant has been given of each GPU.
//!
//! `entry` is how clients meet our functions instead of the driver's, `real` the driver's behind them,
//! `tenant` what the process may take, `memory` and `compute` the two caps. A process that never calls
//! the driver pays for the mapping and nothing else; one without caps for one load per call.
//!
//! *Rule:* no function here panics. All are called from foreign code, through which nothing can unwind:
//! a panic would end the program. So there is no `unwrap`, no indexing and no arithmetic that may
//! overflow (lints of this crate), and a value that makes no sense is passed on to the driver.
//! *Rule:* nothing is allocated or locked before the first call of the driver, nothing is ever written to
//! the program's output, and no thread-local has a destructor.
//! *Rule:* memory is in the books before the driver is asked for it, and until the driver has it back.
#![allow(
    unsafe_code,
    reason = "a C interface: functions are exported and pointers come from outside"
)]

mod abi;
mod compute;
mod driver;
mod entry;
mod hash;
mod log;
mod memory;
mod real;
mod start;
mod tenant;
mod wait;
