//! The openb trace: what rows become, what the published files hold, what is refused.

mod support;

use formats::openb::{self, NodeRow};
use formats::trace::{TraceKind, TraceOptions};
use formats::{Source, read_trace};
use model::{Catalogue, Class, GpuAsk, ModeSet, SharingKind, Trace};
use support::{published, source};

const HEADER: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,\
                      deletion_time\n";

fn tasks(rows: &str) -> Result<Trace, String> {
    openb::tasks(&source("tasks.csv", &format!("{HEADER}{rows}"))).map_err(|e| e.to_string())
}

#[test]
fn openb_rows_become_workloads_sorted_by_time() {
    let trace = tasks(
        "late,4000,1024,1,460,T4|P100,LS,20,30\n\
         early,1000,512,0,700,T4,BE,5,\n\
         whole,8000,2048,2,2000,,Guaranteed,20,20\n",
    );
    let arrivals = trace.unwrap().arrivals;
    let names: Vec<_> = arrivals.iter().map(|arrival| arrival.workload.name.as_str()).collect();
    assert_eq!(names, ["early", "late", "whole"]);
    let [early, late, whole] = arrivals.as_slice() else { panic!("three") };
    assert_eq!((early.at_ms, early.runs_ms), (5000, None));
    assert_eq!((early.workload.id.0, early.workload.class), (1, Class::Batch));
    assert_eq!(early.workload.demand.gpus, None);
    assert_eq!(
        (late.at_ms, late.runs_ms, late.workload.class),
        (20_000, Some(10_000), Class::Service)
    );
    let gpus = late.workload.demand.gpus.as_ref().unwrap();
    assert_eq!(gpus.each, GpuAsk::Fraction { compute_milli: 460, memory_mib: 0 });
    assert_eq!(gpus.accepts[0].to_string(), "t4|p100");
    assert_eq!(gpus.modes, ModeSet::ALL);
    let gpus = whole.workload.demand.gpus.as_ref().unwrap();
    assert_eq!((gpus.count, &gpus.each, gpus.accepts.len()), (2, &GpuAsk::Whole, 0));
    assert_eq!(whole.runs_ms, Some(0));
}

#[test]
fn openb_columns_are_found_by_name() {
    let text = "gpu_milli,num_gpu,memory_mib,cpu_milli,name\n250,1,2,3,a\n";
    let trace = openb::tasks(&source("t.csv", text)).unwrap();
    let demand = &trace.arrivals[0].workload.demand;
    assert_eq!((demand.cpu_milli, demand.memory_mib), (3, 2));
    assert_eq!((trace.arrivals[0].at_ms, trace.arrivals[0].runs_ms), (0, None));
}

#[test]
fn openb_rows_that_make_no_sense_are_refused() {
    let cases = [
        ("a,1,1,-2,1,,,,\n", "tasks.csv:2: num_gpu: \"-2\" is not a count; give 0 or more"),
        ("a,1,1,0,0,,,,\nb,,1,0,0,,,,\n", "tasks.csv:3: cpu_milli: no value; give 0 or more"),
        ("a,1,1,1,-1,,,,\n", "tasks.csv:2: gpu_milli: \"-1\" is not a count"),
        ("a,1,1,1,0,,,,\n", "tasks.csv:2: gpu_milli: 0 is no part of a GPU; give 1 to 1000"),
        ("a,99999999999,1,0,0,,,,\n", "cpu_milli: \"99999999999\" is absurdly large"),
        ("a,1,9e99,0,0,,,,\n", "memory_mib: \"9e99\" is not a count"),
        ("a,1,1,256,1,,,,\n", "num_gpu: \"256\" is absurdly large; give at most 255"),
        (",1,1,0,0,,,,\n", "tasks.csv:2: name: no value"),
        ("a,1,1,0,0,,GOLD,,\n", "qos: \"GOLD\" is not a known class of service; known: LS"),
        ("a,1,1,0,0,,,9,8\n", "tasks.csv:2: deletion_time: lies before creation_time"),
        ("a,1,1,0,0,,,-9,8\n", "creation_time: \"-9\" is negative"),
        ("a,1,1,0,0,,,nan,8\n", "creation_time: \"nan\" is not a number of seconds"),
        ("a,1,1\n", "tasks.csv:2: 3 fields, 9 column names"),
        ("", "tasks.csv: has a header and no rows"),
    ];
    for (rows, expected) in cases {
        let message = tasks(rows).unwrap_err();
        assert!(message.contains(expected), "{rows:?}: {message}");
    }
}

