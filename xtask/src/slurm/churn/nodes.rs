//! The nodes: each of three whole cards with shards, and a card in seven MIG instances of one type, as Slurm 22.05
//! gives devices rightly to only one such type of a node.

use std::fmt::Write as _;
use std::fs;

use fake_machine::{Machine, instance_profiles, layout};
use slurm_lab::Options;

use crate::Verdict;
use crate::slurm::Bench;

pub(super) const NODES: [&str; 2] = ["n1", "n2"];
/// Shards of a card, and what each stands for.
pub(super) const SHARDS: u64 = 317;
pub(super) const SHARD_MIB: u64 = 256;
const MODEL: &str = "a100-80gb";
const WHOLE_CARDS: u32 = 3;
/// The card that is divided, its instances, and the driver's numbers of their profile and of a compute instance that
/// fills one.
const DIVIDED: u32 = 3;
const INSTANCES: u32 = 7;
const INSTANCE: &str = "1g.10gb";
const PROFILE: u32 = 19;
const COMPUTE: u32 = 0;

pub(super) fn options() -> Options {
    let mut conf = String::new();
    let mut line = |words: &str| {
        let _ = writeln!(conf, "NodeName=@NODE@ {words}");
    };
    for card in 0..WHOLE_CARDS {
        line(&format!("Name=gpu Type=a100 File=@DEV@/nvidia{card}"));
    }
    for instance in 0..INSTANCES {
        let files = format!("@DEV@/nvidia{DIVIDED},@DEV@/cap{instance}");
        line(&format!("Name=gpu Type={INSTANCE} MultipleFiles={files}"));
    }
    for card in 0..WHOLE_CARDS {
        line(&format!("Name=shard Count={SHARDS} File=@DEV@/nvidia{card}"));
    }
    let shards = SHARDS * u64::from(WHOLE_CARDS);
    Options {
        nodes: NODES.len() as u32,
        gpus: WHOLE_CARDS + 1,
        cpus: 64,
        gpu: MODEL.into(),
        gres: Some(format!("gpu:a100:{WHOLE_CARDS},gpu:{INSTANCE}:{INSTANCES},shard:{shards}")),
        gres_conf: Some(conf),
        // Whoever looks at all jobs again and again shall not see thousands that are over.
        slurm_conf: "MinJobAge=2\n".into(),
        ..Options::default()
    }
}

/// Device memory of a card and of an instance, in MiB.
pub(super) fn memory_mib() -> (u64, u64) {
    let (all, reserved) = fake_machine::facts(MODEL).map_or((0, 0), |facts| facts.memory_mib());
    let instance = instance_profiles(MODEL).iter().find(|profile| profile.name == INSTANCE);
    (all - reserved, instance.map_or(0, |profile| profile.memory_mib))
}

/// Divides a card of each node, and writes down what CUDA calls the devices that Slurm counts: `names.NODE`.
pub(super) fn divide(bench: &Bench) -> Verdict {
    for node in NODES {
        let said = |error: &dyn std::fmt::Display| format!("{node}: {error}");
        let folder = bench.cluster.machine(node).join(layout::STATE);
        let machine = Machine::open(folder).map_err(|error| said(&error))?;
        let names = machine.edit(|state| {
            state.gpu_mut(DIVIDED)?.set_mig(true)?;
            for _ in 0..INSTANCES {
                let instance = state.create_instance(DIVIDED, PROFILE, None)?;
                state.create_compute(DIVIDED, instance, COMPUTE, None)?;
            }
            let cards = state.gpus.iter().take(WHOLE_CARDS as usize);
            let mut names: Vec<String> = cards.map(|gpu| gpu.uuid.clone()).collect();
            let mut instances = state.gpu(DIVIDED)?.mig_devices();
            instances.sort_by_key(|(instance, _)| instance.start);
            names.extend(instances.into_iter().map(|(_, compute)| compute.uuid.clone()));
            Ok(names)
        });
        let text = names.map_err(|error| said(&error))?.join("\n") + "\n";
        let path = bench.folder.join(format!("names.{node}"));
        fs::write(path, text).map_err(|error| said(&error))?;
    }
    Ok(())
}
