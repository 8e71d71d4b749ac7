//! A short run of chaos by one seed on a real cluster; `cargo xtask kubernetes-chaos` has long ones.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "chaos/mod.rs"]
mod chaos;
mod live;

use std::path::Path;
use std::time::Duration;

use live::Folder;

#[test]
fn nothing_is_given_twice_or_left_behind_while_parts_of_the_cluster_die_and_come_back() {
    let test = "nothing_is_given_twice_or_left_behind_while_parts_of_the_cluster_die_and_come_back";
    if !kubernetes_lab::can_be_had(test) {
        return;
    }
    let folder = Folder::new("chaos");
    let plan = chaos::Plan {
        seed: 1,
        span: Duration::from_secs(25),
        waits_for_kubelet: false,
        folder: folder.0.clone(),
        programs: live::built("hotpot").parent().unwrap().to_owned(),
        project: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        say: |line| eprintln!("{line}"),
    };
    let outcome = chaos::run(&plan).unwrap();
    eprintln!("{:#?}", outcome.rows);
    let violations = outcome.violations.join("\n");
    assert!(violations.is_empty(), "seed {}: {violations}\n{}", plan.seed, outcome.evidence);
    // A run in which nothing has happened shows nothing.
    assert!(outcome.bound >= 8 && outcome.faults >= 3, "{:?}", outcome.rows);
    assert!(outcome.checks > 20 && outcome.shares_checked > 0, "{:?}", outcome.rows);
}
