//! Which caps are for which device: by name, however the process sees its devices; MIG devices too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use caps::{Account, Ledger};
use support::{Client, MIB, OUT_OF_MEMORY, Stage, built};

/// What a client is shown of device 0, in MiB, and how much it can take in pieces of 64 MiB.
fn shown_and_taken(stage: &Stage, visible: &str) -> (u64, u64) {
    let told = built("told", &["told.c"], &["-ldl", "-lpthread"]);
    let mut client = Client::start(stage.command(&told).env("CUDA_VISIBLE_DEVICES", visible));
    client.does("begin");
    let mut taken = 0;
    while client.ask(&format!("alloc {taken} {}", 64 * MIB)).0 != OUT_OF_MEMORY {
        taken += 1;
        assert!(taken < 200, "nothing is refused");
    }
    (client.does("total-memory") / MIB, taken)
}

/// Caps for one device of this name.
fn caps_for(stage: &Stage, name: &str, mib: u64) {
    let ledger = stage.folder.join(format!("{name}.books"));
    Ledger::make(&ledger, 0o600).unwrap();
    let text = format!(
        "[{name}]\nmemory = {}\ncontext = {}\nledger = {}\n",
        mib * MIB,
        64 * MIB,
        ledger.with_file_name("{gpu}.books").display()
    );
    let caps = stage.folder.join("caps");
    let before = std::fs::read_to_string(&caps).unwrap_or_default();
    std::fs::write(caps, before + &text).unwrap();
}

#[test]
fn caps_follow_the_gpu_and_not_its_number() {
    let stage = Stage::without_caps("numbers", "a100-80gb:3");
    let uuids: Vec<String> = stage.machine.read().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    caps_for(&stage, &uuids[1], 512);
    caps_for(&stage, &uuids[2], 1024);
    assert_eq!(shown_and_taken(&stage, "1,2"), (512, 7));
    assert_eq!(shown_and_taken(&stage, "2,1"), (1024, 15));
    assert_eq!(shown_and_taken(&stage, &uuids[1]), (512, 7));
    let books = |uuid: &str| Account::read(&stage.folder.join(format!("{uuid}.books"))).unwrap();
    assert_eq!(books(&uuids[1]).over_cap.count, 2);
    assert_eq!(books(&uuids[2]).over_cap.count, 1);
}

#[test]
fn a_mig_device_has_caps_by_its_own_name_or_its_gpus() {
    for by_gpu in [false, true] {
        let stage = Stage::without_caps(&format!("mig-{by_gpu}"), "a100-80gb");
        let mut name = String::new();
        let edited = stage.machine.edit(|state| {
            state.gpu_mut(0)?.set_mig(true)?;
            // 3g.40gb, and all of it for one device.
            let instance = state.create_instance(0, 9, None)?;
            state.create_compute(0, instance, 2, None)?;
            let gpu = state.gpu(0)?;
            name = if by_gpu { gpu.uuid.clone() } else { gpu.mig_devices()[0].1.uuid.clone() };
            Ok(())
        });
        edited.unwrap();
        caps_for(&stage, &name, 1024);
        let visible = stage.machine.read().gpus[0].mig_devices()[0].1.uuid.clone();
        assert_eq!(shown_and_taken(&stage, &visible), (1024, 15), "caps for {name}");
    }
}
