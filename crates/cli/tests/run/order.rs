//! Who starts when: dependencies, limits at once, priorities, and what can never run.

use crate::bench::Bench;

#[test]
fn jobs_wait_for_one_another() {
    let bench = Bench::new("after");
    bench.script(
        "use.sbatch",
        "--job-name=use\n--dependency=afterok:make\n--output=use.txt",
        "cat made",
    );
    bench.script("make.sbatch", "--job-name=make\n--output=/dev/null", "sleep 0.2; echo 1 > made");
    bench.script("bad.sbatch", "--job-name=bad\n--output=/dev/null", "exit 3");
    bench.script(
        "sad.sbatch",
        "--job-name=sad\n--dependency=afternotok:bad\n--output=sad.txt",
        "echo sad",
    );
    bench.script(
        "no.sbatch",
        "--job-name=no\n--dependency=afterok:bad\n--output=no.txt",
        "echo no",
    );
    let done = bench.run("run use.sbatch make.sbatch bad.sbatch sad.sbatch no.sbatch");
    assert_eq!(done.code, 1);
    assert_eq!((bench.read("use.txt").as_str(), bench.read("sad.txt").as_str()), ("1\n", "sad\n"));
    assert!(!bench.place.path("no.txt").exists());
    assert!(done.err.contains("bad: exit status 3"), "{}", done.err);
    assert!(done.err.contains("no: what it waits for cannot happen any more"), "{}", done.err);
    assert!(done.out.contains("3 of 5 tasks done, 2 failed"), "{}", done.out);
}

#[test]
fn after_waits_for_the_start_only_and_a_chain_takes_no_time_of_its_own() {
    let bench = Bench::new("chain");
    bench.script(
        "long.sbatch",
        "--job-name=long\n--output=/dev/null",
        "until [ -e go ]; do sleep 0.02; done",
    );
    bench.script(
        "next.sbatch",
        "--job-name=next\n--dependency=after:long\n--output=/dev/null",
        "touch go",
    );
    bench.script(
        "l1.sbatch",
        "--job-name=l1\n--dependency=afterok:next\n--output=/dev/null",
        "true",
    );
    bench.script("l2.sbatch", "--job-name=l2\n--dependency=afterok:l1\n--output=/dev/null", "true");
    bench.script("bad.sbatch", "--job-name=bad\n--output=/dev/null", "false");
    bench.script(
        "n1.sbatch",
        "--job-name=n1\n--dependency=afterok:bad\n--output=/dev/null",
        "true",
    );
    bench.script("n2.sbatch", "--job-name=n2\n--dependency=afterok:n1\n--output=/dev/null", "true");
    let files = "l2.sbatch l1.sbatch next.sbatch long.sbatch n2.sbatch n1.sbatch bad.sbatch";
    let done = bench.run(&format!("run {files} --cpus 8 --output json"));
    assert_eq!(done.code, 1, "{}", done.err);
    let figures: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!(
        (&figures["done"], &figures["failed"], &figures["left"]),
        (&4.into(), &3.into(), &0.into())
    );
}

#[test]
fn tasks_of_arrays_wait_for_their_twins() {
    let bench = Bench::new("corr");
    bench.script(
        "one.sbatch",
        "--job-name=one\n--array=1-3\n--output=/dev/null",
        "test $SLURM_ARRAY_TASK_ID != 2",
    );
    bench.script(
        "two.sbatch",
        "--dependency=aftercorr:one\n--array=1-3\n--output=two-%a.txt",
        "echo",
    );
    let done = bench.run("run one.sbatch two.sbatch");
    assert_eq!(done.code, 1);
    let there = [1, 2, 3].map(|index| bench.place.path(&format!("two-{index}.txt")).exists());
    assert_eq!(there, [true, false, true], "{}", done.err);
}

#[test]
fn unknown_jobs_circles_and_gangs_are_refused_before_anything_starts() {
    let bench = Bench::new("refused");
    bench.script(
        "a.sbatch",
        "--job-name=a\n--dependency=afterok:b\n--output=/dev/null",
        "touch ran",
    );
    bench.script(
        "b.sbatch",
        "--job-name=b\n--dependency=afterok:a\n--output=/dev/null",
        "touch ran",
    );
    bench.script("n.sbatch", "--nodes=2\n--output=/dev/null", "touch ran");
    let cases = [
        ("run a.sbatch", "names \"b\", which is no job of this run"),
        ("run a.sbatch b.sbatch", "waits for jobs that wait for it"),
        ("run n.sbatch", "asks for 2 nodes, and this is one machine"),
    ];
    for (line, expected) in cases {
        let done = bench.run(line);
        assert_eq!(done.code, 2, "{line}: {}", done.err);
        assert!(done.err.contains(expected), "{line}: {}", done.err);
    }
    assert!(!bench.place.path("ran").exists());
}

#[test]
fn a_script_is_named_by_its_file_too_but_only_if_nothing_is_called_so() {
    let bench = Bench::new("stems");
    bench.script("first.sbatch", "--output=/dev/null", "touch ran");
    bench.script(
        "then.sbatch",
        "--dependency=afterok:first\n--output=then.txt",
        "test -e ran && echo after",
    );
    let done = bench.run("run then.sbatch first.sbatch");
    assert_eq!((done.code, bench.read("then.txt").as_str()), (0, "after\n"), "{}", done.err);
    bench.script("other.sbatch", "--job-name=first\n--output=/dev/null", "false");
    let done = bench.run("run then.sbatch first.sbatch other.sbatch");
    assert!(done.err.contains("then.sbatch: what it waits for"), "{}", done.err);
}

#[test]
fn an_array_keeps_to_its_limit_and_nobody_shares_a_whole_gpu() {
    let bench = Bench::new("limit");
    // Each task counts those that run at the same moment, and those on its GPU.
    let count = "mkdir -p now; touch now/$SLURM_JOB_ID gpu-$SLURM_JOB_GPUS.$SLURM_JOB_ID; sleep 0.1\n\
                 ls now | wc -l >> peak;\n\
                 ls gpu-$SLURM_JOB_GPUS.* | wc -l >> shared; rm now/$SLURM_JOB_ID gpu-$SLURM_JOB_GPUS.$SLURM_JOB_ID";
    bench.script("l.sbatch", "--array=1-12%3\n--gpus=1\n--output=/dev/null", count);
    let done = bench.run("run l.sbatch --simulate-gpus t4:8");
    assert_eq!(done.code, 0, "{}", done.err);
    let peak = bench.read("peak").lines().filter_map(|line| line.trim().parse::<u32>().ok()).max();
    assert_eq!(peak, Some(3));
    assert_eq!(bench.read("shared"), "1\n".repeat(12));
}

#[test]
fn what_can_never_run_is_said_with_the_reason_and_the_rest_runs() {
    let bench = Bench::new("never");
    bench.script("big.sbatch", "--job-name=big\n--gpus=4\n--output=/dev/null", "true");
    bench.script("fat.sbatch", "--job-name=fat\n--gpu-mem=90G\n--output=/dev/null", "true");
    bench.script("fine.sbatch", "--job-name=fine\n--gpus=1\n--output=fine.txt", "echo fine");
    let done = bench.run("run big.sbatch fat.sbatch fine.sbatch --simulate-gpus a100-80gb:2");
    assert_eq!(done.code, 1);
    assert!(done.err.contains("big: can never run here: GPUs: asks 4"), "{}", done.err);
    assert!(done.err.contains("fat: can never run here: GPU memory"), "{}", done.err);
    assert_eq!(bench.read("fine.txt"), "fine\n");
}
