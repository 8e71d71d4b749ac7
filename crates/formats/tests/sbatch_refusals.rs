//! sbatch scripts: what is refused, and what is warned of.

mod support;

use formats::sbatch::{self, Script};
use support::source;

fn script(options: &str) -> Result<Script, String> {
    let lines: String = options.lines().map(|line| format!("#SBATCH {line}\n")).collect();
    let text = format!("#!/bin/bash\n{lines}\nsrun ./a.out\n");
    sbatch::read(&source("jobs/job.sbatch", &text), 2048).map_err(|error| error.to_string())
}

#[test]
fn what_slurm_has_not_is_answered_with_what_it_has() {
    for options in ["--gpus=1:shared", "--gres=gpu:1:shared", "-G shared:1", "--gres=gpu:shared"] {
        let message = script(options).unwrap_err();
        assert!(message.starts_with("jobs/job.sbatch:2: --g"), "{message}");
        assert!(message.contains("exists in no version of Slurm"), "{message}");
        assert!(message.contains("--gres=shard:N") && message.contains("--gpu-share"), "{message}");
    }
}

/// Options, and how the message about them begins after file and line.
const OPTIONS_REFUSED: &[(&str, &str)] = &[
    ("-c 0", "--cpus-per-task: \"0\" is not a count; give 1 to"),
    ("-c -4", "--cpus-per-task: \"-4\" is not a count"),
    ("--time=1h", "--time: \"1h\" is not a Slurm time; give minutes, hh:mm:ss"),
    ("--mem=lots", "--mem: \"lots\" is not a size"),
    ("--mem=99999999999999999999999999999999999999999", "--mem: \"999"),
    ("--array=5-1", "--array: \"5-1\" is not an array"),
    ("--array=0-3:0", "--array: \"0-3:0\" is not an array"),
    ("--array=1-4%0", "--array: %0 is no limit"),
    ("--array=0-4000000", "--array: \"0-4000000\" has more than 250000 tasks"),
    ("--array=", "--array: \"\" is not an array"),
    ("--gpus=two", "--gpus: "),
    ("--gpus=-1", "--gpus: \"-1\" is not a number of GPUs"),
    ("--gpus=a100:1,v100:1", "--gpus: \"a100:1,v100:1\" asks for several types"),
    ("--gpus=999", "--gpus: asks for more than 255 GPUs on one node"),
    ("-N 2 --gpus=3", "--gpus: 3 GPUs cannot be spread evenly over 2 nodes"),
    ("--gpus=2 --gres=gpu:1", "--gpus: and --gres ask for different GPUs"),
    ("--gres=gpu:1,shard:1", "--gres: mixes whole GPUs, shards or MPS"),
    ("--gres=mps:110", "--gres: \"mps:110\" is more than one GPU has"),
    ("--gres=shard:a100:2", "--gres: \"shard:a100:2\" is not a number of parts"),
    ("--gres=shard:2 --gpu-mem=1G", "--gres: asks for a share in Slurm's way and in hotpot's"),
    ("--gpu-compute=120%", "--gpu-compute: \"120%\" is more than the whole"),
    ("--gpu-mem=0", "--gpu-mem: \"0\" is no memory"),
    (
        "--gpu-share=msp",
        "--gpu-share: \"msp\" is not a known way to share a GPU; did you mean mps?",
    ),
    ("--gpu-share=mps", "--gpu-share: shares a GPU without saying how much of it; add --gpu-mem"),
    ("--gpu-share=exclusive --gpu-mem=1G", "--gpu-share: gives the whole GPU, and a size is set"),
    ("--gpu-profile=1g.10gb --gpu-mem=1G", "--gpu-mem: sizes what the MIG profile sizes"),
    ("--gpu-profile=1g.10gb --gpu-share=mps", "--gpu-share: has no MIG profiles"),
    ("--gpu-profile=tiny", "--gpu-profile: \"tiny\" is not a MIG profile"),
    ("--gpus=0 --gpu-mem=1G", "--gpu-mem: is set, but the script asks for 0 GPUs"),
    ("--mem=1G --mem-per-cpu=1G", "--mem-per-cpu: contradicts --mem"),
    ("-N 4-2", "--nodes: \"4-2\" has its ends the wrong way round"),
    ("--time", "--time: has no value; write --time=VALUE"),
    ("--job-name='open", "SBATCH: a ' is not closed"),
    ("stray", "stray: \"stray\" is not an option"),
    ("hetjob", "hetjob: heterogeneous jobs are not read"),
    ("--nice=much", "--nice: \"much\" is not a whole number"),
];

#[test]
fn values_that_make_no_sense_are_refused_at_their_line() {
    for (options, expected) in OPTIONS_REFUSED {
        let message = script(options).unwrap_err();
        let start = format!("jobs/job.sbatch:2: {expected}");
        assert!(message.starts_with(&start), "{options}: {message}");
    }
}

#[test]
fn errors_show_the_line() {
    let message = script("-n 1\n--gpus=two:3:4 -c 2").unwrap_err();
    let expected = "jobs/job.sbatch:3: --gpus: \"two:3:4\" is not a number of GPUs; give N or \
                    type:N, such as 2 or a100:2\n 3 | #SBATCH --gpus=two:3:4 -c 2\n   |           ^";
    assert_eq!(message, expected);
}

#[test]
fn what_does_not_count_is_named() {
    let text = "#!/bin/sh\r\n# SBATCH -c 9\r\n#SBATCH --gpu=2 --exclusive --container-image nv\r\n\
                #SBATCH --memory=2G -c 2\r\ntrue\r\n#SBATCH -c 7\r\n";
    let script = sbatch::read(&source("j", text), 1).unwrap();
    assert_eq!(script.workloads[0].demand.cpu_milli, 2000);
    assert_eq!(
        script.warnings,
        [
            "DOS line ends: sbatch refuses them; use dos2unix",
            "line 2: \"# SBATCH -c 9\" does not count: not at the start of the line",
            "line 3: \"--gpu=2\" is not known; did you mean --gpus?",
            "line 3: hotpot does not follow --exclusive",
            "line 3: \"--container-image\" is not known; did you mean --container?",
            "line 4: \"--memory=2G\" is not known; did you mean --mem?",
            "line 6: \"#SBATCH -c 7\" does not count: after the first command",
        ]
    );
}

#[test]
fn a_file_that_is_no_script_is_refused() {
    let message = sbatch::read(&source("j", "echo hi\n"), 1).unwrap_err().to_string();
    assert!(message.starts_with("j:1: is not a script"), "{message}");
}
