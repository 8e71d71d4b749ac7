//! Each way to get memory is counted as what the GPUs themselves say, and given back when it is given
//! back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use support::{CONTEXT_MIB, Client, MIB, OUT_OF_MEMORY, Stage};

/// A stage with a cap of 4 GiB and a client that has begun.
fn begun(name: &str) -> (Stage, Client) {
    let stage = Stage::new(name, 4096);
    let mut client = stage.client();
    client.does("begin");
    assert_eq!(held(&stage), CONTEXT_MIB);
    (stage, client)
}

/// What is held in MiB, by the books and in truth.
#[track_caller]
fn held(stage: &Stage) -> u64 {
    let booked = stage.booked_mib();
    assert_eq!(
        booked,
        stage.true_mib(),
        "books (left) and GPUs (right) differ: {:?}",
        stage.account()
    );
    booked
}

/// Does something, sees how much is held beside the context, undoes it, and sees that nothing is left.
#[track_caller]
fn takes(stage: &Stage, client: &mut Client, what: &str, mib: u64, undo: &[&str]) {
    let before = held(stage);
    client.does(what);
    assert_eq!(held(stage) - before, mib, "{what}");
    for step in undo {
        client.does(step);
    }
    assert_eq!(held(stage), before, "{undo:?}");
}

#[test]
fn plain_pitched_and_managed_memory() {
    let (stage, mut client) = begun("plain");
    let mut takes = |what: String, mib| takes(&stage, &mut client, &what, mib, &["free 1"]);
    takes(format!("alloc 1 {}", 100 * MIB), 100);
    takes(format!("alloc 1 {}", 101 * MIB), 102);
    takes(format!("alloc 1 {}", MIB + 1), 2);
    takes(format!("alloc 1 {}", 1000), 2);
    // 1000 bytes are rounded up to the driver's pitch.
    takes(format!("alloc-pitch 1 1000 {}", 64 * 1024), 64);
    takes(format!("alloc-managed 1 {}", 33 * MIB), 34);
}

#[test]
fn small_allocations_share_blocks() {
    let (stage, mut client) = begun("small");
    for slot in 0..16 {
        client.does(&format!("alloc {slot} {}", 256 << 10));
    }
    assert_eq!(held(&stage), CONTEXT_MIB + 4);
    for slot in 0..16 {
        client.does(&format!("free {slot}"));
    }
    assert_eq!(held(&stage), CONTEXT_MIB);
}

#[test]
fn arrays() {
    let (stage, mut client) = begun("arrays");
    // Elements of 4 bytes.
    takes(&stage, &mut client, "array 1 2048 2048", 16, &["end-array 1"]);
    takes(&stage, &mut client, "array-3d 1 256 256 256", 64, &["end-array 1"]);
    // 64 MiB, and a third of it again for all smaller levels.
    takes(&stage, &mut client, "mipmapped 1 4096 4096 13", 86, &["end-mipmapped 1"]);
}

#[test]
fn pools_count_by_what_they_keep() {
    let (stage, mut client) = begun("pools");
    client.does(&format!("alloc-async 1 {}", 64 * MIB));
    assert_eq!(held(&stage), CONTEXT_MIB + 64);
    client.does("free-async 1");
    client.does("wait");
    assert_eq!(held(&stage), CONTEXT_MIB, "the GPU's own pool keeps nothing");
    // A pool that keeps all that it has had.
    client.does("pool 2");
    client.does(&format!("alloc-pool 3 2 {}", 128 * MIB));
    client.does("free-async 3");
    client.does("wait");
    assert_eq!(held(&stage), CONTEXT_MIB + 128);
    client.does(&format!("alloc-pool 3 2 {}", 100 * MIB));
    assert_eq!(held(&stage), CONTEXT_MIB + 128, "there is room in the pool");
    client.does("free-async 3");
    client.does("wait");
    client.does("trim 2 0");
    assert_eq!(held(&stage), CONTEXT_MIB);
    client.does(&format!("alloc-pool 3 2 {}", 128 * MIB));
    client.does("free-async 3");
    client.does("end-pool 2");
    assert_eq!(held(&stage), CONTEXT_MIB);
}

