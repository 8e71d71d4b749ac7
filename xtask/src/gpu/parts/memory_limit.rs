//! A memory cap through `hotpot run`: by the driver's cgroup limits where they hold, else by the limiter.

use super::{Found, run};
use crate::gpu::bench::Bench;
use crate::gpu::table::Table;
use crate::gpu::tenant::words;

/// What the task asks for.
const ASKS: &str = "gpu_memory = \"2GiB\"\nmodes = [\"memory-capped\"]";
/// Its cap, in bytes.
const CAP: u64 = 2 << 30;
/// More than a context takes, in bytes.
const CONTEXT_MAX: u64 = 1 << 30;

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    if let Some(what) = run::missing(bench) {
        return Ok(Found::Skipped(what));
    }
    let work = words(
        "task",
        &[("most", &(CAP * 2)), ("busy_ms", &200), ("ns_per_round", &bench.ns_per_round()?)],
    );
    let ended = run::run(bench, "memory-limit", (ASKS, 1), &work)?;
    let said = match ended.tasks.first() {
        Some(said) if !said.is_empty() => said,
        _ => return Ok(Found::Skipped(run::last_line(&ended.complaints))),
    };
    let limiter = said.contains_key("HOTPOT_CAPS");
    let head = ["held by", "total MiB", "free MiB", "got MiB", "code"];
    let mut table = Table::new("A task of 2 GiB with a memory cap, by hotpot run", &head);
    let code = said.get("code").cloned().unwrap_or_default();
    table.row(vec![
        if limiter { "the limiter" } else { "the driver (cgroup)" }.to_string(),
        run::mib_of(said, "total"),
        run::mib_of(said, "free"),
        run::mib_of(said, "held"),
        code.clone(),
    ]);
    let held = said.get("held").and_then(|text| text.parse::<u64>().ok()).unwrap_or(u64::MAX);
    let mut wrong = Vec::new();
    // The driver's limit has room for the context besides. A simulated one knows no cgroups.
    let most = if limiter { CAP } else { CAP + CONTEXT_MAX };
    if (held > most || code != "2") && (limiter || bench.environment.is_empty()) {
        wrong.push(format!("got {} MiB, then code {code}", held >> 20));
    }
    if !ended.good {
        wrong.push(format!("the run failed: {}", run::last_line(&ended.complaints)));
    }
    Ok(Found::Done(vec![table], wrong))
}
