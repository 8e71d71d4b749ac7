//! Takes memory in one of the driver's ways until it is refused, and shows what it is told.

use super::{Ask, say, wait_at};
use crate::Verdict;
use crate::gpu::driver::{Answer, Cuda, Failed, Made, Monitor, OUT_OF_MEMORY};

/// A piece of memory and the way back.
enum Piece {
    Plain(u64),
    Pool(u64),
    Mapped(u64, u64),
    Array(Made),
}

/// * `way` — `plain`, `pitch`, `managed`, `pool`, `virtual` or `array`; `piece` — bytes at a time;
///   `most` — bytes at which it stops by itself; `uuid` — of the GPU, for NVML.
pub(super) fn run(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let (way, piece, most) = (ask.text("way")?, ask.get("piece")?, ask.or("most", u64::MAX)?);
    shown(&cuda, ask, "before")?;
    wait_at("ready")?;
    let mut pieces = Vec::new();
    let mut refused = None;
    while refused.is_none() && (pieces.len() as u64 + 1).saturating_mul(piece) <= most {
        match take(&cuda, way, piece) {
            Ok(one) => pieces.push(one),
            Err(failed) => refused = Some(failed),
        }
    }
    say("held", pieces.len() as u64 * piece);
    say("code", refused.map_or(0, |failed| failed.code));
    say("call", refused.map_or("none", |failed| failed.call));
    shown(&cuda, ask, "after")?;
    wait_at("holding")?;
    let count = pieces.len();
    for one in pieces.drain(..) {
        give(&cuda, one)?;
    }
    cuda.synchronize_context()?;
    // What has been given back can be had again.
    let again: Answer<Vec<Piece>> = (0..count).map(|_| take(&cuda, way, piece)).collect();
    say("again", again.map_or_else(|failed| failed.code, |_| 0));
    wait_at("again").map(|_| ())
}

/// What the driver and NVML, in this process, say of the memory.
fn shown(cuda: &Cuda, ask: &Ask, when: &str) -> Verdict {
    let (free, total) = cuda.memory()?;
    say(&format!("{when}.free"), free);
    say(&format!("{when}.total"), total);
    say(&format!("{when}.device"), cuda.total()?);
    if let Ok(seen) = Monitor::open().and_then(|monitor| monitor.see(ask.text("uuid")?)) {
        say(&format!("{when}.nvml_total"), seen.total);
        say(&format!("{when}.nvml_used"), seen.used);
    }
    Ok(())
}

fn take(cuda: &Cuda, way: &str, bytes: u64) -> Answer<Piece> {
    match way {
        "plain" => cuda.alloc(bytes).map(Piece::Plain),
        "pitch" => cuda.alloc_pitch(bytes).map(Piece::Plain),
        "managed" => cuda.alloc_managed(bytes).map(Piece::Plain),
        "pool" => cuda.alloc_async(bytes).map(Piece::Pool),
        "virtual" => cuda.create_mapped(bytes).map(|address| Piece::Mapped(address, bytes)),
        "array" => cuda.array(bytes).map(Piece::Array),
        _ => Err(Failed { call: "no such way", code: OUT_OF_MEMORY - 1 }),
    }
}

fn give(cuda: &Cuda, piece: Piece) -> Answer<()> {
    match piece {
        Piece::Plain(address) => cuda.free(address),
        Piece::Pool(address) => cuda.free_async(address),
        Piece::Mapped(address, bytes) => cuda.unmap(address, bytes),
        Piece::Array(array) => cuda.destroy_array(array),
    }
}
