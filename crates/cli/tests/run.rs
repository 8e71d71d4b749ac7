//! `hotpot run` with real processes: what tasks find, how they end, what is left when something
//! goes wrong.

#[path = "run/bench.rs"]
mod bench;
#[path = "run/capped.rs"]
mod capped;
#[path = "run/ends.rs"]
mod ends;
#[path = "run/faults.rs"]
mod faults;
#[path = "run/fills.rs"]
mod fills;
#[path = "run/finds.rs"]
mod finds;
#[path = "run/joined.rs"]
mod joined;
#[path = "run/order.rs"]
mod order;
#[path = "run/resume.rs"]
mod resume;
mod support;
