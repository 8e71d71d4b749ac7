//! The GPU demand of an sbatch script: what Slurm's options ask for, and hotpot's own `--gpu-mem`,
//! `--gpu-compute`, `--gpu-share` and `--gpu-profile`.

use model::{GpuAsk, GpuDemand, Isolation, ModeSet, ModelSet, SharingKind};

use crate::directives::Directives;
use crate::error::{Complaint, ReadError, quote};
use crate::gres::{self, Asked, MPS_PER_GPU, Spread};
use crate::{names, quantity};

/// Hotpot's own options, in the order in which they are looked for.
const OWN: [&str; 4] = ["gpu-profile", "gpu-mem", "gpu-compute", "gpu-share"];

/// The GPU demand of each member; `None` for a CPU-only script.
///
/// * `shard_mib` — device memory that one shard stands for.
pub(crate) fn demand(
    directives: &Directives<'_>,
    spread: Spread,
    shard_mib: u64,
    warnings: &mut Vec<String>,
) -> Result<Option<GpuDemand>, ReadError> {
    let own = OWN.into_iter().find(|option| directives.has(option));
    let (option, asked) = match (gres::asked(directives, spread, warnings)?, own) {
        (Some(found), _) => found,
        (None, Some(own)) => (own, Asked::Gpus { model: None, count: 1 }),
        (None, None) => return Ok(None),
    };
    match asked {
        Asked::Gpus { count: 0, .. } => no_gpus(directives, own),
        Asked::Gpus { count, model } => gpus(directives, count, model).map(Some),
        Asked::Shards(_) | Asked::Mps(_) if own.is_some() => {
            let what = "asks for a share in Slurm's way and in hotpot's";
            Err(directives.complain(option, Complaint::new(what, "keep one of the two")))
        }
        Asked::Shards(count) => {
            let memory_mib = u64::from(count).saturating_mul(shard_mib);
            Ok(Some(part_of_one(0, memory_mib, ModeSet::ALL)))
        }
        Asked::Mps(percent) => {
            let compute_milli = percent * (1000 / MPS_PER_GPU);
            Ok(Some(part_of_one(compute_milli, 0, ModeSet::of(&[SharingKind::Mps]))))
        }
    }
}

fn part_of_one(compute_milli: u32, memory_mib: u64, modes: ModeSet) -> GpuDemand {
    let each = GpuAsk::Fraction { compute_milli, memory_mib };
    GpuDemand { count: 1, each, accepts: Vec::new(), isolation: Isolation::None, modes }
}

fn no_gpus(directives: &Directives<'_>, own: Option<&str>) -> Result<Option<GpuDemand>, ReadError> {
    let Some(own) = own else { return Ok(None) };
    let what = "is set, but the script asks for 0 GPUs";
    Err(directives.complain(own, Complaint::new(what, "ask for 1 or more")))
}

/// GPUs by number, each as hotpot's own options say. A type is a GPU model or a MIG profile.
fn gpus(
    directives: &Directives<'_>,
    count: u32,
    model: Option<String>,
) -> Result<GpuDemand, ReadError> {
    let (profile, model) = match model {
        Some(name) if names::is_mig_profile(&name) => (Some(name), None),
        other => (None, other),
    };
    let (each, modes) = each(directives, profile)?;
    let accepts = model.iter().map(|name| ModelSet::parse(name)).collect();
    Ok(GpuDemand { count, each, accepts, isolation: Isolation::None, modes })
}

/// What is needed of each GPU, and the modes that fit.
fn each(
    directives: &Directives<'_>,
    typed: Option<String>,
) -> Result<(GpuAsk, ModeSet), ReadError> {
    let memory_mib = directives.read("gpu-mem", gpu_memory)?;
    let compute_milli = directives.read("gpu-compute", quantity::share_milli)?;
    let profile = directives.read("gpu-profile", names::mig_profile)?.or(typed);
    let share = directives.read("gpu-share", share_modes)?.unwrap_or(ModeSet::ALL);
    match (profile, compute_milli, memory_mib) {
        (Some(profile), None, None) => of_profile(directives, profile, share),
        (Some(_), compute, _) => {
            let option = if compute.is_some() { "gpu-compute" } else { "gpu-mem" };
            let what = "sizes what the MIG profile sizes already";
            Err(directives.complain(option, Complaint::new(what, "keep one of the two")))
        }
        (None, None, None) => whole(directives, share),
        (None, Some(1000), None) => Ok((GpuAsk::Whole, share)),
        (None, compute, memory) => of_size(directives, compute, memory, share),
    }
}

fn of_profile(
    directives: &Directives<'_>,
    profile: String,
    share: ModeSet,
) -> Result<(GpuAsk, ModeSet), ReadError> {
    if share.contains(SharingKind::Mig) {
        return Ok((GpuAsk::Profile(profile), ModeSet::of(&[SharingKind::Mig])));
    }
    let complaint = Complaint::new("has no MIG profiles", "write --gpu-share=mig");
    Err(directives.complain("gpu-share", complaint))
}

fn of_size(
    directives: &Directives<'_>,
    compute_milli: Option<u32>,
    memory_mib: Option<u64>,
    share: ModeSet,
) -> Result<(GpuAsk, ModeSet), ReadError> {
    if share == ModeSet::of(&[SharingKind::Exclusive]) {
        let what = "gives the whole GPU, and a size is set";
        let way_out = "leave out the size, or write --gpu-share=auto";
        return Err(directives.complain("gpu-share", Complaint::new(what, way_out)));
    }
    let (compute_milli, memory_mib) = (compute_milli.unwrap_or(0), memory_mib.unwrap_or(0));
    Ok((GpuAsk::Fraction { compute_milli, memory_mib }, share))
}

fn whole(directives: &Directives<'_>, share: ModeSet) -> Result<(GpuAsk, ModeSet), ReadError> {
    if share.contains(SharingKind::Exclusive) {
        return Ok((GpuAsk::Whole, share));
    }
    let what = "shares a GPU without saying how much of it";
    let way_out = "add --gpu-mem=2G, --gpu-compute=20% or --gpu-profile=1g.10gb";
    Err(directives.complain("gpu-share", Complaint::new(what, way_out)))
}

fn gpu_memory(text: &str) -> Result<u64, Complaint> {
    match quantity::slurm_memory_mib(text)? {
        0 => Err(Complaint::new(format!("{} is no memory", quote(text)), "give one such as 2G")),
        mib => Ok(mib),
    }
}

fn share_modes(text: &str) -> Result<ModeSet, Complaint> {
    const KNOWN: [&str; 6] = ["auto", "exclusive", "timeslice", "mps", "mig", "capped"];
    match text {
        "auto" => Ok(ModeSet::ALL),
        text => match names::mode(text) {
            Ok(mode) => Ok(ModeSet::of(&[mode])),
            Err(_) => Err(names::unknown("way to share a GPU", text, &KNOWN)),
        },
    }
}
