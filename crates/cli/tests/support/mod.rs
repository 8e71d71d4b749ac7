//! A folder of one's own for each test, and the program run inside it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_hotpot");

/// A fresh folder that holds `examples` and `data` of the repository; gone when dropped.
pub(crate) struct Place(PathBuf);

impl Place {
    /// * `name` — differs from test to test.
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.join(format!("{name}-{}", std::process::id()));
        let _left_over = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder in the target directory");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for shipped in ["examples", "data"] {
            symlink(root.join(shipped), folder.join(shipped)).expect("a link");
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).expect("a file in the folder");
        path
    }

    /// Names of the files that are not links, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder");
        let entries = entries.map(|entry| entry.expect("an entry"));
        let plain = entries.filter(|entry| !entry.file_type().expect("a type").is_symlink());
        let mut names: Vec<String> =
            plain.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A command in this folder, with nothing of the caller's environment but what it needs.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let here = Path::new(PROGRAM).parent().expect("a program lies in a folder").display();
        command.current_dir(&self.0).env_clear().stdin(Stdio::null());
        command.env("PATH", format!("{here}:/usr/local/bin:/usr/bin:/bin")).env("LC_ALL", "C");
        command
    }

    /// The program, split at blanks.
    pub(crate) fn hotpot(&self, arguments: &str) -> Command {
        let mut command = self.command(PROGRAM);
        command.args(arguments.split_whitespace());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Done {
        Done::of(self.hotpot(arguments).output().expect("the program runs"))
    }

    /// A line of shell in which a failure anywhere in a pipe counts.
    pub(crate) fn shell(&self, line: &str) -> Done {
        let mut command = self.command("bash");
        Done::of(command.args(["-o", "pipefail", "-c", line]).output().expect("bash runs"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// How a command ended. A code below 0 says that a signal ended it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Says that a test cannot be run here, and why.
#[expect(clippy::print_stderr, reason = "whoever reads the test run has to know")]
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
