//! sbatch scripts: what each option becomes.

mod support;

use formats::sbatch::{self, SHARD_MIB_DEFAULT, Script};
use formats::trace::{self, TraceKind, TraceOptions};
use model::{ArrayMember, GpuAsk, GpuDemand, ModeSet, SharingKind, Workload, WorkloadId};
use support::{example, source};

fn script(options: &str) -> Result<Script, String> {
    let lines: String = options.lines().map(|line| format!("#SBATCH {line}\n")).collect();
    let text = format!("#!/bin/bash\n{lines}\nsrun ./a.out\n");
    sbatch::read(&source("jobs/job.sbatch", &text), 2048).map_err(|error| error.to_string())
}

fn job(options: &str) -> Workload {
    let script = script(options).expect("a readable script");
    assert_eq!(script.workloads.len(), 1, "{options}");
    script.workloads[0].clone()
}

fn gpus(options: &str) -> GpuDemand {
    job(options).demand.gpus.expect("a GPU demand")
}

fn fraction(compute_milli: u32, memory_mib: u64) -> GpuAsk {
    GpuAsk::Fraction { compute_milli, memory_mib }
}

#[test]
fn the_shipped_script_is_an_array_of_small_shares() {
    let script = sbatch::read(&example("embed.sbatch"), SHARD_MIB_DEFAULT).unwrap();
    assert_eq!(script.workloads.len(), 100);
    assert_eq!(script.warnings, Vec::<String>::new());
    let ignored = ["--partition=gpu (line 4)", "--output=embed-%A_%a.log (line 12)"];
    assert_eq!(script.ignored, ignored);
    let last = &script.workloads[99];
    assert_eq!((last.name.as_str(), last.owner.as_str()), ("embed[100]", "search"));
    let member = ArrayMember { array: WorkloadId(0), index: 100, at_once_max: 10 };
    assert_eq!((last.id, last.array), (WorkloadId(99), Some(member)));
    assert_eq!((last.demand.cpu_milli, last.demand.memory_mib), (2000, 8192));
    assert_eq!(last.time_limit_ms, Some(3_600_000));
    let gpus = last.demand.gpus.as_ref().unwrap();
    assert_eq!((gpus.count, &gpus.each, gpus.modes), (1, &fraction(0, 2048), ModeSet::ALL));
}

#[test]
fn a_bare_script_is_one_cpu_of_the_default_owner() {
    let job = job("");
    assert_eq!((job.name.as_str(), job.owner.as_str()), ("job.sbatch", "local"));
    assert_eq!((job.demand.cpu_milli, job.demand.memory_mib, job.members), (1000, 0, 1));
    assert_eq!((job.demand.gpus, job.time_limit_ms, job.array), (None, None, None));
}

#[test]
fn short_long_spaced_and_quoted_options_are_the_same() {
    for options in [
        "-J \"my job\" -A bio -c4",
        "--job-name='my job' --account=bio --cpus-per-task 4",
        "--job-name \"my job\" # a remark --cpus-per-task=9\n-A x\n-A bio\n-c 4",
    ] {
        let job = job(options);
        let seen = (job.name.as_str(), job.owner.as_str(), job.demand.cpu_milli);
        assert_eq!(seen, ("my job", "bio", 4000), "{options}");
    }
}

#[test]
fn arrays_take_ranges_lists_and_steps() {
    for (array, indices, at_once) in [
        ("0-3", vec![0, 1, 2, 3], 0),
        ("1,3,5-7%2", vec![1, 3, 5, 6, 7], 2),
        ("0-15:4", vec![0, 4, 8, 12], 0),
        ("7,7,2", vec![2, 7], 0),
    ] {
        let workloads = script(&format!("-a {array}")).unwrap().workloads;
        let members: Vec<_> = workloads.iter().filter_map(|workload| workload.array).collect();
        assert_eq!(members.iter().map(|m| m.index).collect::<Vec<_>>(), indices, "{array}");
        assert!(members.iter().all(|m| m.at_once_max == at_once && m.array.0 == 0), "{array}");
    }
}

