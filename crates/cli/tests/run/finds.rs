//! What a task finds: its index, Slurm's variables, its GPU, its folder and its files.

use crate::bench::{Bench, can_make_cgroups};
use crate::support::skip;

#[test]
fn an_array_finds_its_indices_and_its_gpus() {
    let bench = Bench::new("array");
    bench.script(
        "a.sbatch",
        "--job-name=a/b\n--array=3-9:3%2\n--gpus=1\n--cpus-per-task=4\n--time=5\n--output=%x-%A_%2a.txt",
        "echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP \
         $SLURM_ARRAY_TASK_COUNT $SLURM_CPUS_PER_TASK $SLURM_NTASKS $SLURM_JOB_GPUS\n\
         echo ${CUDA_VISIBLE_DEVICES:0:4} $((SLURM_JOB_ID - SLURM_ARRAY_JOB_ID))\n\
         echo warned >&2",
    );
    let done = bench.run("run a.sbatch --simulate-gpus a30:1");
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("run 1: 3 of 3 tasks done"), "{}", done.out);
    assert!(done.err.contains("simulated"), "{}", done.err);
    for (at, index) in [3, 6, 9].iter().enumerate() {
        let text = bench.read(&format!("a_b-1_{index:02}.txt"));
        assert_eq!(text, format!("{index} 3 9 3 3 4 1 0\nGPU- {at}\nwarned\n"));
    }
}

#[test]
fn a_task_without_gpus_sees_none_and_needs_no_driver() {
    let bench = Bench::new("cpu");
    bench.script("c.sbatch", "", "echo \"[$CUDA_VISIBLE_DEVICES]\" $NVIDIA_VISIBLE_DEVICES");
    let done = bench.run("run c.sbatch");
    assert_eq!((done.code, bench.read("slurm-1.out").as_str()), (0, "[] void\n"), "{}", done.err);
}

#[test]
fn export_chdir_error_and_input_are_followed() {
    let bench = Bench::new("export");
    std::fs::create_dir(bench.place.path("sub")).expect("a folder");
    bench.place.write("sub/in.txt", "hello\n");
    bench.script(
        "e.sbatch",
        "--export=KEPT,GIVEN=7\n--chdir=sub\n--output=out.txt\n--error=err.txt\n--input=in.txt\n\
         --open-mode=append",
        "cat; echo $KEPT-$GIVEN-$DROPPED; basename $PWD; echo bad >&2",
    );
    for _ in 0..2 {
        let mut command = bench.command("run e.sbatch");
        let status = command.env("KEPT", "yes").env("DROPPED", "no").status();
        assert!(status.expect("it runs").success());
    }
    let once = "hello\nyes-7-\nsub\n";
    assert_eq!(bench.read("sub/out.txt"), once.repeat(2));
    assert_eq!(bench.read("sub/err.txt"), "bad\nbad\n");
}

#[test]
fn srun_inside_a_script_starts_what_it_says() {
    let bench = Bench::new("srun");
    bench.script(
        "s.sbatch",
        "--ntasks=3\n--output=s.txt",
        "srun --gres gpu:0 -c 1 sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS' | sort\n\
         srun -n1 sh -c 'exit 4'; echo status $?",
    );
    let done = bench.run("run s.sbatch --cpus 3");
    assert_eq!(done.code, 0, "{}", done.err);
    let expected = "rank 0 of 3\nrank 1 of 3\nrank 2 of 3\nstatus 4\n";
    assert_eq!(bench.read("s.txt"), expected);
}

#[test]
fn shares_of_a_gpu_come_with_caps_and_instances_with_their_own_device() {
    let bench = Bench::new("shares");
    bench.script(
        "m.sbatch",
        "--gpu-mem=2G\n--gpu-compute=20%\n--gpu-share=mps\n--output=m.txt",
        "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT\n\
         test -S $CUDA_MPS_PIPE_DIRECTORY/control && echo pipe",
    );
    bench.script(
        "g.sbatch",
        "--gpu-profile=1g.10gb\n--output=g.txt",
        "echo ${CUDA_VISIBLE_DEVICES:0:4}",
    );
    let done = bench.run("run m.sbatch g.sbatch --simulate-gpus a100-80gb:2");
    assert_eq!(done.code, 0, "{}", done.err);
    let capped = bench.read("m.txt");
    // A context's memory is booked on top of what was asked for.
    assert!(capped.starts_with("20 0=") && capped.ends_with("pipe\n"), "{capped}");
    assert_eq!(bench.read("g.txt"), "MIG-\n");
}

