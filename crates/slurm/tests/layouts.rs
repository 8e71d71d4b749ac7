//! Nodes of a real cluster go from one layout to another and back while others work.
#![allow(clippy::unwrap_used, reason = "tests")]

mod layout_lab;
mod support;

use std::fs;

use layout_lab::{Lab, said};

/// Work on another node, ten jobs one after the other on each card; each leaves its word.
fn work(lab: &Lab, node: &str) -> Vec<String> {
    let list = format!("--nodelist={node}");
    let one = |number: u32| {
        let script = format!("sleep 1; echo fine >{}/done/{node}-{number}", lab.work.display());
        lab.submit(&[&list, "--gres=gpu:a100:1"], &script)
    };
    (0..12).map(one).collect()
}

fn move_and_back(lab: &Lab, node: &str) {
    let jobs = work(lab, "n2");
    let want = ["apply", "--yes", "--nodes", node, "--want", "1g.10gb=14"];
    let told = lab.fine(&want);
    assert!(told.contains("is done"), "{told}");
    assert_eq!(lab.idle(node), "gpu:1g.10gb:14", "{told}");
    lab.fills(node, "1g.10gb", 0..14);
    lab.fine(&["apply", "--yes", "--nodes", node, "--want", "a100=1,1g.10gb=7"]);
    assert_eq!(lab.idle(node), "gpu:a100:1,gpu:1g.10gb:7,shard:a100:79,shard:1g.10gb:0");
    lab.fills(node, "1g.10gb", 1..8);
    lab.fills(node, "a100", 0..1);
    lab.fine(&["apply", "--undo"]);
    assert_eq!(lab.idle(node), "gpu:1g.10gb:14");
    lab.fine(&["apply", "--yes", "--nodes", node, "--want", "a100=2"]);
    assert_eq!(lab.idle(node), "gpu:a100:2,shard:a100:158");
    lab.fills(node, "a100", 0..2);
    let over = |_: &slurm_lab::Cluster| {
        let states = lab.states();
        jobs.iter().all(|job| states[job] == "COMPLETED").then_some(())
    };
    lab.cluster.until("the others' jobs", over).unwrap();
    let fine = |number: u32| fs::read_to_string(lab.work.join(format!("done/n2-{number}")));
    assert!((0..12).all(|number| fine(number).is_ok_and(|text| text == "fine\n")));
    let states = lab.states();
    assert!(states.values().all(|state| state == "COMPLETED"), "{states:?}");
}

#[test]
fn a_static_node_is_changed_and_back_while_others_work() {
    let test = "a_static_node_is_changed_and_back_while_others_work";
    let Some(lab) = Lab::up(test, 2, 0) else { return };
    let before = fs::read_to_string(lab.cluster.etc().join("slurm.conf")).unwrap();
    move_and_back(&lab, "n1");
    let after = fs::read_to_string(lab.cluster.etc().join("slurm.conf")).unwrap();
    let differs = before.lines().zip(after.lines()).filter(|(one, other)| one != other);
    assert!(differs.count() <= 1 && before.lines().count() == after.lines().count(), "{after}");
}

#[test]
fn a_dynamic_node_is_changed_and_back_while_others_work() {
    let test = "a_dynamic_node_is_changed_and_back_while_others_work";
    let Some(lab) = Lab::up(test, 2, 1) else { return };
    move_and_back(&lab, "d1");
}

