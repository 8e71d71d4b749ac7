//! Changes of layout while something goes wrong: whatever it is, each node ends in one of the two layouts and takes
//! jobs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod layout_lab;
mod support;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use layout_lab::{Lab, said};
use slurm_lab::Cluster;

const SMALL: &str = "gpu:1g.10gb:14";
/// Lines of a journal of one node that goes forward: plan, nine steps, done, end.
const LINES: usize = 12;

/// Whole cards, with however many shards.
fn is_whole(gres: &str) -> bool {
    gres.starts_with("gpu:a100:2,shard")
}

/// Number of the newest journal, and its lines.
fn journal(lab: &Lab) -> (u32, Vec<String>) {
    let entries =
        fs::read_dir(lab.work.join("state/slurm-layouts")).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_suffix(".jsonl")?.parse::<u32>().ok();
    let newest = entries
        .filter_map(|entry| Some((number(&entry.file_name().into_string().ok()?)?, entry.path())));
    newest.max().map_or((0, Vec::new()), |(number, path)| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        (number, whole.lines().map(str::to_owned).collect())
    })
}

/// Begins a change and kills it once that journal has so many lines; whether the kill came in time.
fn killed_after(lab: &Lab, words: &[&str], (number, count): (u32, usize)) -> bool {
    let mut command = lab.command(words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has_come = || {
        let (newest, lines) = journal(lab);
        (newest, lines.len()) >= (number, count)
    };
    while !has_come() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    child.wait().unwrap();
    // On a busy machine it may have come to its end in between.
    journal(lab).1.last().is_some_and(|line| !line.contains("\"step\":\"end\""))
}

/// Kills changes there and back after each line of the journal; one is taken back, the next gone on with.
fn killed_everywhere(lab: &Lab, node: &str) {
    let mut kills = 0;
    for count in 1..LINES {
        let before = lab.idle(node);
        let want = if is_whole(&before) { "1g.10gb=14" } else { "a100=2" };
        let words = ["apply", "--yes", "--nodes", node, "--want", want];
        for end in ["--undo", "--resume"] {
            let next = journal(lab).0 + 1;
            if killed_after(lab, &words, (next, count)) {
                kills += 1;
                let early = lab.layout(&words);
                assert!(!early.status.success() && said(&early).contains("is not finished"));
            } else if end == "--resume" {
                continue;
            }
            let told = lab.fine(&["apply", end]);
            let (there, back) = (is_whole(&lab.idle(node)), is_whole(&before));
            assert_eq!(there == back, end == "--undo", "{end} after line {count}: {told}");
        }
        match is_whole(&lab.idle(node)) {
            true => lab.fills(node, "a100", 0..2),
            false => lab.fills(node, "1g.10gb", 0..2),
        }
    }
    assert!(kills >= LINES, "{kills} kills came in time");
}

#[test]
fn a_static_node_gets_over_kills_at_each_step() {
    let test = "a_static_node_gets_over_kills_at_each_step";
    let Some(lab) = Lab::up(test, 1, 0) else { return };
    killed_everywhere(&lab, "n1");
}

#[test]
fn a_dynamic_node_gets_over_kills_at_each_step() {
    let test = "a_dynamic_node_gets_over_kills_at_each_step";
    let Some(lab) = Lab::up(test, 1, 1) else { return };
    killed_everywhere(&lab, "d1");
}

#[test]
fn kills_on_the_way_back_are_got_over_too() {
    let test = "kills_on_the_way_back_are_got_over_too";
    let Some(lab) = Lab::up(test, 1, 0) else { return };
    let words = ["apply", "--yes", "--nodes", "n1", "--want", "1g.10gb=14"];
    lab.fine(&words);
    // The way forward stands in the same journal, then `undo`, eight steps, done and end.
    let mut kills = 0;
    for count in LINES + 1..LINES + 10 {
        let same = journal(&lab).0;
        if killed_after(&lab, &["apply", "--undo"], (same, count)) {
            kills += 1;
            let told = lab.fine(&["apply", "--resume"]);
            assert!(told.contains("is taken back"), "{told}");
        }
        assert!(is_whole(&lab.idle("n1")), "after line {count}");
        lab.fills("n1", "a100", 0..2);
        lab.fine(&words);
        assert_eq!(lab.idle("n1"), SMALL);
    }
    assert!(kills >= 6, "{kills} kills came in time");
}

#[test]
fn jobs_on_the_node_are_waited_for() {
    let test = "jobs_on_the_node_are_waited_for";
    let Some(lab) = Lab::up(test, 1, 0) else { return };
    let hold = lab.work.join("stay");
    fs::write(&hold, "").unwrap();
    let script = format!(
        "while [ -e {} ]; do sleep 0.1; done; echo fine >{}/done/stays",
        hold.display(),
        lab.work.display()
    );
    let job = lab.submit(&["--gres=gpu:a100:1"], &script);
    let runs = |_: &Cluster| (lab.states()[&job] == "RUNNING").then_some(());
    lab.cluster.until("the job to run", runs).unwrap();
    let words = ["apply", "--yes", "--nodes", "n1", "--want", "1g.10gb=14"];
    let limited = lab.layout(&[&words[..], &["--wait", "0:01"]].concat());
    assert_eq!(limited.status.code(), Some(1), "{}", said(&limited));
    assert!(said(&limited).contains("have not ended in 1 s"), "{}", said(&limited));
    let (state, gres) = lab.node("n1");
    assert!(!state.contains("DRAIN") && is_whole(&gres), "{state} {gres}");
    let child = lab.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let drains = |_: &Cluster| lab.node("n1").0.contains("DRAIN").then_some(());
    lab.cluster.until("the node to drain", drains).unwrap();
    assert_eq!(lab.states()[&job], "RUNNING");
    fs::remove_file(&hold).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(lab.idle("n1"), SMALL);
    assert_eq!(fs::read_to_string(lab.work.join("done/stays")).unwrap(), "fine\n");
    assert_eq!(lab.states()[&job], "COMPLETED");
}

/// Takes a node out of use as an administrator would.
fn drain(lab: &Lab, node: &str) {
    let name = format!("nodename={node}");
    lab.cluster.run(&["scontrol", "update", &name, "state=drain", "reason=bad fan"]).unwrap();
}

/// Whether it is out of use for that reason, and not for ours.
fn is_theirs(lab: &Lab, node: &str) -> bool {
    let text = lab.cluster.run(&["scontrol", "show", "node", "-o", node]).unwrap();
    lab.node(node).0.contains("DRAIN") && text.contains("Reason=bad fan [")
}

fn put_in_use(lab: &Lab, node: &str) {
    let name = format!("nodename={node}");
    lab.cluster.run(&["scontrol", "update", &name, "state=resume"]).unwrap();
    lab.idle(node);
}

#[test]
fn a_node_that_somebody_drains_meanwhile_stays_theirs() {
    let test = "a_node_that_somebody_drains_meanwhile_stays_theirs";
    let Some(lab) = Lab::up(test, 1, 1) else { return };
    let hold = lab.work.join("stay");
    fs::write(&hold, "").unwrap();
    let script = format!("while [ -e {} ]; do sleep 0.1; done", hold.display());
    let job = lab.submit(&["--nodelist=n1", "--gres=gpu:a100:1"], &script);
    let runs = |_: &Cluster| (lab.states()[&job] == "RUNNING").then_some(());
    lab.cluster.until("the job to run", runs).unwrap();
    let words = |node| ["apply", "--yes", "--nodes", node, "--want", "1g.10gb=14"];
    let mut command = lab.command(&words("n1"));
    command.args(["--wait", "1:00"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let drains = |_: &Cluster| lab.node("n1").0.contains("DRAIN").then_some(());
    lab.cluster.until("the node to drain", drains).unwrap();
    drain(&lab, "n1");
    let told = said(&child.wait_with_output().unwrap());
    assert!(told.contains("bad fan") && told.contains("n1 is as it was"), "{told}");
    assert!(is_theirs(&lab, "n1") && is_whole(&lab.node("n1").1), "{told}");
    fs::remove_file(&hold).unwrap();
    // One that registers itself would be in use again.
    lab.fine(&words("d1"));
    drain(&lab, "d1");
    let told = said(&lab.layout(&["apply", "--undo"]));
    assert!(told.contains("lost when it registers anew") && is_theirs(&lab, "d1"), "{told}");
    put_in_use(&lab, "d1");
    lab.fine(&["apply", "--resume"]);
    assert!(is_whole(&lab.idle("d1")));
    put_in_use(&lab, "n1");
    lab.fine(&words("n1"));
    drain(&lab, "n1");
    let told = lab.fine(&["apply", "--undo"]);
    assert!(told.contains("stays IDLE+DRAIN, as somebody else has it (bad fan"), "{told}");
    assert!(is_theirs(&lab, "n1") && is_whole(&lab.node("n1").1), "{told}");
}

#[test]
fn a_node_that_does_not_come_back_is_as_it_was() {
    let test = "a_node_that_does_not_come_back_is_as_it_was";
    let Some(lab) = Lab::up(test, 1, 1) else { return };
    let conf = lab.cluster.etc().join("hotpot.conf");
    let well = fs::read_to_string(&conf).unwrap();
    // slurmd starts with whole cards only.
    let broken = lab.work.join("start-slurmd");
    let daemon = lab.cluster.etc().join("hotpot-daemon");
    let text = format!(
        "#!/bin/sh\ngrep -q \"NodeName=$1 .*MultipleFiles\" {0}/gres.conf {0}/$1/gres.conf 2>/dev/null && exit \
         ${{FAILS:-0}}\nexec {1} start slurmd.$1\n",
        lab.cluster.etc().display(),
        daemon.display()
    );
    fs::write(&broken, text).unwrap();
    let run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&broken, run).unwrap();
    let start = format!("StartSlurmd={} {{node}}\n", broken.display());
    fs::write(&conf, format!("{well}{start}")).unwrap();
    for node in ["n1", "d1"] {
        for fails in ["0", "3"] {
            let words = ["apply", "--yes", "--nodes", node, "--want", "1g.10gb=14"];
            let mut command = lab.command(&words);
            let output = command.args(["--back-within", "5"]).env("FAILS", fails).output().unwrap();
            let told = said(&output);
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(told.contains(&format!("{node} is as it was")), "{told}");
            assert!(is_whole(&lab.idle(node)), "{told}");
            lab.fills(node, "a100", 0..2);
        }
    }
}

#[test]
fn a_node_that_cannot_be_reached_does_not_stop_the_others() {
    let test = "a_node_that_cannot_be_reached_does_not_stop_the_others";
    let Some(lab) = Lab::up(test, 2, 0) else { return };
    let etc = lab.cluster.etc();
    let conf = fs::read_to_string(etc.join("hotpot.conf")).unwrap();
    let (cut, remote) = (lab.work.join("cut"), lab.work.join("remote"));
    // The line breaks once slurmctld is stopped, at the worst moment.
    let text = format!(
        "#!/bin/sh\nif [ -e {0} ]; then scontrol ping | grep -q UP || echo >{0}; [ -s {0} ] && exit 255; fi\n\
         exec {1}/hotpot-remote \"$@\"\n",
        cut.display(),
        etc.display()
    );
    fs::write(&remote, text).unwrap();
    fs::set_permissions(&remote, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let line = format!("Remote={} {{node}}\n", remote.display());
    fs::write(etc.join("hotpot.conf"), conf + &line).unwrap();
    fs::write(&cut, "").unwrap();
    let hold = lab.work.join("stay");
    fs::write(&hold, "").unwrap();
    let script = format!("while [ -e {} ]; do sleep 0.1; done", hold.display());
    let other = lab.submit(&["--nodelist=n2", "--gres=gpu:a100:1"], &script);
    let output = lab.layout(&["apply", "--yes", "--nodes", "n1", "--want", "1g.10gb=14"]);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--resume"), "{told}");
    let answers = |it: &Cluster| it.run(&["scontrol", "ping"]).ok().filter(|it| it.contains(" UP"));
    lab.cluster.until("slurmctld", answers).unwrap();
    lab.fills("n2", "a100", 1..2);
    assert_eq!(lab.states()[&other], "RUNNING");
    fs::remove_file(&cut).unwrap();
    let output = lab.layout(&["apply", "--resume"]);
    assert!(said(&output).contains("n1 is as it was"), "{}", said(&output));
    assert!(is_whole(&lab.idle("n1")));
    lab.fills("n1", "a100", 0..2);
    fs::remove_file(&hold).unwrap();
}