#[test]
fn a_memory_cap_holds_a_task_in_a_cgroup_of_its_own() {
    if !can_make_cgroups() {
        return skip("no cgroup v2 that can be written: memory caps are not on offer");
    }
    let bench = Bench::new("capped");
    bench.script(
        "c.sbatch",
        "--array=1-4\n--gpu-mem=2G\n--output=%a.txt",
        "grep ^0:: /proc/self/cgroup; echo $SLURM_JOB_GPUS",
    );
    let done = bench.run("run c.sbatch --simulate-gpus a100-80gb:4");
    assert_eq!(done.code, 0, "{}", done.err);
    let texts: Vec<String> = (1..=4).map(|index| bench.read(&format!("{index}.txt"))).collect();
    for text in &texts {
        assert!(text.contains("/hotpot/"), "{text}");
        assert!(text.ends_with("\n0\n"), "all four fit on the first GPU: {text}");
    }
}

#[test]
fn manifests_and_tables_run_their_command_and_no_image() {
    let bench = Bench::new("manifest");
    bench.place.write(
        "job.yaml",
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: k8s}\nspec:\n  completions: 3\n  \
         parallelism: 2\n  completionMode: Indexed\n  template:\n    spec:\n      containers:\n      \
         - name: main\n        image: python:3.12\n        command: [sh, -c]\n        args: ['echo \
         $(GREETING) $JOB_COMPLETION_INDEX']\n        env: [{name: GREETING, value: hi}]\n        \
         resources: {limits: {nvidia.com/gpu: 1}}\n",
    );
    bench.place.write(
        "t.toml",
        "[[workload]]\nname = \"t\"\ncommand = [\"sh\", \"-c\", \"echo $A\"]\nenv = { A = \"b\" }\n\
         output = \"t.txt\"\n",
    );
    let done = bench.run("run job.yaml t.toml --simulate-gpus t4:1");
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("image python:3.12 is not used"), "{}", done.err);
    assert_eq!(bench.read("k8s-1_2.out"), "hi 2\n");
    assert_eq!(bench.read("t.txt"), "b\n");
    let manifest = bench.read("job.yaml").replace("command: [sh, -c]", "ports: []");
    bench.place.write("image.yaml", manifest);
    let done = bench.run("run image.yaml --simulate-gpus t4:1");
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("images are not pulled"), "{}", done.err);
}

#[test]
fn shares_of_two_gpus_never_come_by_way_of_mps_or_mig() {
    let bench = Bench::new("two-shares");
    bench.script(
        "t.sbatch",
        "--gpus=2\n--gpu-mem=2G\n--output=t.txt",
        "echo $SLURM_JOB_GPUS ${CUDA_MPS_PIPE_DIRECTORY:-none} $CUDA_VISIBLE_DEVICES",
    );
    let done = bench.run("run t.sbatch --simulate-gpus a100-80gb:2");
    assert_eq!(done.code, 0, "{}", done.err);
    let text = bench.read("t.txt");
    assert!(text.starts_with("0,1 none GPU-") && !text.contains("MIG-"), "{text}");
}

#[test]
fn a_relative_state_folder_serves_tasks_that_work_elsewhere() {
    let bench = Bench::new("relative");
    std::fs::create_dir(bench.place.path("sub")).expect("a folder");
    bench.script("r.sbatch", "--chdir=sub\n--output=r.txt", "basename $PWD");
    let mut command = bench.command("run r.sbatch");
    assert!(command.env("HOTPOT_STATE_DIR", "rel").status().expect("it runs").success());
    assert_eq!(bench.read("sub/r.txt"), "sub\n");
}
