//! What several tests need: sources from text, the shipped examples, the published traces.
#![allow(dead_code, reason = "each test file takes the part that it needs")]

use std::path::{Path, PathBuf};

use formats::Source;

/// A source of the given name and text.
pub(crate) fn source(name: &str, text: &str) -> Source {
    Source::from_bytes(name, text.as_bytes().to_vec()).expect("a readable source")
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `examples/`.
pub(crate) fn example(name: &str) -> Source {
    Source::open(&root().join("examples").join(name)).expect("a shipped example")
}

/// A file of the published traces: below `HOTPOT_TRACES`, or `../shared/traces` beside the
/// repository. Says so and gives `None` where there is none.
#[allow(clippy::print_stdout, reason = "the note belongs into the test log")]
pub(crate) fn published(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("HOTPOT_TRACES").map(PathBuf::from);
    let path = folder.unwrap_or_else(|| root().join("../shared/traces")).join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not here; set HOTPOT_TRACES", path.display());
    None
}

/// Expects each text to be refused with a message that begins as stated.
pub(crate) fn refused<T: std::fmt::Debug>(
    read: impl Fn(&str) -> Result<T, String>,
    cases: &[(&str, &str)],
) {
    for (text, expected) in cases {
        let message = read(text).expect_err(text);
        assert!(message.starts_with(expected), "{text}\n{message}");
    }
}
