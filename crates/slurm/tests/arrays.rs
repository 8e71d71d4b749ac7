//! Arrays on a real cluster that nothing disturbs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;

use slurm::array::event::Ending;
use slurm::array::ledger::Standing;
use support::Lab;

/// Writes what the task knows of itself; ends in one of three ways.
const BODY: &str = "#SBATCH --array=1-100%4
#SBATCH --job-name=three-ways
#SBATCH --output=out/%x-%4a-%j.txt
echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX $CUDA_VISIBLE_DEVICES
echo $SLURM_ARRAY_TASK_ID >>done/$SLURM_ARRAY_TASK_ID
case $((SLURM_ARRAY_TASK_ID % 3)) in
    0) true ;;
    1) exit $((SLURM_ARRAY_TASK_ID % 5)) ;;
    2) sleep 0.05 ;;
esac";

#[test]
fn each_task_runs_once_with_what_is_its_own() {
    let test = "each_task_runs_once_with_what_is_its_own";
    let Some(lab) = Lab::up(test) else { return };
    fs::create_dir(lab.work.join("out")).unwrap();
    let array = lab.submit(&[], BODY);
    let ledger = lab.until_over(&array);
    assert_eq!(lab.results().len(), 100);
    assert!(lab.results().iter().all(|(name, text)| name == text), "each wrote once");
    for (index, task) in ledger.tasks() {
        let status = if index % 3 == 1 { (index % 5) as i32 } else { 0 };
        let Standing::Ended { how, .. } = &task.standing else { panic!("{task:?}") };
        assert_eq!((how, task.attempts), (&Ending::Exit(status), 1), "task {index}");
    }
    let outputs: Vec<String> = fs::read_dir(lab.work.join("out"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(outputs.len(), 100);
    assert!(outputs.iter().any(|text| text.starts_with("17 100 1-100 ")), "{outputs:?}");
    let one = lab.work.join("out");
    let named = fs::read_dir(one).unwrap().flatten().map(|entry| entry.file_name());
    let named: Vec<String> = named.map(|name| name.into_string().unwrap()).collect();
    assert!(
        named.iter().any(|name| name.starts_with("three-ways-0017-") && name.ends_with("_17.txt"))
    );
    let mut moments = Vec::new();
    for task in ledger.tasks().values() {
        let Standing::Ended { since_ms, at_ms, .. } = task.standing else { continue };
        moments.extend([(since_ms, 1), (at_ms, -1)]);
    }
    moments.sort_unstable();
    let at_once = moments.iter().scan(0, |sum, (_, step)| {
        *sum += step;
        Some(*sum)
    });
    assert!(at_once.max().unwrap() <= 4, "no more at once than %4");
    let queue = lab.cluster.run(&["scontrol", "-o", "show", "job", &array.job]).unwrap();
    assert!(
        queue.contains("JobName=three-ways")
            && queue.contains("Comment=hotpot: 100 tasks: 73 done"),
        "{queue}"
    );
    let shown = lab.hotpot(&["tasks", &array.job, "--output", "json"]);
    assert_eq!(shown.status.code(), Some(1), "some failed");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["done"], &shown["failed"]), (&73.into(), &27.into()));
}

