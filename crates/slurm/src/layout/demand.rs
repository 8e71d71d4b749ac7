//! What the queue asks of GPUs, by type: of jobs that wait and could start, and of those that run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::commands::{Slurm, SlurmError};
use crate::gres::{self, Amount};
use crate::queue_view::{Jobs, Tasks};
use crate::record::Record;

/// Fields of a job that ask for GRES, and of what there is one of each.
const FIELDS: [(&str, &str); 4] = [
    ("TresPerNode", "NumNodes"),
    ("TresPerJob", ""),
    ("TresPerTask", "NumTasks"),
    ("TresPerSocket", "NumNodes"),
];
/// Why a job waits that would not start if there were room (job_reasons, squeue manual).
const NOT_FOR_ROOM: [&str; 5] =
    ["JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime"];

/// Who asks for how many of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// How many, by those who wait.
    pub waiting: u64,
    /// How many, by those who run.
    pub running: u64,
    /// Some of the jobs that wait, by number.
    pub jobs: Vec<String>,
}

impl Asked {
    /// By whomever.
    pub fn all(&self) -> u64 {
        self.waiting.saturating_add(self.running)
    }
}

/// How many of each type are asked for. A type is as in `gpu:TYPE:N`; whole cards of any type are `gpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// By type.
    pub types: BTreeMap<String, Asked>,
    /// Shards, which whole cards offer.
    pub shards: Asked,
}

/// So many of one type are asked at most: plans count with them, and weigh them.
const COUNT_MAX: u64 = u32::MAX as u64;
/// Jobs that are named for each type.
const NAMED_MAX: usize = 5;

impl Demand {
    /// Asks slurmctld for the queue; returns the numbers of jobs that cannot be read, too.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn ask(slurm: Slurm) -> Result<(Self, Vec<u64>), SlurmError> {
        let Jobs { records, unread } = Jobs::ask(slurm)?;
        Ok((Self::of(&records.into_values().collect::<Vec<_>>()), unread))
    }

    /// Counts jobs' records.
    pub fn of(jobs: &[Record]) -> Self {
        let mut demand = Self::default();
        for job in jobs {
            demand.add(job);
        }
        demand
    }

    /// Reads `1g.10gb=8,a100=2`.
    ///
    /// # Errors
    /// A word that is not type=number.
    pub fn wanted(text: &str) -> Result<Self, String> {
        let mut demand = Self::default();
        for word in text.split(',').map(str::trim) {
            let pair = word.split_once('=');
            let number = |(kind, count): (&str, &str)| {
                let count: u64 = count.trim().parse().ok()?;
                Some((kind.trim().to_owned(), count))
            };
            let pair = pair.and_then(number);
            let (kind, count) = pair
                .filter(|(kind, _)| !kind.is_empty())
                .ok_or_else(|| format!("`{word}` is not TYPE=NUMBER, such as 1g.10gb=8"))?;
            let sum = &mut demand.types.entry(kind).or_default().waiting;
            *sum = sum.saturating_add(count).min(COUNT_MAX);
        }
        Ok(demand)
    }

    fn add(&mut self, job: &Record) {
        let state = job.get("JobState").unwrap_or_default();
        let waits = state == "PENDING";
        let reason = job.get("Reason").unwrap_or_default();
        if !(waits && !NOT_FOR_ROOM.contains(&reason) || state == "RUNNING") {
            return;
        }
        let at_once = if waits { at_once(job) } else { 1 };
        for ((name, kind), count) in asks(job) {
            let asked = match name {
                "shard" => &mut self.shards,
                "gpu" => self.types.entry(kind.to_owned()).or_default(),
                _ => continue,
            };
            let sum = if waits { &mut asked.waiting } else { &mut asked.running };
            *sum = sum.saturating_add(count.saturating_mul(at_once)).min(COUNT_MAX);
            if waits && asked.jobs.len() < NAMED_MAX {
                asked.jobs.push(job.get("JobId").unwrap_or("?").to_owned());
            }
        }
    }
}

