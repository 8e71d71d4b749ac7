//! What is said of jobs of a recorded cluster: Slurm 22.05.8 with three nodes, each with two a100 that have 317
//! shards and two MIG instances; n3 is drained. `UPDATE_EXPECT=1` writes the expected texts anew; read the diff.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use formats::Source;
use slurm::explain::{Answer, Lack, Standing, Waits, explain};
use slurm::queue_view::{QueueView, Told};
use slurm::report::{self, By, Cards, Sizing, Wish};

const SHARD_MIB: u64 = 256;

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeing").join(name)
}

fn recorded(name: &str) -> String {
    fs::read_to_string(place(name)).unwrap()
}

/// Lines of jobs that are over, instead of what was recorded of them.
const JOB_2_OVER: (&str, &str) = (
    "JobId=2 JobName=infer\n   UserId=nobody(65534) GroupId=root(0) MCS_label=N/A\n   \
     Priority=1 Nice=0 Account=lab QOS=normal\n   JobState=RUNNING",
    "JobId=2 JobName=infer\n   UserId=nobody(65534)\n   Priority=1\n   JobState=COMPLETED",
);
const JOB_7_OVER: (&str, &str) = (
    "JobId=7 JobName=full\n   UserId=root(0) GroupId=root(0) MCS_label=N/A\n   \
     Priority=1 Nice=0 Account=root QOS=normal\n   JobState=PENDING",
    "JobId=7 JobName=full\n   UserId=root(0)\n   Priority=1\n   JobState=COMPLETED",
);

/// The cluster as it was recorded, with some text of its jobs and nodes replaced.
fn view_with(replaced: &[(&str, &str)]) -> QueueView {
    let change = |mut text: String| {
        for (from, to) in replaced {
            text = text.replace(from, to);
        }
        text
    };
    let (nodes, jobs) = (change(recorded("nodes.txt")), change(recorded("jobs.txt")));
    let partitions = recorded("partitions.txt");
    let told = Told { nodes: &nodes, jobs: &jobs, partitions: &partitions, ..Told::default() };
    QueueView::of(&told, recorded("now.txt").trim().parse().unwrap(), SHARD_MIB)
}

fn view() -> QueueView {
    view_with(&[])
}

