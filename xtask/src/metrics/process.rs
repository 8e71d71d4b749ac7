//! An agent in a process of its own: scraping it, and what it costs as the kernel counts.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running agent; ended when dropped.
pub(crate) struct Agent {
    child: Child,
    address: String,
}

/// What a process has used and holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    pub(crate) resident_kib: u64,
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
}

impl Agent {
    /// Starts it and reads from its log where it listens.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start the agent: {error}"))?;
        let mut line = String::new();
        let log = child.stderr.take().ok_or("the agent has no log")?;
        let read = BufReader::new(log).read_line(&mut line);
        read.map_err(|error| format!("the agent's log: {error}"))?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        let address = address.map(|(address, _)| address.to_string());
        let address = address.ok_or_else(|| format!("the agent does not listen: {line}"))?;
        Ok(Self { child, address })
    }

    /// One scrape over a connection of its own.
    pub(crate) fn scrape(&mut self, accept: &str) -> Result<String, String> {
        let text = self.get(accept).map_err(|error| format!("a scrape failed: {error}"))?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without a head")?;
        if head.starts_with("HTTP/1.1 200 ") && body.contains("\nhotpot_up 1\n") {
            return Ok(body.to_string());
        }
        Err(format!("a scrape failed:\n{text}"))
    }

    fn get(&self, accept: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// What it has cost so far.
    pub(crate) fn cost(&self) -> Result<Cost, String> {
        let folder = format!("/proc/{}", self.child.id());
        let read =
            |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let status = read(&format!("{folder}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let entries = |what: &str| fs::read_dir(format!("{folder}/{what}")).into_iter().flatten();
        let threads: Vec<_> = entries("task").flatten().map(|entry| entry.path()).collect();
        let mut cpu = Duration::ZERO;
        for thread in &threads {
            // Time on a core in ns stands first (kernel documentation, sched-stats).
            let stat = read(&format!("{}/schedstat", thread.display()))?;
            let on_core = stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            cpu += Duration::from_nanos(on_core);
        }
        Ok(Cost {
            cpu,
            resident_kib: resident.ok_or("no VmRSS")?,
            threads: threads.len(),
            descriptors: entries("fd").count(),
        })
    }
}

/// Processes that only wait, to stand for tenants; ended when dropped.
pub(crate) struct Sleepers(Vec<Child>);

impl Sleepers {
    /// Starts so many.
    pub(crate) fn start(count: usize) -> Result<Self, String> {
        let mut started = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let sleeper = Command::new("sleep").arg("3600").stdout(Stdio::null()).spawn();
            started.0.push(sleeper.map_err(|error| format!("cannot run sleep: {error}"))?);
        }
        Ok(started)
    }

    /// Their process numbers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for sleeper in &mut self.0 {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
