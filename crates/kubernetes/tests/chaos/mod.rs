//! Chaos by seed on a real cluster: pods come and go while parts of it die, stop and come back. From outside it is looked at whether
//! anything is given twice at any moment, and once all is well again whether any pod is stuck or anything is left.
//!
//! `bench` is the cluster and hotpot's programs, `stream` the pods, `faults` what goes wrong, `watch` all that the API server says, `book`
//! whether that is sound, `node` the same of the real node.
#![allow(dead_code, reason = "the command and the test each need a part")]

pub(crate) mod bench;
mod book;
pub(crate) mod faults;
mod node;
mod stream;
mod watch;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bench::{Bench, OBJECTS, PROGRAMS, REAL, said};
use book::{results, text};
use faults::Faults;
use node::Outside;
use serde_json::Value;
use stream::Stream;
use watch::{PATHS, Seen, Shared, follow, is_bound, is_over, told};

/// After the last fault each pod is to be bound, over or told why it waits, within this; and what is left is to be gone.
const CALM: Duration = Duration::from_secs(60);
/// The kubelet looks again at a pod that could not be prepared only after its `syncFrequency`, a minute, and up to half as much more.
const KUBELET: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// Between two looks at the node.
const LOOK: Duration = Duration::from_millis(500);
/// Lines of hotpot's logs that a violation is told with.
const LINES: usize = 25;

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How long pods and faults come.
    pub(crate) span: Duration,
    /// Whether pods of the real node must also have got a container before they are taken away.
    pub(crate) waits_for_kubelet: bool,
    /// Of the cluster; is made.
    pub(crate) folder: PathBuf,
    /// Where hotpot was built.
    pub(crate) programs: PathBuf,
    /// The project's root.
    pub(crate) project: PathBuf,
    /// Is told what happens.
    pub(crate) say: fn(&str),
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<(String, String)>,
    pub(crate) pods: usize,
    pub(crate) bound: usize,
    pub(crate) faults: usize,
    pub(crate) checks: u64,
    pub(crate) shares_checked: u64,
    pub(crate) violations: Vec<String>,
    /// All that is needed to look into the violations.
    pub(crate) evidence: String,
}

/// Runs it.
///
/// # Errors
/// There can be no cluster, or a part of it does not come back.
pub(crate) fn run(plan: &Plan) -> Result<Outcome, String> {
    let mut bench = Bench::up(&plan.folder, &plan.programs, &plan.project)?;
    bench.cluster.apply(&stream::templates()).map_err(said)?;
    let shared = Shared::default();
    let folder = bench.cluster.folder().to_owned();
    std::thread::scope(|scope| {
        for (kind, path) in PATHS {
            let (folder, shared) = (&folder, &shared);
            scope.spawn(move || follow(folder, kind, path, shared));
        }
        let outcome = disturbed(plan, &mut bench, &shared);
        shared.end();
        outcome
    })
}

fn disturbed(plan: &Plan, bench: &mut Bench, shared: &Shared) -> Result<Outcome, String> {
    let folder = bench.cluster.folder().to_owned();
    let run = format!("{}-{}", std::process::id(), plan.seed);
    let mut outside = Outside::new(&folder, bench.cluster.machine(REAL), &run);
    let mut faults = Faults::new(plan.seed, plan.say);
    let nodes = || [&[REAL][..], &OBJECTS].concat();
    let unseen = |seen: &Seen, _: &Outside| {
        let all = nodes().into_iter().filter(|node| !seen.catalogue.has(node));
        all.map(str::to_owned).collect()
    };
    calm(bench, shared, &mut outside, ("its devices are not seen", &|| (), CALM), unseen)?;
    let counts = storm(plan, bench, shared, (&mut outside, &mut faults, &run))?;
    (plan.say)("the last fault is over");
    let nothing = || ();
    let settled = calm(bench, shared, &mut outside, ("a pod is stuck", &nothing, CALM), stuck)?;
    let running = match plan.waits_for_kubelet {
        true => {
            let what = ("a pod does not start", &nothing as &dyn Fn(), KUBELET);
            Some(settled + calm(bench, shared, &mut outside, what, idle)?)
        }
        false => None,
    };
    let drained = drain(plan, bench, shared, (&mut outside, &run))?;
    let mut outcome = told_of(shared, &faults, counts, bench);
    outcome.shares_checked = outside.shares;
    let looked = format!("{}, {} with a share", outside.checks, outside.shares);
    let more = [
        ("containers looked at on the node", Some(looked)),
        ("all pods settled after the last fault, s", Some(seconds(settled))),
        ("all of the real node have a container or are over, s", running.map(seconds)),
        ("nothing left after the last pod, s", Some(seconds(drained))),
        ("violations", Some(outcome.violations.len().to_string())),
    ];
    let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    outcome.rows.extend(more);
    outcome.evidence = evidence(bench, shared);
    Ok(outcome)
}

