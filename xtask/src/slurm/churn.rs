//! `cargo xtask slurm-churn`: jobs of all kinds come and go on a real cluster, without hotpot and with it; from
//! what the jobs themselves note, is a card ever used by a whole-GPU job and another at once, or over its size?

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use model::SplitMix;
use slurm_lab::Options;

use super::Bench;
use crate::Verdict;
use crate::gpu::table::Table;

/// How long jobs come, and how long with `--quick`.
const SPAN: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(30));
/// In the suite.
const SLICE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(600);
const JOBS_AT_ONCE: u32 = 6;
/// Overlaps shorter than this are a job's last words beside the first of the next.
const OVERLAP_MIN_S: f64 = 0.05;
/// Shards of a card.
const SHARDS: u64 = 317;

/// One job's stay on one card.
#[derive(Clone, Debug)]
struct Stay {
    whole: bool,
    shards: u64,
    begun_s: f64,
    end_s: f64,
}

/// What is wrong with the stays on all cards.
#[derive(Default)]
struct Found {
    jobs: usize,
    given_twice: usize,
    over_full: usize,
}

/// * `quick` — half a minute instead of five.
pub(crate) fn run(quick: bool) -> Verdict {
    let span = if quick { SPAN.1 } else { SPAN.0 };
    let mut table = Table::new(
        &format!("{} s of jobs every 0.6 s on 2 nodes with 4 GPUs each", span.as_secs()),
        &["", "jobs done", "pairs on one card with a whole-GPU job", "moments over 317 shards"],
    );
    let mut wrong = Vec::new();
    for (name, with_hotpot) in [("Slurm alone", false), ("Slurm with hotpot", true)] {
        let found = one(span, with_hotpot)?;
        table.row(vec![
            name.into(),
            found.jobs.to_string(),
            found.given_twice.to_string(),
            found.over_full.to_string(),
        ]);
        if with_hotpot && (found.given_twice > 0 || found.over_full > 0 || found.jobs == 0) {
            wrong.push(format!("{} pairs, {} moments", found.given_twice, found.over_full));
        }
    }
    println!("{}", table.text());
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("cards were given twice: {}", wrong.join("; ")))
    }
}

/// A short one with hotpot alone, for the suite; says so where there can be no cluster.
pub(crate) fn slice() -> Verdict {
    let options = Options { accounting: false, ..Options::default() };
    if let Err(error) = slurm_lab::install(&options) {
        println!("skipped: jobs of all kinds on Slurm: {error}");
        return Ok(());
    }
    let found = one(SLICE, true)?;
    let (jobs, pairs, moments) = (found.jobs, found.given_twice, found.over_full);
    println!(
        "Slurm with hotpot: {jobs} jobs of all kinds, {pairs} pairs on one card, {moments} moments over full"
    );
    if jobs > 0 && pairs == 0 && moments == 0 {
        Ok(())
    } else {
        Err("a card was given twice".into())
    }
}

fn one(span: Duration, with_hotpot: bool) -> Result<Found, String> {
    let options = Options { shards: SHARDS as u32, cpus: 64, ..Options::default() };
    let bench = Bench::up("churn", options, with_hotpot)?;
    let log = bench.folder.join("log");
    fs::write(&log, "").map_err(|error| error.to_string())?;
    let mut random = SplitMix::new(7);
    let begun = Instant::now();
    while begun.elapsed() < span {
        for _ in 0..JOBS_AT_ONCE {
            submit(&bench, &mut random)?;
        }
        std::thread::sleep(PAUSE);
    }
    // What waits would only take longer; what runs notes its end.
    bench.run("scancel", &["--state=PENDING", "--me"])?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60)
        && !bench.run("squeue", &["-h", "-t", "RUNNING,COMPLETING"])?.trim().is_empty()
    {
        std::thread::sleep(Duration::from_millis(200));
    }
    let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
    Ok(judge(&text))
}

