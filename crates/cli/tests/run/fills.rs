//! A program that takes all the memory that it can get, on a simulated GPU, with the real limiter in its
//! process: it gets its cap and no more, and whoever asks is told so.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::Bench;
use crate::support::{Done, PROGRAM, skip};

/// 2 GiB and a T4's context, which is booked as well.
const CAP: u64 = 2348 << 20;
const PIECE: u64 = 256 << 20;
const ASKS: &str = "--gpu-mem=2G\n--gpu-compute=50%\n--gpu-share=memory-capped\n--job-name=f\n--output=f.out\n--error=f.err";

/// What has been built beside the program.
fn built(name: &str) -> PathBuf {
    let library = Path::new(PROGRAM).with_file_name(name);
    assert!(library.exists(), "{name}: build it first: cargo build --workspace");
    library
}

/// The program; `None` without a C compiler.
fn client(bench: &Bench) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/fills.c");
    let client = bench.place.path("fills");
    let built = Command::new("cc").arg(source).arg("-o").arg(&client).arg("-ldl").status().ok()?;
    assert!(built.success(), "the client does not compile");
    Some(client)
}

/// Size of the GPU as the program saw it, what it got, and how it was refused more.
fn saw(bench: &Bench) -> [u64; 3] {
    let numbers = bench.read("f.out");
    let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{} {}", bench.read("f.out"), bench.read("f.err")))
}

fn check(bench: &Bench) {
    let [size, got, code] = saw(bench);
    assert_eq!((size, code), (CAP, 2), "CUDA_ERROR_OUT_OF_MEMORY on a GPU as large as the cap");
    assert!(got < CAP && got + PIECE + (512 << 20) > CAP, "{got}: a context is less than 512 MiB");
}

#[test]
fn a_program_gets_its_cap_and_no_more() {
    let bench = Bench::new("fills");
    let Some(client) = client(&bench) else { return skip("no C compiler") };
    let shown = bench.machine("t4:1");
    let cuda = bench.place.path("cuda");
    std::fs::create_dir(&cuda).expect("a folder");
    symlink(built("libhotpot_fake_cuda.so"), cuda.join("libcuda.so.1")).expect("a link");
    bench.script("f.sbatch", ASKS, client.to_str().expect("a path"));
    let command = |arguments: &str| {
        let mut command = bench.command(arguments);
        shown.to(&mut command).env("HOTPOT_LIMITER", built("libhotpot_limiter.so"));
        command.env("LD_LIBRARY_PATH", &cuda);
        command
    };
    let output = |arguments| Done::of(command(arguments).output().expect("the program runs"));
    let mut run = bench.start(command("run f.sbatch"));
    bench.until("it has taken all", || bench.read("f.out").ends_with('\n'));
    check(&bench);
    let plain = format!("kind=\"plain\"}} {}\n", saw(&bench)[1]);
    bench.until("the agent tells of it", || output("agent --once").out.contains(&plain));
    bench.place.write("go", "");
    assert_eq!(run.wait(), 1);
    let error = bench.read("f.err");
    let why = "hotpot: GPU 0: the memory cap of this task (2.29 GiB) refused 1 allocation; the last asked for 256 MiB";
    assert!(error.starts_with(why), "{error}");
    let explained = output("explain f --run last");
    assert!(explained.out.contains(&why["hotpot: ".len()..]), "{}", explained.out);
}

#[test]
fn programs_that_compute_run_on_simulated_gpus() {
    let bench = Bench::new("fills-simulated");
    let Some(client) = client(&bench) else { return skip("no C compiler") };
    built("libhotpot_fake_cuda.so");
    built("libhotpot_limiter.so");
    bench.place.write("go", "");
    bench.script("f.sbatch", ASKS, client.to_str().expect("a path"));
    let done = bench.run("run f.sbatch --simulate-gpus t4:1");
    assert_eq!(done.code, 1, "{}", done.err);
    check(&bench);
    assert!(done.err.contains("f: GPU 0: the memory cap of this task"), "{}", done.err);
}
