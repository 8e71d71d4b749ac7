//! Graphs are charged like the kernels in them: a tenant that launches graphs has no more than its share.

use super::Found;
use crate::gpu::bench::Bench;
use crate::gpu::race::{Racer, charged, percent, race, slashed, worst};
use crate::gpu::table::Table;

/// Shares in percent: first the tenant with graphs.
const SPLITS: [[u32; 2]; 2] = [[20, 80], [50, 50]];
/// Points by which a share may be off.
const POINTS_MAX: f64 = 5.0;

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    let head = ["asked % (graphs/kernels)", "had %", "worst, points", "charged / worked"];
    let mut table =
        Table::new("A tenant that launches graphs beside one that launches kernels", &head);
    let mut wrong = Vec::new();
    for split in SPLITS {
        let mut racers = split.map(|share| Racer::of(share, 1_000_000));
        racers[0].mode = "graph";
        bench.forget_tenants();
        let ran = race(bench, &racers, &mut || Ok(()))?;
        let had = percent(&ran.iter().map(|ran| ran.part).collect::<Vec<_>>());
        let off = worst(&split, &had);
        table.row(vec![
            slashed(split),
            slashed(had.iter().map(|part| format!("{part:.1}"))),
            format!("{off:.1}"),
            charged(&ran),
        ]);
        if off > POINTS_MAX {
            wrong.push(format!("{}: {off:.1} points off", slashed(split)));
        }
    }
    Ok(Found::Done(vec![table], wrong))
}