#[test]
fn pools_of_managed_memory_and_of_the_threads_own_stream() {
    let (stage, mut client) = begun("other-pools");
    // One that the process has not made, and that is not the GPU's usual one.
    client.does("default-pool 2");
    client.does(&format!("alloc-pool 3 2 {}", 64 * MIB));
    assert_eq!(held(&stage), CONTEXT_MIB + 64);
    assert_eq!(client.ask(&format!("alloc-pool 4 2 {}", 5000 * MIB)).0, OUT_OF_MEMORY);
    client.does("free-async 3");
    client.does("wait");
    assert_eq!(held(&stage), CONTEXT_MIB);
    client.does(&format!("alloc-own 3 {}", 64 * MIB));
    assert_eq!(held(&stage), CONTEXT_MIB + 64);
    assert_eq!(client.ask(&format!("alloc-own 4 {}", 5000 * MIB)).0, OUT_OF_MEMORY);
}

#[test]
fn what_a_pool_keeps_is_given_back_before_anything_is_refused() {
    let (stage, mut client) = begun("keep");
    client.does("pool 2");
    client.does(&format!("alloc-pool 3 2 {}", 2976 * MIB));
    client.does("free-async 3");
    client.does("wait");
    assert_eq!(held(&stage), CONTEXT_MIB + 2976);
    client.does(&format!("alloc 1 {}", 2000 * MIB));
    assert_eq!(held(&stage), CONTEXT_MIB + 2000);
    assert_eq!(stage.account().over_cap.count, 0);
}

#[test]
fn physical_memory_goes_with_its_last_handle_and_mapping() {
    let (stage, mut client) = begun("virtual");
    // Location 1 is a GPU, whose number is the last figure.
    client.does(&format!("create 1 {} 1 0", 64 * MIB));
    client.does("map 1 2");
    client.does("end-piece 1");
    assert_eq!(held(&stage), CONTEXT_MIB + 64, "it is mapped");
    client.does("again 3 2");
    client.does("unmap 2");
    assert_eq!(held(&stage), CONTEXT_MIB + 64, "there is a handle");
    client.does("end-piece 3");
    assert_eq!(held(&stage), CONTEXT_MIB);
}

#[test]
fn graphs_count_from_when_they_can_be_launched() {
    let (stage, mut client) = begun("graphs");
    for make in ["graph", "capture"] {
        client.does(&format!("{make} 1 {}", 64 * MIB));
        assert_eq!(stage.booked_mib(), CONTEXT_MIB + 64, "{make}");
        client.does("launch 1");
        client.does("wait");
        assert_eq!(stage.booked_mib(), CONTEXT_MIB + 64, "{make}");
        assert!(stage.true_mib() <= stage.booked_mib());
        client.does("end-graph 1");
        client.does("trim-graphs");
        assert_eq!(held(&stage), CONTEXT_MIB, "{make}");
    }
    let too_much = client.ask(&format!("graph 1 {}", 5000 * MIB));
    assert_eq!(too_much.0, OUT_OF_MEMORY);
    assert_eq!(held(&stage), CONTEXT_MIB);
}

#[test]
fn contexts_and_what_is_in_them() {
    let (stage, mut client) = begun("contexts");
    client.does("context 1");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB);
    client.does(&format!("alloc 2 {}", 64 * MIB));
    client.does("array 3 2048 2048");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB + 80);
    client.does("end-context 1");
    assert_eq!(held(&stage), CONTEXT_MIB, "all that was in it is gone");
    client.does("retain 4");
    client.does("current 4");
    client.does(&format!("alloc 2 {}", 64 * MIB));
    client.does("release");
    assert_eq!(held(&stage), CONTEXT_MIB + 64, "it was retained twice");
    client.does("release");
    assert_eq!(held(&stage), 0);
}

