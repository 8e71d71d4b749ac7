//! Real clusters: side by side, with daemons killed, and gone without a trace.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::process::{Command, Stdio};

use slurm_lab::{Cluster, Daemon, Options};
use support::{Folder, processes_of, seen, submit, tell, until_state, up};

#[test]
fn two_clusters_at_once_give_jobs_their_gpus() {
    let test = "two_clusters_at_once_give_jobs_their_gpus";
    let folders = [Folder::new("one"), Folder::new("two")];
    let clusters = folders.each_ref().map(|folder| up(test, folder, &Options::default()));
    let told =
        "$SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES $HOTPOT_FAKE_MACHINE $(command -v nvidia-smi)";
    for cluster in clusters.iter().flatten() {
        let machine = cluster.machine("n2");
        let machine = machine.display();
        let expect = |gres: &str, index: &str| {
            let read = seen(cluster, &["--nodelist=n2", gres], told);
            let wanted = format!("{index} {index} {machine}/machine {machine}/bin/nvidia-smi");
            assert_eq!(read, wanted, "{gres}");
        };
        expect("--gres=gpu:a100:1", "0");
        expect("--gres=shard:30", "1");
        expect("--gres=shard:30", "1");
        expect("--gres=shard:30", "2");
    }
    let queues = clusters.iter().flatten().map(|it| it.run(&["squeue", "--noheader"]).unwrap());
    for queue in queues {
        assert_eq!(queue.lines().count(), 4, "a cluster knows its own jobs alone: {queue}");
    }
}

#[test]
fn a_job_goes_on_when_slurmctld_is_killed_and_started() {
    let test = "a_job_goes_on_when_slurmctld_is_killed_and_started";
    let folder = Folder::new("killed");
    let Some(cluster) = up(test, &folder, &Options::default()) else { return };
    let go = cluster.folder().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.1; done", go.display());
    let job = submit(&cluster, &["--gres=gpu:1"], &script);
    until_state(&cluster, &job, "RUNNING");
    cluster.kill(&Daemon::Slurmctld);
    assert!(cluster.run(&["scontrol", "ping"]).is_err());
    cluster.start(&Daemon::Slurmctld).unwrap();
    until_state(&cluster, &job, "RUNNING");
    let shown = cluster.run(&["scontrol", "show", "job", &job]).unwrap();
    assert!(shown.contains("Restarts=0"), "{shown}");
    std::fs::write(go, "").unwrap();
    until_state(&cluster, &job, "COMPLETED");
}

#[test]
fn nothing_is_left_of_a_cluster_that_goes_down() {
    let test = "nothing_is_left_of_a_cluster_that_goes_down";
    let folder = Folder::new("gone");
    let Some(mut cluster) = up(test, &folder, &Options::default()) else { return };
    // A task that has left its step, one that heeds no signal, and one whose slurmd was killed.
    seen(&cluster, &["--nodelist=n1"], "$(setsid sleep 601 >/dev/null 2>&1 & echo on)");
    let file = cluster.folder().join("stubborn");
    submit(&cluster, &["--nodelist=n2"], &format!("trap '' TERM; {}", tell(&file, "on")));
    cluster.until("a stubborn job", |_| file.exists().then_some(())).unwrap();
    cluster.kill(&Daemon::Slurmd("n2".into()));
    let running = processes_of(&folder.0);
    assert!(running.iter().any(|it| it.contains("sleep 601")), "{running:#?}");
    assert!(running.iter().any(|it| it.contains("slurmstepd")), "{running:#?}");
    cluster.down().unwrap();
    assert_eq!(processes_of(&folder.0), Vec::<String>::new());
}

/// Brings a cluster up and stays; killed by the test below.
#[test]
#[ignore = "started by another test, which names a folder"]
fn owner() {
    let Some(folder) = std::env::var_os("LAB_OF_OWNER") else { return };
    let cluster = Cluster::up(std::path::Path::new(&folder), &Options::default()).unwrap();
    std::fs::write(cluster.folder().join("ready"), "").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn the_next_cluster_in_a_folder_ends_one_whose_owner_was_killed() {
    let test = "the_next_cluster_in_a_folder_ends_one_whose_owner_was_killed";
    let (elsewhere, folder) = (Folder::new("watch"), Folder::new("owned"));
    let Some(watch) = up(test, &elsewhere, &Options::default()) else { return };
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner", "--ignored"])
        .env("LAB_OF_OWNER", &folder.0)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    watch.until("the owner", |_| folder.0.join("ready").exists().then_some(())).unwrap();
    let refused = Cluster::up(&folder.0, &Options::default()).unwrap_err().to_string();
    assert!(refused.contains("another process has its lab there"), "{refused}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let before = slurm_lab::status(&folder.0).unwrap();
    assert!(before.len() == 4 && before.iter().all(|it| it.1.is_some()), "{before:?}");
    let mut next = Cluster::up(&folder.0, &Options::default()).unwrap();
    let after = slurm_lab::status(&folder.0).unwrap();
    assert!(after.iter().all(|it| it.1.is_some() && !before.contains(it)), "{after:?}");
    next.down().unwrap();
    assert_eq!(processes_of(&folder.0), Vec::<String>::new());
}

#[test]
fn a_cluster_that_is_left_goes_down_by_its_folder() {
    let test = "a_cluster_that_is_left_goes_down_by_its_folder";
    let folder = Folder::new("left");
    let Some(cluster) = up(test, &folder, &Options::default()) else { return };
    cluster.leave().unwrap();
    assert!(slurm_lab::status(&folder.0).unwrap().iter().all(|it| it.1.is_some()));
    let refused = Cluster::up(&folder.0, &Options::default()).unwrap_err().to_string();
    assert!(refused.contains("a lab is up there"), "{refused}");
    slurm_lab::down(&folder.0).unwrap();
    assert_eq!(slurm_lab::status(&folder.0).unwrap(), []);
    assert_eq!(processes_of(&folder.0), Vec::<String>::new());
}
