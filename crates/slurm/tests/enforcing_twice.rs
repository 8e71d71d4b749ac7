//! A card that Slurm gives to two jobs at once is used by one of them: by real Slurm, with simulated GPUs. Old
//! Slurm does so now and then; here the node's book has a running job on a card of which Slurm does not know.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use model::Share;
use slurm_lab::{Cluster, Options};
use support::site::Site;

/// A site with a job on the first of two cards that holds the second, too; its number, and the card's.
fn taken(test: &str) -> Option<(Site, String, String)> {
    let options = Options { nodes: 1, gpus: 2, ..Options::default() };
    let site = Site::up(test, options)?;
    let job = site.submit(
        &["--gres=gpu:1"],
        &format!("@ touch {} wait {}", site.flag("up"), site.flag("leave")),
    );
    site.until_raised("up");
    let card = site.machine("n1").read().gpus[1].uuid.clone();
    assert_ne!(site.held("n1", &job)[0].gpu, card);
    let who = format!("slurm/{job}");
    site.journal("n1").hold(&card, Share::Exclusive, &card, &who).unwrap();
    Some((site, job, card))
}

impl Site {
    /// Forgets that a job holds a card.
    fn let_go(&self, job: &str, card: &str) {
        let held = self.held("n1", job).into_iter().find(|hold| hold.gpu == card);
        self.journal("n1").release(held.unwrap().id).unwrap();
    }
}

#[test]
fn the_later_job_goes_back_with_the_reason_and_runs_when_the_card_is_free() {
    let test = "the_later_job_goes_back_with_the_reason_and_runs_when_the_card_is_free";
    let Some((site, holder, card)) = taken(test) else { return };
    let says = "echo it ran; @ alloc 256 devices";
    // All kinds of later jobs: a whole card, and a share.
    let whole = site.submit(&["--gres=gpu:1"], says);
    let reason = |job: &str| {
        let told = |_: &Cluster| {
            Some(site.comment(job)).filter(|comment| comment.contains("hotpot-sent-back("))
        };
        let told = site.until("a reason", told);
        assert!(told.contains("n1: ") && told.contains(&format!("slurm/{holder}")), "{told}");
        told
    };
    reason(&whole);
    site.until_is(&whole, &["PENDING"]);
    assert_eq!(site.field(&whole, "Restarts"), "1");
    let out = site.out(&whole);
    assert!(out.contains("goes back into the queue") && !out.contains("it ran"), "{out}");
    site.until_undone("n1", &whole);
    let share = site.submit(&["--gpu-mem=2G"], says);
    assert!(reason(&share).starts_with("hotpot(gpu-mem=2048)"), "what was asked stays there");
    site.until_is(&share, &["PENDING"]);
    assert!(!site.out(&share).contains("it ran"), "{}", site.out(&share));

    site.let_go(&holder, &card);
    for job in [&whole, &share] {
        site.until_is(job, &["COMPLETED"]);
        let out = site.out(job);
        assert_eq!(out.matches("it ran").count(), 1, "{out}");
        assert!(
            out.contains("alloc 256 0") && out.contains(card.trim_start_matches("GPU-")),
            "{out}"
        );
    }
    assert_eq!(site.field(&holder, "JobState"), "RUNNING");
    site.raise("leave");
    assert_eq!(site.finish(&holder), "");
}

#[test]
fn a_job_that_cannot_go_back_is_cancelled_and_its_user_told() {
    let test = "a_job_that_cannot_go_back_is_cancelled_and_its_user_told";
    let Some((site, holder, _)) = taken(test) else { return };
    let ran = site.flag("ran");
    let done = site.tries(&["srun", "--mem=16", "--gres=gpu:1", "touch", &ran]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && done.status.code() != Some(124), "{done:?}");
    assert!(said.contains("hotpot: ") && said.contains(&format!("slurm/{holder}")), "{said}");
    let job = site.submit(&["--gres=gpu:1", "--no-requeue"], &format!("touch {ran}"));
    assert_eq!(site.until_is(&job, &["CANCELLED", "COMPLETED", "FAILED"]), "CANCELLED");
    assert!(site.comment(&job).contains("hotpot-sent-back("), "{}", site.comment(&job));
    assert!(!std::path::Path::new(&ran).exists(), "its task has begun");
    site.until_undone("n1", &job);
    assert_eq!(site.field(&holder, "JobState"), "RUNNING");
    let node = site.does(&["sinfo", "-hN", "-o", "%T", "-p", "batch"]);
    assert!(["mixed", "idle"].contains(&node.trim()), "the node is well: {node}");
}
