//! Amounts as people write them: `16GiB`, `20%`, `4.5`, `1h30m`, `01:30:00`.
//!
//! All arithmetic is exact; what does not come out even is rounded in the direction named at each
//! function. Every function refuses what is negative, not a number, or absurdly large.

use crate::decimal::scale;
use crate::error::{Complaint, quote};

/// Most memory that is believed: 1 PiB.
pub const MEMORY_MAX_MIB: u64 = 1 << 30;
/// Longest time that is believed: 100 years of 365 days.
pub const DURATION_MAX_MS: u64 = 100 * 365 * DAY_MS;
/// Most CPUs that are believed: a million.
pub const CPU_MAX_MILLI: u64 = 1_000_000_000;

const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Memory with a unit, in MiB, rounded up. `K`, `M`, `G`, `T`, each also as `KB` or `KiB`, are powers
/// of 1024, as in Slurm.
///
/// # Errors
/// No unit, an unknown one, or more than [`MEMORY_MAX_MIB`].
pub fn memory_mib(text: &str) -> Result<u64, Complaint> {
    memory(text, None)
}

/// Memory as Slurm reads it: as [`memory_mib`], and a number without unit is in MiB.
///
/// # Errors
/// As [`memory_mib`].
pub fn slurm_memory_mib(text: &str) -> Result<u64, Complaint> {
    memory(text, Some("m"))
}

fn memory(text: &str, unit_default: Option<&str>) -> Result<u64, Complaint> {
    const WAY_OUT: &str = "give a size such as \"16GiB\" or \"512M\"";
    let (number, unit) = split_unit(text);
    let unit = unit.to_ascii_lowercase();
    let unit = if unit.is_empty() { unit_default.unwrap_or("") } else { &unit };
    let kib = match unit {
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 1 << 10,
        "g" | "gb" | "gib" => 1 << 20,
        "t" | "tb" | "tib" => 1 << 30,
        "" => {
            return Err(Complaint::new(format!("{} has no unit", quote(text)), WAY_OUT));
        }
        _ => {
            return Err(Complaint::new(format!("{} is not a size", quote(text)), WAY_OUT));
        }
    };
    let scaled = scale(number, kib).map_err(|fault| fault.complain(text, "a size", WAY_OUT))?;
    let mib = scaled.up().div_ceil(1024);
    within(mib, MEMORY_MAX_MIB, text, "give at most 1024TiB")
}

/// A part of a GPU in thousandths, rounded down: `50%` or `0.5`.
///
/// # Errors
/// What is not between one thousandth and 1 (100%).
pub fn share_milli(text: &str) -> Result<u32, Complaint> {
    const WAY_OUT: &str = "give 0.001 to 1, or \"0.1%\" to \"100%\"";
    match of_whole_milli(text, WAY_OUT)? {
        0 => Err(Complaint::new(format!("{} is no share at all", quote(text)), WAY_OUT)),
        milli => Ok(milli),
    }
}

/// A part in thousandths, rounded down: `50%` or `0.5`; it may be none at all.
///
/// # Errors
/// What is not between 0 and 1 (100%).
pub fn part_milli(text: &str) -> Result<u32, Complaint> {
    of_whole_milli(text, "give 0 to 1, or \"0%\" to \"100%\"")
}

fn of_whole_milli(text: &str, way_out: &str) -> Result<u32, Complaint> {
    let (number, factor) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim_end(), 10),
        None => (text.trim(), 1000),
    };
    let scaled = scale(number, factor).map_err(|fault| fault.complain(text, "a share", way_out))?;
    match u32::try_from(scaled.down) {
        Ok(milli) if scaled.up() <= 1000 => Ok(milli),
        _ => Err(Complaint::new(format!("{} is more than the whole", quote(text)), way_out)),
    }
}

/// CPUs in thousandths of a vCPU, rounded up.
///
/// # Errors
/// What is not a number from 0 to a million.
pub fn cpu_milli(text: &str) -> Result<u64, Complaint> {
    const WAY_OUT: &str = "give 0 or more, such as 4 or 0.5";
    let scaled = scale(text.trim(), 1000);
    let scaled = scaled.map_err(|fault| fault.complain(text, "a number of CPUs", WAY_OUT))?;
    within(scaled.up(), CPU_MAX_MILLI, text, "give at most 1000000")
}

/// A decimal in thousandths, rounded down, which may be negative: weights and affinities.
///
/// * `most` — largest magnitude, in thousandths.
///
/// # Errors
/// What is not a number or exceeds `most`.
pub fn signed_milli(text: &str, most: u32) -> Result<i32, Complaint> {
    let way_out = format!("give a number from -{0} to {0}", f64::from(most) / 1000.0);
    let (sign, number) = match text.trim().strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, text.trim()),
    };
    let scaled = scale(number, 1000).map_err(|fault| fault.complain(text, "a number", &way_out))?;
    match i32::try_from(scaled.down) {
        Ok(milli) if scaled.up() <= u128::from(most) => Ok(sign * milli),
        _ => Err(Complaint::new(format!("{} is out of range", quote(text)), way_out)),
    }
}

