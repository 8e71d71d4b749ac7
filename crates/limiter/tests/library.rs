//! The library itself: what it exports and what it needs, for it is loaded into everything.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]
#![allow(unsafe_code, reason = "asks the C library which one it is")]

mod support;

use std::process::Command;

use support::{Stage, target};

/// What a tool of the C compiler's says of the library.
fn said(tool: &str, arguments: &[&str]) -> String {
    let done = Command::new(tool).args(arguments).arg(target("libhotpot_limiter.so")).output();
    String::from_utf8(done.unwrap().stdout).unwrap()
}

#[test]
fn nothing_but_hooks_is_exported() {
    let said = said("nm", &["-D", "--defined-only"]);
    let names: Vec<&str> = said
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().split('@').next().unwrap())
        .collect();
    assert!(names.len() > 70, "{names:?}");
    for name in names {
        let ours = name.starts_with("cu") || name.starts_with("nvml");
        assert!(ours || name == "dlsym" || name == "dlopen", "{name} is exported");
    }
}

#[test]
fn nothing_but_the_c_library_is_needed() {
    let said = said("readelf", &["-Wd"]);
    let needed: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{needed:?}");
    for library in needed {
        // Of GCC's library only what walks a stack (`_Unwind_…`), which glibc itself loads when a thread is
        // cancelled; before glibc 2.34 `dlsym` and threads were libraries of their own.
        let parts = ["libc.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0"];
        assert!(parts.contains(&library) || library.starts_with("ld-linux"), "{library} is needed");
    }
}

#[test]
fn no_newer_c_library_is_needed_than_the_one_it_was_built_with() {
    let said = said("readelf", &["-WV"]);
    let versions = said.split(['(', ')', ' ', '\n']).filter_map(|word| word.strip_prefix("GLIBC_"));
    let number = |version: &str| -> Option<(u32, u32)> {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    let newest = versions.filter_map(number).max().unwrap();
    // SAFETY: the C library's own text, which stays.
    let here = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    assert!(newest <= number(here.to_str().unwrap()).unwrap(), "GLIBC_{newest:?} of {here:?}");
    // What is built for older systems needs no more than this; `docs/caps.md` names it.
    assert!(newest <= (2, 36), "GLIBC_{newest:?} is needed");
}

#[test]
fn programs_without_a_driver_are_as_they_were() {
    let stage = Stage::new("bystander", 512);
    let script = "echo said; echo complained >&2; exit 3";
    let done = stage.command("/bin/sh".as_ref()).args(["-c", script]).output().unwrap();
    assert_eq!((&done.stdout[..], &done.stderr[..]), (&b"said\n"[..], &b"complained\n"[..]));
    assert_eq!(done.status.code(), Some(3));
    assert!(stage.account().processes.is_empty());
    assert_eq!(stage.log(), "");
}
