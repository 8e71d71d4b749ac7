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

/// A fresh, short-named folder for one test; gone when dropped.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    /// * `name` — differs from test to test; short, because sockets lie in it.
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("hp-{name}-{}", std::process::id()));
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
