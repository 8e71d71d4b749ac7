//! Caps as text: what an agent writes for a tenant, and the tenant's processes read.
//!
//! Lines `key = value`, a section `[GPU-…]` for each GPU, `#` for remarks:
//!
//! ```text
//! tenant = train.4711/3
//! [GPU-5a1c0d9e-...]
//! memory = 2147483648
//! compute = 300
//! ledger = /run/hotpot/caps.d/train.4711/3/{gpu}.ledger
//! board = /run/hotpot/boards/{gpu}
//! ```
//!
//! Without `ledger` the tenant's processes keep their books in a folder of their user's.
//!
//! `memory` and `context` are bytes, `compute` and `floor` thousandths; `weight`, `priority` and
//! `conserving` (`yes`, `no`) may follow. An unknown key is an error: a cap that is not understood must
//! not be left out.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::given::{Caps, ComputeCap, GpuCaps, Which};

/// GPUs in one file.
const GPUS_MAX: usize = 256;

/// What is wrong with a caps file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// From 1.
    pub line: usize,
    /// What it is.
    pub what: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// A section as it is read; the compute cap is put together at its end.
struct Section {
    caps: GpuCaps,
    share_milli: Option<u32>,
    weight: Option<u32>,
    priority: i32,
    floor_milli: Option<u32>,
    conserving: bool,
}

impl Caps {
    /// Reads the text of a caps file.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut caps = Self { closed: true, ..Self::default() };
        let mut section: Option<Section> = None;
        let mut last = 0;
        for (at, line) in text.lines().enumerate() {
            let wrong = |what: String| TextError { line: at + 1, what };
            last = at + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                caps.gpus.extend(finish(section.take()).map_err(wrong)?);
                if caps.gpus.len() >= GPUS_MAX {
                    return Err(wrong(format!("more than {GPUS_MAX} GPUs")));
                }
                section = Some(Section::new(name));
                continue;
            }
            let pair = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
            let (key, value) =
                pair.ok_or_else(|| wrong(format!("`{line}` is no `key = value`")))?;
            match &mut section {
                None if key == "tenant" => value.clone_into(&mut caps.tenant),
                None => return Err(wrong(format!("`{key}` stands before the first [GPU]"))),
                Some(section) => section.set(key, value).map_err(wrong)?,
            }
        }
        let wrong = |what| TextError { line: last, what };
        caps.gpus.extend(finish(section).map_err(wrong)?);
        Ok(caps)
    }

    /// The text of a caps file, which [`Caps::parse`] reads back. GPUs are named by UUID.
    pub fn render(&self) -> String {
        let mut text = String::from("# written by hotpot: what a tenant may take of GPUs\n");
        let _ = writeln!(text, "tenant = {}", self.tenant);
        for given in &self.gpus {
            given.render(&mut text);
        }
        text
    }
}

impl GpuCaps {
    fn render(&self, text: &mut String) {
        let name = match &self.gpu {
            Which::Uuid(uuid) => uuid.clone(),
            Which::Ordinal(number) => number.to_string(),
            Which::Any => "any".to_owned(),
        };
        let _ = writeln!(text, "[{name}]");
        let mut line = |key: &str, value: &dyn fmt::Display| {
            let _ = writeln!(text, "{key} = {value}");
        };
        if let Some(bytes) = self.memory_bytes {
            line("memory", &bytes);
        }
        if let Some(bytes) = self.context_bytes {
            line("context", &bytes);
        }
        if let Some(compute) = self.compute {
            line("compute", &compute.share_milli);
            line("weight", &compute.weight);
            line("priority", &compute.priority);
            line("floor", &compute.floor_milli);
            line("conserving", &if compute.conserving { "yes" } else { "no" });
        }
        if !self.ledger.as_os_str().is_empty() {
            line("ledger", &self.ledger.display());
        }
        if let Some(board) = &self.board {
            line("board", &board.display());
        }
    }
}

