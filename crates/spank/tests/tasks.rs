//! What tasks see on the node, with files as hotpot's Prolog writes them, on real Slurm.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::up;

const FILE: &str = "hotpot-slurm-task/1\ndevice 0 GPU-a\ndevice 1 GPU-b\ndevice 2 GPU-c\n";
const SHOW: &str = "sh -c 'echo C=$CUDA_VISIBLE_DEVICES N=$NVIDIA_VISIBLE_DEVICES F=$FOO'";

#[test]
fn tasks_see_the_gpus_of_their_steps_by_the_names_of_cuda() {
    let test = "tasks_see_the_gpus_of_their_steps_by_the_names_of_cuda";
    let Some(site) = up(test, "optional", false) else { return };
    let steps = [
        format!("{SHOW}; srun -Q -n1 --mem=10 {SHOW}; srun -Q -n1 --mem=10 --gres=gpu:1 {SHOW}"),
        format!("srun -Q -n1 --mem=10 --gres=none {SHOW}"),
        format!("srun -Q --label -n2 --mem=10 --gpus-per-task=1 {SHOW} | sort"),
    ];
    let job = site.held(&["--nodelist=n1", "-n2", "--gres=gpu:3"], &steps.join("; "));
    site.task_file(&job, &format!("{FILE}set FOO b  c\n"));
    let (state, out) = site.finish(&job);
    let expected = "C=GPU-a,GPU-b,GPU-c N=GPU-a,GPU-b,GPU-c F=b c\n\
                    C=GPU-a,GPU-b,GPU-c N=GPU-a,GPU-b,GPU-c F=b c\n\
                    C=GPU-a N=GPU-a F=b c\n\
                    C= N=void F=b c\n\
                    0: C=GPU-a N=GPU-a F=b c\n\
                    1: C=GPU-b N=GPU-b F=b c\n";
    assert_eq!((state.as_str(), out.as_str()), ("COMPLETED", expected));
}

#[test]
fn a_step_with_shards_sees_their_gpu_even_where_slurm_forgets_it() {
    let test = "a_step_with_shards_sees_their_gpu_even_where_slurm_forgets_it";
    let Some(site) = up(test, "optional", false) else { return };
    // By itself, Slurm 22.05 gives such tasks no CUDA_VISIBLE_DEVICES at all.
    let step = format!("srun -Q -n2 --mem=10 --gpu-bind=single:1 {SHOW}");
    let job = site.held(&["--nodelist=n1", "-n2", "--gres=shard:3"], &step);
    site.task_file(&job, "hotpot-slurm-task/1\ndevice 0 GPU-a\n");
    assert_eq!(site.finish(&job).1, "C=GPU-a N=GPU-a F=\n".repeat(2));
}

#[test]
fn what_the_user_preloads_stays_behind_the_limiter_and_a_job_without_a_file_is_left_alone() {
    let test =
        "what_the_user_preloads_stays_behind_the_limiter_and_a_job_without_a_file_is_left_alone";
    let Some(site) = up(test, "optional", false) else { return };
    let real = "/lib/x86_64-linux-gnu/libutil.so.1";
    let other = "/lib/x86_64-linux-gnu/libdl.so.2";
    let words = ["--nodelist=n1", "--gres=gpu:1", &format!("--export=ALL,LD_PRELOAD={other}")];
    let job = site.held(&words, "echo $LD_PRELOAD $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES.");
    site.task_file(&job, &format!("hotpot-slurm-task/1\nprepend LD_PRELOAD {real}\n"));
    assert_eq!(site.finish(&job).1, format!("{real}:{other} 0 .\n"));
    let job = site.held(&words, "echo $LD_PRELOAD $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES.");
    assert_eq!(site.finish(&job).1, format!("{other} 0 .\n"));
}

/// Nothing of the user's runs: not the script, and not a step that was started before the file said so.
fn refused(kind: &str, test: &str) {
    let Some(site) = up(test, kind, false) else { return };
    let ran = site.folder.join("ran");
    let touch = format!("touch {}", ran.display());
    let job = site.held(&["--nodelist=n1", "--gres=gpu:1"], &touch);
    site.task_file(&job, "hotpot-slurm-task/1\nrefuse GPU 0 is job 7's\n");
    let (state, out) = site.finish(&job);
    assert_eq!(state, "FAILED");
    assert!(
        out.contains(&format!("hotpot: job {job} does not run on n1: GPU 0 is job 7's")),
        "{out}"
    );
    let next = job.parse::<u32>().unwrap().saturating_add(1);
    site.task_file(&next.to_string(), "hotpot-slurm-task/1\nrefuse GPU 0 is job 7's\n");
    let said = site.fails(&["srun", "--nodelist=n1", "--gres=gpu:1", "sh", "-c", &touch]);
    assert!(said.contains("does not run on n1: GPU 0 is job 7's"), "{said}");
    assert!(!ran.exists());
}

#[test]
fn a_refused_job_runs_nothing_with_a_required_plugin() {
    refused("required", "required_refused_job_runs_nothing");
}

#[test]
fn a_refused_job_runs_nothing_with_an_optional_plugin() {
    refused("optional", "optional_refused_job_runs_nothing");
}

#[test]
fn a_file_that_cannot_be_trusted_or_read_stops_the_task() {
    let test = "a_file_that_cannot_be_trusted_or_read_stops_the_task";
    let Some(site) = up(test, "optional", false) else { return };
    let held = || site.held(&["--nodelist=n1", "--gres=gpu:1"], "echo it ran");
    let job = held();
    site.task_file(&job, "hotpot-slurm-task/1\ndevise 0 GPU-a\n");
    let (state, out) = site.finish(&job);
    assert!(state == "FAILED" && out.contains("line 2: 'devise 0 GPU-a' has no meaning"), "{out}");
    let job = held();
    let path = site.task_file(&job, FILE);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o646)).unwrap();
    let (state, out) = site.finish(&job);
    assert!(state == "FAILED" && out.contains("not a file that root alone can write"), "{out}");
    assert!(!out.contains("it ran"), "{out}");
}

#[test]
fn what_is_left_of_an_earlier_start_does_not_count() {
    let test = "what_is_left_of_an_earlier_start_does_not_count";
    let Some(site) = up(test, "optional", false) else { return };
    // The job starts itself anew once, and tells what it and its step see then.
    let script = format!(
        "[ $SLURM_RESTART_COUNT ] || scontrol requeuehold $SLURM_JOB_ID; {SHOW}; srun -Q {SHOW}"
    );
    let begin = || {
        let job = site.held(&["--nodelist=n1", "--gres=gpu:1"], &script);
        site.task_file(&job, "hotpot-slurm-task/1\nrestart 0\ndevice 0 GPU-a\n");
        site.does(&["scontrol", "release", &job]);
        job
    };
    let end = |job: &str, restart: u32| {
        let restarted = |_: &_| (site.field(job, "Restarts") == "1").then_some(());
        site.cluster.until("a second start", restarted).unwrap();
        let text = format!("hotpot-slurm-task/1\nrestart {restart}\ndevice 0 GPU-b\n");
        site.task_file(job, &text);
        site.finish(job)
    };
    let (told_again, not_told) = (begin(), begin());
    let (state, out) = end(&told_again, 1);
    assert_eq!((state.as_str(), out), ("COMPLETED", "C=GPU-b N=GPU-b F=\n".repeat(2)));
    let (state, out) = end(&not_told, 0);
    assert!(state == "FAILED" && out.contains("Prolog has not run for this start"), "{out}");
}
