//! A program that uses a GPU, as a tenant does: this command started again with the hidden verb
//! `gpu-client`. What it finds it prints as lines `name value`; it waits where its starter tells it to.

mod compute;
mod memory;
mod price;
mod task;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::driver::{Cuda, Lookup, Monitor};
use crate::Verdict;

/// What the starter asks for, as words `name=value`.
pub(super) struct Ask(BTreeMap<String, String>);

impl Ask {
    fn text(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("`{name}=` is missing"))
    }

    fn get<T: FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("`{name}={text}` is not understood"))
    }

    fn or<T: FromStr>(&self, name: &str, usual: T) -> Result<T, String> {
        if self.0.contains_key(name) { self.get(name) } else { Ok(usual) }
    }

    fn lookup(&self) -> Lookup {
        match self.0.get("lookup").map(String::as_str) {
            Some("driver") => Lookup::ProcAddress,
            _ => Lookup::Dlsym,
        }
    }
}

pub(crate) fn run(words: &[&str]) -> Verdict {
    let (what, words) = words.split_first().ok_or("say what the client is to do")?;
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    let ask = Ask(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect());
    match *what {
        "about" => about(&ask),
        "see" => see(&ask),
        "idle" => idle(&ask),
        "hold" => hold(&ask),
        "allocate" => memory::run(&ask),
        "calibrate" => compute::calibrate(&ask),
        "work" => compute::work(&ask),
        "answer" => compute::answer(&ask),
        "watch" => compute::watch(&ask),
        "price" => price::run(&ask),
        "task" => task::run(&ask),
        other => Err(format!("no client does `{other}`")),
    }
}

/// Prints a line for the starter.
fn say(name: &str, value: impl std::fmt::Display) {
    println!("{name} {value}");
    let _ = std::io::stdout().flush();
}

/// Tells the starter how far it is, and waits until that writes a line; what that says.
fn wait_at(point: &str) -> Result<String, String> {
    say(point, 0);
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read {
        Ok(0) => Err("its starter is gone".to_string()),
        Ok(_) => Ok(line.trim().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// µs since 1970: a clock that processes share.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// What device and driver there are.
fn about(ask: &Ask) -> Verdict {
    let cuda = Cuda::load(ask.lookup())?;
    say("cuda", cuda.version()?);
    say("name", cuda.name()?);
    say("uuid", cuda.uuid()?);
    let (sms, capability) = cuda.shape()?;
    say("sms", sms);
    say("capability", capability);
    say("total", cuda.total()?);
    Ok(())
}

/// What NVML says of a GPU.
fn see(ask: &Ask) -> Verdict {
    let seen = Monitor::open()?.see(ask.text("uuid")?)?;
    say("total", seen.total);
    say("used", seen.used);
    for (pid, used) in seen.processes {
        say(&format!("process.{pid}"), used.map_or(-1, |bytes| bytes.cast_signed()));
    }
    Ok(())
}

/// Holds a context and nothing else until it is told to end.
fn idle(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let (free, total) = cuda.memory()?;
    say("free", free);
    say("total", total);
    wait_at("holding").map(|_| ())
}

/// Holds `bytes` of memory for `ms`.
fn hold(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let stay = Duration::from_millis(ask.get("ms")?);
    let taken = cuda.alloc(ask.get("bytes")?);
    std::thread::sleep(stay);
    taken.map(|_| ()).map_err(String::from)
}
