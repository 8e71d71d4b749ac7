//! Tasks that share the GPU by MPS, through `hotpot run`.

use super::{Found, run};
use crate::gpu::bench::Bench;
use crate::gpu::table::Table;
use crate::gpu::tenant::words;

/// What each task asks for.
const ASKS: &str = "gpu_memory = \"2GiB\"\ngpu_compute = \"30%\"\nmodes = [\"mps\"]";
/// Its cap, in bytes.
const CAP: u64 = 2 << 30;

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    if let Some(what) = run::missing(bench) {
        return Ok(Found::Skipped(what));
    }
    if !bench.change_settings {
        let what =
            "it may change the GPU's compute mode and puts it back; allow it by --change-settings";
        return Ok(Found::Skipped(what.to_string()));
    }
    // The simulated libcuda knows no MPS: to it, two tasks are one too many on a GPU for MPS alone.
    let count = if bench.environment.is_empty() { 2 } else { 1 };
    let work = words(
        "task",
        &[("most", &(CAP * 2)), ("busy_ms", &3000), ("ns_per_round", &bench.ns_per_round()?)],
    );
    let ended = run::run(bench, "mps", (ASKS, count), &work)?;
    if !ended.good && ended.tasks.iter().all(std::collections::BTreeMap::is_empty) {
        return Ok(Found::Skipped(run::last_line(&ended.complaints)));
    }
    let mut table = Table::new(
        "Tasks of 2 GiB and 30 % under MPS, by hotpot run",
        &[
            "task",
            "threads %",
            "limit",
            "SMs",
            "total MiB",
            "got MiB",
            "code",
            "ms",
            "kernels of 1 ms",
        ],
    );
    let mut wrong = Vec::new();
    for (at, said) in ended.tasks.iter().enumerate() {
        let text = |name: &str| said.get(name).cloned().unwrap_or_default();
        table.row(vec![
            (at + 1).to_string(),
            text("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
            text("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            text("sms"),
            run::mib_of(said, "total"),
            run::mib_of(said, "held"),
            text("code"),
            text("took_ms"),
            text("work_ms"),
        ]);
        if !said.contains_key("CUDA_MPS_PIPE_DIRECTORY") {
            wrong.push(format!("task {} was not told of a daemon", at + 1));
        }
        if text("code") == "0" && bench.environment.is_empty() {
            let got = run::mib_of(said, "held");
            wrong.push(format!("task {} was not stopped at {got} MiB under MPS", at + 1));
        }
    }
    if !ended.good {
        wrong.push(format!("the run failed: {}", run::last_line(&ended.complaints)));
    }
    Ok(Found::Done(vec![table], wrong))
}