/// Seconds, in ms, rounded up.
///
/// # Errors
/// What is not a number from 0 to [`DURATION_MAX_MS`].
pub fn seconds_ms(text: &str) -> Result<u64, Complaint> {
    const WAY_OUT: &str = "give seconds, 0 or more";
    let scaled = scale(text.trim(), u128::from(SECOND_MS));
    let scaled = scaled.map_err(|fault| fault.complain(text, "a number of seconds", WAY_OUT))?;
    within(scaled.up(), DURATION_MAX_MS, text, "give at most 100 years")
}

/// What to write for a length of time.
const DURATION_WAY_OUT: &str = "give a time such as \"90s\", \"1h30m\", \"2d\" or \"01:30:00\"";

/// A length of time with units, in ms: `90s`, `1h30m`, `1.5d`, `250ms`, or `[days-]hh:mm:ss`.
///
/// # Errors
/// No unit, an unknown one, or more than [`DURATION_MAX_MS`]. `mm:ss` is refused: people read it
/// both ways.
pub fn duration_ms(text: &str) -> Result<u64, Complaint> {
    match text.trim() {
        "" => Err(no_duration(text, "is not a time")),
        clock if clock.contains(':') => long_clock_ms(clock),
        units => units_ms(units),
    }
}

fn no_duration(text: &str, what: &str) -> Complaint {
    Complaint::new(format!("{} {what}", quote(text)), DURATION_WAY_OUT)
}

/// `[days-]hh:mm:ss`.
fn long_clock_ms(text: &str) -> Result<u64, Complaint> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    match (whole(days), parts(clock).as_slice()) {
        (Some(days), [h, m, s]) => {
            clock_ms(days, *h, *m, *s).ok_or_else(|| no_duration(text, "is absurdly long"))
        }
        (Some(_), [_, _]) => Err(no_duration(text, "could be hours or minutes")),
        _ => Err(no_duration(text, "is not a time")),
    }
}

/// Numbers with units, one after the other.
fn units_ms(text: &str) -> Result<u64, Complaint> {
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_unit(rest);
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let unit_ms = match &after[..end] {
            "ms" => 1,
            "s" | "sec" => SECOND_MS,
            "m" | "min" => MINUTE_MS,
            "h" => HOUR_MS,
            "d" => DAY_MS,
            "w" => 7 * DAY_MS,
            "" => return Err(no_duration(text, "has no unit")),
            _ => return Err(no_duration(text, "is not a time")),
        };
        let part = scale(number, u128::from(unit_ms))
            .map_err(|fault| fault.complain(text, "a time", DURATION_WAY_OUT))?;
        total = total.saturating_add(part.up());
        rest = after[end..].trim_start();
    }
    within(total, DURATION_MAX_MS, text, "give at most 100 years")
}

/// A time limit as Slurm reads it, in ms: `minutes`, `mm:ss`, `hh:mm:ss`, `days-hh`, `days-hh:mm`,
/// `days-hh:mm:ss`. `None` means no limit: `UNLIMITED`, `INFINITE` or 0 (sbatch manual, `--time`).
///
/// # Errors
/// Anything else.
pub fn slurm_time_ms(text: &str) -> Result<Option<u64>, Complaint> {
    const WAY_OUT: &str = "give minutes, hh:mm:ss or days-hh:mm:ss";
    if ["unlimited", "infinite"].contains(&text.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let found = match text.split_once('-') {
        None => match *parts(text).as_slice() {
            [m] => clock_ms(0, 0, m, 0),
            [m, s] => clock_ms(0, 0, m, s),
            [h, m, s] => clock_ms(0, h, m, s),
            _ => None,
        },
        Some((days, clock)) => match (whole(days), parts(clock).as_slice()) {
            (Some(days), [h]) => clock_ms(days, *h, 0, 0),
            (Some(days), [h, m]) => clock_ms(days, *h, *m, 0),
            (Some(days), [h, m, s]) => clock_ms(days, *h, *m, *s),
            _ => None,
        },
    };
    match found {
        Some(0) => Ok(None),
        Some(ms) => Ok(Some(ms)),
        None => Err(Complaint::new(format!("{} is not a Slurm time", quote(text)), WAY_OUT)),
    }
}

/// The numbers of a clock; empty if one is none.
fn parts(clock: &str) -> Vec<u64> {
    clock.split(':').map(whole).collect::<Option<_>>().unwrap_or_default()
}

fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn clock_ms(days: u64, hours: u64, minutes: u64, seconds: u64) -> Option<u64> {
    let amounts = [(days, DAY_MS), (hours, HOUR_MS), (minutes, MINUTE_MS), (seconds, SECOND_MS)];
    let sum = amounts.iter().try_fold(0u64, |sum, (count, unit)| {
        count.checked_mul(*unit).and_then(|part| sum.checked_add(part))
    });
    sum.filter(|ms| *ms <= DURATION_MAX_MS)
}

/// Number and unit of an amount, each without blanks around it.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".-+".contains(c)));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    (number, unit.trim_start())
}

fn within(amount: u128, most: u64, text: &str, way_out: &str) -> Result<u64, Complaint> {
    let small = u64::try_from(amount).ok().filter(|amount| *amount <= most);
    small.ok_or_else(|| Complaint::new(format!("{} is absurdly large", quote(text)), way_out))
}
