//! What sharing is worth, on cases with their inputs stated: many small requests, services that hold memory and hardly compute, and
//! what it costs to place without regard to interference. Every figure comes out of a simulation.

mod embedding;
mod neighbours;
mod serving;

use std::path::PathBuf;
use std::sync::Arc;

use model::{Catalogue, GpuModel};

use crate::{Verdict, shell};

/// What a GPU hour is taken to cost; money is in proportion to it.
const PRICE_PER_HOUR: f64 = 2.5;

pub(crate) fn run(words: &[&str]) -> Verdict {
    match words {
        [] => {
            embedding::run()?;
            serving::run()?;
            neighbours::run(false)
        }
        ["embedding"] => embedding::run(),
        ["serving"] => serving::run(),
        ["neighbours"] => neighbours::run(false),
        ["neighbours", "--quick"] => neighbours::run(true),
        other => {
            let words = other.join(" ");
            Err(format!("unknown: {words}; there are embedding, serving and neighbours [--quick]"))
        }
    }
}

/// What is run within the suite. Left out where the traces are not.
pub(crate) fn slice() -> Verdict {
    if !path(serving::DUTY).exists() {
        println!("skipped: what sharing is worth: set HOTPOT_TRACES to the folder of the traces");
        return Ok(());
    }
    serving::run()?;
    neighbours::run(true)
}

/// A card of the catalogue.
fn card(name: &str) -> Result<Arc<GpuModel>, String> {
    let catalogue = Catalogue::shipped().map_err(|error| error.to_string())?;
    catalogue.get(name).cloned().ok_or_else(|| format!("{name} is not in the catalogue"))
}

/// Where a trace is.
fn path(name: &str) -> PathBuf {
    let named = std::env::var_os("HOTPOT_TRACES").map(PathBuf::from);
    named.unwrap_or_else(|| shell::root().join("../shared/traces")).join(name)
}

/// Why a trace cannot be read, and the way out.
fn why(error: &dyn std::fmt::Display, name: &str) -> String {
    format!("{error}; set HOTPOT_TRACES to the folder that holds {name}")
}
