//! Which devices a process sees, faults that are planned, and contexts' memory.

#![allow(clippy::unwrap_used, reason = "tests")]

mod loaded;

use fake_machine::{Code, Effect, Fault, State};
use loaded::{alone, digits};

const NO_DEVICE: u32 = 100;

fn keep(_: &mut State) {}

/// Two MIG devices on the first GPU.
fn mig(state: &mut State) {
    state.gpus[0].mig.current = true;
    state.gpus[0].mig.pending = true;
    for _ in 0..2 {
        let instance = state.create_instance(0, 9, None).unwrap();
        state.create_compute(0, instance, 2, None).unwrap();
    }
}

#[test]
fn all_gpus_are_seen() {
    let Some(on) = alone("all_gpus_are_seen", "h100-80gb:3", &[], keep) else { return };
    assert_eq!(on.call("cuDeviceGetCount", &[0]), 3);
    assert_eq!(on.call("cuInit", &[0]), 0);
    assert_eq!(on.get("cuDeviceGetCount", &[]), 3);
    for (at, gpu) in on.machine.read().gpus.iter().enumerate() {
        assert_eq!(on.uuid("cuDeviceGetUuid", at), digits(&gpu.uuid));
        assert_eq!(on.uuid("cuDeviceGetUuid_v2", at), digits(&gpu.uuid));
    }
}

#[test]
fn chosen_gpus_are_seen_up_to_a_name_that_means_nothing() {
    let name = "chosen_gpus_are_seen_up_to_a_name_that_means_nothing";
    let variables = [("CUDA_VISIBLE_DEVICES", "2,0,9,1")];
    let Some(on) = alone(name, "h100-80gb:3", &variables, keep) else { return };
    assert_eq!(on.call("cuInit", &[0]), 0);
    assert_eq!(on.get("cuDeviceGetCount", &[]), 2);
    let state = on.machine.read();
    assert_eq!(on.uuid("cuDeviceGetUuid", 0), digits(&state.gpus[2].uuid));
    assert_eq!(on.uuid("cuDeviceGetUuid", 1), digits(&state.gpus[0].uuid));
}

#[test]
fn no_gpu_is_seen_with_an_empty_list() {
    let variables = [("CUDA_VISIBLE_DEVICES", "")];
    let name = "no_gpu_is_seen_with_an_empty_list";
    let Some(on) = alone(name, "a30", &variables, keep) else { return };
    assert_eq!(on.call("cuInit", &[0]), NO_DEVICE);
}

#[test]
fn an_unloaded_driver_has_no_device() {
    let name = "an_unloaded_driver_has_no_device";
    let Some(on) = alone(name, "a30", &[], |state| state.unloaded = true) else { return };
    assert_eq!(on.call("cuInit", &[0]), NO_DEVICE);
}

#[test]
fn the_first_mig_device_is_seen_and_has_its_own_memory() {
    let name = "the_first_mig_device_is_seen_and_has_its_own_memory";
    let Some(on) = alone(name, "h100-80gb:2", &[], mig) else { return };
    assert_eq!(on.call("cuInit", &[0]), 0);
    assert_eq!(on.get("cuDeviceGetCount", &[]), 1);
    let state = on.machine.read();
    let (_, part) = state.gpus[0].mig_devices()[0];
    assert_eq!(on.uuid("cuDeviceGetUuid_v2", 0), digits(&part.uuid));
    assert_eq!(on.uuid("cuDeviceGetUuid", 0), digits(&state.gpus[0].uuid));
    let whole = state.gpus[0].facts().unwrap().memory_mib().0 << 20;
    let own = on.get("cuDeviceTotalMem_v2", &[0]) as u64;
    assert!(own > 0 && own < whole * 6 / 10, "{own} of {whole}");
    on.start(0);
    let sms = on.get("cuDeviceGetAttribute", &[16, 0]);
    assert!(sms > 0 && sms < 132, "{sms}");
}

#[test]
fn a_mig_device_is_chosen_by_its_uuid() {
    let name = "a_mig_device_is_chosen_by_its_uuid";
    // The same machine gives the same UUIDs: the second device's is asked of one that is like it.
    let folder = std::env::temp_dir().join(format!("cuda-like-{}", std::process::id()));
    let specs = fake_machine::GpuSpec::list("h100-80gb").unwrap();
    let like = fake_machine::Machine::create(&folder, &specs).unwrap();
    like.edit(|state| {
        mig(state);
        Ok(())
    })
    .unwrap();
    let uuid = like.read().gpus[0].mig_devices()[1].1.uuid.clone();
    std::fs::remove_dir_all(folder).unwrap();
    let variables = [("CUDA_VISIBLE_DEVICES", uuid.as_str())];
    let Some(on) = alone(name, "h100-80gb", &variables, mig) else { return };
    assert_eq!(on.call("cuInit", &[0]), 0);
    assert_eq!(on.uuid("cuDeviceGetUuid_v2", 0), digits(&uuid));
}

#[test]
fn planned_faults_happen() {
    let name = "planned_faults_happen";
    let Some(on) = alone(name, "a100-40gb", &[], keep) else { return };
    on.start(0);
    let calls = |number: usize| -> Vec<u32> {
        let mut address = 0_usize;
        let to = (&raw mut address).expose_provenance();
        (0..number).map(|_| on.call("cuMemAlloc_v2", &[to, 64])).collect()
    };
    assert_eq!(calls(1), [0]);
    on.set(|state| state.fail("cuMemAlloc_v2", 3, Code::Memory));
    assert_eq!(calls(3), [0, 2, 0]);
    let number =
        Fault { call: "cuMemAlloc_v2=719".into(), nth: 0, effect: Effect::Fail(Code::Unknown) };
    on.set(|state| state.faults = vec![number]);
    assert_eq!(calls(2), [719, 719]);
    on.set(|state| {
        state.faults.clear();
        state.gpus[0].lost = true;
    });
    assert_eq!(calls(1), [999]);
}

#[test]
fn contexts_take_memory_of_their_own() {
    let name = "contexts_take_memory_of_their_own";
    let variables = [("HOTPOT_FAKE_CONTEXT_MIB", "100")];
    let Some(on) = alone(name, "a100-40gb", &variables, keep) else { return };
    let primary = on.start(0);
    assert_eq!(on.used(), 100 << 20);
    assert_eq!(on.get("cuDevicePrimaryCtxRetain", &[0]), primary);
    assert_eq!(on.used(), 100 << 20);
    let own = on.get("cuCtxCreate_v2", &[0, 0]);
    assert_eq!(on.used(), 200 << 20);
    on.get("cuMemAlloc_v2", &[10 << 20]);
    assert_eq!(on.used(), 210 << 20);
    assert_eq!(on.call("cuCtxDestroy_v2", &[own]), 0);
    assert_eq!(on.call("cuCtxDestroy_v2", &[own]), 709);
    assert_eq!(on.get("cuCtxGetCurrent", &[]), primary);
    assert_eq!(on.used(), 100 << 20);
}

#[test]
fn a_prohibited_gpu_gives_no_context() {
    let name = "a_prohibited_gpu_gives_no_context";
    let Some(on) = alone(name, "a30", &[], |state| state.gpus[0].compute_mode = 2) else { return };
    assert_eq!(on.call("cuInit", &[0]), 0);
    let mut context = 0_usize;
    let to = (&raw mut context).expose_provenance();
    assert_eq!(on.call("cuDevicePrimaryCtxRetain", &[to, 0]), 46);
}
