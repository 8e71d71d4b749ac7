//! Workload files: what the shipped examples become, and what is refused.

mod support;

use formats::workloads;
use model::{Class, GpuAsk, Isolation, ModeSet, SharingKind, Trace, WorkloadId};
use support::{example, refused, source};

fn read_workloads(text: &str) -> Result<Trace, String> {
    workloads::read(&source("w.toml", text)).map_err(|error| error.to_string())
}

#[test]
fn workloads_of_the_examples() {
    let trace = workloads::read(&example("workloads.toml")).unwrap();
    let arrivals = &trace.arrivals;
    assert_eq!(arrivals.len(), 1 + 3 + 100 + 1 + 1);
    assert!(arrivals.iter().enumerate().all(|(at, a)| a.workload.id == WorkloadId(at as u64)));
    let pretrain = &arrivals[0].workload;
    let gpus = pretrain.demand.gpus.as_ref().unwrap();
    assert_eq!((pretrain.class, pretrain.members, gpus.count), (Class::Training, 2, 8));
    let accepts: Vec<_> = gpus.accepts.iter().map(ToString::to_string).collect();
    assert_eq!(accepts, ["a100-80gb", "h100-80gb|h200"]);
    let chat = &arrivals[3].workload;
    assert_eq!((chat.name.as_str(), chat.demand.cpu_milli), ("chat-2", 4500));
    assert_eq!((chat.priority, chat.latency_target_ms), (100, Some(250)));
    let gpus = chat.demand.gpus.as_ref().unwrap();
    assert_eq!(gpus.each, GpuAsk::Fraction { compute_milli: 200, memory_mib: 10_240 });
    assert_eq!(gpus.modes, ModeSet::of(&[SharingKind::Mps, SharingKind::MemoryCapped]));
    assert!(chat.preemptible && chat.preempts);
    let embed = &arrivals[103];
    assert_eq!((embed.at_ms, embed.runs_ms), (600_000, Some(1_200_000)));
    let member = embed.workload.array.unwrap();
    assert_eq!((member.array.0, member.index, member.at_once_max), (4, 100, 10));
    assert_eq!(
        (embed.workload.submitted_ms, embed.workload.time_limit_ms),
        (600_000, Some(3_600_000))
    );
    let notebook = arrivals[104].workload.demand.gpus.as_ref().unwrap();
    assert_eq!(notebook.each, GpuAsk::Profile("1g.10gb".to_string()));
    assert_eq!(notebook.isolation, Isolation::Hard);
    assert_eq!(arrivals[105].workload.demand.gpus, None);

    let yaml = workloads::read(&example("workloads.yaml")).unwrap();
    let pick = |name: &str| {
        let of_name = |a: &&model::Arrival| a.workload.name.starts_with(name);
        trace.arrivals.iter().filter(of_name).map(|a| a.workload.demand.clone()).collect::<Vec<_>>()
    };
    assert_eq!(yaml.arrivals.len(), 101);
    assert_eq!(yaml.arrivals[0].workload.demand, pick("pretrain")[0]);
    assert_eq!(yaml.arrivals[1].workload.demand, pick("embed")[0]);
    assert_eq!(yaml.arrivals[1].workload.time_limit_ms, Some(3_600_000));
}

#[test]
fn shares_in_all_their_forms() {
    let fraction = |compute_milli, memory_mib| GpuAsk::Fraction { compute_milli, memory_mib };
    for (keys, each) in [
        ("", GpuAsk::Whole),
        ("gpu_share = 0.5", fraction(500, 0)),
        ("gpu_share = \"25%\"", fraction(250, 0)),
        ("gpu_share = 1.0", GpuAsk::Whole),
        ("gpu_share = 1e-1", fraction(100, 0)),
        ("gpu_share = \"2GiB\"", fraction(0, 2048)),
        ("gpu_compute = 0.2", fraction(200, 0)),
        ("gpu_memory = \"2G\"", fraction(0, 2048)),
        ("gpu_compute = \"100%\"\ngpu_memory = \"2G\"", fraction(1000, 2048)),
    ] {
        let text = format!("[[workload]]\nname = 'a'\ngpus = 1\n{keys}\n");
        let trace = read_workloads(&text).unwrap();
        assert_eq!(trace.arrivals[0].workload.demand.gpus.as_ref().unwrap().each, each, "{keys}");
    }
}