#[test]
fn lines_are_counted_over_dos_ends_blank_lines_and_quotes() {
    let bad = "b,1,1,-2,1,,,,";
    for (rows, line) in [
        (format!("a,1,1,0,0,,,,\r\n{bad}\r\n"), 3),
        (format!("\n\na,1,1,0,0,,,,\n\n{bad}\n"), 6),
        (format!("\"a\nb\",1,1,0,0,,,,\n{bad}"), 4),
    ] {
        let message = tasks(&rows).unwrap_err();
        assert!(message.starts_with(&format!("tasks.csv:{line}: num_gpu")), "{rows:?}: {message}");
    }
}

#[test]
fn columns_unknown_missing_or_twice_are_refused() {
    let cases = [
        (
            "name,cpu_milli,memory_mib,num_gpus,gpu_milli\n",
            "num_gpus: not a known column; did you mean num_gpu?",
        ),
        ("name,cpu_milli,memory_mib,num_gpu\n", "gpu_milli: the column is missing"),
        ("name,name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "name: the column is there twice"),
        (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,colour\n",
            "colour: not a known column; remove it; known: name",
        ),
    ];
    for (header, expected) in cases {
        let message = openb::tasks(&source("t.csv", header)).unwrap_err().to_string();
        assert!(message.starts_with(&format!("t.csv:1: {expected}")), "{message}");
    }
}

#[test]
fn openb_nodes_become_a_fleet_in_the_wanted_order() {
    let text = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,96000,786432,8,G2\n";
    let rows = openb::node_rows(&source("n.csv", text)).unwrap();
    let mut catalogue = Catalogue::shipped().unwrap();
    let fleet = openb::fleet(&openb::reorder(&rows, &[1, 0]).unwrap(), &mut catalogue);
    let names: Vec<_> = fleet.nodes().iter().map(|node| node.name()).collect();
    assert_eq!((names.as_slice(), fleet.gpu_count()), (["n1", "n0"].as_slice(), 8));
    let gpu = &fleet.nodes()[0].gpus()[0];
    assert_eq!((gpu.model().name.as_str(), gpu.model().memory_mib), ("g2", 0));
    assert_eq!(gpu.offers(), ModeSet::of(&[SharingKind::Exclusive, SharingKind::MemoryCapped]));
    for order in [[0, 0], [0, 2]] {
        assert!(openb::reorder(&rows, &order).unwrap_err().to_string().contains("node position"));
    }
    let none = "sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,1,\n";
    let message = openb::node_rows(&source("n.csv", none)).unwrap_err().to_string();
    assert!(message.starts_with("n.csv:2: model: no value"), "{message}");
}

#[test]
fn published_openb_files_hold_what_their_readme_says() {
    let Some(nodes) = published("openb/openb_node_list_gpu_node.csv.gz") else {
        return;
    };
    let rows = openb::node_rows(&Source::open(&nodes).unwrap()).unwrap();
    let fleet = openb::fleet(&rows, &mut Catalogue::shipped().unwrap());
    assert_eq!((rows.len(), fleet.gpu_count(), fleet.cpu_milli()), (1213, 6212, 107_018_000));
    let with_model = |name: &str| rows.iter().filter(|row: &&NodeRow| row.model == name).count();
    assert_eq!((with_model("G2"), with_model("T4"), with_model("A10")), (549, 404, 2));

    let Some(path) = published("openb/openb_pod_list_default.csv.gz") else {
        return;
    };
    let reading = read_trace(&path, &TraceOptions::default()).unwrap();
    let arrivals = &reading.trace.arrivals;
    assert_eq!((reading.kind, arrivals.len()), (TraceKind::Openb, 8152));
    assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_ms));
    let demands = || arrivals.iter().map(|arrival| &arrival.workload.demand);
    assert_eq!(demands().map(|demand| demand.cpu_milli).sum::<u64>() / 1000, 85_436);
    assert_eq!(demands().map(|demand| demand.gpu_milli()).sum::<u64>() / 100, 60_868);
    assert_eq!(demands().filter(|demand| demand.gpus.is_none()).count(), 1088);
}

#[test]
fn every_published_openb_task_list_is_read() {
    let Some(folder) = published("openb") else {
        return;
    };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("pod_list") {
            let reading = read_trace(&path, &TraceOptions::default()).unwrap();
            assert!(reading.trace.arrivals.len() > 7000, "{}", path.display());
        }
    }
}
