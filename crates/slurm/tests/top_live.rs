//! `hotpot top --slurm` on a real cluster with hotpot: who holds which GPU, and figures of the node that has an agent.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use fake_machine::Process;
use serde_json::Value;
use slurm_lab::Options;

use support::site::{Site, built};

/// Where n2 is reached, so that its agent is not also that of n1, which is at 127.0.0.1.
const ADDRESS: &str = "127.0.0.2";

/// An agent; gone at the end.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    /// That of n2, and its port.
    fn start(site: &Site, token: &str) -> (Self, String) {
        let env = site.cluster.machine("n2").join("env");
        let line = format!(
            ". {}; exec {} agent --listen {ADDRESS}:0 --token-file {token}",
            env.display(),
            built().join("hotpot").display()
        );
        let mut command = site.cluster.command("sh");
        let mut child = command.args(["-c", &line]).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines().next();
        let agent = Self(child);
        let said = said.unwrap().unwrap();
        let port = said.rsplit_once(':').and_then(|(_, rest)| rest.strip_suffix("/metrics"));
        (agent, port.unwrap_or_else(|| panic!("{said}")).to_owned())
    }
}

fn top(site: &Site, words: &[&str]) -> String {
    let program = built().join("hotpot");
    let line = [&[program.to_str().unwrap(), "top", "--slurm", "--once"], words].concat();
    let output = site.tries(&line);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(site: &Site, words: &[&str]) -> Value {
    serde_json::from_str(&top(site, &[&["--output", "json"], words].concat())).unwrap()
}

/// Numbers of the jobs that hold a GPU.
fn on(json: &Value, node: usize, gpu: usize) -> Vec<&str> {
    let parts = json["nodes"][node]["gpus"][gpu]["parts"].as_array().unwrap();
    parts.iter().map(|part| part["job"]["id"].as_str().unwrap()).collect()
}

#[test]
fn who_holds_what_and_what_agents_measure_is_seen() {
    let test = "who_holds_what_and_what_agents_measure_is_seen";
    let Some(site) = Site::up(test, Options { gpus: 2, ..Options::default() }) else { return };
    site.does(&["scontrol", "update", "nodename=n2", &format!("nodeaddr={ADDRESS}")]);
    let share = site.submit(&["--gpu-mem=20G", "--nodelist=n1", "--job-name=chat"], "sleep 600");
    let whole = site.submit(&["--gres=gpu:1", "--nodelist=n2", "--job-name=train"], "sleep 600");
    site.until_is(&share, &["RUNNING"]);
    site.until_is(&whole, &["RUNNING"]);
    let holder = site.machine("n2").edit(|state| {
        state.gpu_mut(0)?.add(Process::compute(std::process::id(), 20_480).busy(40));
        Ok(())
    });
    holder.unwrap();

    // Without agents: the books alone.
    let seen = json(&site, &[]);
    assert_eq!((&seen["format"], &seen["agents"]), (&"hotpot-top-slurm/1".into(), &Value::Null));
    let names: Vec<&Value> =
        seen["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(names, ["n1", "n2"]);
    assert_eq!((on(&seen, 0, 0), on(&seen, 0, 1)), (vec![share.as_str()], vec![]), "{seen}");
    assert_eq!((on(&seen, 1, 0), on(&seen, 1, 1)), (vec![whole.as_str()], vec![]), "{seen}");
    let (shared, taken) = (&seen["nodes"][0]["gpus"][0], &seen["nodes"][1]["gpus"][0]);
    let shards = shared["parts"][0]["job"]["amount"].as_u64().unwrap();
    assert!((81..90).contains(&shards), "20 GiB and a context in shards of 256 MiB: {shared}");
    assert_eq!(shared["free_bytes"], (317 - shards) << 28, "{shared}");
    assert_eq!(
        (&shared["sharing"], &taken["sharing"]),
        (&"memory-capped".into(), &"exclusive".into())
    );
    assert_eq!(
        (&taken["free_bytes"], &taken["parts"][0]["job"]["name"]),
        (&0.into(), &"train".into())
    );
    assert!(taken["busy_ratio"].is_null() && taken["memory_used_bytes"].is_null(), "{taken}");

    // With the one of n2, which wants a token.
    let token = site.flag("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let (agent, port) = Agent::start(&site, &token);
    let url = format!("http://{{address}}:{port}/metrics");
    let silent = json(&site, &["--agents", &url]);
    assert_eq!(silent["agents"], serde_json::json!({"answered": 0, "of": 2}), "{silent}");
    assert!(silent["nodes"][1]["agent"]["silent"].as_str().unwrap().contains("token"), "{silent}");
    let conf = site.cluster.etc().join("hotpot.conf");
    let said = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{said}Agents={url}\nAgentsToken={token}\n")).unwrap();
    let seen = json(&site, &[]);
    assert_eq!(seen["agents"], serde_json::json!({"answered": 1, "of": 2}), "{seen}");
    let measured = &seen["nodes"][1]["gpus"][0];
    assert_eq!(on(&seen, 1, 0), [whole.as_str()]);
    assert_eq!(measured["memory_used_bytes"], 20_480_u64 << 20, "{measured}");
    assert!((measured["busy_ratio"].as_f64().unwrap() - 0.4).abs() < 1e-9, "{measured}");
    assert_eq!(seen["nodes"][1]["gpus"][1]["memory_used_bytes"], 0, "{seen}");
    let unmeasured = &seen["nodes"][0]["gpus"][0];
    assert!(unmeasured["busy_ratio"].is_null() && unmeasured["memory_used_bytes"].is_null());
    assert_eq!(seen["nodes"][0]["agent"]["silent"], "connection refused", "{seen}");

    // A node that is taken out of use, as text.
    site.does(&["scontrol", "update", "nodename=n1", "state=drain", "reason=fan is loud"]);
    let text = top(&site, &[]);
    eprintln!("{text}");
    let head =
        "2 nodes · 4 GPUs · agents 1 of 2 · 2 shares in use · 0 jobs waiting · 1 node out of use\n";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("drained (fan is loud) · agent: connection refused"), "{text}");
    assert!(text.contains(&format!("{share} root chat")) && text.contains("40 %"), "{text}");
    drop(agent);
    assert_eq!(json(&site, &[])["agents"]["answered"], 0);
}