/// Keys of an entry, and how the message about them begins.
const KEYS_REFUSED: &[(&str, &str)] = &[
    ("gpu = 1", "w.toml:3: gpu: is not a known key; did you mean gpus?"),
    ("gpus = -2", "w.toml:3: gpus: \"-2\" is not a count; give 0 to 255"),
    ("gpus = 1.5", "w.toml:3: gpus: \"1.5\" is not a count"),
    ("gpus = 256", "w.toml:3: gpus: 256 is out of range; give 0 to 255"),
    ("gpus = 9999999999999999999999", "w.toml:3: "),
    ("gpus = \"1\"", "w.toml:3: gpus: \"1\" is not a count"),
    ("gpus = 0\ngpu_share = 0.5", "w.toml:4: gpu_share: is set, but no GPU is asked for"),
    ("isolation = 'hard'", "w.toml:3: isolation: is set, but no GPU is asked for"),
    ("gpus = 1\ngpu_share = 1.5", "w.toml:4: gpu_share: \"1.5\" is more than the whole"),
    ("gpus = 1\ngpu_share = nan", "w.toml:4: gpu_share: "),
    ("gpus = 1\ngpu_share = 1e300", "w.toml:4: gpu_share: "),
    ("gpus = 1\ngpu_share = 0", "w.toml:4: gpu_share: \"0\" is no share at all"),
    ("gpus = 1\ngpu_share = '2 Gpx'", "w.toml:4: gpu_share: \"2 Gpx\" is not a size"),
    ("gpus = 1\ngpu_share = true", "w.toml:4: gpu_share: true is not one value"),
    ("gpus = 1\ngpu_memory = '0G'", "w.toml:4: gpu_memory: is no memory at all"),
    (
        "gpus = 1\ngpu_share = 0.5\ngpu_memory = '1G'",
        "w.toml:5: gpu_memory: says the size again, after gpu_share; keep one of the two",
    ),
    (
        "gpus = 1\nmig_profile = '1g.10gb'\ngpu_share = 0.1",
        "w.toml:5: gpu_share: says the size again, after mig_profile",
    ),
    ("gpus = 1\nmig_profile = 'big'", "w.toml:4: mig_profile: \"big\" is not a MIG profile"),
    (
        "gpus = 1\nmodes = ['msp']",
        "w.toml:4: modes: \"msp\" is not a known sharing mode; did you mean mps?",
    ),
    ("gpus = 1\nmodes = []", "w.toml:4: modes: accepts no mode"),
    ("gpus = 1\nmodes = ['mps']", "w.toml:4: modes: cannot give a whole GPU"),
    (
        "gpus = 1\ngpu_share = 0.5\nisolation = 'memory'\nmodes = ['time-slice']",
        "w.toml:6: modes: holds no mode with isolation memory; add one of exclusive, mps",
    ),
    ("gpus = 1\nmodels = 'a100'", "w.toml:4: models: \"a100\" is not a list"),
    ("gpus = 1\nmodels = ['|']", "w.toml:4: models: names no GPU model"),
    (
        "class = 'servise'",
        "w.toml:3: class: \"servise\" is not a known class; did you mean service?",
    ),
    ("cpus = -1", "w.toml:3: cpus: \"-1\" is negative"),
    ("cpus = inf", "w.toml:3: cpus: \"inf\" is not a number of CPUs"),
    ("memory = 16", "w.toml:3: memory: \"16\" has no unit; give a size such as \"16GiB\""),
    ("priority = 5e9", "w.toml:3: priority: "),
    ("members = 0", "w.toml:3: members: 0 is out of range"),
    ("count = 0", "w.toml:3: count: 0 is out of range"),
    ("array = '9-1'", "w.toml:3: array: \"9-1\" is not an array"),
    ("array = '0-999'\ncount = 1000", "w.toml:1: workload: makes more than 250000 workloads"),
    ("time_limit = '0s'", "w.toml:3: time_limit: leaves no time to run"),
    ("time_limit = '30:00'", "w.toml:3: time_limit: \"30:00\" could be hours or minutes"),
    ("submit = '-5m'", "w.toml:3: submit: "),
    ("preempts = 1", "w.toml:3: preempts: \"1\" is not a yes or no"),
    ("preemptible = 'no'", "w.toml:3: preemptible: \"no\" is not a yes or no"),
    ("latency_target_ms = 0", "w.toml:3: latency_target_ms: 0 is out of range"),
    ("name = 'b'", "w.toml:3: is not TOML here (duplicate key"),
    ("cpus = ", "w.toml:3: is not TOML here ("),
];