#[test]
fn a_green_context_keeps_the_primary_one() {
    let (stage, mut client) = begun("green");
    client.does("green 1");
    client.does("green-context 2 1");
    client.does("current 2");
    client.does(&format!("alloc 3 {}", 64 * MIB));
    client.does("release");
    assert_eq!(held(&stage), CONTEXT_MIB + 64);
    client.does("end-green 1");
    assert_eq!(held(&stage), 0);
    // Alone it makes the primary context.
    client.does("green 1");
    assert_eq!(held(&stage), CONTEXT_MIB);
    client.does("end-green 1");
    assert_eq!(held(&stage), 0);
}

#[test]
fn a_context_ends_also_by_being_detached() {
    let (stage, mut client) = begun("detached");
    client.does("context 1");
    client.does(&format!("alloc 2 {}", 64 * MIB));
    client.does("detach 1");
    assert_eq!(held(&stage), CONTEXT_MIB);
}

#[test]
fn a_reset_leaves_nothing_allocated() {
    let (stage, mut client) = begun("reset");
    client.does(&format!("alloc 2 {}", 64 * MIB));
    client.does("reset");
    assert!(stage.true_mib() <= stage.booked_mib());
    assert_eq!(stage.booked_mib(), CONTEXT_MIB);
}

#[test]
fn modules() {
    let (stage, mut client) = begun("modules");
    client.does("module 1");
    assert!(held(&stage) > CONTEXT_MIB);
    // NVML is not asked again at once.
    std::thread::sleep(std::time::Duration::from_millis(60));
    client.does("end-module 1");
    assert_eq!(held(&stage), CONTEXT_MIB);
}

#[test]
fn contexts_are_measured_if_nobody_tells_what_they_take() {
    let stage = Stage::without_caps("measured", "a100-80gb");
    stage.give(&format!("memory = {}\n", 1000 * MIB));
    let mut clients: Vec<Client> = (0..2).map(|_| stage.client()).collect();
    for client in &mut clients {
        // The simulated NVML's figures are up to 10 ms old.
        std::thread::sleep(std::time::Duration::from_millis(30));
        client.does("begin");
    }
    assert_eq!(held(&stage), 2 * CONTEXT_MIB);
    clients[0].does(&format!("alloc 1 {}", (1000 - 2 * CONTEXT_MIB - 10) * MIB));
    let mut third = stage.client();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(third.ask("begin").0, OUT_OF_MEMORY, "a context goes over the cap");
    assert_eq!(held(&stage), 990);
}

/// Two clients of a tenant, of which the second has 100 MiB of the first open.
fn sharing(name: &str) -> (Stage, Client, Client) {
    let (stage, mut one) = begun(name);
    let mut other = stage.client();
    other.does("begin");
    one.does(&format!("alloc 1 {}", 100 * MIB));
    let file = stage.folder.join("handle");
    one.does(&format!("export 1 {}", file.display()));
    other.does(&format!("open 1 {}", file.display()));
    (stage, one, other)
}

#[test]
fn what_the_tenant_has_exported_counts_once() {
    let (stage, mut one, mut other) = sharing("shared");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB + 100);
    // Freed where it was made, it is still held.
    one.does("free 1");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB + 100);
    assert_eq!(one.ask(&format!("alloc 2 {}", 3900 * MIB)).0, OUT_OF_MEMORY);
    other.does("close 1");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB);
}

#[test]
fn what_is_open_elsewhere_outlives_the_process_that_made_it() {
    let (stage, mut one, mut other) = sharing("outlived");
    one.kill();
    let mut third = stage.client();
    third.does("begin");
    // Asks for more than is left, so that the dead are looked for.
    assert_eq!(third.ask(&format!("alloc 1 {}", 4096 * MIB)).0, OUT_OF_MEMORY);
    assert_eq!(held(&stage), 2 * CONTEXT_MIB + 100);
    other.does("close 1");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB);
}

