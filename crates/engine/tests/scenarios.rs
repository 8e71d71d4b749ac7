//! Stories of the engine: each file in `scenarios/` holds a scenario and the plan that it gets.
//!
//! `UPDATE_EXPECT=1 cargo test -p engine --test scenarios` writes the plans anew; read the diff.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "support/attributes.rs"]
mod attributes;
#[path = "support/print.rs"]
mod print;
#[path = "support/scenario.rs"]
mod scenario;
#[path = "support/words.rs"]
mod words;

use engine::plan;
use model::{Placement, Policy, Seat, WorkloadId};
use scenario::Scenario;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(folder).expect("the folder of scenarios");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn story(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a scenario file");
    text.split("\n---\n").next().unwrap_or(&text).trim_end().to_owned()
}

#[test]
fn plans_are_as_written() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for path in files() {
        let story = story(&path);
        let found = format!("{story}\n---\n{}", print::outcome(&scenario::read(&story)));
        if update {
            fs::write(&path, &found).expect("a writable scenario file");
        } else if fs::read_to_string(&path).expect("a scenario file") != found {
            wrong.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "plans differ; UPDATE_EXPECT=1 writes them:\n{}", wrong.join("\n"));
}

#[test]
fn files_say_their_idea_and_stay_short() {
    for path in files() {
        let text = fs::read_to_string(&path).expect("a scenario file");
        assert!(text.starts_with("# "), "{} does not begin with its idea", path.display());
        assert!(text.lines().count() <= 60, "{} is too long", path.display());
    }
}

/// For any two policies there is a story in which they do different things.
#[test]
fn policies_are_told_apart() {
    let stories = Placement::NAMES.map(|name| {
        let file = format!("tests/scenarios/policy_{}.txt", name.replace('-', "_"));
        let scenario = scenario::read(&story(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)));
        assert_eq!(scenario.policy.placement.name(), name);
        scenario
    });
    for (at, one) in Placement::NAMES.into_iter().enumerate() {
        for other in &Placement::NAMES[..at] {
            let differ = |story: &Scenario| under(story, one) != under(story, other);
            assert!(stories.iter().any(differ), "{one} and {other} always do the same");
        }
    }
}

/// Who sits where under another policy.
fn under(scenario: &Scenario, name: &str) -> Vec<(WorkloadId, Vec<Seat>)> {
    let placement = Placement::parse(name).expect("a policy's own name");
    let policy = Policy { placement, ..scenario.policy.clone() };
    print::places(&plan(&scenario.snapshot, &policy))
}
