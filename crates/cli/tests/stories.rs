//! Stories of the command line: each file in `stories/` holds commands, what they print, and how
//! they end.
//!
//! `file NAME` and lines after `> ` make a file; `$ ` gives a line to bash (a failure anywhere in a
//! pipe counts); `| ` is standard output, `! ` standard error, `= ` the exit code.
//! `UPDATE_EXPECT=1 cargo test -p cli --test stories` writes the answers anew; read the diff.

mod support;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use support::Place;

/// Lines of one story, so that a reader sees all of it.
const LINES_MAX: usize = 150;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let entries = fs::read_dir(folder).expect("the folder of stories");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn is_answer(line: &str) -> bool {
    ["| ", "! ", "= "].iter().any(|sign| line.starts_with(sign) || line == sign.trim_end())
}

fn answer(text: &mut String, sign: char, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(text, "{}", format!("{sign} {line}").trim_end());
    }
}

/// The story with the answers that the program gives.
fn told(path: &Path, story: &str) -> String {
    let name = path.file_stem().expect("a story has a name").to_string_lossy();
    let place = Place::new(&format!("story-{name}"));
    let mut text = String::new();
    let mut lines = story.lines().filter(|line| !is_answer(line)).peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(text, "{line}");
        if let Some(name) = line.strip_prefix("file ") {
            let mut contents = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('>')) {
                let _ = writeln!(text, "{line}");
                let _ = writeln!(contents, "{}", line[1..].strip_prefix(' ').unwrap_or_default());
            }
            place.write(name, contents);
        } else if let Some(command) = line.strip_prefix("$ ") {
            let done = place.shell(command);
            answer(&mut text, '|', &done.out);
            answer(&mut text, '!', &done.err);
            answer(&mut text, '=', &done.code.to_string());
        }
    }
    text
}

#[test]
fn the_program_answers_as_written() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for path in files() {
        let written = fs::read_to_string(&path).expect("a story");
        let found = told(&path, &written);
        if update {
            fs::write(&path, &found).expect("a writable story");
        } else if written != found {
            wrong.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "answers differ; UPDATE_EXPECT=1 writes them:\n{}", wrong.join("\n"));
}

#[test]
fn stories_say_their_idea_and_stay_short() {
    for path in files() {
        let text = fs::read_to_string(&path).expect("a story");
        assert!(text.starts_with("# "), "{} does not begin with its idea", path.display());
        assert!(text.lines().count() <= LINES_MAX, "{} is too long", path.display());
        assert!(text.contains("\n$ "), "{} runs nothing", path.display());
    }
}

/// Whatever a story does: usage and input are code 2, a no is 1, and nothing panics or dies.
#[test]
fn every_end_is_one_of_the_three() {
    for path in files() {
        let text = fs::read_to_string(&path).expect("a story");
        for code in text.lines().filter_map(|line| line.strip_prefix("= ")) {
            assert!(["0", "1", "2"].contains(&code), "{}: {code}", path.display());
        }
        assert!(!text.contains("panicked"), "{}", path.display());
    }
}