#[test]
fn pieces_that_are_shared_count_once_and_as_long_as_somebody_has_them() {
    let (stage, mut one) = begun("pieces");
    let mut other = stage.client();
    other.does("begin");
    let pid = one.child.id();
    for slot in [1, 2] {
        one.does(&format!("create {slot} {} 1 0", 64 * MIB));
        let file = one.does(&format!("export-piece {slot}"));
        other.does(&format!("import-piece {slot} {pid} {file} {}", 64 * MIB));
        other.does(&format!("map {slot} 1{slot}"));
    }
    assert_eq!(held(&stage), 2 * CONTEXT_MIB + 128);
    one.does("end-piece 1");
    one.does("end-piece 2");
    assert_eq!(held(&stage), 2 * CONTEXT_MIB + 128, "they are mapped elsewhere");
    for slot in [1, 2] {
        other.does(&format!("unmap 1{slot}"));
        other.does(&format!("end-piece {slot}"));
        assert_eq!(held(&stage), 2 * CONTEXT_MIB + 128 - slot * 64);
    }
}

#[test]
fn what_others_have_exported_counts_for_who_opens_it() {
    let (stage, mut tenant) = begun("opened");
    let told = support::built("told", &["told.c"], &["-ldl", "-lpthread"]);
    let mut stranger = Client::start(&mut stage.free(&told));
    stranger.does("begin");
    stranger.does(&format!("alloc 1 {}", 100 * MIB));
    let file = stage.folder.join("handle");
    stranger.does(&format!("export 1 {}", file.display()));
    tenant.does(&format!("open 1 {}", file.display()));
    assert_eq!(stage.booked_mib(), CONTEXT_MIB + 100);
    tenant.does("close 1");
    assert_eq!(stage.booked_mib(), CONTEXT_MIB);
}

#[test]
fn the_cap_is_shown_as_all_there_is() {
    let (stage, mut client) = begun("shown");
    let mut other = stage.client();
    other.does("begin");
    other.does(&format!("alloc 1 {}", 1000 * MIB));
    let held = 2 * CONTEXT_MIB + 1000;
    assert_eq!(client.does("total-memory"), 4096 * MIB);
    assert_eq!(client.does("all-memory"), 4096 * MIB);
    assert_eq!(client.does("free-memory"), (4096 - held) * MIB);
    assert_eq!(client.does("nvml total"), 4096 * MIB);
    assert_eq!(client.does("nvml used"), held * MIB);
    assert_eq!(client.does("nvml v2"), held * MIB);
    other.kill();
    assert_eq!(client.does("free-memory"), (4096 - CONTEXT_MIB) * MIB);
    assert_eq!(client.does("nvml used"), CONTEXT_MIB * MIB);
}

#[test]
fn who_asks_nvml_alone_is_shown_the_cap_too() {
    let stage = Stage::new("nvml", 4096);
    let mut client = stage.client();
    assert_eq!(client.does("nvml total"), 4096 * MIB);
    assert_eq!(client.does("nvml used"), 0);
}

#[test]
fn a_full_card_is_told_from_a_full_cap() {
    let stage = Stage::new("card", 70 << 10);
    let told = support::built("told", &["told.c"], &["-ldl", "-lpthread"]);
    let mut stranger = Client::start(&mut stage.free(&told));
    stranger.does("begin");
    stranger.does(&format!("alloc 1 {}", 40_000 * MIB));
    let mut client = stage.client();
    client.does("begin");
    let code = client.ask(&format!("alloc 1 {}", 60_000 * MIB)).0;
    assert_eq!(code, OUT_OF_MEMORY);
    let account = stage.account();
    assert_eq!((account.over_cap.count, account.card_full.count), (0, 1));
    assert_eq!(account.card_full.asked, 60_000 * MIB);
    assert_eq!(stage.booked_mib(), CONTEXT_MIB);
}
