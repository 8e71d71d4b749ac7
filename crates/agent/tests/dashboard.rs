//! A machine with all that can be measured: divided and whole GPUs, tenants of each kind that can be
//! made here, Xids. The dashboard must find in the agent's text all that it asks for.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use fake_machine::{Process, instance_profiles};
use node::live::{LiveRun, LiveShare, LiveTask, folder};
use node::procfs::Procfs;
use serde_json::Value;
use support::{Lab, Sleeper, shipped, value};

/// Not a test: what [`Lab::agent`] runs in a process of its own.
#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn agent_process() {
    support::run_agent();
}

/// The machine and what runs on it: GPU 0 whole, GPU 1 with two MIG devices.
struct World {
    lab: Lab,
    of_run: Sleeper,
    on_mig: Sleeper,
}

impl World {
    fn new(name: &str) -> Self {
        let (lab, of_run, on_mig) = (Lab::new(name, "h100-80gb:2"), Sleeper::new(), Sleeper::new());
        let profile = |name: &str| {
            let all = instance_profiles("h100-80gb");
            all.iter().find(|profile| profile.name == name).expect("a profile").id
        };
        let (small, large) = (profile("1g.10gb"), profile("3g.40gb"));
        lab.edit(|state| {
            state.gpu_mut(0)?.add(Process::compute(of_run.pid(), 4096).busy(60));
            state.gpu_mut(1)?.set_mig(true)?;
            let first = state.create_instance(1, small, Some(6))?;
            state.create_compute(1, first, 0, None)?;
            let second = state.create_instance(1, large, Some(0))?;
            state.create_compute(1, second, 2, None)?;
            state.gpu_mut(1)?.add(Process::compute(on_mig.pid(), 1024).busy(30).on(second, 0));
            state.report_xid(0, 31);
            Ok(())
        });
        let world = Self { lab, of_run, on_mig };
        world.publish();
        world
    }

    /// Publishes the first process as a task of a run.
    fn publish(&self) {
        let start = |pid| Procfs::default().facts(pid).expect("it runs").start_ticks;
        let (pid, own) = (self.of_run.pid(), std::process::id());
        let ledger = self.lab.state().join("ledger");
        std::fs::create_dir_all(self.lab.state()).expect("a state folder");
        let books = caps::Ledger::make(&ledger, 0o600).expect("a ledger");
        let slot = books.join(caps::ProcessId::own()).expect("a row");
        books.reserve(slot, caps::Kind::Pool, 1 << 30, None).expect("no cap");
        // A process has its books open until it ends.
        std::mem::forget(books);
        let share = LiveShare {
            gpu: self.lab.machine.read().gpus[0].uuid.clone(),
            kind: "memory-capped".into(),
            memory_mib: 8192,
            enforcement: "hard".into(),
            compute_milli: 300,
            ledger: Some(ledger),
            ..LiveShare::default()
        };
        let task = LiveTask { task: "7".into(), pid, start_ticks: start(pid), shares: vec![share] };
        let (run, start_ticks, tasks) = ("night".into(), start(own), vec![task]);
        let run = LiveRun { run, pid: own, start_ticks, tasks, ..LiveRun::default() };
        run.publish(&folder(&self.lab.state())).expect("a state folder");
    }

    /// What an agent tells after some time.
    fn text(&self) -> String {
        let agent = self.lab.agent(&[]);
        agent.metrics();
        self.lab.edit(|state| {
            state.report_xid(0, 31);
            Ok(())
        });
        std::thread::sleep(Duration::from_millis(150));
        agent.metrics()
    }
}