/// A job of one kind that stays one to four seconds and notes card, start and end.
fn submit(bench: &Bench, random: &mut SplitMix) -> Verdict {
    let kinds: [(&str, &[&str]); 9] = [
        ("whole 0", &["--gres=gpu:1"]),
        ("whole 0", &["--gres=gpu:1"]),
        ("whole 0", &["--gres=gpu:2"]),
        ("whole 0", &["--gres=gpu:1", "--array=1-3"]),
        ("part 20", &["--gres=shard:20"]),
        ("part 80", &["--gres=shard:80"]),
        ("part 80", &["--gres=shard:80", "--array=1-3"]),
        ("part 160", &["--gres=shard:160"]),
        ("part 317", &["--gres=shard:317"]),
    ];
    let (kind, words) = kinds[random.position(kinds.len())];
    let stay_ms = 1000 + random.below(3000);
    let script = format!(
        "#!/bin/bash\nbegun=$EPOCHREALTIME\nsleep {}.{:03}\n\
         echo \"$SLURMD_NODENAME $SLURM_JOB_GPUS {kind} $begun $EPOCHREALTIME\" >>{}\n",
        stay_ms / 1000,
        stay_ms % 1000,
        bench.folder.join("log").display()
    );
    let mut command: Command = bench.cluster.command("sbatch");
    command.args(["-Q", "--mem=16", "--output=/dev/null"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("sbatch: {error}"))?;
    if let Some(input) = &mut child.stdin {
        input.write_all(script.as_bytes()).map_err(|error| format!("sbatch: {error}"))?;
    }
    let done = child.wait().map_err(|error| format!("sbatch: {error}"))?;
    if done.success() { Ok(()) } else { Err(format!("sbatch {}: {done}", words.join(" "))) }
}

fn judge(text: &str) -> Found {
    let mut found = Found::default();
    let mut cards: BTreeMap<(String, String), Vec<Stay>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [node, gpus, kind, shards, begun, end] = words.as_slice() else { continue };
        let (Ok(shards), Ok(begun_s), Ok(end_s)) = (shards.parse(), begun.parse(), end.parse())
        else {
            continue;
        };
        found.jobs += 1;
        for gpu in gpus.split(',') {
            let stay = Stay { whole: *kind == "whole", shards, begun_s, end_s };
            cards.entry(((*node).to_owned(), gpu.to_owned())).or_default().push(stay);
        }
    }
    for stays in cards.values() {
        found.given_twice += given_twice(stays);
        found.over_full += over_full(stays);
    }
    found
}

/// Pairs that were there at once, one of which had the whole card.
fn given_twice(stays: &[Stay]) -> usize {
    let at_once =
        |a: &Stay, b: &Stay| a.end_s.min(b.end_s) - a.begun_s.max(b.begun_s) > OVERLAP_MIN_S;
    let pairs =
        stays.iter().enumerate().flat_map(|(at, a)| stays[..at].iter().map(move |b| (a, b)));
    pairs.filter(|(a, b)| (a.whole || b.whole) && at_once(a, b)).count()
}

/// Moments at which parts came to more than the card.
fn over_full(stays: &[Stay]) -> usize {
    let parts = stays.iter().filter(|stay| !stay.whole);
    let mut steps: Vec<(f64, i64)> = parts
        .flat_map(|stay| {
            let shards = stay.shards as i64;
            [(stay.begun_s + OVERLAP_MIN_S, shards), (stay.end_s - OVERLAP_MIN_S, -shards)]
        })
        .collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut held = 0;
    let mut moments = 0;
    for (_, shards) in steps {
        held += shards;
        moments += usize::from(held > SHARDS as i64);
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_given_twice_is_found() {
        let log = "n1 0 whole 0 1.0 3.0\nn1 0 part 20 2.5 4.0\nn1 1 part 200 1.0 3.0\n\
                   n1 1 part 200 2.0 3.0\nn2 0,1 whole 0 1.0 3.0\nn2 1 whole 0 3.01 5.0\n";
        let found = judge(log);
        assert_eq!((found.jobs, found.given_twice, found.over_full), (6, 1, 1));
    }
}
