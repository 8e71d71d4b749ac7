//! What things of ours are called in the API.

/// The driver of all our devices, as slices, claims and sockets name it.
pub const DRIVER: &str = "gpu.hotpot.dev";
/// The group of our own kinds.
pub const GROUP: &str = "hotpot.dev";
/// Their version.
pub const VERSION: &str = "v1";
/// The gate at which a pod waits until its claims have been given devices.
pub const GATE: &str = "hotpot.dev/placement";
/// The class of our devices that is meant where no other is named.
pub const CLASS: &str = "gpu.hotpot.dev";
/// A pod with this label and [`IGNORE`] is none of the webhook's business.
pub const WEBHOOK_LABEL: &str = "hotpot.dev/webhook";
/// See [`WEBHOOK_LABEL`].
pub const IGNORE: &str = "ignore";
/// Templates of claims that the controller has made for asks by resource names, and will delete, have this label.
pub const ASK_LABEL: &str = "hotpot.dev/ask";

/// The label that names a pod's gang: pods of a namespace that start together or not at all.
pub const GANG: &str = "hotpot.dev/gang";
/// The label that says how many pods the gang has.
pub const GANG_SIZE: &str = "hotpot.dev/gang-size";

/// Capacity of a card: device memory in bytes, without what the driver keeps.
pub const MEMORY: &str = "memory";
/// Capacity of a card: compute, of which a card has 1.
pub const COMPUTE: &str = "compute";

/// The counter of a card's compute slices.
pub const COMPUTE_SLICES: &str = "compute-slices";

/// The counter of one of a card's memory slices.
pub fn memory_slice(at: u8) -> String {
    format!("memory-slice-{at}")
}

/// The name of a card's device: its UUID in small letters, which stays when cards change places.
pub fn card(uuid: &str) -> String {
    uuid.to_ascii_lowercase()
}

/// The name of the device of a MIG instance that could be made: at most 63 letters, as devices' names must be.
///
/// * `profile` — as `1g.10gb+me`, or `1g.24gb-me`, which is another one; `start` — its first memory slice.
pub fn instance(uuid: &str, profile: &str, start: u8) -> String {
    format!("{}-mig-{}-{start}", card(uuid), word(profile))
}

/// A MIG profile as a word of names.
pub fn word(profile: &str) -> String {
    profile.replace('-', "-no-").replace(['.', '+'], "-")
}

/// A number that tells texts apart: FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv).
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