#[test]
fn mig_devices_and_tenants_are_told_of() {
    let world = World::new("divided");
    let text = world.text();
    let large = ["gpu=\"1\"", "profile=\"3g.40gb\""];
    assert_eq!(value(&text, "hotpot_mig_memory_used_bytes", &large), Some(1_073_741_824.0));
    assert_eq!(value(&text, "hotpot_mig_sm_active_ratio", &large), Some(0.3));
    let small = ["gpu=\"1\"", "profile=\"1g.10gb\"", "start=\"6\""];
    assert_eq!(value(&text, "hotpot_mig_info", &small), Some(1.0));
    assert_eq!(value(&text, "hotpot_gpu_busy_ratio", &["gpu=\"1\""]), None, "none in MIG mode");
    assert_eq!(value(&text, "hotpot_gpu_mig_enabled", &["gpu=\"1\""]), Some(1.0));
    let run = ["gpu=\"0\"", "tenant_kind=\"run\",tenant=\"night\""];
    assert_eq!(value(&text, "hotpot_tenant_memory_used_bytes", &run), Some(4_294_967_296.0));
    assert_eq!(value(&text, "hotpot_tenant_sm_ratio", &run), Some(0.6));
    let hard = ["gpu=\"0\"", "tenant=\"night\",sharing=\"memory-capped\",enforcement=\"hard\""];
    assert_eq!(value(&text, "hotpot_tenant_shares", &hard), Some(1.0));
    assert_eq!(value(&text, "hotpot_tenant_memory_granted_bytes", &hard), Some(8_589_934_592.0));
    let pool = ["gpu=\"0\"", "tenant=\"night\"", "kind=\"pool\""];
    assert_eq!(value(&text, "hotpot_tenant_memory_booked_bytes", &pool), Some(1_073_741_824.0));
    let on_mig = ["gpu=\"1\"", "gpu_instance="];
    assert_eq!(value(&text, "hotpot_tenant_processes", &on_mig), Some(1.0));
    assert_eq!(value(&text, "hotpot_tenant_sm_ratio", &on_mig), None, "none in MIG mode");
    let dcgm = ["gpu=\"1\"", "GPU_I_PROFILE=\"3g.40gb\""];
    assert_eq!(value(&text, "DCGM_FI_DEV_FB_USED", &dcgm), Some(1024.0));
    drop(world.on_mig);
}

#[test]
fn a_change_of_mig_mode_changes_what_is_told() {
    let lab = Lab::new("mode", "a100-80gb:1");
    let agent = lab.agent(&[]);
    let busy = || value(&agent.metrics(), "hotpot_gpu_busy_ratio", &[]);
    assert_eq!(busy(), Some(0.0));
    for (mig, expected) in [(true, None), (false, Some(0.0)), (true, None)] {
        lab.edit(|state| state.gpu_mut(0)?.set_mig(mig).map(|_| ()));
        assert_eq!(busy(), expected, "MIG mode {mig}");
    }
}

#[test]
fn every_metric_of_the_dashboard_is_in_the_agents_text() {
    let text = World::new("dashboard").text();
    let told: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let board: Value = serde_json::from_str(&shipped("deploy/grafana/hotpot.json")).unwrap();
    let mut queries = Vec::new();
    strings(&board, &mut queries);
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        let asked = metrics_in(&query);
        assert!(!asked.is_empty(), "asks for none of our metrics: {query}");
        for metric in asked {
            assert!(told.contains(metric), "{metric} is not told of, asked for by: {query}");
        }
    }
}

#[test]
fn the_dashboard_has_what_grafana_needs() {
    let board: Value = serde_json::from_str(&shipped("deploy/grafana/hotpot.json")).unwrap();
    assert!(board["uid"].is_string() && board["title"].is_string());
    assert_eq!(board["schemaVersion"], 39);
    let variables = board["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance", "gpu"]);
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 10), "{title}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{title}");
        let queries = panel["targets"].as_array().unwrap();
        assert!(queries.iter().all(|query| query["refId"].is_string()), "{title}");
    }
}

/// Every query of the dashboard: of panels and of variables.
fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value.as_str() {
                    Some(text) if key == "expr" || key == "definition" => {
                        found.push(text.to_string());
                    }
                    _ => strings(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| strings(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The metrics in a query. All of ours begin alike, and no label does.
fn metrics_in(query: &str) -> Vec<&str> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("hotpot_") || word.starts_with("DCGM_")).collect()
}
