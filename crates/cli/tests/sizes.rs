//! Large files: a trace of 100,000 rows, a fleet of 10,000 nodes, 5 MB of TOML. Time grows as they do.

mod support;

use std::time::{Duration, Instant};

use support::Place;

/// For one command in a debug build on a slow machine; each takes about a second on a desk.
const LIMIT: Duration = Duration::from_secs(60);

fn timed(place: &Place, line: &str) -> String {
    let begun = Instant::now();
    let done = place.run(line);
    assert!((0..=1).contains(&done.code), "{line}: {}", done.err);
    assert!(begun.elapsed() < LIMIT, "{line}: {:?}", begun.elapsed());
    done.out
}

fn trace(rows: usize) -> String {
    let row = |at: usize| format!("t{at},4000,8192,1,{},{at},{}\n", 250 << (at % 3), at + 900);
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n";
    head.to_string() + &(0..rows).map(row).collect::<String>()
}

fn fleet(nodes: usize) -> String {
    let gpus = "gpus = [{ model = 'a100-80gb', count = 8 }]";
    let node = |at| format!("[[node]]\nname = 'n{at}'\ncpus = 64\nmemory = '512GiB'\n{gpus}\n");
    (0..nodes).map(node).collect()
}

#[test]
fn a_hundred_thousand_rows() {
    let place = Place::new("rows");
    place.write("tasks.csv", trace(100_000));
    let table = timed(&place, "simulate tasks.csv --gpus a100-80gb:1024 --policy best-fit");
    assert!(table.contains("Arrived                     100,000"), "{table}");
    let plan = timed(&place, "plan tasks.csv --gpus t4:8 --policy best-fit");
    assert!(plan.lines().count() > 10);
}

#[test]
fn ten_thousand_nodes() {
    let place = Place::new("nodes");
    place.write("fleet.toml", fleet(10_000));
    place.write("tasks.csv", trace(2000));
    let told = timed(&place, "explain t1999 tasks.csv --fleet fleet.toml --policy best-fit");
    assert!(told.contains(" of 10000\n"), "{told}");
    timed(&place, "simulate tasks.csv --fleet fleet.toml --policy best-fit");
}

#[test]
fn five_megabytes_of_toml() {
    let place = Place::new("toml");
    let job = |at: usize| {
        let who = format!("name = 'w{at}'\nowner = 'o{}'", at % 50);
        format!("[[workload]]\n{who}\ncpus = 2\ngpus = 1\ngpu_share = '2GiB'\nsubmit = '{at}s'\n")
    };
    let text: String = (0..60_000).map(job).collect();
    assert!(text.len() > 5_000_000);
    place.write("jobs.toml", text + "[[workload]]\nname = 'last'\ngpus = 1\n");
    let told = timed(&place, "explain last jobs.toml --gpus a100-80gb:8 --policy best-fit");
    assert!(told.starts_with("last: 1 whole GPU"), "{told}");
    place.write("bad.toml", "[[workload]]\nname = 'w'\n".repeat(200_000) + "gpus = x\n");
    let done = place.run("plan bad.toml --gpus t4:1");
    assert_eq!(done.code, 2);
    assert!(done.err.contains("bad.toml:400001: is not TOML here"), "{}", done.err);
}
