//! The options in real `sbatch`, `srun` and `salloc`: what they let through, what they refuse, what jobs inherit.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::{Site, up};

/// The numbers of all jobs.
fn jobs(site: &Site) -> String {
    site.does(&["squeue", "--noheader", "--all", "--format=%A"])
}

#[test]
fn a_wrong_value_ends_the_command_and_nothing_is_submitted() {
    let test = "a_wrong_value_ends_the_command_and_nothing_is_submitted";
    let Some(site) = up(test, "optional", false) else { return };
    let values = [
        ("--gpu-mem=2X", "not a size"),
        ("--gpu-mem=0", "nothing can run in no memory"),
        ("--gpu-compute=120%", "more than a whole GPU"),
        ("--gpu-share=half", "auto, exclusive, timeslice, mps, mig, capped"),
    ];
    for (value, why) in values {
        for line in
            [["srun", value, "true"], ["salloc", value, "true"], ["sbatch", value, "--wrap=true"]]
        {
            let said = site.fails(&line);
            assert!(said.contains(&format!("error: hotpot: {value}: ")), "{line:?}: {said}");
            assert!(said.contains(why), "{line:?}: {said}");
        }
    }
    let script = site.folder.join("job.sh");
    fs::write(&script, "#!/bin/sh\n#SBATCH --gpu-mem=4X\ntrue\n").unwrap();
    assert!(site.fails(&["sbatch", script.to_str().unwrap()]).contains("hotpot: --gpu-mem=4X: "));
    let said = site.fails(&["sbatch", "--gpus=1:shared", "--wrap=true"]);
    assert!(said.contains("hotpot: --gpus=1:shared: Slurm has no shared GPUs"), "{said}");
    let said = site.fails(&["srun", "--gres", "gpu:1:shared", "true"]);
    assert!(said.contains("hotpot: gpu:1:shared: Slurm has no shared GPUs"), "{said}");
    assert_eq!(jobs(&site), "");
    assert_eq!(site.held(&[], "true"), "1", "no job had a number before");
}

#[test]
fn options_are_in_the_help_and_reach_slurmctld_from_every_command_and_from_scripts() {
    let test = "options_are_in_the_help_and_reach_slurmctld_from_every_command_and_from_scripts";
    let Some(site) = up(test, "required", false) else { return };
    for command in ["sbatch", "srun", "salloc"] {
        let help = site.does(&[command, "--help"]);
        for option in
            ["--gpu-mem=SIZE", "--gpu-compute=PERCENT", "--gpu-share=MODE", "--gpu-pilots"]
        {
            assert!(help.contains(option), "{command}: {help}");
        }
    }
    let show = "scontrol -o show job $SLURM_JOB_ID | grep -o 'AdminComment=[^ ]*'";
    let shown = "AdminComment=hotpot(gpu-mem=2048)\n";
    assert_eq!(site.does(&["srun", "--gpu-mem=2G", "sh", "-c", show]), shown);
    assert_eq!(site.does(&["salloc", "--quiet", "--gpu-mem=2G", "sh", "-c", show]), shown);
    let script = site.folder.join("job.sh");
    fs::write(&script, "#!/bin/sh\n#SBATCH --gpu-mem=4G\n#SBATCH --gpu-compute=5\ntrue\n").unwrap();
    let script = script.to_str().unwrap();
    let job = site.does(&[
        "sbatch",
        "--parsable",
        "--hold",
        "--gpu-mem=3G",
        "--output=/dev/null",
        script,
    ]);
    assert_eq!(site.field(job.trim(), "AdminComment"), "hotpot(gpu-mem=3072,gpu-compute=50)");
}

#[test]
fn what_is_done_in_a_job_does_not_ask_for_its_share_again() {
    let test = "what_is_done_in_a_job_does_not_ask_for_its_share_again";
    let Some(site) = up(test, "optional", false) else { return };
    let inside = "sbatch --parsable --hold --mem=10 --output=/dev/null --gres=gpu:1 --wrap=true; \
                  srun -Q --mem=10 echo a step; srun --mem=10 --gpu-mem=1G echo wrong 2>&1";
    let job = site.held(&["--gpu-mem=2G"], inside);
    let (state, out) = site.finish(&job);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(site.field(lines[0], "TresPerNode"), "gres:gpu:1", "{out}");
    assert_eq!(site.field(lines[0], "AdminComment"), "", "{out}");
    assert_eq!(lines[1], "a step", "{out}");
    assert!(lines[2].contains("the steps of a job use the share that the job has"), "{out}");
    assert!(!out.contains("wrong"), "{out}");
    assert_eq!(state, "FAILED", "the script ends with the refused step");
    // Neither does a new job count the restarts of the one that it was submitted in.
    let tells = "sbatch --wait --output=/dev/null --wrap='[ -z $SLURM_RESTART_COUNT ]'";
    site.does(&["env", "SLURM_RESTART_COUNT=5", "sh", "-c", tells]);
    let inside = "sbatch --parsable --hold --output=/dev/null --wrap=true";
    let job = site.does(&["salloc", "--quiet", "--gpu-mem=2G", "sh", "-c", inside]);
    assert_eq!(site.field(job.trim(), "AdminComment"), "");
}

#[test]
fn pilots_are_handed_on_once_and_only_from_sbatch() {
    let test = "pilots_are_handed_on_once_and_only_from_sbatch";
    let Some(site) = up(test, "optional", false) else { return };
    let script = site.folder.join("job.sh");
    fs::write(&script, "#!/bin/sh\n#SBATCH --gpu-pilots=4\n#SBATCH --array=1-3\ntrue\n").unwrap();
    let script = script.to_str().unwrap();
    let said = site.fails(&["sbatch", script]);
    assert!(
        said.contains("hotpot: --gpu-pilots: ") && said.contains("cannot be started"),
        "{said}"
    );
    let hotpot = site.folder.join("hotpot");
    let submits = "#!/bin/sh\nfor word; do echo \"[$word]\"; done\n\
                   [ \"$2\" = run ] && shift 4 && sbatch --parsable --hold --output=/dev/null \"$@\"\n";
    fs::write(&hotpot, submits).unwrap();
    fs::set_permissions(&hotpot, PermissionsExt::from_mode(0o755)).unwrap();
    let done = site.does(&["sbatch", "--gpu-pilots=2", "--mem=10", script, "a b", ""]);
    let told = format!("[slurm]\n[run]\n[--pilots]\n[2]\n[--mem=10]\n[{script}]\n[a b]\n[]\n1\n");
    assert_eq!(done, told);
    let done = site.does(&["sbatch", script]);
    assert_eq!(done, format!("[slurm]\n[run]\n[--pilots]\n[4]\n[{script}]\n2\n"));
    for command in ["srun", "salloc"] {
        let said = site.fails(&[command, "--gpu-pilots", "true"]);
        assert!(said.contains("--gpu-pilots is for sbatch"), "{said}");
    }
    assert!(site.fails(&["sbatch", "--gpu-pilots=x", script]).contains("not a number of pilots"));
    assert_eq!(jobs(&site).lines().count(), 2, "two arrays, and nothing else");
}
