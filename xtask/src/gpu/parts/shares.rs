//! Shares of GPU time: tenants that all want the whole GPU, by the work that each gets done.

use super::Found;
use crate::gpu::bench::Bench;
use crate::gpu::race::{Racer, charged, percent, race, slashed, time, worst};
use crate::gpu::table::Table;

/// Shares in percent.
const SPLITS: [&[u32]; 4] = [&[10, 90], &[30, 70], &[50, 50], &[20, 30, 50]];
/// GPU time of a kernel, in ns.
const KERNELS: [u64; 3] = [10_000, 1_000_000, 20_000_000];
/// Points by which a share may be off.
const POINTS_MAX: f64 = 5.0;

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    let head = ["asked %", "kernels", "had %", "worst, points", "GPU used %", "charged / worked"];
    let mut table = Table::new("Shares of GPU time, all tenants greedy", &head);
    let mut wrong = Vec::new();
    let mut cases = Vec::new();
    for split in SPLITS {
        cases.extend(KERNELS.map(|ns| (split, vec![ns; split.len()])));
    }
    // A tenant with long kernels beside one with short ones.
    cases.push((SPLITS[2], vec![10_000, 20_000_000]));
    for (split, kernels) in cases {
        let racers: Vec<Racer> =
            split.iter().zip(&kernels).map(|(share, ns)| Racer::of(*share, *ns)).collect();
        bench.forget_tenants();
        let mut lengths: Vec<String> = kernels.iter().map(|ns| time(*ns)).collect();
        lengths.dedup();
        let name = slashed(split);
        let ran = match race(bench, &racers, &mut || Ok(())) {
            Ok(ran) => ran,
            Err(error) => {
                wrong.push(format!("{name} with {}: {error}", slashed(&lengths)));
                continue;
            }
        };
        let parts: Vec<f64> = ran.iter().map(|ran| ran.part).collect();
        let had = percent(&parts);
        let (off, used) = (worst(split, &had), parts.iter().sum::<f64>() * 100.0);
        println!("    {name} with {}: off by {off:.1} points", slashed(&lengths));
        table.row(vec![
            name.clone(),
            slashed(&lengths),
            slashed(had.iter().map(|part| format!("{part:.1}"))),
            format!("{off:.1}"),
            format!("{used:.1}"),
            charged(&ran),
        ]);
        if off > POINTS_MAX {
            wrong.push(format!("{name} with {}: {off:.1} points off", slashed(&lengths)));
        }
    }
    let free = race(bench, &[Racer::free(1_000_000); 2], &mut || Ok(()))?;
    let parts: Vec<f64> = free.iter().map(|ran| ran.part).collect();
    table.row(vec![
        "no limiter, two".to_string(),
        "1 ms".to_string(),
        slashed(percent(&parts).iter().map(|part| format!("{part:.1}"))),
        String::new(),
        format!("{:.1}", parts.iter().sum::<f64>() * 100.0),
    ]);
    Ok(Found::Done(vec![table], wrong))
}
