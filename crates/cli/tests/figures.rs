//! The same figures in the table, in JSON, in CSV and on the page; and the same bytes every time.

mod support;

use std::fs;

use serde_json::Value;
use support::Place;

const LINE: &str = "simulate jobs.toml --gpus a100-80gb:4 --policy fgd --policy spread \
                    --report r.html --csv s.csv";

fn jobs() -> String {
    let job = |at: usize| {
        let (gpus, runs) = (1 + at % 3, 10 + at * 7 % 50);
        format!(
            "[[workload]]\nname = 'job{at}'\ngpus = {gpus}\ncpus = 2\nruns = '{runs}m'\n\
             submit = '{}m'\n",
            at * 3
        )
    };
    let share = "[[workload]]\nname = 's'\ngpus = 1\ngpu_share = 0.35\ncount = 9\nruns = '3h'\n";
    let never = "[[workload]]\nname = 'never'\ngpus = 5\n";
    (0..20).map(job).collect::<String>() + share + never
}

fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.write("jobs.toml", jobs());
    place
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The first row of the table with that name, as one text per policy.
fn row(table: &str, name: &str) -> Vec<String> {
    let line = table.lines().find(|line| line.starts_with(name)).expect("a row of that name");
    let cells = line[name.len()..].split("  ").map(|cell| cell.trim().trim_end_matches('*'));
    cells.filter(|cell| !cell.is_empty()).map(str::to_string).collect()
}

fn totals(document: &Value, key: &str) -> Vec<f64> {
    let runs = document["runs"].as_array().expect("runs");
    runs.iter().map(|run| run["totals"][key].as_f64().expect("a number")).collect()
}

#[test]
fn table_and_json_agree() {
    let place = place("agree");
    let (table, document) =
        (place.run(LINE).out, json(&place.run(&(LINE.to_string() + " --output json")).out));
    let percent = |value: &f64| format!("{value:.1} %");
    let count = |value: &f64| format!("{value:.0}");
    let hours = |value: &f64| format!("{value:.1} h");
    let shown = |key: &str, show: &dyn Fn(&f64) -> String| -> Vec<String> {
        totals(&document, key).iter().map(show).collect()
    };
    assert_eq!(row(&table, "Allocated at the end"), shown("allocated_pct", &percent));
    assert_eq!(row(&table, "Allocated, time mean"), shown("allocated_mean_pct", &percent));
    assert_eq!(row(&table, "Fragmented at the end"), shown("fragmented_pct", &percent));
    assert_eq!(row(&table, "Arrived"), shown("arrived", &count));
    assert_eq!(row(&table, "Started"), shown("started", &count));
    assert_eq!(row(&table, "Rejected"), shown("rejected", &count));
    assert_eq!(row(&table, "Waiting at the end"), shown("waiting", &count));
    assert_eq!(row(&table, "GPU hours held"), shown("gpu_hours_held", &hours));
    assert_eq!(row(&table, "Rejected"), ["1", "1"], "what can never run is rejected");
}

#[test]
fn figures_add_up() {
    let place = place("sums");
    let document = json(&place.run(&(LINE.to_string() + " --output json")).out);
    let sizes = document["sizes"].as_array().expect("the order of sizes").len();
    for run in document["runs"].as_array().expect("runs") {
        let figure = |key: &str| run["totals"][key].as_u64().expect("a count");
        let by_size = run["totals"]["by_size"].as_array().expect("sizes");
        let sum = |key: &str| {
            by_size.iter().map(|size| size[key].as_u64().expect("a count")).sum::<u64>()
        };
        assert_eq!(by_size.len(), sizes);
        assert_eq!(figure("arrived"), 30);
        assert_eq!(figure("arrived"), figure("started") + figure("rejected") + figure("waiting"));
        assert_eq!(sum("arrived"), figure("arrived"));
        assert_eq!(sum("rejected"), figure("rejected") + figure("waiting"));
    }
}

#[test]
fn the_page_holds_the_json_and_the_csv_its_samples() {
    let place = place("page");
    let document = json(&place.run(&(LINE.to_string() + " --output json")).out);
    let page = fs::read_to_string(place.path("r.html")).expect("a report");
    let (_, rest) = page.split_once("type=\"application/json\"").expect("the data");
    let (_, rest) = rest.split_once('>').expect("the end of the tag");
    let (data, _) = rest.split_once("</script>").expect("the end of the data");
    assert_eq!(json(data), document);
    let table = place.run(LINE).out;
    for name in ["Allocated, time mean", "Wait, mean", "Wait, 95th percentile", "Makespan"] {
        for cell in row(&table, name) {
            assert!(page.contains(&cell), "the page lacks {name}: {cell}");
        }
    }
    let csv = fs::read_to_string(place.path("s.csv")).expect("samples");
    let samples = document["runs"].as_array().expect("runs").iter();
    let samples = samples.map(|run| run["samples"].as_array().expect("samples").len());
    assert_eq!(csv.lines().count(), 1 + samples.sum::<usize>());
}

#[test]
fn the_same_question_gets_the_same_bytes() {
    let place = place("same");
    let lines = [
        "simulate jobs.toml --gpus a100-80gb:4 --policy random --policy hotpot --output json",
        "simulate data/openb/openb_pod_list_default.csv.gz --fill 5 --seed 7 --output json",
        "plan examples/workloads.toml --fleet examples/fleet.toml --output json",
        "explain pretrain examples/workloads.toml --fleet examples/fleet.toml --output json",
    ];
    for line in lines {
        let (first, second) = (place.run(line), place.run(line));
        assert!(!first.out.is_empty(), "{line}: {}", first.err);
        assert_eq!(first.out, second.out, "{line}");
        json(&first.out);
    }
    let other = place
        .run("simulate data/openb/openb_pod_list_default.csv.gz --fill 5 --seed 8 --output json");
    assert_ne!(other.out, place.run(lines[1]).out, "the seed changes nothing");
}

#[test]
fn plan_explain_and_simulate_tell_one_story() {
    let place = place("one-story");
    let plan = json(&place.run("plan jobs.toml --gpus a100-80gb:4 --output json").out);
    let steps = plan["steps"].as_array().expect("steps").iter();
    let started: Vec<u64> = steps.filter_map(|step| step["id"].as_u64()).collect();
    let waiting = plan["waiting"].as_array().expect("waiting");
    assert_eq!(started.len() + waiting.len(), 30);
    for id in [0, 3, 9, 25, 29] {
        let line = format!("explain #{id} jobs.toml --gpus a100-80gb:4 --output json");
        let done = place.run(&line);
        let told = json(&done.out);
        assert_eq!(told["starts"], Value::Bool(started.contains(&id)), "{line}");
        assert_eq!(done.code, i32::from(!started.contains(&id)), "{line}");
        if let Some(waits) = waiting.iter().find(|waits| waits["id"].as_u64() == Some(id)) {
            assert_eq!(told["waits_because"], waits["refusal"], "{line}");
        }
    }
}
