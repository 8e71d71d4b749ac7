//! How amounts read on the page: memory in GiB, parts in percent, α with two decimals, money with two.

use simulator::report::draw::{ABSENT, grouped};

const GIB_MIB: u64 = 1 << 10;
/// Hours of the day that a list without running times is reckoned for, times this is a month.
pub(super) const MONTH_DAYS: f64 = 30.0;

/// `300 MiB`, or `37.4 GiB`.
pub(super) fn memory(mib: u64) -> String {
    match mib {
        0..GIB_MIB => format!("{mib} MiB"),
        _ => format!("{} GiB", grouped(gib(mib), 1)),
    }
}

pub(super) fn gib(mib: u64) -> f64 {
    mib as f64 / GIB_MIB as f64
}

/// A part, 0 to 1 and beyond.
pub(super) fn percent(part: f64) -> String {
    known(part, |part| format!("{} %", grouped(part * 100.0, 1)))
}

pub(super) fn two_decimals(value: f64) -> String {
    known(value, |value| grouped(value, 2))
}

pub(super) fn hours(hours: f64) -> String {
    known(hours, |hours| format!("{} h", grouped(hours, 1)))
}

fn known(value: f64, show: impl Fn(f64) -> String) -> String {
    if value.is_finite() { show(value) } else { ABSENT.to_owned() }
}

/// `1 card`, `1,000 cards`.
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count as f64, 0), if count == 1 { "" } else { "s" })
}

/// Compute that is asked: `250/1000`, or that it is not said.
pub(super) fn compute(milli: u32) -> String {
    match milli {
        0 => "compute not said".to_owned(),
        milli => format!("{milli}/1000"),
    }
}
