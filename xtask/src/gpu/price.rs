//! Prices of calls and of starts, with and without the limiter, measured in turns so that a busy machine
//! spoils both alike.

use std::process::{Command, Stdio};

use caps::ComputeCap;
use nix::sys::resource::{UsageWho, getrusage};

use super::bench::Bench;
use super::table::median;
use super::tenant::{Client, Tenant, words};

/// A cap that nothing here comes near, in bytes.
const CAP: u64 = 4 << 30;

/// What a call costs, in ns.
pub(crate) struct Price {
    pub(crate) call: &'static str,
    /// Without limiter: median over rounds of p50 and p99.
    pub(crate) without: [f64; 2],
    /// How much more with it: median over rounds of the difference.
    pub(crate) more: [f64; 2],
    /// The same of p50 over the quarter of rounds in which calls without limiter were fastest: what is left
    /// when neighbours of a busy machine do not count.
    pub(crate) quiet: f64,
}

impl Price {
    /// Columns of [`Price::row`].
    pub(crate) const HEAD: [&str; 7] =
        ["caps", "call", "p50 ns without", "more", "more, quiet", "p99 ns without", "more"];

    pub(crate) fn row(&self, caps: &str) -> Vec<String> {
        let figures = [self.without[0], self.more[0], self.quiet, self.without[1], self.more[1]];
        let words = [caps.to_string(), self.call.to_string()].into_iter();
        words.chain(figures.map(|ns| format!("{ns:.0}"))).collect()
    }
}

/// Allocation, free and launch.
///
/// * `calls` — of each kind in a round.
pub(crate) fn calls(
    bench: &Bench,
    compute: Option<ComputeCap>,
    calls: usize,
    rounds: usize,
) -> Result<Vec<Price>, String> {
    let pairs: [(&str, &dyn std::fmt::Display); 2] = [("calls", &calls), ("rounds", &rounds)];
    let asked = words("price", &pairs);
    let capped = Tenant::capped(bench, "priced", Some(CAP), compute)?;
    let mut clients =
        [Tenant::free(bench, "unpriced")?.start(bench, &asked)?, capped.start(bench, &asked)?];
    for client in &mut clients {
        client.until(bench, "ready")?;
    }
    let mut found: Vec<[[f64; 6]; 2]> = Vec::new();
    for round in 0..rounds {
        let mut both = [[0.0; 6]; 2];
        // Whoever is first changes from round to round.
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let point = if round + 1 == rounds { "done" } else { "ready" };
            both[at] = one_round(bench, &mut clients[at], point)?;
        }
        found.push(both);
    }
    let price = |(at, call): (usize, &'static str)| {
        let over =
            |figure: &dyn Fn(&[[f64; 6]; 2]) -> f64| median(found.iter().map(figure).collect());
        let mut quiet: Vec<&[[f64; 6]; 2]> = found.iter().collect();
        quiet.sort_by(|one, two| one[0][at].total_cmp(&two[0][at]));
        let quiet = quiet.iter().take(found.len().div_ceil(4));
        Price {
            call,
            quiet: median(quiet.map(|both| both[1][at] - both[0][at]).collect()),
            without: [over(&|both| both[0][at]), over(&|both| both[0][at + 1])],
            more: [
                over(&|both| both[1][at] - both[0][at]),
                over(&|both| both[1][at + 1] - both[0][at + 1]),
            ],
        }
    };
    Ok([(0, "alloc"), (2, "free"), (4, "launch")].map(price).into())
}

fn one_round(bench: &Bench, client: &mut Client, point: &str) -> Result<[f64; 6], String> {
    client.go_on("")?;
    client.until(bench, point)?;
    let names = ["alloc.p50", "alloc.p99", "free.p50", "free.p99", "launch.p50", "launch.p99"];
    let mut figures = [0.0; 6];
    for (figure, name) in figures.iter_mut().zip(names) {
        *figure = client.number(name)?;
    }
    Ok(figures)
}

/// CPU ms of starting a program that uses no GPU, without the limiter and with it.
pub(crate) fn starts(bench: &Bench, count: u32) -> Result<(f64, f64), String> {
    let tenants = [
        Tenant::free(bench, "starts-free")?,
        Tenant::capped(bench, "starts", Some(CAP), Some(ComputeCap::of(500)))?,
    ];
    const TURN: u32 = 20;
    let mut sums = [0.0; 2];
    for _ in 0..count / TURN {
        for (tenant, sum) in tenants.iter().zip(&mut sums) {
            let before = children_ms()?;
            for _ in 0..TURN {
                let mut command = Command::new("/bin/true");
                tenant.on(bench, &mut command).stdout(Stdio::null());
                let status = command.status().map_err(|error| format!("/bin/true: {error}"))?;
                if !status.success() {
                    return Err(format!("/bin/true: {status}"));
                }
            }
            *sum += children_ms()? - before;
        }
    }
    let each = f64::from(count / TURN * TURN);
    Ok((sums[0] / each, sums[1] / each))
}

/// CPU time of children that have ended, in ms.
fn children_ms() -> Result<f64, String> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    let ms =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
    Ok(ms(used.user_time()) + ms(used.system_time()))
}
