//! Nodes without NVIDIA's driver in a cluster with hotpot: they work on, and promise no shares.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;

use slurm_lab::Options;
use support::site::Site;

#[test]
fn a_node_without_a_driver_runs_jobs_that_want_no_gpu() {
    let test = "a_node_without_a_driver_runs_jobs_that_want_no_gpu";
    let Some(site) = Site::up(test, Options { nodes: 1, gpus: 1, ..Options::default() }) else {
        return;
    };
    fs::remove_file(site.cluster.machine("n1").join("lib/libnvidia-ml.so.1")).unwrap();
    let state = || site.cluster.run(&["sinfo", "-h", "-p", "batch", "-o", "%T"]).unwrap();
    for _ in 0..2 {
        let ran = site.cluster.command("timeout").args(["60", "srun", "echo", "ran"]).output();
        let ran = ran.unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n", "{ran:?}");
    }
    let left = || fs::read_dir(site.cluster.machine("n1").join("jobs")).unwrap().count();
    site.cluster.until("files of jobs to go", |_| (left() == 0).then_some(())).unwrap();
    assert!(!state().contains("drain"), "{}", state());
    // A share that nobody can hold takes the node out of use before its tasks run.
    site.cluster.run(&["sbatch", "--gpu-mem=2G", "-o", "/dev/null", "--wrap=true"]).unwrap();
    site.cluster.until("the node to go", |_| state().contains("drain").then_some(())).unwrap();
}
