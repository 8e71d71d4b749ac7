//! Array specifications: which indices, and how many at once (`1-100%10`, `1,3,5-7:2`).
//!
//! The syntax is that of sbatch's `--array` (sbatch manual).

use std::collections::BTreeSet;

use model::{ArrayMember, Workload, WorkloadId};

use crate::WORKLOADS_MAX;
use crate::error::{Complaint, quote};

/// Largest index (slurm.conf manual: `MaxArraySize` is at most 4000001, indices lie below it).
pub const INDEX_MAX: u32 = 4_000_000;

/// The tasks of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Indices, ascending, each once; at least one.
    pub indices: Vec<u32>,
    /// Most tasks at once; 0 means no limit.
    pub at_once_max: u32,
}

impl ArraySpec {
    /// Reads `a`, `a-b` and `a-b:step`, joined by commas, with `%N` at the end for at most N at once.
    ///
    /// # Errors
    /// Anything else, an index above [`INDEX_MAX`], or more than [`WORKLOADS_MAX`] tasks.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        let (list, at_once) = match text.trim().split_once('%') {
            Some((list, at_once)) => (list, Some(at_once)),
            None => (text.trim(), None),
        };
        let at_once_max = match at_once.map(|count| (count, number(count))) {
            None => 0,
            Some((_, Some(count))) if count > 0 => count,
            Some((count, _)) => {
                let what = format!("%{count} is no limit of tasks at once");
                return Err(Complaint::new(what, "give %1 or more, or leave it out"));
            }
        };
        let mut indices = BTreeSet::new();
        for part in list.split(',') {
            let (first, last, step) = range(part.trim()).ok_or_else(|| malformed(text))?;
            if indices.len() + ((last - first) / step) as usize >= WORKLOADS_MAX {
                let what = format!("{} has more than {WORKLOADS_MAX} tasks", quote(text));
                return Err(Complaint::new(what, "give a smaller range"));
            }
            indices.extend((first..=last).step_by(step as usize));
        }
        Ok(Self { indices: indices.into_iter().collect(), at_once_max })
    }

    /// One workload per index, numbered from `first`; each is named `name[index]`.
    pub fn tasks(&self, first: WorkloadId, pattern: &Workload) -> Vec<Workload> {
        let numbered = (first.0..).zip(&self.indices);
        let task = |(id, index): (u64, &u32)| {
            let at_once_max = self.at_once_max;
            let member = ArrayMember { array: first, index: *index, at_once_max };
            let name = format!("{}[{index}]", pattern.name);
            Workload { id: WorkloadId(id), name, array: Some(member), ..pattern.clone() }
        };
        numbered.map(task).collect()
    }
}

/// First index, last index and step of one part.
fn range(part: &str) -> Option<(u32, u32, u32)> {
    let (ends, step) = match part.split_once(':') {
        Some((ends, step)) => (ends, number(step)?),
        None => (part, 1),
    };
    let (first, last) = match ends.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(ends)?, number(ends)?),
    };
    (step > 0 && first <= last).then_some((first, last, step))
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|index| *index <= INDEX_MAX)
}

fn malformed(text: &str) -> Complaint {
    let what = format!("{} is not an array", quote(text));
    Complaint::new(
        what,
        "give indices from 0 to 4000000 such as \"1-100\", \"0-9:2\" or \"1,3,5-7%2\"",
    )
}
