//! What a workload file's entry says of how the workload runs: how it uses a GPU, and how fast it answers.

use model::Profile;

use crate::error::ReadError;
use crate::keys::Keys;
use crate::quantity;

/// Longest latency and target.
const LATENCY_MAX_MS: u32 = 3_600_000;

/// `profile = { busy = 0.4, sm = 0.3, dram = 0.5, l2 = 0.2 }`, each a part of the GPU while the workload has it for itself.
pub(crate) fn profile(keys: &Keys<'_>) -> Result<Profile, ReadError> {
    let Some(field) = keys.get("profile") else { return Ok(Profile::default()) };
    let parts = field.keys(&["busy", "sm", "dram", "l2"])?;
    let part = |name: &str| parts.read(name, quantity::part_milli);
    let (busy_milli, sm_milli) = (part("busy")?, part("sm")?);
    Ok(Profile { busy_milli, sm_milli, dram_milli: part("dram")?, l2_milli: part("l2")? })
}

/// The latency that a service must keep and the one that it has alone.
pub(crate) fn latencies_ms(keys: &Keys<'_>) -> Result<(Option<u32>, Option<u32>), ReadError> {
    let read = |name| keys.get(name).map(|field| field.count(1, LATENCY_MAX_MS)).transpose();
    let (target_ms, alone_ms) = (read("latency_target_ms")?, read("latency_alone_ms")?);
    let is_missed =
        |field| Some((field, target_ms?, alone_ms?)).filter(|(_, target, alone)| alone > target);
    match keys.get("latency_alone_ms").and_then(is_missed) {
        Some((field, target_ms, _)) => {
            let what = format!("is above its target of {target_ms}");
            Err(field.error(what, "give it a target that it can keep alone"))
        }
        None => Ok((target_ms, alone_ms)),
    }
}
