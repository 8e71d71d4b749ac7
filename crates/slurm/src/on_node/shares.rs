//! From what Slurm has booked for a job, and what it asked, to a share of each device. A cap is never above
//! what is booked.

use model::{GpuModel, Share, SharingKind};

use crate::ask::Ask;
use crate::gres::Booked;
use crate::site::Site;

use super::slots::Slot;

/// Thousandths in one percent, in which MPS is booked: 100 a card (gres.conf manual, `Count` of mps).
const MILLI_PER_PERCENT: u64 = 10;
const WHOLE_MILLI: u32 = 1000;

/// The share of one device.
///
/// * `amount` — how much of it is booked: 1 for a whole one, shards or percent else.
///
/// # Errors
/// A way of sharing that the device cannot be given in, for the job's user.
pub(super) fn share(
    slot: &Slot,
    (booked, amount): (&Booked, u64),
    ask: &Ask,
    (site, model): (&Site, &GpuModel),
) -> Result<Share, String> {
    if let Some(instance) = slot.instance {
        return Ok(instance);
    }
    match booked.name.as_str() {
        "shard" => {
            let memory_mib = memory(amount.saturating_mul(site.shard_mib), ask, model);
            let compute_milli = compute((amount, model.memory_mib / site.shard_mib), ask);
            part(ask.sharing.unwrap_or(site.sharing), memory_mib, compute_milli)
        }
        "mps" => {
            let milli = u32::try_from(amount.saturating_mul(MILLI_PER_PERCENT));
            let compute_milli = milli.unwrap_or(WHOLE_MILLI).min(WHOLE_MILLI);
            let memory_mib = ask.memory_mib.map_or(0, |mib| mib.saturating_add(model.context_mib));
            Ok(Share::Mps { compute_milli, memory_mib })
        }
        _ => Ok(Share::Exclusive),
    }
}

/// The cap: what was asked and a context, or all that is booked.
fn memory(booked_mib: u64, ask: &Ask, model: &GpuModel) -> u64 {
    let asked = ask.memory_mib.map(|mib| mib.saturating_add(model.context_mib));
    asked.map_or(booked_mib, |mib| mib.min(booked_mib))
}

/// The cap: what was asked, or as much of the card as is booked. 0 for none.
///
/// * `amount`, `all` — shards that are booked, and that the card has.
fn compute((amount, all): (u64, u64), ask: &Ask) -> u32 {
    let booked = amount.saturating_mul(u64::from(WHOLE_MILLI)) / all.max(1);
    let booked = u32::try_from(booked).unwrap_or(WHOLE_MILLI).clamp(1, WHOLE_MILLI);
    ask.compute_milli.map_or(0, |asked| asked.min(booked))
}

fn part(kind: SharingKind, memory_mib: u64, compute_milli: u32) -> Result<Share, String> {
    match kind {
        SharingKind::MemoryCapped => Ok(Share::MemoryCapped { memory_mib, compute_milli }),
        SharingKind::TimeSlice => Ok(Share::TimeSlice { memory_mib }),
        SharingKind::Mps => Ok(Share::Mps { compute_milli, memory_mib }),
        SharingKind::Exclusive | SharingKind::Mig => {
            Err(format!("--gpu-share={kind} does not go with shards of a card"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::Catalogue;

    use super::*;

    #[test]
    fn a_cap_is_what_was_asked_and_never_more_than_is_booked() {
        let catalogue = Catalogue::shipped().unwrap();
        let model = catalogue.get("a100-80gb").unwrap();
        let slot = Slot { gpu: "GPU-1".into(), instance: None, file: None };
        let of = |name: &str, amount, ask: Ask| {
            let booked =
                Booked { name: name.into(), kind: None, of_device: BTreeMap::from([(0, amount)]) };
            share(&slot, (&booked, amount), &ask, (&Site::default(), model))
        };
        let asked = |memory_mib| Ask { memory_mib: Some(memory_mib), ..Ask::default() };
        let capped = |memory_mib| Share::MemoryCapped { memory_mib, compute_milli: 0 };
        assert_eq!(of("shard", 10, Ask::default()), Ok(capped(2560)));
        assert_eq!(of("shard", 10, asked(2048)), Ok(capped(2048 + model.context_mib)));
        assert_eq!(of("shard", 10, asked(40_960)), Ok(capped(2560)), "the ask was raised later");
        let part = |compute_milli| Ask { compute_milli: Some(compute_milli), ..Ask::default() };
        let held = |shards: u64, compute_milli| {
            Ok(Share::MemoryCapped { memory_mib: shards * 256, compute_milli })
        };
        assert_eq!(
            of("shard", 63, part(200)),
            held(63, 198),
            "of 317 shards, a fifth rounded down"
        );
        assert_eq!(of("shard", 300, part(200)), held(300, 200));
        assert_eq!(of("gpu", 1, Ask::default()), Ok(Share::Exclusive));
        let mps = Share::Mps { compute_milli: 600, memory_mib: 0 };
        assert_eq!(of("mps", 60, Ask::default()), Ok(mps));
    }
}