/// What one job asks, by name and type. `--gpus=4 --gpus-per-node=2` are the same GPUs, asked in two ways: the
/// largest of its fields counts.
fn asks(job: &Record) -> BTreeMap<(&str, &str), u64> {
    let mut all = BTreeMap::new();
    for (field, each) in FIELDS {
        let times: Option<u64> =
            job.get(each).and_then(|text| text.split('-').next()?.parse().ok());
        let mut here: BTreeMap<_, u64> = BTreeMap::new();
        for Amount { name, kind, count } in gres::amounts(job.get(field).unwrap_or_default()) {
            let kind = if name == "gpu" { kind.unwrap_or("gpu") } else { "" };
            let sum = here.entry((name, kind)).or_default();
            *sum = sum.saturating_add(count.saturating_mul(times.unwrap_or(1)));
        }
        for (what, count) in here {
            let most: &mut u64 = all.entry(what).or_default();
            *most = count.max(*most);
        }
    }
    all
}

/// How many tasks of an array that waits may run at once: `ArrayTaskId=1-100:2%10`.
fn at_once(job: &Record) -> u64 {
    let Some(tasks) = job.get("ArrayTaskId") else { return 1 };
    let most = tasks.split_once('%').and_then(|(_, most)| most.parse().ok());
    (Tasks::parse(tasks).count() as u64).min(most.unwrap_or(u64::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_wait_for_room_and_that_run_are_counted_by_type() {
        let jobs = "JobId=1 JobState=PENDING Reason=Resources NumNodes=2-2 NumTasks=2 TresPerNode=gres:gpu:1g.10gb:3\n\
            JobId=2 JobState=PENDING Reason=Priority NumNodes=1 ArrayTaskId=1-100%10 TresPerJob=gres:gpu:a100:1\n\
            JobId=3 JobState=PENDING Reason=Dependency NumNodes=1 TresPerNode=gres:gpu:a100:1\n\
            JobId=4 JobState=RUNNING Reason=None NumNodes=1 TresPerNode=gres/gpu:a100=2,gres/shard=5\n\
            JobId=5 JobState=PENDING Reason=Resources NumNodes=1 ArrayTaskId=1,3-9:2 TresPerNode=gres:gpu:1\n\
            JobId=6 JobState=COMPLETED NumNodes=1 TresPerNode=gres:gpu:1\n";
        let demand = Demand::of(&Record::all(jobs));
        let count = |kind: &str| (demand.types[kind].waiting, demand.types[kind].running);
        assert_eq!((count("1g.10gb"), count("a100"), count("gpu")), ((6, 0), (10, 2), (5, 0)));
        assert_eq!((demand.shards.waiting, demand.shards.running), (0, 5));
        assert_eq!(demand.types["1g.10gb"].jobs, ["1"]);
        assert_eq!(demand.types.len(), 3);
    }

    #[test]
    fn what_is_asked_in_two_ways_counts_once() {
        let job = "JobId=1 JobState=PENDING Reason=Resources NumNodes=2 NumTasks=2 ArrayTaskId=1-3 \
            TresPerJob=gres:gpu:4 TresPerNode=gres:gpu:2,gres:gpu:a:1,gres:shard:3 TresPerTask=gres:gpu:a:2";
        let demand = Demand::of(&[Record::parse(job)]);
        let waiting = |kind: &str| demand.types[kind].waiting;
        assert_eq!((waiting("gpu"), waiting("a"), demand.shards.waiting), (12, 12, 18));
        assert_eq!(demand.types["gpu"].jobs, ["1"]);
    }

    #[test]
    fn no_amount_is_too_large_to_be_counted() {
        let most = u64::MAX;
        let job = format!(
            "JobId=1 JobState=PENDING Reason=Resources NumNodes={most} ArrayTaskId=0-4294967295 \
             TresPerJob=gres/gpu:a100:{most},gres/gpu:a100:{most} TresPerNode=gres/gpu:a100:{most}"
        );
        let demand = Demand::of(&[Record::parse(&job), Record::parse(&job)]);
        assert_eq!(demand.types["a100"].waiting, COUNT_MAX);
        let wanted = Demand::wanted(&format!("a={most},a={most}")).unwrap();
        assert_eq!(wanted.types["a"].all(), COUNT_MAX);
    }

    #[test]
    fn wishes_are_read_and_mistakes_named() {
        let demand = Demand::wanted("1g.10gb=8, a100=2").unwrap();
        assert_eq!(demand.types["1g.10gb"].waiting, 8);
        assert_eq!(demand.types["a100"].waiting, 2);
        for wrong in ["", "1g.10gb", "=3", "a=x"] {
            assert!(Demand::wanted(wrong).is_err(), "{wrong}");
        }
    }
}