#[test]
fn gpus_in_slurm_terms() {
    for (options, count, model) in [
        ("--gpus=2", 2, ""),
        ("-G a100:2", 2, "a100"),
        ("--gpus-per-node=V100:4", 4, "v100"),
        ("--gres=gpu:h100:8", 8, "h100"),
        ("--gres=gpu", 1, ""),
        ("--gres=gres/gpu:2,lustre:1", 2, ""),
        ("-N 2 --gpus=8", 4, ""),
        ("-n 3 --gpus-per-task=2", 6, ""),
        ("--gpus=2 --gres=gpu:2", 2, ""),
    ] {
        let gpus = gpus(options);
        let accepts = gpus.accepts.first().map_or(String::new(), ToString::to_string);
        let seen = (gpus.count, &gpus.each, accepts.as_str());
        assert_eq!(seen, (count, &GpuAsk::Whole, model), "{options}");
    }
    assert_eq!(job("--gres=none").demand.gpus, None);
    assert_eq!(job("--gpus=0").demand.gpus, None);
}

#[test]
fn parts_of_gpus_in_slurm_terms_and_in_ours() {
    let only = |kind| ModeSet::of(&[kind]);
    let profile = |name: &str| GpuAsk::Profile(name.to_string());
    for (options, each, modes) in [
        ("--gres=shard:3", fraction(0, 3 * 2048), ModeSet::ALL),
        ("--gres=mps:25", fraction(250, 0), only(SharingKind::Mps)),
        ("--gres=gpu:1g.10gb:1", profile("1g.10gb"), only(SharingKind::Mig)),
        ("--gpu-mem=2G", fraction(0, 2048), ModeSet::ALL),
        ("--gpu-compute=20%", fraction(200, 0), ModeSet::ALL),
        ("--gpu-compute=0.2 --gpu-mem=500", fraction(200, 500), ModeSet::ALL),
        ("--gpu-compute=100%", GpuAsk::Whole, ModeSet::ALL),
        ("--gpu-mem=2G --gpu-share=timeslice", fraction(0, 2048), only(SharingKind::TimeSlice)),
        ("--gpu-mem=2G --gpu-share=capped", fraction(0, 2048), only(SharingKind::MemoryCapped)),
        ("--gpu-share=exclusive", GpuAsk::Whole, only(SharingKind::Exclusive)),
        ("--gpu-share=auto", GpuAsk::Whole, ModeSet::ALL),
        ("--gpu-profile=3G.40GB --gpu-share=mig", profile("3g.40gb"), only(SharingKind::Mig)),
    ] {
        let gpus = gpus(options);
        assert_eq!((gpus.count, gpus.each, gpus.modes), (1, each, modes), "{options}");
    }
}

#[test]
fn nodes_tasks_cpus_and_memory_add_up() {
    for (options, members, cpus, memory) in [
        ("-N 4", 4, 1, 0),
        ("-N 2-4 -n 8 -c 3", 2, 12, 0),
        ("-n 8 --ntasks-per-node=4 -c 2", 2, 8, 0),
        ("--ntasks-per-node=4 -N 3", 3, 4, 0),
        ("-c 4 --mem-per-cpu=2G", 1, 4, 8192),
        ("--gpus=2 --cpus-per-gpu=6 --mem-per-gpu=10G", 1, 12, 20480),
        ("--mem=4096", 1, 1, 4096),
    ] {
        let job = job(options);
        let seen = (job.members, job.demand.cpu_milli / 1000, job.demand.memory_mib);
        assert_eq!(seen, (members, cpus, memory), "{options}");
    }
}

#[test]
fn priority_is_priority_less_nice() {
    for (options, priority) in [
        ("--priority=500", 500),
        ("--nice", -100),
        ("--nice=-20", 20),
        ("--priority=500 --nice=30", 470),
        ("--priority=TOP", i32::MAX),
        ("--priority=4294967295", i32::MAX),
    ] {
        assert_eq!(job(options).priority, priority, "{options}");
    }
}

#[test]
fn a_script_can_be_simulated_for_its_time_limit() {
    let reading = trace::read(&example("embed.sbatch"), &TraceOptions::default()).unwrap();
    assert_eq!((reading.kind, reading.trace.arrivals.len()), (TraceKind::Sbatch, 100));
    assert_eq!(reading.trace.arrivals[0].runs_ms, Some(3_600_000));
    assert!(reading.notes.iter().any(|note| note.starts_with("ignored: --partition")));
}