impl Section {
    fn new(name: &str) -> Self {
        let gpu = match name.trim().parse() {
            Ok(number) => Which::Ordinal(number),
            Err(_) if name.trim() == "any" => Which::Any,
            Err(_) => Which::Uuid(name.trim().to_owned()),
        };
        let caps = GpuCaps {
            gpu,
            memory_bytes: None,
            context_bytes: None,
            compute: None,
            ledger: PathBuf::new(),
            board: None,
        };
        Self {
            caps,
            share_milli: None,
            weight: None,
            priority: 0,
            floor_milli: None,
            conserving: true,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "memory" => self.caps.memory_bytes = Some(number(key, value)?),
            "context" => self.caps.context_bytes = Some(number(key, value)?),
            "compute" => self.share_milli = Some(within(key, value, 1..=1000)?),
            "weight" => self.weight = Some(within(key, value, 1..=1_000_000)?),
            "priority" => self.priority = number(key, value)?,
            "floor" => self.floor_milli = Some(within(key, value, 0..=1000)?),
            "conserving" => self.conserving = yes(key, value)?,
            "ledger" => self.caps.ledger = PathBuf::from(value),
            "board" => self.caps.board = Some(PathBuf::from(value)),
            _ => return Err(format!("`{key}` is not known")),
        }
        Ok(())
    }
}

fn finish(section: Option<Section>) -> Result<Option<GpuCaps>, String> {
    let Some(section) = section else { return Ok(None) };
    let mut caps = section.caps;
    caps.compute = section.share_milli.map(|share_milli| {
        let usual = ComputeCap::of(share_milli);
        ComputeCap {
            weight: section.weight.unwrap_or(usual.weight),
            priority: section.priority,
            floor_milli: section.floor_milli.unwrap_or(usual.floor_milli).min(share_milli),
            conserving: section.conserving,
            ..usual
        }
    });
    Ok(Some(caps))
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{key} = {value}`: no number that fits"))
}

fn within(key: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let found = number(key, value)?;
    let (least, most) = (range.start(), range.end());
    let outside = || format!("`{key} = {value}`: it goes from {least} to {most}");
    range.contains(&found).then_some(found).ok_or_else(outside)
}

fn yes(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{key} = {value}`: yes or no")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let compute = ComputeCap { priority: -2, conserving: false, ..ComputeCap::of(300) };
        let first = GpuCaps {
            gpu: Which::Uuid("GPU-1".into()),
            memory_bytes: Some(2 << 30),
            context_bytes: Some(300 << 20),
            compute: Some(compute),
            ledger: "/a b/{gpu}.ledger".into(),
            board: Some("/b/{gpu}".into()),
        };
        let second = GpuCaps {
            gpu: Which::Uuid("MIG-2".into()),
            memory_bytes: None,
            context_bytes: None,
            compute: None,
            board: None,
            ..first.clone()
        };
        let caps = Caps { tenant: "run.1/7".into(), gpus: vec![first, second], closed: true };
        assert_eq!(Caps::parse(&caps.render()).unwrap(), caps);
    }

    #[test]
    fn what_is_not_understood_is_named_by_its_line() {
        let wrong = |text: &str| Caps::parse(text).unwrap_err().to_string();
        assert_eq!(wrong("memory = 3"), "line 1: `memory` stands before the first [GPU]");
        assert_eq!(wrong("[G]\nmemroy = 3\n"), "line 2: `memroy` is not known");
        assert_eq!(wrong("[G]\nmemory = -3\n"), "line 2: `memory = -3`: no number that fits");
        let range = "line 2: `compute = 2000`: it goes from 1 to 1000";
        assert_eq!(wrong("[G]\ncompute = 2000\nledger = l"), range);
        let given = Caps::parse("[G]\nmemory = 3\n").unwrap();
        assert_eq!(given.gpus[0].ledger.as_os_str(), "", "the process finds a place itself");
        assert_eq!(wrong("[G]\nnonsense"), "line 2: `nonsense` is no `key = value`");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\[?[a-z]{0,9}\\]?( = )?[-a-z0-9{}]{0,22}\n){0,9}") {
            let _ = Caps::parse(&text);
        }
    }
}
