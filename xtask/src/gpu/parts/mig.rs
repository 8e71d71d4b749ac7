//! A MIG instance asked for through `hotpot run`: made, used by a task, and what the task saw of it.

use super::{Found, run};
use crate::gpu::bench::Bench;
use crate::gpu::table::Table;
use crate::gpu::tenant::words;

/// Models and the profile that is an eighth or a seventh of them.
const PROFILES: [(&str, &str); 6] = [
    ("H200", "1g.18gb"),
    ("H100", "1g.10gb"),
    ("A100-SXM4-80GB", "1g.10gb"),
    ("A100 80GB", "1g.10gb"),
    ("A100", "1g.5gb"),
    ("A30", "1g.6gb"),
];

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    if let Some(what) = run::missing(bench) {
        return Ok(Found::Skipped(what));
    }
    if !bench.change_settings {
        let what = "it changes the GPU's MIG mode and puts it back; allow it by --change-settings";
        return Ok(Found::Skipped(what.to_string()));
    }
    let Some((_, profile)) = PROFILES.iter().find(|(name, _)| bench.gpu.name.contains(name)) else {
        return Ok(Found::Skipped(format!("no MIG profile is known here for {}", bench.gpu.name)));
    };
    let work = words(
        "task",
        &[("most", &(512_u64 << 20)), ("busy_ms", &500), ("ns_per_round", &bench.ns_per_round()?)],
    );
    let asks = format!("mig_profile = \"{profile}\"");
    let ended = run::run(bench, "mig", (&asks, 2), &work)?;
    if !ended.good && ended.tasks.iter().all(std::collections::BTreeMap::is_empty) {
        return Ok(Found::Skipped(run::last_line(&ended.complaints)));
    }
    let title = format!("Two tasks in {profile} instances, by hotpot run");
    let head =
        ["task", "device", "SMs", "total MiB", "free MiB", "got MiB", "ms busy", "1 ms kernels"];
    let mut table = Table::new(&title, &head);
    for (at, said) in ended.tasks.iter().enumerate() {
        let text = |name: &str| said.get(name).cloned().unwrap_or_default();
        table.row(vec![
            (at + 1).to_string(),
            text("CUDA_VISIBLE_DEVICES"),
            text("sms"),
            run::mib_of(said, "total"),
            run::mib_of(said, "free"),
            run::mib_of(said, "held"),
            text("took_ms"),
            text("work_ms"),
        ]);
    }
    let mut wrong = Vec::new();
    if !ended.good {
        wrong.push(format!("the run failed: {}", run::last_line(&ended.complaints)));
    }
    let on_mig = |said: &run::Said| {
        said.get("CUDA_VISIBLE_DEVICES").is_some_and(|device| device.starts_with("MIG-"))
    };
    if !ended.tasks.iter().all(on_mig) {
        wrong.push("a task was not given a MIG device".to_string());
    }
    Ok(Found::Done(vec![table], wrong))
}
