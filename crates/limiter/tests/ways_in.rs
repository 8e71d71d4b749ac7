//! Every way by which a client can come to the driver's functions ends at the cap.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use std::process::Command;

use support::{CONTEXT_MIB, Client, OUT_OF_MEMORY, Stage, built, limiter, target};

/// Pieces of 64 MiB that fit under a cap of 512 MiB beside a context.
const PIECES: u64 = (512 - CONTEXT_MIB) / 64;

/// What a client says that comes in by a way: pieces, code, total shown in MiB.
fn comes_in(stage: &Stage, way: &str) -> String {
    comes_in_with(stage, way, |command| command)
}

fn comes_in_with(
    stage: &Stage,
    way: &str,
    change: impl Fn(&mut Command) -> &mut Command,
) -> String {
    let driver = target("libhotpot_fake_cuda.so");
    let driver = driver.to_str().unwrap();
    let library = built("liblinked.so", &["linked.c"], &["-shared", "-fPIC", driver]);
    let program = if way == "linked" {
        built("ways-linked", &["ways.c", "linked.c"], &["-DLINKED", "-ldl", driver])
    } else {
        built("ways", &["ways.c"], &["-ldl"])
    };
    let mut command = stage.command(&program);
    let done = change(command.arg(way).env("LINKED_LIBRARY", library)).output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{way}: {:?}: {said}", done.status);
    assert_eq!(String::from_utf8(done.stderr).unwrap(), "", "{way} must be silent");
    said.trim().to_owned()
}

#[test]
fn every_way_in_is_capped() {
    let ways = [
        "dlsym",
        "deepbind",
        "global-default",
        "next",
        "program",
        "proc-address",
        "proc-address-v2",
        "proc-address-itself",
        "library",
        "library-deepbind",
        "linked",
        "fork",
        "exec",
    ];
    let stage = Stage::new("ways", 512);
    for way in ways {
        let said = comes_in(&stage, way);
        assert_eq!(said, format!("{PIECES} {OUT_OF_MEMORY} 512"), "by {way}");
        let refused = stage.account().over_cap;
        assert_eq!((refused.asked, refused.limit), (64 << 20, 512 << 20), "by {way}");
    }
    // By `exec` two programs came to the cap.
    assert_eq!(stage.account().over_cap.count, ways.len() as u64 + 1);
}

#[test]
fn a_driver_that_gives_addresses_unlike_its_exports() {
    let stage = Stage::new("thunks", 512);
    for way in ["proc-address", "proc-address-v2", "proc-address-itself"] {
        let said = comes_in_with(&stage, way, |command| command.env("HOTPOT_FAKE_THUNKS", "1"));
        assert_eq!(said, format!("{PIECES} {OUT_OF_MEMORY} 512"), "by {way}");
    }
    let told = built("told", &["told.c"], &["-ldl", "-lpthread"]);
    let mut command = stage.command(&told);
    command.env("HOTPOT_FAKE_THUNKS", "1").env("TOLD_BY_ADDRESS", "1");
    let mut client = Client::start(&mut command);
    client.does("begin");
    for what in ["alloc 1", "alloc-managed 1", "alloc-async 1", "create 1", "graph 1"] {
        let (_, last) = what.split_once(' ').unwrap();
        let undo = match what {
            "create 1" => format!("end-piece {last}"),
            "graph 1" => format!("end-graph {last}"),
            "alloc-async 1" => format!("free-async {last}"),
            _ => format!("free {last}"),
        };
        assert_eq!(client.ask(&format!("{what} {} 1 0", 600 << 20)).0, OUT_OF_MEMORY, "{what}");
        client.does(&format!("{what} {} 1 0", 64 << 20));
        assert_eq!(stage.booked_mib(), CONTEXT_MIB + 64, "{what}");
        client.does(&undo);
        client.does("wait");
        assert_eq!(stage.booked_mib(), CONTEXT_MIB, "{undo}");
    }
}

