//! Traces that go back to Philly: what is made of them, and which rows are refused.

mod support;

use formats::philly::{self, Synthesis};
use formats::read_trace;
use formats::throughput::Throughputs;
use formats::trace::{self, TraceKind, TraceOptions};
use support::{published, source};

const TABLE: &str = r#"{"v100": {"('A3C', 1)": {"null": 4.0, "('A3C', 1)": [1.0, 1.0]},
    "('LM (batch size 5)', 1)": {"null": 10}, "('LM (batch size 5)', 4)": {"null": 20.0}}}"#;

#[test]
fn running_times_are_shuffled_and_spaced() {
    let text = "runtime\n1.0\n2.5\n3\n4\n";
    let options = Synthesis { seed: 7, gap_ms: 100, gpu_milli: vec![500, 1000] };
    let trace = philly::runtimes(&source("r.csv", text), &options).unwrap();
    assert_eq!(trace, philly::runtimes(&source("r.csv", text), &options).unwrap());
    let at: Vec<_> = trace.arrivals.iter().map(|arrival| arrival.at_ms).collect();
    assert_eq!(at, [0, 100, 200, 300]);
    let mut runs: Vec<_> = trace.arrivals.iter().filter_map(|arrival| arrival.runs_ms).collect();
    assert_ne!(runs, [1000, 2500, 3000, 4000]);
    runs.sort_unstable();
    assert_eq!(runs, [1000, 2500, 3000, 4000]);
    let milli: Vec<_> = trace.arrivals.iter().map(|a| a.workload.demand.gpu_milli()).collect();
    assert_eq!(milli, [500, 1000, 500, 1000]);
    for (text, expected) in [
        ("runtime\n-1\n", "r.csv:2: runtime: \"-1\" is negative"),
        ("runtime\n1\n\"\"\n", "r.csv:3: runtime: no value"),
        ("runtime\ninf\n", "r.csv:2: runtime: \"inf\" is not a number of seconds"),
    ] {
        let error = philly::runtimes(&source("r.csv", text), &options).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn gavel_jobs_become_gangs_with_a_running_time() {
    let table = Throughputs::read(&source("t.json", TABLE), "v100").unwrap();
    let text = "job_type,total_steps,arrival_s,workers\n\
                A3C,8,60,2\nLM (batch size 5),400,0,16\nLM (batch size 5),30,0,3\n";
    let trace = philly::gavel(&source("g.csv", text), &table, 8).unwrap();
    let seen: Vec<_> = trace
        .arrivals
        .iter()
        .map(|a| {
            let count = a.workload.demand.gpus.as_ref().unwrap().count;
            (a.at_ms, a.runs_ms, a.workload.members, count)
        })
        .collect();
    // 16 workers at 20 * 16 / 4 = 80 steps/s; 3 at 10 * 3; 2 at 4 * 2.
    assert_eq!(seen, [(0, Some(5000), 2, 8), (0, Some(1000), 1, 3), (60_000, Some(1000), 1, 2)]);
}

#[test]
fn gavel_without_what_it_needs_is_refused() {
    let table = Throughputs::read(&source("t.json", TABLE), "v100").unwrap();
    let header = "job_type,total_steps,arrival_s,workers\n";
    for (row, expected) in [
        (
            "A3D,8,60,2",
            "g.csv:2: job_type: \"A3D\" is not in the throughput table; give one such as A3C",
        ),
        ("A3C,8,60,0", "g.csv:2: workers: 0 workers do nothing"),
        ("A3C,-8,60,1", "g.csv:2: total_steps: \"-8\" is not a count"),
        ("A3C,8,,1", "g.csv:2: arrival_s: no value"),
    ] {
        let csv = source("g.csv", &format!("{header}{row}\n"));
        let message = philly::gavel(&csv, &table, 8).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    let csv = source("g.csv", &format!("{header}A3C,1,1,1\n"));
    let message = trace::read(&csv, &TraceOptions::default()).unwrap_err().to_string();
    assert!(message.contains("gives steps, not times; name a throughput table"), "{message}");
    for (text, gpu, expected) in [
        (TABLE, "v10", "t.json: has no GPU model \"v10\"; give one of v100"),
        ("{\"v100\": {}}", "v100", "t.json: says nothing usable about v100"),
        ("{\n3}", "v100", "t.json:2: is not a throughput table"),
    ] {
        let message = Throughputs::read(&source("t.json", text), gpu).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn published_philly_files_are_read() {
    let Some(runtimes) = published("philly/philly_runtime.csv.gz") else {
        return;
    };
    let reading = read_trace(&runtimes, &TraceOptions::default()).unwrap();
    assert_eq!((reading.kind, reading.trace.arrivals.len()), (TraceKind::Runtimes, 83_154));
    assert!(reading.notes[0].starts_with("arrivals are made up"), "{:?}", reading.notes);

    let options = TraceOptions {
        throughputs: published("colocation/gavel_simulation_throughputs.json.gz"),
        ..TraceOptions::default()
    };
    for (name, rows) in [("103959", 986), ("0e4a51", 1181), ("ee9e8c", 2000)] {
        let Some(path) = published(&format!("philly/gavel_philly_vc_{name}_seed0.csv.gz")) else {
            return;
        };
        let reading = read_trace(&path, &options).unwrap();
        assert_eq!((reading.kind, reading.trace.arrivals.len()), (TraceKind::Gavel, rows));
        assert!(reading.trace.arrivals.iter().all(|arrival| arrival.runs_ms > Some(0)));
    }
}

#[test]
fn the_kind_is_told_by_header_or_extension() {
    let kind = |name: &str, text: &str| trace::kind(&source(name, text));
    assert_eq!(kind("a.csv", "num_gpu,cpu_milli,name\n"), Ok(TraceKind::Openb));
    assert_eq!(kind("a.txt", "workers,arrival_s\n"), Ok(TraceKind::Gavel));
    assert_eq!(kind("a.csv.gz", "runtime\n"), Ok(TraceKind::Runtimes));
    assert_eq!(kind("a.yml", "workload: []\n"), Ok(TraceKind::Workloads));
    assert_eq!(kind("job", "#!/bin/sh\n"), Ok(TraceKind::Sbatch));
    let message = kind("a.csv", "colour,taste\n").unwrap_err().to_string();
    assert!(message.contains("is of no known kind; give CSV with name,cpu_milli"), "{message}");
    let message = kind("n.csv", "sn,cpu_milli,memory_mib,gpu,model\n").unwrap_err().to_string();
    assert_eq!(message, "n.csv: is an openb node list; give it as the fleet");
}