/// Pods and faults come, and the node is looked at; how many pods came, and how many of them the API server did not take.
fn storm(
    plan: &Plan,
    bench: &mut Bench,
    shared: &Shared,
    (outside, faults, run): (&mut Outside, &mut Faults, &str),
) -> Result<(usize, usize), String> {
    let folder = bench.cluster.folder().to_owned();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let coming = scope.spawn(|| come(plan, &folder, run, (shared, &ended)));
        let looking = scope.spawn(|| {
            while !ended.load(Relaxed) {
                outside.look(shared);
                std::thread::sleep(LOOK);
            }
        });
        let begun = Instant::now();
        let mut done = Ok(());
        while done.is_ok() && begun.elapsed() < plan.span {
            done = faults.turn(bench, shared).and_then(|()| bench.supervise());
            std::thread::sleep(POLL);
        }
        let done = done.and(faults.end_all(bench));
        ended.store(true, Relaxed);
        let panicked = |_| "a thread of the run has panicked".to_owned();
        looking.join().map_err(panicked)?;
        let counts = coming.join().map_err(panicked)?;
        done.map(|()| counts)
    })
}

fn come(
    plan: &Plan,
    folder: &Path,
    run: &str,
    (shared, ended): (&Shared, &AtomicBool),
) -> (usize, usize) {
    let mut stream = Stream::new(folder, run, plan.seed);
    while !ended.load(Relaxed) {
        stream.turn(shared, true);
        std::thread::sleep(POLL);
    }
    (stream.count, stream.refused)
}