#[test]
fn a_task_that_takes_too_long_is_ended_with_all_that_it_started() {
    let test = "a_task_that_takes_too_long_is_ended_with_all_that_it_started";
    let Some(lab) = Lab::up(test) else { return };
    // The second ignores TERM; the third leaves something behind that has left its group.
    let body = "#SBATCH --time=0:02
        case $SLURM_ARRAY_TASK_ID in
            1) trap 'echo told >done/1; exit 0' TERM; sleep 60 & wait ;;
            2) trap '' TERM; sleep 60; sleep 60 ;;
            3) setsid sleep 61.5 & echo left >done/3 ;;
        esac";
    let array = lab.submit(&["--array=1-3"], body);
    let ledger = lab.until_over(&array);
    let how = |index: u32| match &ledger.tasks()[&index].standing {
        Standing::Ended { how, at_ms, since_ms, .. } => (how.clone(), at_ms - since_ms),
        other @ (Standing::Waiting | Standing::Claimed { .. }) => panic!("{other:?}"),
    };
    assert_eq!(how(1).0, Ending::Timeout);
    assert_eq!(how(2).0, Ending::Timeout);
    assert!(how(1).1 >= 2000 && how(2).1 >= 4000, "TERM first, KILL after: {:?}", how(2));
    assert_eq!(how(3).0, Ending::Exit(0));
    assert_eq!(lab.results()["1"], "told");
    let left = std::process::Command::new("pgrep").args(["-fx", "sleep 61.5"]).output().unwrap();
    assert!(left.stdout.is_empty(), "something is left running");
}

#[test]
fn what_is_no_array_is_sbatchs() {
    let test = "what_is_no_array_is_sbatchs";
    let Some(lab) = Lab::up(test) else { return };
    fs::write(lab.work.join("job.sh"), "#!/bin/sh\necho $1 >done/plain\n").unwrap();
    let output = lab.hotpot(&["run", "--parsable", "job.sh", "word"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("handed on to sbatch"), "{output:?}");
    lab.cluster.until("its result", |_| lab.results().get("plain").cloned()).unwrap();
    assert_eq!(lab.results()["plain"], "word");
    let refused = lab.hotpot(&["run", "--array=1-3", "--partition=none", "job.sh"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let place = lab.work.join(".hotpot/arrays");
    assert_eq!(fs::read_dir(place).unwrap().count(), 0, "nothing is left of what was refused");
    let usage = lab.hotpot(&["run", "-p", "batch", "--array=3-1", "job.sh"]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
}

#[test]
fn a_job_that_waits_for_the_array_starts_after_it() {
    let test = "a_job_that_waits_for_the_array_starts_after_it";
    let Some(lab) = Lab::up(test) else { return };
    // Twenty GPUs and thirty tasks at once: ten pilots wait until the others are done.
    let body = "while [ ! -e go ]; do sleep 0.05; done; touch done/$SLURM_ARRAY_TASK_ID";
    let array = lab.submit(&["--array=1-60%30"], body);
    let after = format!("--dependency=afterok:{}", array.job);
    let job =
        ["sbatch", "--parsable", "--output=/dev/null", &after, "--wrap=ls done | wc -l >count"];
    let mut command = lab.cluster.command("sbatch");
    let chdir = format!("--chdir={}", lab.work.display());
    let output = command.args(&job[1..4]).arg(chdir).arg(job[4]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::write(lab.work.join("go"), "").unwrap();
    lab.until_over(&array);
    let count = lab.cluster.until("the job behind the array", |_| {
        fs::read_to_string(lab.work.join("count")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(count.unwrap().trim(), "60");
}

#[test]
fn a_task_is_warned_ahead_of_its_limit() {
    let test = "a_task_is_warned_ahead_of_its_limit";
    let Some(lab) = Lab::up(test) else { return };
    let body = "#SBATCH --time=0:30 --signal=B:USR1@28
        trap 'echo warned >done/$SLURM_ARRAY_TASK_ID; exit 0' USR1
        sleep 60 & wait";
    let array = lab.submit(&["--array=5,9"], body);
    let ledger = lab.until_over(&array);
    assert_eq!(lab.results().into_values().collect::<Vec<_>>(), ["warned", "warned"]);
    let ended = ledger.tasks().values().map(|task| task.standing.clone());
    for standing in ended {
        let Standing::Ended { how, since_ms, at_ms, .. } = standing else { panic!() };
        assert_eq!(how, Ending::Exit(0), "it ended by itself, and its sleep was ended");
        assert!(at_ms - since_ms >= 2000, "not before its time");
    }
}
