//! Starting clients as tenants: with a caps file, books and the limiter, or without.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use caps::turns::Board;
use caps::{Account, Caps, ComputeCap, GpuCaps, Ledger, Mapped, Which};

use super::bench::Bench;

/// Where a process of the limiter says what it does.
const LOG_VARIABLE: &str = "HOTPOT_LIMITER_LOG";

/// A tenant: its caps file and books, in a folder of its own.
pub(crate) struct Tenant {
    folder: PathBuf,
    /// File, and books of the bench's GPU.
    caps: Option<(PathBuf, PathBuf)>,
}

impl Tenant {
    /// Without caps, and without the limiter.
    pub(crate) fn free(bench: &Bench, name: &str) -> Result<Self, String> {
        let folder = bench.folder.join(name);
        let _left_over = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, caps: None })
    }

    /// With caps on the bench's GPU.
    pub(crate) fn capped(
        bench: &Bench,
        name: &str,
        memory_bytes: Option<u64>,
        compute: Option<ComputeCap>,
    ) -> Result<Self, String> {
        Self::capped_on(bench, name, std::slice::from_ref(&bench.gpu.uuid), memory_bytes, compute)
    }

    /// With the same caps on several GPUs.
    ///
    /// * `uuids` — of the GPUs, with the word before each.
    pub(crate) fn capped_on(
        bench: &Bench,
        name: &str,
        uuids: &[String],
        memory_bytes: Option<u64>,
        compute: Option<ComputeCap>,
    ) -> Result<Self, String> {
        let mut tenant = Self::free(bench, name)?;
        let text = |error: std::io::Error| format!("{}: {error}", tenant.folder.display());
        let books = |uuid: &str| tenant.folder.join(format!("{uuid}.ledger"));
        let mut gpus = Vec::new();
        for uuid in uuids {
            Ledger::make(&books(uuid), 0o600).map_err(text)?;
            let board = compute.map(|_| bench.board(uuid));
            if let Some(board) = &board {
                Mapped::<Board>::make(board, 0o600).map_err(text)?;
            }
            gpus.push(GpuCaps {
                gpu: Which::Uuid(uuid.clone()),
                memory_bytes,
                context_bytes: None,
                compute,
                ledger: books(uuid),
                board,
            });
        }
        let caps = Caps { tenant: name.to_string(), gpus, closed: true };
        let path = tenant.folder.join("caps");
        fs::write(&path, caps.render()).map_err(text)?;
        let own = books(&bench.gpu.uuid);
        tenant.caps = Some((path, own));
        Ok(tenant)
    }

    /// What it holds and has had on the bench's GPU, by its books; nothing without caps.
    pub(crate) fn account(&self) -> Result<Account, String> {
        let Some((_, books)) = &self.caps else { return Ok(Account::default()) };
        Account::read(books).map_err(|error| format!("{}: {error}", books.display()))
    }

    /// Lets a program run as a process of the tenant.
    pub(crate) fn on<'a>(&self, bench: &Bench, command: &'a mut Command) -> &'a mut Command {
        command.env_remove("LD_PRELOAD").env_remove(caps::LIST_VARIABLE);
        command.envs(bench.environment.iter().map(|(name, value)| (name, value)));
        if let Some((caps, _)) = &self.caps {
            command.env("LD_PRELOAD", &bench.limiter).env(caps::LIST_VARIABLE, caps);
            command.env(LOG_VARIABLE, self.log());
        }
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.join("limiter.log")
    }

    /// Starts a client.
    ///
    /// * `words` — what it is to do, and what about.
    pub(crate) fn start(&self, bench: &Bench, words: &[String]) -> Result<Client, String> {
        let mut command = Command::new(&bench.program);
        command.arg("gpu-client").args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let errors = self.folder.join("errors");
        let file = fs::File::create(&errors).map_err(|error| error.to_string())?;
        command.stderr(file);
        self.on(bench, &mut command);
        Client::start(&mut command, [errors, self.log()])
    }
}

/// A client that runs. Ended when dropped.
pub(crate) struct Client {
    child: Child,
    lines: Receiver<String>,
    said: BTreeMap<String, String>,
    /// Where it and its limiter complain.
    complaints: [PathBuf; 2],
}

impl Client {
    fn start(command: &mut Command, complaints: [PathBuf; 2]) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| format!("a client: {error}"))?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // Ends with the client's output.
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { child, lines, said: BTreeMap::new(), complaints })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the client says that it has come to a point, or has ended.
    ///
    /// # Errors
    /// It ended before, or the part's time is over.
    pub(crate) fn until(&mut self, bench: &Bench, point: &str) -> Result<(), String> {
        loop {
            match self.lines.recv_timeout(bench.left()) {
                Ok(line) => {
                    let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
                    let there = name == point;
                    self.said.insert(name.to_string(), value.to_string());
                    if there {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("a client was not `{point}` in time"));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.why(point)),
            }
        }
    }

    /// Lets it go on from where it waits.
    pub(crate) fn go_on(&mut self, line: &str) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("a client without input")?;
        writeln!(input, "{line}").map_err(|error| format!("a client is gone: {error}"))
    }

    /// What it has said of something, last.
    pub(crate) fn text(&self, name: &str) -> Result<&str, String> {
        self.said.get(name).map(String::as_str).ok_or_else(|| format!("a client said no `{name}`"))
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("a client said `{name} {text}`"))
    }

    pub(crate) fn bytes(&self, name: &str) -> Result<u64, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("a client said `{name} {text}`"))
    }

    /// All that it has said of things whose names begin so: the rest of the name, and the value.
    pub(crate) fn all(&self, prefix: &str) -> Vec<(&str, &str)> {
        let named = self.said.iter().filter_map(|(name, value)| {
            name.strip_prefix(prefix).map(|rest| (rest, value.as_str()))
        });
        named.collect()
    }

    /// Lets it run to its end.
    pub(crate) fn end(mut self, bench: &Bench) -> Result<Self, String> {
        drop(self.child.stdin.take());
        while let Ok(line) = self.lines.recv_timeout(bench.left()) {
            let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
            self.said.insert(name.to_string(), value.to_string());
        }
        Ok(self)
    }

    /// Why it ended too early: its own words, and those of its limiter.
    fn why(&mut self, point: &str) -> String {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let tail = |path: &Path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(5).collect();
            last.into_iter().rev().collect::<Vec<_>>().join("; ")
        };
        let words = self.complaints.each_ref().map(|path| tail(path)).join("; ");
        format!("a client ended ({status}) before it was `{point}`: {words}")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Words for a client, from names and values.
pub(crate) fn words(what: &str, pairs: &[(&str, &dyn std::fmt::Display)]) -> Vec<String> {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    std::iter::once(what.to_string()).chain(pairs).collect()
}
