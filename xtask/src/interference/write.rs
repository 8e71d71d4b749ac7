//! The shipped table of measured speeds, made of the published ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use engine::interference::Observation;

use super::measured::Measured;
use crate::{Verdict, shell};

const ORIGIN: &str = "\
# Measured speeds relative to alone, in thousandths. Made by `cargo xtask interference --write`.
# pair: time-slicing, Gavel (MIT, Stanford Future Data Systems 2020); same: MPS, ParvaGPU (MIT, sslab6943 2024);
# slice: MIG, MISO (MIT, Baolin Li 2022), aggregated. Licences: data/README.md.
";
/// The table stays below this many bytes.
const BYTES_MAX: usize = 100_000;

pub(super) fn write(measured: &Measured) -> Verdict {
    let text = table(measured);
    if text.len() > BYTES_MAX {
        return Err(format!("data/interference.csv: {} bytes, more than {BYTES_MAX}", text.len()));
    }
    let path = shell::root().join("data/interference.csv");
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote data/interference.csv, {} bytes", text.len());
    Ok(())
}

fn table(measured: &Measured) -> String {
    let all = [&measured.pairs, &measured.processes, &measured.instances];
    let mut kinds: Vec<&str> =
        all.iter().flat_map(|seen| seen.iter()).map(|seen| &*seen.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let number: BTreeMap<&str, usize> =
        kinds.iter().enumerate().map(|(at, kind)| (*kind, at)).collect();
    let mut text = ORIGIN.to_string();
    for kind in &kinds {
        let _ = writeln!(text, "kind,{kind}");
    }
    pairs(&mut text, &measured.pairs, &number);
    for seen in &measured.processes {
        let count = seen.others.len() + 1;
        let _ = writeln!(text, "same,{},{},{count},{}", seen.gpu, number[&*seen.kind], milli(seen));
    }
    for seen in &measured.instances {
        if let Some(slice) = seen.slice {
            let (compute, memory) = (slice.compute_milli, slice.memory_milli);
            let of = number[&*seen.kind];
            let _ = writeln!(text, "slice,{},{of},{compute},{memory},{}", seen.gpu, milli(seen));
        }
    }
    text
}

fn pairs(text: &mut String, pairs: &[Observation], number: &BTreeMap<&str, usize>) {
    let key =
        |seen: &Observation| (seen.gpu.clone(), number[&*seen.kind], number[&*seen.others[0]]);
    let speeds: BTreeMap<_, u32> = pairs.iter().map(|seen| (key(seen), milli(seen))).collect();
    for ((gpu, a, b), speed) in speeds.iter().filter(|((_, a, b), _)| a <= b) {
        let back = speeds.get(&(gpu.clone(), *b, *a)).unwrap_or(speed);
        let _ = writeln!(text, "pair,{gpu},{a},{b},{speed},{back}");
    }
}

fn milli(seen: &Observation) -> u32 {
    (seen.speed * 1000.0).round() as u32
}
