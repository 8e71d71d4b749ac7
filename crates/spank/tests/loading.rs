//! The plugin's file where it belongs, and not there: what users of a real Slurm see.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;

use support::{plugin, shipped, up};

#[test]
fn what_is_removed_with_its_folder_breaks_nothing() {
    let Some(site) = up("what_is_removed_with_its_folder_breaks_nothing", "optional", false) else {
        return;
    };
    let home = site.folder.join("lib");
    fs::create_dir_all(home.join("slurm")).unwrap();
    fs::copy(plugin(), home.join("libhotpot_spank.so")).unwrap();
    let moved = |name: &str| shipped(name).replace("/usr/lib/hotpot", home.to_str().unwrap());
    fs::write(home.join("slurm/spank.conf"), moved("spank.conf")).unwrap();
    site.write("plugstack.conf", &moved("plugstack.conf"));
    let run = || {
        let done = site.cluster.command("srun").args(["echo", "it ran"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "it ran\n");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert_eq!(run(), "");
    assert!(site.does(&["srun", "--help"]).contains("--gpu-mem=SIZE"));
    // Half an uninstall: Slurm says what is missing and goes on, on nodes too.
    fs::remove_file(home.join("libhotpot_spank.so")).unwrap();
    assert!(run().contains("libhotpot_spank.so: cannot open shared object file"));
    let job = site.held(&[], "echo it ran");
    assert_eq!(site.finish(&job), ("COMPLETED".to_string(), "it ran\n".to_string()));
    fs::remove_dir_all(&home).unwrap();
    assert_eq!(run(), "");
}

#[test]
fn a_line_that_means_nothing_is_said_by_the_task_that_it_stops() {
    let test = "a_line_that_means_nothing_is_said_by_the_task_that_it_stops";
    let Some(site) = up(test, "optional", false) else { return };
    site.write("plugstack.conf", &format!("optional {} job=/x\n", plugin().display()));
    let said = site.fails(&["srun", "true"]);
    assert!(said.contains("hotpot: plugstack.conf: 'job=/x' means nothing"), "{said}");
}
