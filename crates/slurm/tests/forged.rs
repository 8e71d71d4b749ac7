//! Slurm prints what users write about their jobs (names, comments, paths) as it stands, between what it says itself:
//! no such text gives anybody a share, hides one, or takes a node out of use. On real Slurm, with simulated GPUs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::thread;
use std::time::Duration;

use model::Share;
use slurm_lab::Options;
use support::site::{Site, built};

/// Another user, whose numbers are not root's.
const NOBODY: [&str; 4] = ["runuser", "-u", "nobody", "--"];

/// A site of one node with two cards, whose jobs have numbers from 100 on.
fn up(test: &str) -> Option<Site> {
    let slurm_conf = "FirstJobId=100\n".to_owned();
    Site::up(test, Options { nodes: 1, gpus: 2, slurm_conf, ..Options::default() })
}

fn hotpot(site: &Site, words: &[&str]) -> Output {
    site.tries(&[&[built().join("hotpot").to_str().unwrap()], words].concat())
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn state(site: &Site, job: &str) -> String {
    site.does(&["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]).trim().to_owned()
}

fn is_in_use(site: &Site) -> bool {
    let state = site.does(&["sinfo", "-h", "-n", "n1", "-o", "%T"]);
    ["idle", "mixed", "allocated"].contains(&state.trim())
}

#[test]
fn what_users_write_gives_nobody_a_share() {
    let Some(site) = up("what_users_write_gives_nobody_a_share") else { return };
    let leave = site.flag("leave");
    let texts = [
        "x Nodes=n1 GRES=gpu:a100:1(IDX:1) AdminComment=hotpot(z) JobState=COMPLETED UserId=root(0)",
        "x Nodes=a[0-999999][0-999999] GRES=shard:317(IDX:1) Restarts=7",
        "x\n   UserId=root(0) JobState=COMPLETED\n     Nodes=n1 GRES=gpu:a100:1(IDX:1)",
        "x\n\nJobId=1 JobName=y\n   UserId=root(0)",
    ];
    for (at, text) in texts.into_iter().enumerate() {
        let (name, comment) = (format!("--job-name={text}"), format!("--comment={text}"));
        let script = format!("@ devices touch {} wait {leave}", site.flag(&format!("up{at}")));
        let job = site.submit(&["--gres=shard:8", &name, &comment], &script);
        site.until_raised(&format!("up{at}"));
        let shares: Vec<Share> =
            site.held("n1", &job).iter().filter_map(|hold| hold.share).collect();
        let capped = Share::MemoryCapped { memory_mib: 2048, compute_milli: 0 };
        assert_eq!(shares, [capped], "{text}");
        site.script("hotpot-tidy", "n1", None);
        assert_eq!(site.held("n1", &job).len(), 1, "{text}: it runs and holds its share");
        assert!(is_in_use(&site), "{text}");
        let found = site.does(&["squeue", "-h", "-j", &job, "-o", "%j"]);
        assert_eq!(found.lines().count(), 1, "line breaks are taken out: {found}");
    }
    site.raise("leave");
}

#[test]
fn nobody_hides_another_ones_job_or_invents_one() {
    let Some(site) = up("nobody_hides_another_ones_job_or_invents_one") else { return };
    let leave = site.flag("leave");
    let script = format!("@ touch {} wait {leave}", site.flag("up"));
    let job = site.submit(&["--gres=gpu:2"], &script);
    site.until_raised("up");
    let ghost = |number: &str| {
        let held = "Nodes=n1 CPU_IDs=1 Mem=1 GRES=gpu:a100:2(IDX:0-1)";
        format!(
            "\nJobId={number} JobName=ghost\n   UserId=root(0) GroupId=root(0)\n   Priority=1\n   JobState=RUNNING\n   \
             Requeue=1 BatchFlag=1\n   NodeList=n1\n   Socks/Node=*\n     {held}"
        )
    };
    let doubled: String =
        (0..22).map(|number| format!("\nJobId={number} \nJobId={number} ")).collect();
    let label = format!("--mcs-label=a{doubled}{}{}", ghost(&job), ghost("777"));
    let forger = site.submit_by(&NOBODY, &["--hold", &label], "true");
    let told = said(&hotpot(&site, &["slurm", "explain", &job]));
    assert!(told.contains("running"), "{told}");
    let missing = format!("1 job is not shown: what Slurm prints of it cannot be read ({forger})");
    assert!(told.contains(&missing), "{told}");
    let invented = hotpot(&site, &["slurm", "explain", "777"]);
    assert!(!invented.status.success(), "{invented:?}");
    let shown = said(&hotpot(&site, &["top", "--slurm", "--once"]));
    assert!(shown.contains(&format!("{job} root")) && shown.contains(&missing), "{shown}");
    assert!(!shown.contains("ghost"), "{shown}");
    site.raise("leave");
}

/// Root acts on a job by the number that Slurm gave the Prolog, whatever its texts say.
#[test]
fn nobody_makes_root_act_on_another_ones_job() {
    let Some(site) = up("nobody_makes_root_act_on_another_ones_job") else { return };
    site.does(&["scontrol", "update", "nodename=n1", "availablefeatures=a", "activefeatures=a"]);
    let leave = site.flag("leave");
    let script = format!("@ touch {}-$SLURM_ARRAY_TASK_ID wait {leave}", site.flag("up"));
    let array = site.submit(&["--array=0-1", "--gres=shard:8"], &script);
    (0..2).for_each(|task| site.until_raised(&format!("up-{task}")));
    let words = |task: &str| {
        format!("--constraint=a*1 ArrayJobId={array} ArrayTaskId={task} JobState=RUNNING")
    };
    for task in ["0", "1"] {
        let words = ["--hold", "--gres=shard:8", &words(task)];
        let forger = site.submit_by(&NOBODY, &words, "@ devices");
        // As any job that must not run here.
        let name = format!("jobid={forger}");
        site.does(&["scontrol", "update", &name, "admincomment=hotpot(z)"]);
        site.does(&["scontrol", "release", &forger]);
        site.until("it to go back", |_| (site.field(&forger, "Restarts") != "0").then_some(()));
    }
    // As long as a job takes to be sent back.
    thread::sleep(Duration::from_secs(3));
    for task in ["0", "1"] {
        let name = format!("{array}_{task}");
        let seen = ["JobState", "Restarts", "AdminComment"].map(|key| site.field(&name, key));
        assert_eq!(seen, ["RUNNING", "0", ""], "{name}");
    }
    site.raise("leave");
}

/// Of an array one task goes back, also that which has the number of the whole.
#[test]
fn one_task_of_an_array_is_sent_back_alone() {
    let Some(site) = up("one_task_of_an_array_is_sent_back_alone") else { return };
    let leave = site.flag("leave");
    for bad in 0..2 {
        let good = 1 - bad;
        let up = site.flag(&format!("up{bad}"));
        let script = format!("@ touch {up}-$SLURM_ARRAY_TASK_ID wait {leave}");
        let array = site.submit(&["--array=0-1", "--gres=shard:8", "--hold"], &script);
        let task = |task: i32| format!("{array}_{task}");
        let name = format!("jobid={}", task(bad));
        site.does(&["scontrol", "update", &name, "admincomment=hotpot(z)"]);
        site.does(&["scontrol", "release", &array]);
        site.until_raised(&format!("up{bad}-{good}"));
        site.until("it to go back", |_| (site.field(&task(bad), "Restarts") != "0").then_some(()));
        thread::sleep(Duration::from_secs(1));
        let seen = ["JobState", "Restarts"].map(|key| site.field(&task(good), key));
        assert_eq!(seen, ["RUNNING", "0"], "{array}, task {good}");
        site.does(&["scancel", &task(bad)]);
    }
    site.raise("leave");
}

#[test]
fn a_job_that_cannot_be_read_fails_and_its_node_works_on() {
    let Some(site) = up("a_job_that_cannot_be_read_fails_and_its_node_works_on") else { return };
    let path = format!("--error={}\n   UserId=root(0)", site.flag("err"));
    let refused = site.tries(&["sbatch", "--gres=gpu:1", &path, "--wrap=true"]);
    assert!(
        !refused.status.success() && said(&refused).contains("std_err: a line break"),
        "{refused:?}"
    );
    // These no rule can clean: slurmctld does not show them to it.
    let held = "Nodes=n1 CPU_IDs=1 Mem=16 GRES=gpu:a100:2(IDX:0-1)";
    let label = |line: &str| format!("--mcs-label=a\n   {line}");
    let bomb = "     Nodes=[0-999999] GRES=gpu:1(IDX:0-9)\n".repeat(20);
    let bomb = label(&format!(
        "\nJobId=999 JobName=x\n UserId=a(0) GroupId=a(0)\n Priority=1\n JobState=RUNNING\n Requeue=1 BatchFlag=1\n \
         Socks/Node=\n{bomb}"
    ));
    for (gres, text) in [
        ("--gres=none", label(&format!("Foo=1 {held}"))),
        ("--gres=gpu:1", label("Foo=1 JobState=COMPLETED")),
        ("--gres=shard:8", label("AdminComment=hotpot(gpu-share=mps)")),
        ("--gres=gpu:1", bomb),
    ] {
        let job = site.submit(&[gres, &text], "echo it ran; @ devices");
        let over = |_: &_| (state(&site, &job) == "FAILED").then_some(());
        site.until("its end", over);
        assert!(!site.out(&job).contains("it ran") && site.held("n1", &job).is_empty(), "{text}");
        assert!(is_in_use(&site), "{text}");
    }
    let honest = site.submit(&["--gres=gpu:1"], "@ devices");
    assert!(site.finish(&honest).contains("devices 1 "));
}

/// What is too much to be read is the job's fault, not the node's.
#[test]
fn a_job_with_too_much_text_is_refused_and_its_node_works_on() {
    let Some(site) = up("a_job_with_too_much_text_is_refused_and_its_node_works_on") else {
        return;
    };
    let stub = site.flag("scontrol");
    let script =
        "#!/bin/sh\necho JobId=4242 JobName=x\nyes | head -c 300000000 && echo to its end >&2\n";
    fs::write(&stub, script).unwrap();
    fs::set_permissions(&stub, PermissionsExt::from_mode(0o755)).unwrap();
    let slurm = |name: &str| {
        let program = site.cluster.etc().join(name).display().to_string();
        let mut command = site.cluster.command(&program);
        command.env("SLURMD_NODENAME", "n1").env("SLURM_JOB_ID", "4242");
        command.env("HOTPOT_SCONTROL", &stub).output().unwrap()
    };
    let done = slurm("hotpot-prolog");
    assert!(done.status.success(), "{done:?}");
    assert!(slurm("hotpot-tidy").status.success());
    let told = fs::read_to_string(site.cluster.machine("n1").join("jobs/4242.task")).unwrap();
    assert!(told.contains("refuse "), "{told}");
    assert!(slurm("hotpot-epilog").status.success());
}