#[test]
fn workloads_that_make_no_sense_are_refused_at_their_line() {
    let read = |keys: &str| read_workloads(&format!("[[workload]]\nname = 'a'\n{keys}\n"));
    refused(read, KEYS_REFUSED);
    refused(
        read_workloads,
        &[
            ("[[workload]]\ncpus = 1\n", "w.toml:1: name: is missing; add name"),
            ("[[workload]]\nname = ''\n", "w.toml:2: name: is empty"),
            (
                "[[workload]]\nname = 7\n",
                "w.toml:2: name: 7 is a number, not text; put it in quotes: \"7\"",
            ),
            ("[[job]]\n", "w.toml:1: job: is not a known key; known: workload"),
            ("# nothing\n", "w.toml:1: workload: is missing; add a [[workload]] table"),
            ("workload = 3\n", "w.toml:1: workload: \"3\" is not a list"),
            ("workload = [3]\n", "w.toml:1: workload: \"3\" is not a table"),
        ],
    );
}

#[test]
fn errors_show_the_line_in_both_formats() {
    let toml = read_workloads("[[workload]]\r\nname = \"a\"\r\ncpsu = 4\r\n").unwrap_err();
    let (what, show) = toml.split_once('\n').unwrap();
    assert!(what.starts_with("w.toml:3: cpsu: is not a known key; did you mean cpus? known: name"));
    assert_eq!(show, " 3 | cpsu = 4\n   | ^");
    let text = "workload:\n  - name: a\n    gpus: 1\n    gpu_share: 3\n";
    let yaml = workloads::read(&source("w.yaml", text)).unwrap_err().to_string();
    let expected = "w.yaml:4: gpu_share: \"3\" is more than the whole; give 0.001 to 1, or \
                    \"0.1%\" to \"100%\"\n 4 |     gpu_share: 3\n   |                ^";
    assert_eq!(yaml, expected);
}

#[test]
fn yaml_that_is_none_is_refused_at_its_line() {
    let read =
        |text: &str| workloads::read(&source("w.yaml", text)).map_err(|error| error.to_string());
    refused(
        read,
        &[
            ("workload:\n  - name: a\n   cpus: 1\n", "w.yaml:3: is not YAML here ("),
            ("workload:\n  - name: a\n    name: b\n", "w.yaml:3: is not YAML here ("),
            ("workload:\n  - name: 'a\n", "w.yaml:"),
            ("workload: *nowhere\n", "w.yaml:1: is not YAML here ("),
            (
                "workload:\n  - name: a\n    gpsu: 1\n",
                "w.yaml:3: gpsu: is not a known key; did you mean gpus?",
            ),
            ("workload:\n", "w.yaml:1: workload: is missing"),
            ("- 1\n", "w.yaml:1: file: a list is not a table"),
        ],
    );
}

#[test]
fn bombs_are_refused_quickly() {
    let deep = "[".repeat(200_000);
    let doubling = (1..40).fold("a0: &a0 [x]\n".to_string(), |text, at| {
        let before = at - 1;
        format!("{text}a{at}: &a{at} [*a{before}, *a{before}]\n")
    });
    for (name, text) in [
        ("w.toml", format!("workload = {deep}")),
        ("w.toml", format!("workload{} = 1", ".a".repeat(100_000))),
        ("w.yaml", format!("workload: {deep}")),
        ("w.yaml", "- ".repeat(200_000)),
        ("w.yaml", doubling),
    ] {
        let message = workloads::read(&source(name, &text)).unwrap_err().to_string();
        assert!(message.len() < 2000, "{message}");
    }
}

#[test]
fn who_stays_and_who_bides_is_said() {
    let text = "[[workload]]\nname = 'a'\npreemptible = false\npreempts = false\n";
    let trace = read_workloads(text).unwrap();
    let workload = &trace.arrivals[0].workload;
    assert_eq!((workload.preemptible, workload.preempts), (false, false));
}
