//! All jobs that slurmctld has, though users can write what looks like a record into their own: their numbers are asked
//! for first, which nobody can write, and what is there twice is asked for alone.

use std::collections::{BTreeMap, BTreeSet};

use node::tool::ToolError;

use crate::commands::{Slurm, SlurmError};
use crate::record::Record;

/// Jobs that are asked for alone at most; of more, somebody wants us to.
const ALONE_MAX: usize = 300;
/// Numbers that are named.
const NAMED_MAX: usize = 5;

/// Jobs as slurmctld tells of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Jobs {
    /// By number.
    pub(crate) records: BTreeMap<u64, Record>,
    /// Numbers of those that cannot be read.
    pub(crate) unread: Vec<u64>,
}

impl Jobs {
    /// Asks slurmctld.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub(crate) fn ask(slurm: Slurm) -> Result<Self, SlurmError> {
        let numbers = slurm.call_in_seconds("squeue", &["-h", "-a", "-t", "all", "-o", "%A"])?;
        let text = match show(slurm, &[]) {
            // One of them is the reason: each has to be asked for alone.
            Err(SlurmError::Tool(ToolError::TooMuch { .. })) => String::new(),
            text => text?,
        };
        let numbers = numbers.lines().filter_map(|line| line.trim().parse().ok()).collect();
        Ok(Self::among(&numbers, &text, |number| show(slurm, &[&number.to_string()])))
    }

    /// Reads jobs of which nothing else is known.
    pub(crate) fn of(text: &str) -> Self {
        let mut jobs = Self::default();
        for (number, record) in Record::by_number(text) {
            jobs.add(number, record);
        }
        jobs
    }

    /// Reads the jobs of these numbers.
    ///
    /// * `alone` — asks for one that is there more than once, or not at all.
    fn among(
        numbers: &BTreeSet<u64>,
        text: &str,
        alone: impl Fn(u64) -> Result<String, SlurmError>,
    ) -> Self {
        let (mut jobs, mut all, mut asked) = (Self::default(), Record::by_number(text), 0);
        for number in numbers {
            let record = all.remove(number).flatten();
            if record.is_some() || asked == ALONE_MAX {
                jobs.add(*number, record);
                continue;
            }
            asked += 1;
            match alone(*number) {
                // It has gone meanwhile.
                Err(error) if error.to_string().contains("Invalid job id") => {}
                text => jobs.add(*number, text.ok().and_then(|text| Record::job(&text, *number))),
            }
        }
        jobs
    }

    fn add(&mut self, number: u64, record: Option<Record>) {
        match record {
            Some(record) => drop(self.records.insert(number, record)),
            None => self.unread.push(number),
        }
    }
}

fn show(slurm: Slurm, of: &[&str]) -> Result<String, SlurmError> {
    slurm.call_in_seconds("scontrol", &[&["-a", "show", "job", "-d"], of].concat())
}

/// Says that jobs are not shown, if there are any.
pub fn not_shown(unread: &[u64]) -> Option<String> {
    let named: Vec<String> = unread.iter().take(NAMED_MAX).map(u64::to_string).collect();
    let more = if unread.len() > NAMED_MAX { ", ..." } else { "" };
    let (are, of) = if unread.len() == 1 { (" is", "it") } else { ("s are", "them") };
    let (count, named) = (unread.len(), named.join(", "));
    let why = format!("what Slurm prints of {of} cannot be read ({named}{more})");
    (count > 0).then(|| format!("{count} job{are} not shown: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64, user: &str) -> String {
        format!(
            "JobId={number} JobName=x\n   UserId={user}(1) GroupId=x(1)\n   Priority=1\n   JobState=RUNNING\n   \
             Requeue=1 BatchFlag=1\n   NodeList=n1\n"
        )
    }

    fn among(numbers: &[u64], text: &str) -> (Vec<u64>, Vec<u64>, usize) {
        let asked = std::cell::Cell::new(0);
        let alone = |number| {
            asked.set(asked.get() + 1);
            match number {
                5 => {
                    Err(SlurmError::Answer { call: String::new(), answer: "Invalid job id".into() })
                }
                6 => Ok(record(6, "a") + &record(6, "b")),
                other => Ok(record(other, "alone")),
            }
        };
        let jobs = Jobs::among(&numbers.iter().copied().collect(), text, alone);
        (jobs.records.into_keys().collect(), jobs.unread, asked.get())
    }

    #[test]
    fn only_jobs_that_slurm_counts_are_there_and_all_of_them() {
        let text = record(1, "a") + &record(2, "a") + &record(2, "b") + &record(9, "invented");
        assert_eq!(among(&[1, 2, 3, 5, 6], &text), (vec![1, 2, 3], vec![6], 4));
        let many: Vec<u64> = (10..1010).collect();
        let hide: String = many.iter().map(|number| record(*number, "a").repeat(2)).collect();
        let (shown, unread, asked) = among(&many, &hide);
        assert_eq!((shown.len(), unread.len(), asked), (ALONE_MAX, 1000 - ALONE_MAX, ALONE_MAX));
        let said = not_shown(&unread).unwrap();
        assert!(
            said.starts_with("700 jobs are not shown: ") && said.contains("(310, 311,"),
            "{said}"
        );
        assert_eq!(not_shown(&[]), None);
    }
}
