//! How long a turn is when two processes share the GPU without limiter, by the gaps in the clock that each
//! sees; with each length that the driver's tool can set, where that is allowed.

use super::Found;
use crate::gpu::bench::Bench;
use crate::gpu::table::Table;
use crate::gpu::tenant::{Tenant, words};

/// How long each process watches, in ns.
const WATCH_NS: u64 = 3_000_000_000;
/// Shorter gaps are something else than another's turn, in ns.
const GAP_NS: u64 = 50_000;
/// Lengths by the tool's number.
const LENGTHS: [&str; 4] = ["default", "short", "medium", "long"];

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    let head = ["length", "gaps", "turn ms p10", "p50", "p90", "gap ms p10", "p50", "p90"];
    let mut table = Table::new("Turns of two processes without limiter", &head);
    let Some(row) = watched(bench)? else {
        let what = "the watching kernel has seen no gaps; a simulated driver runs no kernels";
        return Ok(Found::Skipped(what.to_string()));
    };
    table.row([vec!["as found".to_string()], row].concat());
    if !bench.change_settings {
        let note = "others are not tried: they need --change-settings";
        table.row(vec![note.to_string()]);
        return Ok(Found::Done(vec![table], Vec::new()));
    }
    let set = |number: usize| {
        let number = number.to_string();
        let uuid = bench.gpu.uuid.as_str();
        bench.nvidia_smi(&["compute-policy", "-i", uuid, "--set-timeslice", &number])
    };
    let mut wrong = Vec::new();
    for (number, name) in LENGTHS.iter().enumerate() {
        let row = set(number).and_then(|_| watched(bench));
        match row {
            Ok(Some(row)) => table.row([vec![(*name).to_string()], row].concat()),
            Ok(None) => table.row(vec![(*name).to_string(), "0".to_string()]),
            Err(error) => wrong.push(format!("{name}: {}", super::run::last_line(&error))),
        }
    }
    if let Err(error) = set(0) {
        wrong.push(format!("the default could not be put back: {error}"));
    }
    Ok(Found::Done(vec![table], wrong))
}

/// Gaps that one of two processes sees; `None` if none.
fn watched(bench: &Bench) -> Result<Option<Vec<String>>, String> {
    let asked = words("watch", &[("ns", &WATCH_NS), ("least_ns", &GAP_NS)]);
    let mut clients = Vec::new();
    for name in ["watch-0", "watch-1"] {
        clients.push(Tenant::free(bench, name)?.start(bench, &asked)?);
    }
    for client in &mut clients {
        client.until(bench, "ready")?;
    }
    for client in &mut clients {
        client.go_on("")?;
    }
    for client in &mut clients {
        client.until(bench, "done")?;
    }
    let client = &clients[0];
    if client.number("gaps")? < 1.0 {
        return Ok(None);
    }
    let mut row = vec![client.text("gaps")?.to_string()];
    for name in ["turn.p10", "turn.p50", "turn.p90", "gap.p10", "gap.p50", "gap.p90"] {
        row.push(format!("{:.2}", client.number(name)? / 1e6));
    }
    Ok(Some(row))
}
