//! Tenants that compute side by side for a while, and how much work each has got done.

use std::time::Duration;

use caps::ComputeCap;

use super::bench::Bench;
use super::client;
use super::tenant::{Client, Tenant, words};

/// Before counting begins, so that shares have settled.
const SETTLE_US: u64 = 1_500_000;

/// One tenant of a race.
#[derive(Clone, Copy)]
pub(crate) struct Racer {
    /// Its share and how it stands to the others; `None` for a tenant without limiter.
    pub(crate) compute: Option<ComputeCap>,
    /// `sync`, `async` or `graph`.
    pub(crate) mode: &'static str,
    /// GPU time of each kernel, in ns.
    pub(crate) ns: u64,
}

impl Racer {
    /// With a share in percent, and kernels launched without waiting for each.
    pub(crate) fn of(percent: u32, ns: u64) -> Self {
        Self { compute: Some(ComputeCap::of(percent * 10)), mode: "async", ns }
    }

    /// Without limiter.
    pub(crate) fn free(ns: u64) -> Self {
        Self { compute: None, mode: "async", ns }
    }
}

/// What a tenant has got done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) pid: u32,
    /// GPU time of its ended kernels by what they cost alone, as a part of the window.
    pub(crate) part: f64,
    /// GPU time that the limiter has charged from beginning to end, by that of all its kernels.
    pub(crate) charged: f64,
}

/// Lets all of them compute at once; `at` is called when counting begins and when it ends.
pub(crate) fn race(
    bench: &Bench,
    racers: &[Racer],
    at: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Vec<Ran>, String> {
    let per_round = bench.ns_per_round()?;
    let (mut tenants, mut clients) = (Vec::new(), Vec::new());
    for (number, racer) in racers.iter().enumerate() {
        let (tenant, client) = start(bench, number, racer, per_round)?;
        tenants.push(tenant);
        clients.push(client);
    }
    for client in &mut clients {
        client.until(bench, "ready")?;
    }
    let from = client::now_us() + SETTLE_US;
    let to = from + bench.measure_ms * 1000;
    for client in &mut clients {
        client.go_on(&format!("{from} {to}"))?;
    }
    for moment in [from, to] {
        sleep_until(moment);
        at()?;
    }
    let mut found = Vec::new();
    for ((client, tenant), racer) in clients.iter_mut().zip(&tenants).zip(racers) {
        client.until(bench, "done")?;
        let us = |kernels: f64| kernels * racer.ns as f64 / 1000.0;
        let part = us(client.number("ended")?) / (to - from) as f64;
        let charged = tenant.account()?.gpu_us as f64 / us(client.number("all")?.max(1.0));
        found.push(Ran { pid: client.pid(), part, charged });
    }
    Ok(found)
}

fn start(
    bench: &Bench,
    number: usize,
    racer: &Racer,
    per_round: f64,
) -> Result<(Tenant, Client), String> {
    let name = format!("tenant-{number}");
    let tenant = match racer.compute {
        Some(compute) => Tenant::capped(bench, &name, None, Some(compute))?,
        None => Tenant::free(bench, &name)?,
    };
    let pairs: [(&str, &dyn std::fmt::Display); 3] =
        [("ns", &racer.ns), ("ns_per_round", &per_round), ("mode", &racer.mode)];
    let client = tenant.start(bench, &words("work", &pairs))?;
    Ok((tenant, client))
}

fn sleep_until(moment_us: u64) {
    std::thread::sleep(Duration::from_micros(moment_us.saturating_sub(client::now_us())));
}

/// What was charged by what was done, for each.
pub(crate) fn charged(ran: &[Ran]) -> String {
    slashed(ran.iter().map(|ran| format!("{:.2}", ran.charged)))
}

/// Parts of the sum, in percent.
pub(crate) fn percent(parts: &[f64]) -> Vec<f64> {
    let sum: f64 = parts.iter().sum();
    parts.iter().map(|part| if sum > 0.0 { part * 100.0 / sum } else { 0.0 }).collect()
}

/// The greatest distance of shares from what was asked, in points.
pub(crate) fn worst(asked: &[u32], had: &[f64]) -> f64 {
    let off = asked.iter().zip(had).map(|(asked, had)| (f64::from(*asked) - had).abs());
    off.fold(0.0, f64::max)
}

/// Shares as text, such as `10/90`.
pub(crate) fn slashed<T: std::fmt::Display>(parts: impl IntoIterator<Item = T>) -> String {
    parts.into_iter().map(|part| part.to_string()).collect::<Vec<_>>().join("/")
}

/// A kernel's time as people write it.
pub(crate) fn time(ns: u64) -> String {
    if ns < 1_000_000 { format!("{} µs", ns / 1000) } else { format!("{} ms", ns / 1_000_000) }
}
