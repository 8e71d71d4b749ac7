//! Which GPUs a job's tasks see: those that Slurm has counted for them, by the names of CUDA, whatever numbers
//! Slurm uses; MIG instances too. On real Slurm, with simulated GPUs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use slurm_lab::{Cluster, Options};
use support::site::{Site, built};

/// A GPU's or instance's UUID without what stands before it.
fn bare(uuid: &str) -> &str {
    uuid.split_once('-').map_or(uuid, |(_, rest)| rest)
}

/// What the client's lines `devices N UUID...` list.
fn devices(out: &str) -> Vec<Vec<String>> {
    let lines = out.lines().filter_map(|line| line.split_once("devices "));
    lines.map(|(_, rest)| rest.split(' ').skip(1).map(str::to_owned).collect()).collect()
}

/// A job with three of four cards, and steps with some of them.
fn steps(test: &str, cgroup: bool) {
    let options = Options { nodes: 1, cgroup, ..Options::default() };
    let conf = "Devices=@WORK@/lab/machines/%n/dev\n";
    let Some(site) = Site::up_with(test, options, built(), conf) else { return };
    let leave = site.flag("leave");
    // The first card is another job's, so that numbers from 0 would be wrong.
    let other =
        site.submit(&["--gres=gpu:1"], &format!("@ touch {} wait {leave}", site.flag("up")));
    site.until_raised("up");
    let step = "srun --mem=10 -Q";
    let script = format!(
        "echo numbers $SLURM_JOB_GPUS; @ devices; {step} -n1 @ devices; {step} -n1 --gres=gpu:1 @ devices; \
         {step} -n3 --gpus-per-task=1 @ devices; {step} -n1 --gres=none @ devices"
    );
    let job = site.submit(&["-n3", "--gres=gpu:3"], &script);
    let out = site.finish(&job);
    let machine = site.machine("n1").read();
    let cards: Vec<&str> = machine.gpus.iter().map(|gpu| bare(&gpu.uuid)).collect();
    assert!(out.starts_with("numbers 1,2,3\n"), "{out}");
    let seen = devices(&out);
    assert_eq!(seen.len(), 6, "{out}");
    assert_eq!(seen[..2], [&cards[1..], &cards[1..]], "{out}");
    assert_eq!(seen[2].len(), 1, "{out}");
    assert!(cards[1..].contains(&seen[2][0].as_str()), "{out}");
    let mut each = seen[3..].concat();
    each.sort_by_key(|uuid| cards.iter().position(|card| card == uuid));
    assert_eq!(each, cards[1..], "each task its own: {out}");
    // CUDA_ERROR_NO_DEVICE.
    assert!(out.contains("init: 100"), "a step without GPUs: {out}");
    site.raise("leave");
    site.finish(&other);
}

#[test]
fn steps_see_their_part_of_the_jobs_cards() {
    steps("steps_see_their_part_of_the_jobs_cards", false);
}

#[test]
fn steps_see_their_part_where_slurm_counts_from_0_in_each_job() {
    steps("steps_see_their_part_where_slurm_counts_from_0_in_each_job", true);
}

/// A card in three instances, and a whole one.
fn mixed() -> Options {
    let line = |kind: &str, files: &str| format!("NodeName=@NODE@ Name=gpu Type={kind} {files}\n");
    let slice =
        |kind: &str, cap: u32| line(kind, &format!("MultipleFiles=@DEV@/nvidia0,@DEV@/cap{cap}"));
    let lines = [
        slice("3g.40gb", 1),
        slice("1g.10gb", 2),
        slice("1g.10gb", 3),
        line("a100", "File=@DEV@/nvidia1"),
    ];
    Options {
        nodes: 1,
        gpus: 2,
        gres: Some("gpu:3g.40gb:1,gpu:1g.10gb:2,gpu:a100:1".into()),
        gres_conf: Some(lines.concat()),
        ..Options::default()
    }
}

/// The driver's numbers of the profiles and of compute instances that fill them, for 3g.40gb and 1g.10gb.
const PROFILES: [(u32, u32); 3] = [(9, 2), (19, 0), (19, 0)];

/// Divides the first card of such a node; the instances' UUIDs by kind.
fn divide(site: &Site) -> [String; 3] {
    let machine = site.machine("n1");
    let made = machine.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        for (profile, compute) in PROFILES {
            let instance = state.create_instance(0, profile, None)?;
            state.create_compute(0, instance, compute, None)?;
        }
        let mut of = state.gpu(0)?.mig_devices();
        of.sort_by_key(|(instance, _)| (instance.profile_id, instance.start));
        Ok(of.into_iter().map(|(_, part)| part.uuid.clone()).collect::<Vec<_>>())
    });
    made.unwrap().try_into().unwrap()
}