#[test]
fn what_the_queue_asks_is_planned_and_a_plan_holds_only_for_what_it_was_made_of() {
    let test = "what_the_queue_asks_is_planned_and_a_plan_holds_only_for_what_it_was_made_of";
    let Some(lab) = Lab::up(test, 3, 0) else { return };
    assert!(lab.fine(&["plan"]).contains("nothing to change"));
    lab.fine(&["apply", "--yes", "--nodes", "n1", "--want", "1g.10gb=7,a100=1"]);
    lab.idle("n1");
    // Seven of them run, two wait.
    let script = format!("while ! [ -e {}/over ]; do sleep 0.1; done", lab.work.display());
    let jobs: Vec<String> =
        (0..9).map(|_| lab.submit(&["--gres=gpu:1g.10gb:1"], &script)).collect();
    let waits = |_: &slurm_lab::Cluster| {
        let states = lab.states();
        (states.values().filter(|state| *state == "RUNNING").count() == 7).then_some(())
    };
    lab.cluster.until("seven jobs", waits).unwrap();
    let text = lab.fine(&["plan", "--output", "json"]);
    let plan: slurm::layout::Plan = serde_json::from_str(&text).unwrap();
    assert_eq!((plan.nodes.len(), plan.nodes[0].node.as_str()), (1, "n2"), "{text}");
    let card = &plan.nodes[0].cards[0];
    assert_eq!((plan.nodes[0].cards.len(), card.becomes.words()), (1, "7 × 1g.10gb".into()));
    let because = format!("9 × 1g.10gb asked by jobs {}, {}, 2 missing", jobs[7], jobs[8]);
    assert!(card.because.starts_with(&because), "{}", card.because);
    fs::write(lab.work.join("plan.json"), text).unwrap();
    lab.fine(&["apply", "plan.json", "--yes"]);
    let runs = |_: &slurm_lab::Cluster| {
        let states = lab.states();
        states.values().all(|state| state == "RUNNING").then_some(())
    };
    lab.cluster.until("all jobs", runs).unwrap();
    let stale = lab.layout(&["apply", "plan.json", "--yes"]);
    assert_eq!(stale.status.code(), Some(1));
    assert!(said(&stale).contains("plan again"), "{}", said(&stale));
    assert!(!lab.node("n2").0.contains("DRAIN"));
    fs::write(lab.work.join("over"), "").unwrap();
}

#[test]
fn several_nodes_are_taken_back_together() {
    let test = "several_nodes_are_taken_back_together";
    let Some(lab) = Lab::up(test, 2, 1) else { return };
    let told = lab.fine(&["apply", "--yes", "--want", "1g.10gb=42"]);
    for node in ["n1", "n2", "d1"] {
        assert_eq!(lab.idle(node), "gpu:1g.10gb:14", "{told}");
    }
    lab.fine(&["apply", "--undo"]);
    for node in ["n1", "n2", "d1"] {
        assert!(lab.idle(node).starts_with("gpu:a100:2,shard"));
        lab.fills(node, "a100", 0..2);
    }
}

#[test]
fn prolog_gives_the_instances_and_epilog_leaves_them() {
    let test = "prolog_gives_the_instances_and_epilog_leaves_them";
    let Some(lab) = Lab::up_as(test, 1, 0, true) else { return };
    let seen = |gres: &str| {
        let file = lab.work.join("done/seen");
        let _ = fs::remove_file(&file);
        let gres = format!("--gres={gres}");
        lab.submit(&[&gres], &format!("echo $CUDA_VISIBLE_DEVICES >{}", file.display()));
        let full = |_: &slurm_lab::Cluster| {
            fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'))
        };
        let text = lab.cluster.until("a job's word", full).unwrap();
        lab.idle("n1");
        text.trim().to_owned()
    };
    // A whole card that hotpot has had, and would put back.
    let whole = seen("gpu:a100:1");
    assert!(whole.starts_with("GPU-"), "{whole}");
    lab.fine(&["apply", "--yes", "--want", "1g.10gb=7,a100=1"]);
    let first = seen("gpu:1g.10gb:1");
    assert!(first.starts_with("MIG-"), "{first}");
    assert_eq!(seen("gpu:1g.10gb:1"), first, "Epilog leaves it");
    assert!(seen("gpu:a100:1").starts_with("GPU-"));
    let rules = fs::read_to_string(lab.cluster.etc().join("hotpot_site.lua")).unwrap();
    assert!(rules.contains("\"1g.10gb\"") && rules.contains("per_node = 1"), "{rules}");
    lab.fine(&["apply", "--yes", "--want", "a100=2"]);
    assert!(seen("gpu:a100:1").starts_with("GPU-"));
}
