//! What release of Slurm the plugin says it was made for: the one that loads it.

use std::ffi::c_long;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host;

/// Read by Slurm when it loads the plugin: `major << 16 | minor << 8`, as in `SLURM_VERSION_NUM` of `slurm.h`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is Slurm's")]
static plugin_version: AtomicU32 = AtomicU32::new(0);

/// Runs when the library is mapped, before Slurm looks at it.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = {
    extern "C" fn on_load() {
        let Some(address) = host::symbol(c"slurm_api_version") else { return };
        // SAFETY: Slurm's function of that name takes nothing and returns a long.
        let api_version: extern "C" fn() -> c_long = unsafe { std::mem::transmute(address) };
        if let Some(number) = release(api_version() >> 16) {
            plugin_version.store(number, Ordering::SeqCst);
        }
    }
    on_load
};

/// The number of the release that has an API version. 38 is 22.05, 39 is 23.02; from 40, which is 23.11, each
/// May and each November has one (`META` of Slurm's releases up to 46, 26.11).
fn release(api: c_long) -> Option<u32> {
    let api = u32::try_from(api).ok()?;
    let (year, month) = match api {
        ..38 => return None,
        38 => (22, 5),
        39 => (23, 2),
        40.. => (api.saturating_add(7) / 2, if api % 2 == 0 { 11 } else { 5 }),
    };
    year.checked_shl(16).map(|year| year | month << 8)
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn releases_have_their_api_versions() {
        let numbers = [37, 38, 39, 40, 41, 42, 43, 44, 45, 46].map(release);
        let expected = [
            None,
            Some(0x160500),
            Some(0x170200),
            Some(0x170b00),
            Some(0x180500),
            Some(0x180b00),
            Some(0x190500),
            Some(0x190b00),
            Some(0x1a0500),
            Some(0x1a0b00),
        ];
        assert_eq!(numbers, expected);
    }
}
