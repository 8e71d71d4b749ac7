//! Time: replays a trace against the production engine and reduces it to metrics and a report.
#![forbid(unsafe_code)]

pub mod outcome;
pub mod report;
