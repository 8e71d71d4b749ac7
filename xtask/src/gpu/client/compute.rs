//! Keeps the GPU busy with kernels of a known cost, and counts those that have ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Ask, now_us, say, wait_at};
use crate::Verdict;
use crate::gpu::driver::{Answer, Cuda, DEFAULT_STREAM, Made};
use crate::gpu::kernels;
use crate::gpu::table::rank;

/// GPU time that a batch of launches is to come to, in ns; a batch is what is waited for at once.
const BATCH_NS: u64 = 10_000_000;
/// Most launches of a batch.
const BATCH_MAX: u64 = 256;
/// Batches on their way at a time, so that the GPU never waits for the client.
const AHEAD: usize = 2;

/// Our kernels, compiled.
pub(super) struct Kernels<'cuda> {
    cuda: &'cuda Cuda,
    work: Made,
    watch: Made,
    blocks: u32,
    place: u64,
    target: &'static str,
}

impl<'cuda> Kernels<'cuda> {
    /// * `place` — bytes of memory for what kernels write.
    pub(super) fn load(cuda: &'cuda Cuda, place: u64) -> Result<Self, String> {
        let mut said = String::new();
        for target in kernels::TARGETS {
            match cuda.module(&kernels::module(target)) {
                Err(failed) => said = failed.to_string(),
                Ok(module) => {
                    let (blocks, _) = cuda.shape()?;
                    return Ok(Self {
                        cuda,
                        work: cuda.function(module, kernels::WORK)?,
                        watch: cuda.function(module, kernels::WATCH)?,
                        blocks,
                        place: cuda.alloc(place)?,
                        target: target.1,
                    });
                }
            }
        }
        Err(format!("the driver compiles our kernels for none of {:?}: {said}", kernels::TARGETS))
    }

    /// Launches a kernel of known cost on all multiprocessors.
    pub(super) fn work(&self, cost: Cost, stream: Made) -> Answer<()> {
        let mut words = [cost.ns, cost.rounds, self.place, 0];
        self.cuda.launch(self.work, (self.blocks, kernels::THREADS), stream, &mut words)
    }
}

/// What a kernel costs: its GPU time when it runs alone, and the rounds that take so long here.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    pub(super) ns: u64,
    pub(super) rounds: u64,
}

impl Cost {
    /// * `ns`, `ns_per_round` of what is asked.
    fn asked(ask: &Ask) -> Result<Self, String> {
        let (ns, per_round): (u64, f64) = (ask.get("ns")?, ask.get("ns_per_round")?);
        Ok(Self { ns, rounds: (ns as f64 / per_round) as u64 })
    }
}

/// How long a round takes when nobody else is there.
pub(super) fn calibrate(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let kernels = Kernels::load(&cuda, 8)?;
    let (from, to) = (cuda.event()?, cuda.event()?);
    let timed = |rounds: u64| -> Result<f64, String> {
        cuda.record(from, DEFAULT_STREAM)?;
        kernels.work(Cost { ns: rounds, rounds }, DEFAULT_STREAM)?;
        cuda.record(to, DEFAULT_STREAM)?;
        cuda.wait(to)?;
        Ok(cuda.elapsed_ms(from, to)? * 1e6)
    };
    // The clock of an idle GPU needs a while to rise.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(400) {
        timed(200_000)?;
    }
    // The slope, so that the cost of a launch does not count.
    let mut slopes = Vec::new();
    for _ in 0..9 {
        let (less, more) = (timed(100_000)?, timed(1_100_000)?);
        slopes.push((more - less) / 1e6);
    }
    slopes.sort_by(f64::total_cmp);
    say("ns_per_round", slopes[slopes.len() / 2]);
    say("target", kernels.target);
    Ok(())
}