#[test]
fn jobs_with_instances_see_one_each_and_whole_cards_stay_whole() {
    let test = "jobs_with_instances_see_one_each_and_whole_cards_stay_whole";
    let Some(site) = Site::up(test, mixed()) else { return };
    let [large, small, other] = divide(&site);
    let script = |name: &str| {
        format!("@ devices alloc 12000 touch {} wait {}", site.flag(name), site.flag("leave"))
    };
    let card = site.machine("n1").read().gpus[1].uuid.clone();
    let asks: [&[&str]; 4] = [
        &["--gres=gpu:1g.10gb:1"],
        &["--gres=gpu:1g.10gb:1"],
        // The smallest that has so much.
        &["--gpu-mem=20G", "--gpu-share=mig"],
        // Not a slice, although no type is given.
        &["--gres=gpu:1"],
    ];
    let mut jobs = Vec::new();
    for (at, words) in asks.into_iter().enumerate() {
        jobs.push(site.submit(words, &script(&format!("up{at}"))));
    }
    (0..asks.len()).for_each(|at| site.until_raised(&format!("up{at}")));
    let expected = [(&small, 2), (&other, 2), (&large, 0), (&card, 0)];
    for (job, (uuid, code)) in jobs.iter().zip(expected) {
        let out = site.out(job);
        assert_eq!(devices(&out), [[bare(uuid)]], "{out}");
        assert!(out.contains(&format!("alloc 12000 {code}\n")), "{out}");
        assert_eq!(site.held("n1", job)[0].device, **uuid);
    }
    let full = site.submit(&["--gres=gpu:1g.10gb:1"], "@ devices");
    site.raise("leave");
    jobs.iter().for_each(|job| site.until_undone("n1", job));
    assert_eq!(devices(&site.finish(&full)).len(), 1);
}

#[test]
fn tasks_that_are_bound_to_instances_see_one_each() {
    let test = "tasks_that_are_bound_to_instances_see_one_each";
    for cgroup in [false, true] {
        let Some(site) = Site::up(test, Options { cgroup, ..mixed() }) else { return };
        let [_, small, other] = divide(&site);
        let script = "srun -Q -n2 --gpus-per-task=1g.10gb:1 @ devices";
        let job = site.submit(&["-n2", "--gres=gpu:1g.10gb:2"], script);
        let out = site.finish(&job);
        let mut seen = devices(&out).concat();
        seen.sort();
        let mut expected = [bare(&small), bare(&other)];
        expected.sort_unstable();
        assert_eq!(seen, expected, "cgroups: {cgroup}: {out}");
    }
}

#[test]
fn a_job_whose_gpu_is_another_in_gres_conf_than_for_slurm_goes_back() {
    let test = "a_job_whose_gpu_is_another_in_gres_conf_than_for_slurm_goes_back";
    let Some(site) = Site::up(test, mixed()) else { return };
    divide(&site);
    // As if the file had been changed and the daemons not started anew.
    let path = site.cluster.etc().join("gres.conf");
    let right = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, right.replace("Type=a100", "Type=b200")).unwrap();
    let job = site.submit(&["--gres=gpu:a100:1"], "@ devices");
    let told = site.until("a reason", |_: &Cluster| {
        Some(site.comment(&job)).filter(|comment| comment.contains("hotpot-sent-back("))
    });
    assert!(told.contains("as a a100, and in gres.conf that is a b200"), "{told}");
    std::fs::write(&path, right).unwrap();
    let card = site.machine("n1").read().gpus[1].uuid.clone();
    site.until_is(&job, &["COMPLETED"]);
    let out = site.out(&job);
    assert_eq!(devices(&out), [[bare(&card)]], "{out}");
}

#[test]
fn a_start_of_slurmctld_while_a_job_runs_gives_nobody_its_card() {
    let test = "a_start_of_slurmctld_while_a_job_runs_gives_nobody_its_card";
    let Some(site) = Site::up(test, mixed()) else { return };
    let [large, small, other] = divide(&site);
    let leave = site.flag("leave");
    let holder = site
        .submit(&["--gres=gpu:1"], &format!("@ devices touch {} wait {leave}", site.flag("up")));
    site.until_raised("up");
    site.cluster.stop(&slurm_lab::Daemon::Slurmctld);
    site.cluster.start(&slurm_lab::Daemon::Slurmctld).unwrap();
    let jobs = ["1g.10gb", "1g.10gb", "3g.40gb"].map(|kind| {
        let gres = format!("--gres=gpu:{kind}:1");
        site.submit(&[&gres], &format!("@ devices wait {leave}"))
    });
    let mut seen: Vec<String> = Vec::new();
    for job in &jobs {
        let out = site.until_says(job, "devices 1 ");
        seen.push(devices(&out)[0][0].clone());
    }
    seen.sort();
    let mut expected = [&large, &small, &other].map(|uuid| bare(uuid).to_owned());
    expected.sort();
    assert_eq!(seen, expected);
    site.raise("leave");
    let card = site.machine("n1").read().gpus[1].uuid.clone();
    assert_eq!(devices(&site.finish(&holder)), [[bare(&card)]]);
}
