//! Slurm prints what users write about their jobs (names, comments, paths) as it stands, between what it says itself:
//! no such text gives anybody a share, hides one, or takes a node out of use. On real Slurm, with simulated GPUs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use model::Share;
use slurm_lab::Options;
use support::site::{Site, built};

/// A site of one node with two cards.
fn up(test: &str) -> Option<Site> {
    Site::up(test, Options { nodes: 1, gpus: 2, ..Options::default() })
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
fn nobody_hides_another_ones_job() {
    let Some(site) = up("nobody_hides_another_ones_job") else { return };
    let leave = site.flag("leave");
    let script = format!("@ touch {} wait {leave}", site.flag("up"));
    let job = site.submit(&["--gres=gpu:2"], &script);
    site.until_raised("up");
    let label = format!("--mcs-label=a\nJobId={job} JobName=v\n   UserId=root(0) GroupId=root(0)");
    site.submit(&["--hold", &label], "true");
    let hotpot = built().join("hotpot").display().to_string();
    let told = site.does(&[&hotpot, "slurm", "explain", &job]);
    assert!(told.contains("running"), "{told}");
    let shown = site.does(&[&hotpot, "top", "--slurm", "--once"]);
    assert!(shown.contains(&format!("{job} root")), "{shown}");
    site.raise("leave");
}

#[test]
fn a_job_that_cannot_be_read_fails_and_its_node_works_on() {
    let Some(site) = up("a_job_that_cannot_be_read_fails_and_its_node_works_on") else { return };
    let path = format!("--error={}\n   UserId=root(0)", site.flag("err"));
    // These no rule can clean: slurmctld does not show them to it.
    let held = "Nodes=n1 CPU_IDs=1 Mem=16 GRES=gpu:a100:2(IDX:0-1)";
    let label = |line: &str| format!("--mcs-label=a\n   {line}");
    for (gres, text) in [
        ("--gres=gpu:1", path),
        ("--gres=none", label(&format!("Foo=1 {held}"))),
        ("--gres=gpu:1", label("Foo=1 JobState=COMPLETED")),
        ("--gres=shard:8", label("AdminComment=hotpot(gpu-share=mps)")),
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
