//! Refusals as sentences.

use core::fmt;

use super::Refusal;

impl fmt::Display for Refusal {
    #[expect(clippy::too_many_lines, reason = "one arm per variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { asked_milli, offered_milli } => {
                write!(f, "CPU: asks {}, free {}", Milli(*asked_milli), Milli(*offered_milli))
            }
            Self::NodeMemory { asked_mib, offered_mib } => {
                write!(f, "memory: asks {asked_mib} MiB, free {offered_mib} MiB")
            }
            Self::NoSuchPlace { place } => write!(f, "there is no {place}"),
            Self::NotAccepted => f.write_str(
                "none of the nodes that it may go to (by selector, affinity, taints or partition)",
            ),
            Self::GpuModel { asked, offered } => {
                let asked = if asked.is_empty() { "a GPU" } else { asked };
                let offered = if offered.is_empty() { "no GPU" } else { offered };
                write!(f, "GPU model: asks {asked}, has {offered}")
            }
            Self::GpuCount { asked, offered, because } => {
                write!(f, "GPUs: asks {asked}, could use {offered}")?;
                match because {
                    Some(because) => write!(f, "; the next one, {because}"),
                    None => f.write_str(" and has no more"),
                }
            }
            Self::SetAside => f.write_str("GPU set aside: lost, faulty or taken out of use"),
            Self::Occupied { tenants } => {
                write!(f, "GPU in use: {tenants} tenant{} on it", plural(*tenants))
            }
            Self::Compute { asked_milli, offered_milli } => {
                write!(f, "compute: asks {asked_milli}/1000, free {offered_milli}/1000")
            }
            Self::GpuMemory { asked_mib, offered_mib } => {
                write!(f, "GPU memory: asks {asked_mib} MiB, free {offered_mib} MiB")
            }
            Self::BelowContext { share_mib, context_mib } => write!(
                f,
                "GPU memory: the share comes to {share_mib} MiB, a CUDA context takes {context_mib}"
            ),
            Self::Tenants { tenants_max } => {
                write!(f, "tenants: the limit of {tenants_max} on this GPU is reached")
            }
            Self::Mode { asked, in_force } => {
                write!(f, "mode: needs {asked}, the GPU is shared by {in_force}")
            }
            Self::NoMode { accepted, isolation, offered } => write!(
                f,
                "mode: accepts {accepted} with isolation {isolation}, the GPU offers {offered}"
            ),
            Self::MigPlacement { profile } => {
                write!(f, "MIG: no placement free for {profile}")
            }
            Self::MigProfile { profile, model } => write!(f, "MIG: {model} has no {profile}"),
            Self::TooSlow { speed_milli, least_milli } => write!(
                f,
                "interference: would run at {} of its speed beside those there, needs {}",
                Milli(u64::from(*speed_milli)),
                Milli(u64::from(*least_milli))
            ),
            Self::SlowsOthers { speed_milli, least_milli } => write!(
                f,
                "interference: somebody there would run at {} of its speed, needs {}",
                Milli(u64::from(*speed_milli)),
                Milli(u64::from(*least_milli))
            ),
            Self::Quota { owner, asked_milli, used_milli, limit_milli } => write!(
                f,
                "quota of {owner}: asks {}, uses {} of {} GPUs",
                Milli(*asked_milli),
                Milli(*used_milli),
                Milli(*limit_milli)
            ),
            Self::ArrayLimit { at_once_max } => {
                write!(f, "array: its limit of {at_once_max} at once is reached")
            }
            Self::Gang { asked, offered, because } => {
                write!(f, "gang: {offered} of {asked} members find a place; the next, {because}")
            }
            Self::GangTooLarge { asked, members_max } => {
                write!(f, "gang: asks {asked} members, more than the limit of {members_max}")
            }
            Self::KeptForHead { head, until_ms } => {
                write!(f, "fits only on nodes kept for {head}, expected to start at {until_ms} ms")
            }
            Self::BehindHead { head } => {
                write!(f, "stands behind {head}, and the policy lets nobody go ahead")
            }
            Self::MakingRoom { leaving, by_ms } => write!(
                f,
                "waits for {leaving} workload{} asked to leave by {by_ms} ms at the latest",
                plural(*leaving)
            ),
            Self::NotWaiting { workload } => write!(f, "{workload} is not in the queue"),
            Self::NotRunning { workload } => write!(f, "{workload} does not run"),
            Self::BeyondDepth { depth } => {
                write!(f, "not looked at: more than {depth} workloads are ahead in the queue")
            }
            Self::Never { because } => write!(f, "can never run here: {because}"),
        }
    }
}

/// Prints thousandths as a decimal number without trailing zeros.
struct Milli(u64);

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        match rest {
            0 => write!(f, "{whole}"),
            _ if rest % 100 == 0 => write!(f, "{whole}.{}", rest / 100),
            _ if rest % 10 == 0 => write!(f, "{whole}.{:02}", rest / 10),
            _ => write!(f, "{whole}.{rest:03}"),
        }
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}
