//! A task of `hotpot run`: shows what it was given, takes memory until it is refused, computes for a while.

use std::time::{Duration, Instant};

use super::compute::{Cost, Kernels};
use super::{Ask, say};
use crate::Verdict;
use crate::gpu::driver::Cuda;

/// Variables by which a task learns what it has.
const VARIABLES: [&str; 5] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "HOTPOT_CAPS",
];

/// What is asked for at a time, in bytes.
const PIECE: u64 = 64 << 20;

/// `most` — bytes at which it stops taking memory; `busy_ms`, `ns_per_round`.
pub(super) fn run(ask: &Ask) -> Verdict {
    for name in VARIABLES {
        if let Ok(value) = std::env::var(name) {
            say(name, value);
        }
    }
    let cuda = Cuda::open(ask.lookup())?;
    let (free, total) = cuda.memory()?;
    say("uuid", cuda.uuid()?);
    say("sms", cuda.shape()?.0);
    say("total", total);
    say("free", free);
    let kernels = Kernels::load(&cuda, 8)?;
    let (most, mut held): (u64, u64) = (ask.get("most")?, 0);
    let mut code = 0;
    while held + PIECE <= most && code == 0 {
        match cuda.alloc(PIECE) {
            Ok(_) => held += PIECE,
            Err(failed) => code = failed.code,
        }
    }
    say("held", held);
    say("code", code);
    let rounds = (1e6 / ask.get::<f64>("ns_per_round")?) as u64;
    let (cost, stream) = (Cost { ns: 1_000_000, rounds }, cuda.stream(false)?);
    let busy = Duration::from_millis(ask.get("busy_ms")?);
    let (begin, mut ended) = (Instant::now(), 0_u64);
    while begin.elapsed() < busy {
        for _ in 0..4 {
            kernels.work(cost, stream)?;
        }
        cuda.synchronize(stream)?;
        ended += 4;
    }
    say("work_ms", ended);
    say("took_ms", begin.elapsed().as_millis());
    Ok(())
}
