//! The shipped measurements, read from `data/interference.csv`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use model::SharingKind;

use super::Observation;
use crate::sharing::InstanceShare;

pub(super) const TABLE: &str = include_str!("../../../../data/interference.csv");

/// A line of the table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedError {
    /// One-based line.
    pub line: usize,
}

impl fmt::Display for ShippedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "data/interference.csv, line {}: cannot be read; make it anew with `cargo xtask interference --write`",
            self.line
        )
    }
}

impl core::error::Error for ShippedError {}

/// Reads the table; `data/README.md` says what its lines are.
pub(super) fn read(text: &str) -> Result<Vec<Observation>, ShippedError> {
    let (mut kinds, mut found) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(',').collect();
        row(&fields, &mut kinds, &mut found).ok_or(ShippedError { line: at + 1 })?;
    }
    Ok(found)
}

fn row(fields: &[&str], kinds: &mut Vec<String>, found: &mut Vec<Observation>) -> Option<()> {
    if let ["kind", name] = fields {
        kinds.push((*name).to_string());
        return Some(());
    }
    let kind = |word: &str| kinds.get(word.parse::<usize>().ok()?).cloned();
    let speed = |word: &str| Some(f64::from(word.parse::<u32>().ok()?) / 1000.0);
    let seen = |mode, gpu: &str, kind, others, slice, speed| Observation {
        mode,
        gpu: gpu.to_string(),
        kind,
        others,
        slice,
        speed,
    };
    match fields {
        ["pair", gpu, a, b, speed_a, speed_b] => {
            let (a, b) = (kind(a)?, kind(b)?);
            let one = |a: &String, b: &String, speed| {
                seen(SharingKind::TimeSlice, gpu, a.clone(), alloc::vec![b.clone()], None, speed)
            };
            found.push(one(&a, &b, speed(speed_a)?));
            if a != b {
                found.push(one(&b, &a, speed(speed_b)?));
            }
        }
        ["same", gpu, of, count, told] => {
            let others = alloc::vec![kind(of)?; count.parse::<usize>().ok()?.checked_sub(1)?];
            found.push(seen(SharingKind::Mps, gpu, kind(of)?, others, None, speed(told)?));
        }
        ["slice", gpu, of, compute, memory, told] => {
            let slice = InstanceShare {
                compute_milli: compute.parse().ok()?,
                memory_milli: memory.parse().ok()?,
            };
            found.push(seen(
                SharingKind::Mig,
                gpu,
                kind(of)?,
                Vec::new(),
                Some(slice),
                speed(told)?,
            ));
        }
        _ => return None,
    }
    Some(())
}
