//! Time: replays a trace against the production engine and reduces it to metrics and a report.
#![forbid(unsafe_code)]

mod observer;
pub mod outcome;
mod replay;
pub mod report;

pub use observer::Observer;
pub use replay::{IllegalPlan, Protocol, replay};
