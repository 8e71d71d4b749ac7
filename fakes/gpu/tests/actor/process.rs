//! A process that does as a test tells it. The test program starts itself again; the copy reads commands and
//! answers each with a number.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use fake_machine::MACHINE_VARIABLE;

/// A process that does as it is told, and that does not outlive the test.
pub(crate) struct Actor {
    child: Child,
    answers: BufReader<ChildStderr>,
}

impl Actor {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "acting_process", "--ignored", "--nocapture"])
            .env(MACHINE_VARIABLE, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stderr.take().unwrap());
        let mut actor = Self { child, answers };
        assert_eq!(actor.ask("hello"), 0);
        actor
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says what to do without waiting for it.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Has something done, and returns the answer.
    pub(crate) fn ask(&mut self, command: &str) -> u64 {
        self.tell(command);
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> u64 {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the process has ended");
            if let Some(number) = line.trim().strip_prefix("= ") {
                return number.parse().unwrap();
            }
        }
    }

    /// Ends it as SIGKILL does; it is a zombie until this is dropped.
    #[allow(dead_code, reason = "each test program uses a part")]
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        let stat = format!("/proc/{}/stat", self.pid());
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::yield_now();
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the copy: has commands carried out until its input ends. Each is a verb and numbers.
pub(crate) fn obey(mut carry_out: impl FnMut(&str, &[u64]) -> u64) {
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
        let answer = if verb == "hello" { 0 } else { carry_out(verb, &numbers) };
        eprintln!("= {answer}");
    }
}
