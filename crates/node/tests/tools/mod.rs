//! The simulated command-line tools of the driver, built when first asked for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Folder that holds the simulated tools.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let build = Command::new(env!("CARGO")).args(["build", "-q", "-p", "fake-tools"]).status();
        assert!(build.expect("cargo runs").success(), "the simulated tools do not build");
        let tests = std::env::current_exe().expect("this test has a path");
        tests.ancestors().nth(2).expect("target/debug/deps/test").to_path_buf()
    })
}

/// Whether this process is one in which `variable` names no tool; else runs the calling test in such
/// a process.
///
/// * `test` — its name.
pub(crate) fn is_missing(test: &str, variable: &str) -> bool {
    let nowhere = "/nonexistent/tool";
    if std::env::var_os(variable).is_some_and(|named| named == nowhere) {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().expect("this test has a path"));
    again.args([test, "--exact", "--nocapture"]).env(variable, nowhere);
    let output = again.output().expect("the test program runs again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// A fresh, short-named folder for one test; gone when dropped.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    /// * `name` — differs from test to test; short, because sockets lie in it.
    pub(crate) fn new(name: &str) -> Self {
        let temporary = std::env::temp_dir();
        let is_short = temporary.as_os_str().len() <= 30;
        let temporary = if is_short { temporary } else { PathBuf::from("/tmp") };
        let folder = temporary.join(format!("hp-{name}-{}", std::process::id()));
        let _left_over = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder in the temporary directory");
        Self(folder)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