/// Waits until nothing is wrong any more; what still is when that takes too long is a violation each.
///
/// * `what` — for those; `again` — is done before each look; `patience` — how long is too long.
fn calm(
    bench: &mut Bench,
    shared: &Shared,
    outside: &mut Outside,
    (what, again, patience): (&str, &dyn Fn(), Duration),
    wrong: impl Fn(&Seen, &Outside) -> Vec<String>,
) -> Result<Duration, String> {
    let begun = Instant::now();
    loop {
        again();
        bench.supervise()?;
        outside.look(shared);
        let left = wrong(&shared.seen(), outside);
        if left.is_empty() {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > patience {
            let mut seen = shared.seen();
            left.into_iter().for_each(|one| seen.violated(format!("{what}: {one}")));
            return Ok(begun.elapsed());
        }
        std::thread::sleep(LOOK);
    }
}

/// Pods that are neither bound nor over nor told why they wait.
fn stuck(seen: &Seen, _: &Outside) -> Vec<String> {
    let leaves = |pod: &Value| !text(&pod["metadata"]["deletionTimestamp"]).is_empty();
    let is_fine =
        |pod: &Value| is_over(pod) || (!leaves(pod) && (is_bound(pod) || told(pod).is_some()));
    let stuck = seen.pods.iter().filter(|(_, pod)| !is_fine(pod));
    stuck.map(|(name, pod)| format!("{name}: {}", brief(pod))).collect()
}

/// Pods of the real node that are not over and have not got a container. The kubelet leaves a pod alone that is not to be started anew
/// where the node went off between its container's creation and its start, which is the kubelet's matter.
fn idle(seen: &Seen, _: &Outside) -> Vec<String> {
    let is_real = |pod: &Value| pod["spec"]["nodeName"] == REAL;
    let has_container =
        |pod: &Value| !text(&pod["status"]["containerStatuses"][0]["containerID"]).is_empty();
    let is_fine = |pod: &Value| is_over(pod) || has_container(pod);
    let idle = seen.pods.iter().filter(|(_, pod)| is_real(pod) && !is_fine(pod));
    idle.map(|(name, pod)| format!("{name}: {}", brief(pod))).collect()
}

/// What matters of a pod.
fn brief(pod: &Value) -> String {
    let (meta, spec) = (&pod["metadata"], &pod["spec"]);
    format!(
        "on `{}`, gates {}, created {}, deleted {}, finalizers {}, {}",
        text(&spec["nodeName"]),
        spec["schedulingGates"],
        meta["creationTimestamp"],
        meta["deletionTimestamp"],
        meta["finalizers"],
        pod["status"]
    )
}

/// Takes all pods away, then asks for a share, then for whole cards, and looks what is left of all claims.
fn drain(
    plan: &Plan,
    bench: &mut Bench,
    shared: &Shared,
    (outside, run): (&mut Outside, &str),
) -> Result<Duration, String> {
    let folder = bench.cluster.folder().to_owned();
    let begun = Instant::now();
    let clear = || stream::clear(&folder, shared);
    calm(bench, shared, outside, ("left behind", &clear, CALM), |seen, outside| {
        let pods = seen.pods.iter().map(|(name, pod)| format!("pod {name}: {}", brief(pod)));
        let given = seen.claims.iter().filter(|(_, claim)| results(claim).next().is_some());
        let given = given.map(|(name, claim)| format!("claim {name}: {}", claim["status"]));
        pods.chain(given).chain(outside.left()).collect()
    })?;
    let shares = outside.shares;
    stream::ask_at_home(&folder, "share", run, true);
    let what = ("no container with a share was seen", &(|| ()) as &dyn Fn(), CALM);
    calm(bench, shared, outside, what, |_, outside| {
        (outside.shares < shares + 3).then(|| "share".to_owned()).into_iter().collect()
    })?;
    let spare = outside.instances().len();
    calm(bench, shared, outside, ("a share stays", &clear, CALM), |_, outside| outside.left())?;
    (plan.say)(&format!("{spare} spare MIG instances; now both cards are asked for whole"));
    let names = ["whole0", "whole1"];
    names.iter().for_each(|name| stream::ask_at_home(&folder, name, run, false));
    calm(bench, shared, outside, ("a card is not to be had", &|| (), CALM), |seen, _| {
        let is_done = |name: &&&str| {
            seen.pods.get(**name).is_some_and(|pod| text(&pod["status"]["phase"]) == "Succeeded")
        };
        let missing = names.iter().filter(|name| !is_done(name));
        missing.map(|name| format!("{name}: {:?}", seen.pods.get(*name).map(brief))).collect()
    })?;
    calm(bench, shared, outside, ("left at the end", &clear, CALM), |seen, outside| {
        let instances = outside.instances().into_iter().map(|it| format!("instance {it}"));
        let pods = seen.pods.keys().map(|name| format!("pod {name}"));
        pods.chain(instances).chain(outside.left()).collect()
    })?;
    Ok(begun.elapsed())
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

fn told_of(
    shared: &Shared,
    faults: &Faults,
    (pods, refused): (usize, usize),
    bench: &Bench,
) -> Outcome {
    let seen = shared.seen();
    let mut rows = vec![
        ("pods".to_owned(), pods.to_string()),
        ("  not taken by the API server".into(), refused.to_string()),
        ("  bound".into(), seen.bound.len().to_string()),
        (
            "longest wait until bound, s".into(),
            seconds(seen.bound.values().max().copied().unwrap_or_default()),
        ),
    ];
    for (fault, count) in &faults.counts {
        let hits = faults.hits.get(fault).map_or(String::new(), |hits| format!(", {hits} hit"));
        rows.push((format!("fault: {fault:?}"), format!("{count}{hits}")));
    }
    rows.push(("programs that ended by themselves".into(), bench.ended.len().to_string()));
    rows.push(("checks of all that was given".into(), seen.checks.to_string()));
    Outcome {
        rows,
        pods,
        bound: seen.bound.len(),
        faults: faults.counts.values().sum(),
        checks: seen.checks,
        violations: seen.violations.clone(),
        ..Outcome::default()
    }
}

fn evidence(bench: &Bench, shared: &Shared) -> String {
    let mut text = format!("last changes:\n{}", shared.seen().history());
    for line in &bench.ended {
        let _ = writeln!(text, "ended by itself: {line}");
    }
    for program in PROGRAMS {
        let log = std::fs::read_to_string(bench.log(program)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let _ = writeln!(text, "-- {program:?}");
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}