/// As on WSL: `libcuda.so.1` only looks the driver's functions up in a library of another name.
#[test]
fn a_driver_that_passes_on_to_another() {
    let stage = Stage::new("forwarder", 512);
    let known_as = stage.folder.join("lib/libcuda.so.1");
    let behind = stage.folder.join("lib/libcuda.so.1.1");
    std::fs::rename(&known_as, &behind).unwrap();
    let more = ["-shared", "-fPIC", "-ldl", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"];
    std::fs::copy(built("forwarder.so", &["forwarder.c"], &more), &known_as).unwrap();
    for way in ["dlsym", "global-default", "program", "proc-address", "proc-address-v2"] {
        let said = comes_in_with(&stage, way, |command| command.env("BEHIND", &behind));
        assert_eq!(said, format!("{PIECES} {OUT_OF_MEMORY} 512"), "by {way}");
    }
}

#[test]
fn other_interposers_above_and_below_get_on() {
    let stage = Stage::new("neighbours", 512);
    let driver = target("libhotpot_fake_cuda.so");
    let more = ["-DLINKED", "-ldl", driver.to_str().unwrap()];
    let program = built("ways-linked", &["ways.c", "linked.c"], &more);
    let neighbour = built("neighbour.so", &["neighbour.c"], &["-shared", "-fPIC", "-ldl"]);
    let limiter = limiter();
    for [first, second] in [[&limiter, &neighbour], [&neighbour, &limiter]] {
        let preload = format!("{} {}", first.display(), second.display());
        let done = stage.command(&program).arg("linked").env("LD_PRELOAD", &preload).output();
        let said = String::from_utf8(done.unwrap().stdout).unwrap();
        assert_eq!(said.trim(), format!("{PIECES} {OUT_OF_MEMORY} 512"), "{preload}");
    }
}

#[test]
fn the_loader_answers_as_if_nobody_stood_before_it() {
    let stage = Stage::new("transparent", 512);
    let hidden = stage.folder.join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let private = built("private.so", &["private.c"], &["-shared", "-fPIC"]);
    std::fs::copy(private, hidden.join("libprivate.so")).unwrap();
    let more = ["-shared", "-fPIC", "-ldl", "-Wl,-rpath,$ORIGIN/hidden,--enable-new-dtags"];
    let opener = stage.folder.join("libopener.so");
    std::fs::copy(built("opener.so", &["opener.c"], &more), &opener).unwrap();
    let program = built("transparent", &["transparent.c"], &["-ldl", "-rdynamic"]);
    let done = stage.command(&program).arg(&opener).output().unwrap();
    assert!(done.status.success());
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "42 next\n");
}

#[test]
fn without_a_driver_there_seems_to_be_none() {
    let stage = Stage::new("absent", 512);
    assert_eq!(comes_in(&stage, "absent"), "absent said");
    assert_eq!(stage.log(), "");
}

#[test]
fn without_caps_nothing_is_capped_and_nothing_is_booked() {
    let stage = Stage::new("free", 512);
    std::fs::remove_file(stage.folder.join("caps")).unwrap();
    let program = built("ways", &["ways.c"], &["-ldl"]);
    let mut command = stage.command(&program);
    let done = command.arg("dlsym").env_remove("HOTPOT_CAPS").output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let pieces: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(pieces > 1000, "an 80 GiB GPU has room for more: {said}");
    assert!(stage.account().processes.is_empty());
}

#[test]
fn caps_that_cannot_be_read_allow_nothing() {
    let stage = Stage::new("nonsense", 512);
    let caps = stage.folder.join("caps");
    let good = std::fs::read_to_string(&caps).unwrap();
    let missing = good.replace(".ledger", ".nowhere");
    for text in ["memory = lots\n", missing.as_str()] {
        std::fs::write(&caps, text).unwrap();
        // CUDA_ERROR_OPERATING_SYSTEM
        assert_eq!(comes_in(&stage, "dlsym"), "0 304 0", "with {text}");
    }
    let log = stage.log();
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(log.contains("caps cannot be read") && log.contains("books at"), "{log}");
}
