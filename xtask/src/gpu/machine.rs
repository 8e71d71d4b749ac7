//! What machine the figures are of: GPU, driver, kernel, C library.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::bench::Bench;
use crate::shell;

/// As the head of a markdown file.
pub(super) fn describe(bench: &Bench) -> String {
    let gpu = &bench.gpu;
    let first = |text: String| text.lines().next().unwrap_or("").trim().to_string();
    let file =
        |path: &str| fs::read_to_string(path).map(first).unwrap_or_else(|_| "unknown".into());
    let glibc = shell::output(Command::new("getconf").arg("GNU_LIBC_VERSION"));
    let query =
        ["--query-gpu=driver_version,mig.mode.current,compute_mode", "--format=csv,noheader"];
    let settings = bench.nvidia_smi(&query).map(first);
    let mut text = String::from("# What a GPU says\n\n");
    if !bench.environment.is_empty() {
        text.push_str(
            "On a SIMULATED GPU: this shows that the script runs, and nothing of a GPU.\n\n",
        );
    }
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "* {name}: {value}");
    };
    let capability = format!("{}.{}", gpu.capability / 10, gpu.capability % 10);
    let shape = format!("{} multiprocessors, compute capability {capability}", gpu.sms);
    line("GPU", &format!("{}, {} MiB, {shape}", gpu.name, gpu.total >> 20));
    line("CUDA of the driver", &gpu.cuda);
    line("driver, MIG mode, compute mode", &settings.unwrap_or_else(|_| "unknown".into()));
    line("kernel module", &file("/proc/driver/nvidia/version"));
    line("Linux", &file("/proc/sys/kernel/osrelease"));
    line("C library", &glibc.map(first).unwrap_or_else(|_| "unknown".into()));
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    line("CPUs", &cpus.to_string());
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    line("built", profile);
    text
}