/// Launches for a while. `mode` — `async` (many on their way), `sync` (waits for each), `graph` (as
/// `async`, by graphs). The starter's line says from when to when ended kernels count, in µs.
pub(super) fn work(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let (kernels, cost) = (Kernels::load(&cuda, 8)?, Cost::asked(ask)?);
    let (mode, stream) = (ask.text("mode")?, cuda.stream(false)?);
    let batch = match mode {
        "sync" => 1,
        _ => (BATCH_NS / cost.ns.max(1)).clamp(1, BATCH_MAX),
    };
    let launch = || (0..batch).try_for_each(|_| kernels.work(cost, stream));
    let graph = (mode == "graph").then(|| cuda.graph(stream, launch)).transpose()?;
    let line = wait_at("ready")?;
    let (from, to) = line.split_once(' ').ok_or("from when to when?")?;
    let (from, to): (u64, u64) = match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => (from, to),
        _ => return Err(format!("`{line}`: from when to when?")),
    };
    let ahead = if mode == "sync" { 1 } else { AHEAD };
    let mut free = (0..ahead).map(|_| cuda.event()).collect::<Answer<Vec<Made>>>()?;
    let (mut flying, mut ended, mut all) = (VecDeque::new(), 0, 0);
    while now_us() < to {
        while let Some(event) = free.pop() {
            match graph {
                Some(graph) => cuda.launch_graph(graph, stream)?,
                None => launch()?,
            }
            cuda.record(event, stream)?;
            flying.push_back(event);
        }
        if let Some(event) = flying.pop_front() {
            cuda.wait(event)?;
            free.push(event);
            all += batch;
            ended += if (from..=to).contains(&now_us()) { batch } else { 0 };
        }
    }
    cuda.synchronize(stream)?;
    say("ended", ended);
    say("all", all + flying.len() as u64 * batch);
    wait_at("done").map(|_| ())
}

/// A service: now and then one short kernel, whose answer it waits for. `every_us`, `count`, `ns`.
pub(super) fn answer(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let (kernels, cost) = (Kernels::load(&cuda, 8)?, Cost::asked(ask)?);
    let every = Duration::from_micros(ask.get("every_us")?);
    let (count, stream): (u32, Made) = (ask.get("count")?, cuda.stream(true)?);
    wait_at("ready")?;
    let mut waited = Vec::new();
    for _ in 0..count {
        std::thread::sleep(every);
        let begin = Instant::now();
        kernels.work(cost, stream)?;
        cuda.synchronize(stream)?;
        waited.push(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    waited.sort_unstable();
    for (name, milli) in [("p50", 500), ("p99", 990), ("max", 1000)] {
        say(name, rank(&waited, milli));
    }
    wait_at("done").map(|_| ())
}

/// Looks for gaps in the GPU's clock. `ns`, `least_ns`.
pub(super) fn watch(ask: &Ask) -> Verdict {
    const MOST: usize = 20_000;
    let cuda = Cuda::open(ask.lookup())?;
    let kernels = Kernels::load(&cuda, (MOST as u64 * 2 + 1) * 8)?;
    let mut words = [ask.get("ns")?, ask.get("least_ns")?, MOST as u64, kernels.place];
    wait_at("ready")?;
    cuda.launch(kernels.watch, (1, 1), DEFAULT_STREAM, &mut words)?;
    cuda.synchronize_context()?;
    let mut found = vec![0; MOST * 2 + 1];
    cuda.read(kernels.place, &mut found)?;
    let count = usize::try_from(found[0]).unwrap_or(0).min(MOST);
    say("gaps", count);
    let gaps: Vec<&[u64]> = found[1..].chunks_exact(2).take(count).collect();
    let sorted = |mut lengths: Vec<u64>| {
        lengths.sort_unstable();
        lengths
    };
    let own = sorted(gaps.windows(2).map(|two| two[1][0].saturating_sub(two[0][1])).collect());
    let others = sorted(gaps.iter().map(|gap| gap[1].saturating_sub(gap[0])).collect());
    for (name, lengths) in [("turn", &own), ("gap", &others)] {
        say(&format!("{name}.p10"), rank(lengths, 100));
        say(&format!("{name}.p50"), rank(lengths, 500));
        say(&format!("{name}.p90"), rank(lengths, 900));
    }
    wait_at("done").map(|_| ())
}
