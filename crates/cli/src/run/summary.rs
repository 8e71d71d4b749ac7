//! What a run came to, for people.

use std::fmt::Write as _;

use local::Summary;

/// The summary as text.
pub(super) fn table(summary: &Summary) -> String {
    let mut text = String::new();
    let _ = write!(text, "run {}: {} of {} tasks done", summary.run, summary.done, summary.tasks);
    if summary.failed > 0 {
        let _ = write!(text, ", {} failed", summary.failed);
    }
    let _ = writeln!(text);
    let row = |text: &mut String, name: &str, value: String| {
        let _ = writeln!(text, "  {name:<18} {value}");
    };
    row(&mut text, "makespan", seconds(summary.makespan_ms));
    let (mean, max) = (seconds(summary.waiting_mean_ms), seconds(summary.waiting_max_ms));
    row(&mut text, "waiting", format!("{mean} on average, {max} at most"));
    if summary.gpus > 0 {
        let simulated = if summary.simulated { " (simulated)" } else { "" };
        row(&mut text, "GPUs", format!("{}{simulated}", summary.gpus));
        row(&mut text, "GPU hours held", hours(summary.gpu_hours_held));
        let busy = summary.gpu_hours_busy.filter(|_| !summary.simulated);
        row(&mut text, "GPU hours busy", busy.map_or("not measured".to_string(), hours));
        if let Some(booked) = summary.gpu_hours_booked {
            row(
                &mut text,
                "GPU hours by task",
                format!("{} by the limiter's measure", hours(booked)),
            );
        }
        let occupancy =
            summary.occupancy.map_or("-".to_string(), |part| format!("{:.1} %", part * 100.0));
        row(&mut text, "occupancy", format!("{occupancy} of all GPUs for the whole makespan"));
    }
    if summary.memory_refused > 0 {
        let text_of = |count| if count == 1 { "1 task".into() } else { format!("{count} tasks") };
        let (tasks, run) = (text_of(summary.memory_refused), summary.run);
        row(
            &mut text,
            "memory refused",
            format!("to {tasks}; `hotpot explain TASK --run {run}` says more"),
        );
    }
    if summary.left > 0 {
        let what = if summary.interrupted { "interrupted" } else { "not all could be started" };
        let _ = writeln!(
            text,
            "{what}: {} tasks left; continue with `hotpot run --resume {}`",
            summary.left, summary.run
        );
    }
    text
}

/// Seconds, with ms where they are few.
pub(crate) fn seconds(ms: u64) -> String {
    match ms {
        ms if ms < 10_000 => format!("{}.{:03} s", ms / 1000, ms % 1000),
        ms => super::progress::humane(std::time::Duration::from_millis(ms)),
    }
}

fn hours(hours: f64) -> String {
    format!("{hours:.4}")
}
