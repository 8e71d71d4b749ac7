//! `cuGetProcAddress` gives what the exported symbols are, the one that a client's version means.

#![allow(clippy::unwrap_used, reason = "tests")]

mod loaded;

use std::ffi::CString;

use loaded::{Loaded, alone};

/// Address and status of a name for a client.
fn look_up(on: &Loaded, name: &str, version: usize, flags: usize) -> (usize, u32) {
    let name = CString::new(name).unwrap();
    let (mut address, mut status) = (0_usize, 9_u32);
    let to = (&raw mut address).expose_provenance();
    let told = (&raw mut status).expose_provenance();
    let args = [name.as_ptr().expose_provenance(), to, version, flags, told];
    assert_eq!(on.call("cuGetProcAddress_v2", &args), 0);
    (address, status)
}

#[test]
fn versions_and_default_streams_decide() {
    let name = "versions_and_default_streams_decide";
    let Some(on) = alone(name, "a30", &[], |_| {}) else { return };
    // Name, version, flags, symbol.
    let cases = [
        ("cuMemAlloc", 13_050, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
        ("cuLaunchKernel", 12_000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 12_000, 1, "cuLaunchKernel"),
        ("cuLaunchKernel", 12_000, 2, "cuLaunchKernel_ptsz"),
        ("cuMemcpyHtoD", 12_000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemAllocAsync", 12_000, 2, "cuMemAllocAsync_ptsz"),
        ("cuMemAlloc", 12_000, 2, "cuMemAlloc_v2"),
        ("cuCtxCreate", 12_040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12_050, 0, "cuCtxCreate_v4"),
        ("cuGraphInstantiate", 11_000, 0, "cuGraphInstantiate_v2"),
        ("cuGraphInstantiate", 12_000, 0, "cuGraphInstantiateWithFlags"),
        ("cuStreamGetCaptureInfo", 12_030, 2, "cuStreamGetCaptureInfo_v3_ptsz"),
        ("cuGetProcAddress", 12_000, 0, "cuGetProcAddress_v2"),
        ("cuGetProcAddress", 11_030, 0, "cuGetProcAddress"),
    ];
    for (base, version, flags, symbol) in cases {
        let (address, status) = look_up(&on, base, version, flags);
        assert_eq!((address, status), (on.symbol(symbol).expose_provenance(), 0), "{symbol}");
    }
    assert_eq!(look_up(&on, "cuMemAllocAsync", 11_000, 0), (0, 2));
    assert_eq!(look_up(&on, "cuNothing", 13_000, 0), (0, 1));
    // Names with a suffix are symbols, not names.
    assert_eq!(look_up(&on, "cuMemAlloc_v2", 13_000, 0), (0, 1));
}

#[test]
fn what_the_driver_lacks_is_not_found() {
    let name = "what_the_driver_lacks_is_not_found";
    let lacking = |state: &mut fake_machine::State| {
        state.missing.push("cuMemAllocAsync".into());
    };
    let Some(on) = alone(name, "a30", &[], lacking) else { return };
    on.start(0);
    assert_eq!(look_up(&on, "cuMemAllocAsync", 12_000, 0), (0, 1));
    let mut address = 0_usize;
    assert_eq!(on.call("cuMemAllocAsync", &[(&raw mut address).expose_provenance(), 64]), 36);
}
