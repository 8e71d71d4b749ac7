//! How tenants get on with each other: a tenant takes what its neighbour leaves, and a service of high
//! priority is answered beside one that is always busy.

use caps::ComputeCap;

use super::Found;
use crate::gpu::bench::Bench;
use crate::gpu::race::{Racer, race};
use crate::gpu::table::Table;
use crate::gpu::tenant::{Tenant, words};

/// GPU time of a kernel, in ns.
const KERNEL_NS: u64 = 1_000_000;
/// The least part of the GPU that a tenant gets whose neighbour does nothing, in percent.
const ALONE_MIN: f64 = 95.0;
/// Answers that a service is asked for, and the pause before each.
const ANSWERS: (u32, u32) = (300, 10_000);

/// A neighbour that holds a share and does nothing costs nothing; a strict share stays what it is.
pub(crate) fn idle(bench: &Bench) -> Result<Found, String> {
    let head = ["tenant", "share %", "neighbour", "GPU had %"];
    let mut table = Table::new("A tenant whose neighbour is idle", &head);
    let mut wrong = Vec::new();
    let free = race(bench, &[Racer::free(KERNEL_NS)], &mut || Ok(()))?[0].part * 100.0;
    table.row(vec!["no limiter".into(), String::new(), "none".into(), format!("{free:.1}")]);
    bench.forget_tenants();
    let neighbour = Tenant::capped(bench, "idle", None, Some(ComputeCap::of(700)))?;
    let mut sleeper = neighbour.start(bench, &words("idle", &[]))?;
    sleeper.until(bench, "holding")?;
    let usual = ComputeCap::of(300);
    for (name, compute) in
        [("conserving", usual), ("strict", ComputeCap { conserving: false, ..usual })]
    {
        let racer = Racer { compute: Some(compute), mode: "async", ns: KERNEL_NS };
        let had = race(bench, &[racer], &mut || Ok(()))?[0].part * 100.0;
        table.row(vec![name.into(), "30".into(), "70, idle".into(), format!("{had:.1}")]);
        let good = if compute.conserving {
            had >= ALONE_MIN * free / 100.0
        } else {
            (had - 30.0).abs() <= 5.0
        };
        if !good {
            wrong.push(format!("{name}: {had:.1} % beside an idle neighbour"));
        }
    }
    Ok(Found::Done(vec![table], wrong))
}

/// How long a short kernel of a service takes to be answered.
pub(crate) fn priority(bench: &Bench) -> Result<Found, String> {
    let head = ["service", "neighbour", "p50 µs", "p99 µs", "max µs"];
    let mut table = Table::new("Answers of a service (a kernel of 200 µs now and then)", &head);
    let (usual, high) = (ComputeCap::of(500), ComputeCap { priority: 1, ..ComputeCap::of(500) });
    let mut p99 = Vec::new();
    for (name, own, other) in [
        ("alone", None, None),
        ("no limiter", None, Some(None)),
        ("same priority", Some(usual), Some(Some(usual))),
        ("higher priority", Some(high), Some(Some(usual))),
    ] {
        let figures = answers(bench, own, other)?;
        let busy = if other.is_some() { "always busy" } else { "none" };
        let mut row = vec![name.to_string(), busy.to_string()];
        row.extend(figures.iter().map(|figure| format!("{figure:.0}")));
        table.row(row);
        p99.push(figures[1]);
    }
    let mut wrong = Vec::new();
    if let [_, _, same, higher] = p99.as_slice()
        && higher > same
    {
        wrong.push(format!("a higher priority waits longer: {higher:.0} µs against {same:.0} µs"));
    }
    Ok(Found::Done(vec![table], wrong))
}

/// * `own` — the service's cap; `other` — that of a busy neighbour, if there is one.
fn answers(
    bench: &Bench,
    own: Option<ComputeCap>,
    other: Option<Option<ComputeCap>>,
) -> Result<[f64; 3], String> {
    let tenant = |name: &str, compute: Option<ComputeCap>| match compute {
        Some(_) => Tenant::capped(bench, name, None, compute),
        None => Tenant::free(bench, name),
    };
    let per_round = bench.ns_per_round()?;
    bench.forget_tenants();
    let mut busy = None;
    if let Some(compute) = other {
        let pairs: [(&str, &dyn std::fmt::Display); 3] =
            [("ns", &KERNEL_NS), ("ns_per_round", &per_round), ("mode", &"async")];
        let mut client = tenant("busy", compute)?.start(bench, &words("work", &pairs))?;
        client.until(bench, "ready")?;
        // Until it is ended.
        client.go_on(&format!("0 {}", i64::MAX))?;
        busy = Some(client);
    }
    let pairs: [(&str, &dyn std::fmt::Display); 4] = [
        ("ns", &200_000),
        ("ns_per_round", &per_round),
        ("count", &ANSWERS.0),
        ("every_us", &ANSWERS.1),
    ];
    let mut service = tenant("service", own)?.start(bench, &words("answer", &pairs))?;
    service.until(bench, "ready")?;
    service.go_on("")?;
    service.until(bench, "done")?;
    drop(busy);
    Ok([service.number("p50")?, service.number("p99")?, service.number("max")?])
}
