//! What the limiter costs: calls with and without it in turns, and starting a program.

use caps::ComputeCap;

use super::Found;
use crate::gpu::bench::Bench;
use crate::gpu::price::{self, Price, starts};
use crate::gpu::table::Table;

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    let mut table = Table::new("Calls under the limiter", &Price::HEAD);
    for (name, compute) in [("memory", None), ("memory and compute", Some(ComputeCap::of(1000)))] {
        for price in price::calls(bench, compute, 500, 24)? {
            table.row(price.row(name));
        }
    }
    let head = ["", "CPU ms"];
    let mut starting = Table::new("Starting a program that does not use a GPU (/bin/true)", &head);
    let (without, with) = starts(bench, 200)?;
    starting.row(vec!["without".into(), format!("{without:.3}")]);
    starting.row(vec!["with the limiter preloaded".into(), format!("{with:.3}")]);
    Ok(Found::Done(vec![table, starting], Vec::new()))
}