fn expect(name: &str, text: &str) {
    let path = place(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{}", path.display());
}

fn answer(view: &QueueView, job: &str) -> Answer {
    explain(view, job).unwrap_or_else(|| panic!("job {job}"))
}

fn waits(answer: Answer) -> Waits {
    match answer.standing {
        Standing::Waits(waits) => waits,
        other @ (Standing::Runs(_) | Standing::Over(_)) => panic!("{other:?}"),
    }
}

#[test]
fn answers_are_these() {
    let view = view();
    let jobs = ["1", "2", "3", "4", "4_1", "7", "8", "9", "10", "11", "12", "14", "15"];
    let texts: Vec<String> = jobs.iter().map(|job| answer(&view, job).text(SHARD_MIB)).collect();
    expect("explained.golden", &texts.join("\n"));
    for text in &texts {
        assert!(text.lines().count() <= 24, "one screen: {text}");
    }
    assert_eq!(explain(&view, "99"), None);
    assert_eq!(explain(&view, "4_9"), None);
    assert_eq!(explain(&view, "embed"), None);
}

#[test]
fn the_earliest_start_is_when_enough_jobs_must_have_ended() {
    let view = view();
    let now = view.now_s;
    // 200 shards: n1's cards are held by 1 (whole, until …40890) and 2 (284 shards, until …39091), n2's by tasks
    // of 4 (160 each, until …36392).
    let shards = waits(answer(&view, "8"));
    assert_eq!(shards.starts_within_s, Some(1_796_036_392 - now));
    assert_eq!(shards.starts_on, ["n2"]);
    // Two whole cards on one node: n2's come free together, which is later than Slurm's plan says.
    let whole = waits(answer(&view, "7"));
    assert_eq!(whole.starts_within_s, Some(1_796_036_392 - now));
    assert!(whole.slurm_expects.is_some_and(|(within, _)| within < 1_796_036_392 - now));
    // Three nodes, of which one is drained.
    assert_eq!(waits(answer(&view, "10")).starts_within_s, None);
    // 16 CPUs: all jobs of a node must have ended.
    assert_eq!(waits(answer(&view, "14")).starts_within_s, Some(1_796_036_392 - now));
}

#[test]
fn what_is_missing_is_told_in_amounts() {
    let lacks = |replaced: &[(&str, &str)], job: &str, node: &str| {
        let nodes = waits(answer(&view_with(replaced), job)).nodes;
        let alike = nodes.into_iter().find(|one| one.nodes.iter().any(|name| name == node));
        alike.unwrap().lacks
    };
    let parts = |free| Lack::Parts { name: "shard".into(), asked: 200, free, total: 317 };
    assert_eq!(lacks(&[], "8", "n1"), [parts(33)]);
    assert_eq!(lacks(&[], "8", "n2"), [parts(157)]);
    assert!(
        matches!(&lacks(&[], "8", "n3")[..], [Lack::OutOfUse { why }] if why == "drained (fan is loud)")
    );
    let devices = Lack::Devices { kind: "a100".into(), asked: 2, free: 0, total: 2 };
    assert_eq!(lacks(&[], "7", "n2"), [devices]);
    assert_eq!(lacks(&[], "14", "n1")[0], Lack::Cpus { asked: 16, free: 6, total: 16 });
    let memory = [("AllocMem=3000", "AllocMem=15500")];
    let expected = Lack::Memory { asked: 1000, free: 500, total: 16_000 };
    assert_eq!(lacks(&memory, "8", "n1")[0], expected);
    let feature = [("Features=(null) DelayBoot", "Features=nvme|ssd DelayBoot")];
    assert_eq!(lacks(&feature, "8", "n1")[0], Lack::Features { asked: "nvme|ssd".into() });
    let has = [feature[0], ("ActiveFeatures=(null)", "ActiveFeatures=ssd")];
    assert_eq!(lacks(&has, "8", "n1"), [parts(33)]);
    let more = [("gres:shard:200", "gres:shard:400")];
    assert!(lacks(&more, "8", "n1")[0].is_for_ever());
}

/// Records of newer releases: what is held and asked stands apart, and an ask may be told in several ways.
#[test]
fn jobs_of_newer_releases_are_read() {
    let (nodes, jobs) = (recorded("nodes.txt"), recorded("job-24.05.txt"));
    let told = Told { nodes: &nodes, jobs: &jobs, ..Told::default() };
    let view = QueueView::of(&told, recorded("now.txt").trim().parse().unwrap(), SHARD_MIB);
    let job = |name: &str| view.find(name).unwrap_or_else(|| panic!("job {name}"));
    let running = job("21");
    assert_eq!((running.tres.cpus, running.tres.billing), (10, 10));
    assert_eq!(running.tres.typed_gpus["a100"], 1);
    let asks: Vec<_> = running.need.gres.iter().map(|it| (it.name.as_str(), it.count)).collect();
    assert_eq!(asks, [("gpu", 1)]);
    let waiting = job("22_4");
    assert_eq!((waiting.name.as_str(), waiting.tres.shards), ("22_[0-100:2]", 200));
    assert!(view.find("22_5").is_none() && view.find("22_102").is_none());
    assert_eq!(answer(&view, "22_100").array.unwrap().waiting, 51);
}

#[test]
fn a_task_of_a_list_that_slurm_has_cut_off_is_found() {
    let waiting = "JobId=4 ArrayJobId=4 ArrayTaskId=3";
    let with =
        |list: &str| view_with(&[(waiting, &format!("JobId=4 ArrayJobId=4 ArrayTaskId={list}"))]);
    let view = with("4-6,8,1...%2");
    assert_eq!(view.find("4_17").map(|job| job.name.as_str()), Some("4_[4-6,8,1...]"));
    assert_eq!(view.find("4_1").map(|job| job.name.as_str()), Some("4_1"), "one that runs");
    let text = answer(&view, "4_17").text(SHARD_MIB);
    assert!(text.contains("2 tasks running, 4 or more waiting"), "{text}");
    assert!(with("4-6,8%2").find("4_17").is_none());
}

#[test]
fn a_node_that_is_powered_down_is_there_for_jobs() {
    let of = |state: &str| {
        let view = view_with(&[("State=IDLE+DRAIN", &format!("State={state}"))]);
        view.node("n3").unwrap().out_of_use()
    };
    assert_eq!(of("IDLE+CLOUD+POWERED_DOWN"), None);
    assert_eq!(of("DOWN+CLOUD").as_deref(), Some("down (fan is loud)"));
}

#[test]
fn a_job_that_fits_is_told_who_is_ahead() {
    // Without job 2 a card of n1 is free.
    let view = view_with(&[JOB_2_OVER]);
    let answered = answer(&view, "8");
    let waits = waits(answered.clone());
    assert!(waits.fits_now && waits.starts_within_s == Some(0));
    assert_eq!(waits.ahead_first.first().map(|ahead| ahead.job.as_str()), Some("7"));
    assert!(
        answered
            .text(SHARD_MIB)
            .contains("there is room on n1 now, which those ahead of it may take")
    );
    let alone = [JOB_2_OVER, JOB_7_OVER, ("Reason=Priority", "Reason=None")];
    let text = answer(&view_with(&alone), "8").text(SHARD_MIB);
    assert!(text.contains("the scheduler has not looked since"), "{text}");
}

#[test]
fn a_job_that_was_sent_back_says_why() {
    let comment = "AdminComment=hotpot(gpu-mem=50000,gpu-share=capped)";
    let sent = format!("{comment} hotpot-sent-back(n1: GPU-1 is held by slurm/2)");
    let answered = answer(&view_with(&[(comment, &sent)]), "8");
    assert_eq!(answered.sent_back.as_deref(), Some("n1: GPU-1 is held by slurm/2"));
    assert!(
        answered.text(SHARD_MIB).contains("as it could not run on n1: GPU-1 is held by slurm/2")
    );
}

#[test]
fn a_card_that_slurm_has_booked_twice_is_named() {
    let both = [("GRES=shard:284(IDX:1)", "GRES=shard:284(IDX:0)")];
    let text = answer(&view_with(&both), "8").text(SHARD_MIB);
    assert!(text.contains("gpu0 a100: booked twice by Slurm; 1 of root has all of it"), "{text}");
}

#[test]
fn reports_are_these() {
    let view = view();
    let source = Source::open(&place("sacct.txt")).unwrap();
    let cards = Cards { view: Some(&view), shards: None, shard_mib: SHARD_MIB };
    let wish = Wish { since_s: 0, by: By::Name, user: None, sizing: Sizing::default() };
    let report = report::report(&source, &cards, &wish).unwrap();
    expect("report.golden", &format!("{}\n{}", report.table(), report.csv()));
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    // 284 shards of 317 for 389 s and so on; a whole card for 387 s; instances of a seventh.
    let of = |name: &str| report.lines.iter().find(|line| line.of == name).unwrap();
    assert!((of("train").whole_gpu_h - 387.0 / 3600.0).abs() < 1e-9);
    assert!((of("slices").mig_gpu_h - 3.0 * 0.142 / 3600.0).abs() < 1e-9);
    assert!((of("embed-docs").shared_gpu_h - 20.0 * 33.0 / 317.0 / 3600.0).abs() < 1e-9);
    assert_eq!(of("train").busy_gpu_h, None);
    let sums = report.lines.iter().map(|line| line.held_gpu_h).sum::<f64>();
    assert!((sums - report.total.held_gpu_h).abs() < 1e-9);
}

#[test]
fn sizes_need_runs_and_keep_a_margin() {
    let view = view();
    let source = Source::open(&place("sacct.txt")).unwrap();
    let cards = Cards { view: Some(&view), shards: None, shard_mib: SHARD_MIB };
    let size = |sizing, name: &str| {
        let wish = Wish { since_s: 0, by: By::User, user: None, sizing };
        let sizes = report::report(&source, &cards, &wish).unwrap().sizes;
        sizes.into_iter().find(|size| size.name == name).unwrap()
    };
    let docs = size(Sizing::default(), "embed-docs");
    // 1712 MiB and 15 %, in steps of 256 MiB.
    assert_eq!((docs.runs, docs.peak_mib, docs.ask_mib), (7, 1712, Some(2048)));
    // With a context 2498 MiB are 10 shards, 31 times on a card; now there are 33 shards.
    assert_eq!((docs.per_card, docs.per_card_then), (Some(9), Some(31)));
    assert_eq!(docs.option().as_deref(), Some("--gpu-mem=2G"));
    let wide = size(Sizing { margin_percent: 100, runs_min: 7 }, "embed-docs");
    assert_eq!(wide.option().as_deref(), Some("--gpu-mem=3584M"));
    let few = size(Sizing { runs_min: 8, ..Sizing::default() }, "embed-docs");
    assert!(few.ask_mib.is_none() && few.text.contains("too few"), "{}", few.text);
    // Refused at 9000 MiB: half as much again.
    let refused = size(Sizing::default(), "evals");
    assert_eq!((refused.wants_more, refused.option().as_deref()), (true, Some("--gpu-mem=13568M")));
    assert!(
        refused.text.contains("4 were refused memory: ask --gpu-mem=13568M"),
        "{}",
        refused.text
    );
}

/// A list of sacct's, of runs of one name on n1 one after the other.
///
/// * `runs` — state, MiB asked, the most held, and allocations refused.
fn list(runs: &[(&str, u64, u64, u64)]) -> Source {
    let mut text = String::from(
        "JobID|JobName|User|State|Submit|Start|ElapsedRaw|AllocTRES|NodeList|AdminComment\n",
    );
    for (at, (state, asked, peak, refused)) in runs.iter().enumerate() {
        let (moment, shards) = (1_796_000_000 + at, (asked + 450).div_ceil(SHARD_MIB));
        text += &format!(
            "{at}|embed|ann|{state}|{moment}|{moment}|1|node=1,gres/shard={shards}|n1|hotpot(gpu-mem={asked}) \
             hotpot-used(n1: gpu-mem={peak},launches=1,refused={refused})\n"
        );
    }
    Source::from_bytes("sacct", text.into_bytes()).unwrap()
}

#[test]
fn after_runs_that_were_refused_memory_never_less_is_suggested() {
    let view = view();
    let cards = Cards { view: Some(&view), shards: None, shard_mib: SHARD_MIB };
    let (fine, failed, lived) =
        (("COMPLETED", 8192, 1712, 0), ("FAILED", 2048, 2040, 1), ("COMPLETED", 2048, 2048, 3));
    let again = ("COMPLETED", 8192, 3000, 0);
    for (what, runs, expected) in [
        ("all is well", vec![fine; 5], (Some(2048), false, Some(2048))),
        ("too few", vec![fine; 4], (None, false, None)),
        ("one needs no run beside it", vec![failed], (Some(3072), true, Some(3072))),
        (
            "runs before it do not count",
            [vec![fine; 40], vec![failed]].concat(),
            (Some(3072), true, Some(3072)),
        ),
        ("too few since", [vec![failed], vec![fine; 4]].concat(), (Some(3072), true, None)),
        ("enough since", [vec![failed], vec![fine; 5]].concat(), (Some(2560), false, Some(2560))),
        (
            "they held more",
            [vec![failed], vec![again; 5]].concat(),
            (Some(3584), false, Some(3584)),
        ),
        (
            "failed again",
            vec![failed, ("OUT_OF_MEMORY", 3072, 3072, 1)],
            (Some(4608), true, Some(4608)),
        ),
        ("did with less", vec![lived], (Some(3072), true, Some(3072))),
        ("does with any", vec![lived, ("COMPLETED", 3072, 3072, 1)], (Some(3072), true, None)),
        (
            "a card has no more",
            vec![("FAILED", 70_000, 70_000, 1)],
            (Some(80_702), true, Some(80_702)),
        ),
        ("it has all", vec![("FAILED", 80_702, 80_000, 1)], (Some(80_702), true, None)),
    ] {
        let wish = Wish { since_s: 0, by: By::User, user: None, sizing: Sizing::default() };
        let report = report::report(&list(&runs), &cards, &wish).unwrap();
        let size = report.sizes.first().unwrap();
        assert_eq!(
            (size.fits_mib, size.wants_more, size.ask_mib),
            expected,
            "{what}: {}",
            size.text
        );
    }
}

#[test]
fn how_many_more_would_fit_is_counted_as_they_are_booked() {
    let view = view();
    let cards = Cards { view: Some(&view), shards: None, shard_mib: SHARD_MIB };
    let per_card = |shards: u64, ask: &str| {
        let row = format!(
            "|embed|ann|COMPLETED|1|1|1|node=1,gres/shard={shards}|n1|{ask} \
             hotpot-used(n1: gpu-mem=1712,launches=1,refused=0)\n"
        );
        let head =
            "JobID|JobName|User|State|Submit|Start|ElapsedRaw|AllocTRES|NodeList|AdminComment\n";
        let text = head.to_string() + &(0..5).map(|at| format!("{at}{row}")).collect::<String>();
        let source = Source::from_bytes("sacct", text.into_bytes()).unwrap();
        let wish = Wish { since_s: 0, by: By::User, user: None, sizing: Sizing::default() };
        let size = report::report(&source, &cards, &wish).unwrap().sizes.remove(0);
        (size.per_card, size.per_card_then)
    };
    // 2048 MiB and a context are 10 shards of 317, also for who asked shards before.
    assert_eq!(per_card(33, "hotpot(gpu-mem=8000)"), (Some(9), Some(31)));
    assert_eq!(per_card(33, ""), (Some(9), Some(31)));
    // A fifth of the compute is 63 shards, whatever the memory.
    assert_eq!(per_card(79, "hotpot(gpu-mem=20000,gpu-compute=200)"), (Some(4), Some(5)));
}

#[test]
fn what_was_held_before_the_time_asked_for_does_not_count() {
    let view = view();
    let source = Source::open(&place("sacct.txt")).unwrap();
    let cards = Cards { view: Some(&view), shards: None, shard_mib: SHARD_MIB };
    // Job 1 ran from …33690 to …34077.
    let wish = Wish {
        since_s: 1_796_034_000,
        by: By::Name,
        user: Some("root"),
        sizing: Sizing::default(),
    };
    let report = report::report(&source, &cards, &wish).unwrap();
    let train = report.lines.iter().find(|line| line.of == "train").unwrap();
    assert!((train.held_gpu_h - 77.0 / 3600.0).abs() < 1e-9, "{train:?}");
    assert!(report.lines.iter().all(|line| line.of != "infer"), "another user's");
}
