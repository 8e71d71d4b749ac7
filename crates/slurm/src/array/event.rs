//! What the journal of an array consists of: one event a line, with a checksum before it.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

/// One start of one pilot job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PilotId {
    /// The Slurm array that it is in.
    pub array: u64,
    /// Its index there.
    pub element: u32,
    /// Which start of it, counted from 1 by the journal: Slurm's own count begins anew where
    /// slurmctld has lost its state.
    pub start: u32,
}

impl PilotId {
    /// Whether both are starts of the same job.
    pub fn is_same_job(self, other: Self) -> bool {
        (self.array, self.element) == (other.array, other.element)
    }
}

impl fmt::Display for PilotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{}", self.array, self.element, self.start)
    }
}

impl FromStr for PilotId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (array, rest) = text.split_once('_').ok_or(())?;
        let (element, start) = rest.split_once('.').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Self {
            array: array.parse().map_err(|_| ())?,
            element: number(element)?,
            start: number(start)?,
        })
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal, which no pilot sent.
    Signal(i32),
    /// At its time limit, or at that of its pilot with the whole of it used.
    Timeout,
    /// Its pilots were lost under it as often as it may be tried.
    Lost,
    /// It could not be started, and why.
    NotStarted(String),
}

impl Ending {
    /// Whether the task did what it was meant to.
    pub fn is_ok(&self) -> bool {
        *self == Self::Exit(0)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "exit {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Timeout => f.write_str("timeout"),
            Self::Lost => f.write_str("lost"),
            Self::NotStarted(why) => write!(f, "not-started {}", why.replace(['\n', '\r'], " ")),
        }
    }
}

/// Why a task goes back to those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its pilot was told to end.
    Stopped,
    /// Its pilot is gone.
    Gone,
    /// The user wants it done once more.
    Again,
}

impl Why {
    const NAMES: [(Self, &'static str); 3] =
        [(Self::Stopped, "stopped"), (Self::Gone, "gone"), (Self::Again, "again")];
}

/// One event. Times are ms since 1970; attempts count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pilot has begun.
    Pilot {
        /// Which.
        id: PilotId,
        /// Number of its job, different for each index of a Slurm array.
        job: u64,
        /// How often Slurm says that it has restarted it.
        restarts: u32,
        /// Its node.
        node: String,
        /// Its process there.
        pid: u32,
        /// When.
        at_ms: u64,
    },
    /// A pilot is about to end.
    Left {
        /// Which.
        id: PilotId,
        /// When.
        at_ms: u64,
    },
    /// A pilot takes a task and is about to start it.
    Claim {
        /// The task.
        index: u32,
        /// Which try of it.
        attempt: u32,
        /// Who.
        by: PilotId,
        /// When.
        at_ms: u64,
    },
    /// A task is over.
    End {
        /// The task.
        index: u32,
        /// Which try of it.
        attempt: u32,
        /// Whose it was.
        by: PilotId,
        /// When.
        at_ms: u64,
        /// How.
        how: Ending,
    },
    /// A task waits again.
    Back {
        /// The task.
        index: u32,
        /// The try that has come to nothing.
        attempt: u32,
        /// When.
        at_ms: u64,
        /// Why.
        why: Why,
    },
    /// Pilots that have not begun are cancelled: nothing is left for them.
    Cleared {
        /// When.
        at_ms: u64,
    },
}

impl Event {
    /// The event as a line, with its end.
    pub fn line(&self) -> String {
        let text = self.to_string();
        format!("{:016x} {text}\n", sum(&text))
    }

    /// Reads a line without its end; `None` if it is not whole.
    pub fn parse(line: &str) -> Option<Self> {
        let (told, text) = line.split_once(' ')?;
        let whole = told.len() == 16 && u64::from_str_radix(told, 16).ok()? == sum(text);
        if whole { Self::of(text) } else { None }
    }

    fn of(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(match words.next()? {
            "pilot" => Self::Pilot {
                id: next(&mut words)?,
                job: next(&mut words)?,
                restarts: next(&mut words)?,
                pid: next(&mut words)?,
                at_ms: next(&mut words)?,
                node: next(&mut words)?,
            },
            "left" => Self::Left { id: next(&mut words)?, at_ms: next(&mut words)? },
            "claim" => Self::Claim {
                index: next(&mut words)?,
                attempt: next(&mut words)?,
                by: next(&mut words)?,
                at_ms: next(&mut words)?,
            },
            "end" => Self::End {
                index: next(&mut words)?,
                attempt: next(&mut words)?,
                by: next(&mut words)?,
                at_ms: next(&mut words)?,
                how: ending(&mut words)?,
            },
            "back" => Self::Back {
                index: next(&mut words)?,
                attempt: next(&mut words)?,
                at_ms: next(&mut words)?,
                why: why(words.next()?)?,
            },
            "cleared" => Self::Cleared { at_ms: next(&mut words)? },
            _ => return None,
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pilot { id, job, restarts, node, pid, at_ms } => {
                write!(f, "pilot {id} {job} {restarts} {pid} {at_ms} {node}")
            }
            Self::Left { id, at_ms } => write!(f, "left {id} {at_ms}"),
            Self::Claim { index, attempt, by, at_ms } => {
                write!(f, "claim {index} {attempt} {by} {at_ms}")
            }
            Self::End { index, attempt, by, at_ms, how } => {
                write!(f, "end {index} {attempt} {by} {at_ms} {how}")
            }
            Self::Back { index, attempt, at_ms, why } => {
                let name = Why::NAMES.iter().find(|(known, _)| known == why);
                write!(f, "back {index} {attempt} {at_ms} {}", name.map_or("", |(_, name)| name))
            }
            Self::Cleared { at_ms } => write!(f, "cleared {at_ms}"),
        }
    }
}

fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

fn ending(words: &mut SplitWhitespace<'_>) -> Option<Ending> {
    Some(match words.next()? {
        "exit" => Ending::Exit(next(words)?),
        "signal" => Ending::Signal(next(words)?),
        "timeout" => Ending::Timeout,
        "lost" => Ending::Lost,
        "not-started" => Ending::NotStarted(words.collect::<Vec<_>>().join(" ")),
        _ => return None,
    })
}

fn why(word: &str) -> Option<Why> {
    Why::NAMES.iter().find(|(_, name)| *name == word).map(|(why, _)| *why)
}

/// FNV-1a with 64 bits (offset and prime: RFC 9923): tells a torn line, not a forged one.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_torn_ones_not_at_all() {
        let by = PilotId { array: 12, element: 3, start: 1 };
        let end = |how| Event::End { index: 7, attempt: 2, by, at_ms: 5, how };
        let back = |why| Event::Back { index: 7, attempt: 2, at_ms: 5, why };
        for event in [
            Event::Pilot { id: by, job: 19, restarts: 2, node: "n1".into(), pid: 8, at_ms: 5 },
            Event::Left { id: by, at_ms: 9 },
            Event::Claim { index: 7, attempt: 2, by, at_ms: 5 },
            end(Ending::Exit(0)),
            end(Ending::Signal(9)),
            end(Ending::Timeout),
            end(Ending::Lost),
            end(Ending::NotStarted("cannot execute /x: gone".into())),
            back(Why::Stopped),
            back(Why::Gone),
            back(Why::Again),
            Event::Cleared { at_ms: 3 },
        ] {
            let line = event.line();
            let line = line.strip_suffix('\n').unwrap();
            assert_eq!(Event::parse(line), Some(event), "{line}");
            for cut in 0..line.len() {
                assert_eq!(Event::parse(&line[..cut]), None, "{line} cut at {cut}");
            }
        }
    }
}
