//! What `sacct --parsable2` prints: jobs of Slurm's accounting, as a trace and for reports.
//!
//! Columns are found by name; others are passed over. Steps of jobs are left out.

use std::collections::BTreeMap;

use model::{
    Arrival, Demand, GpuAsk, GpuDemand, Isolation, ModeSet, Owner, Trace, Workload, WorkloadId,
};

use crate::WORKLOADS_MAX;
use crate::error::ReadError;
use crate::quantity::slurm_memory_mib;
use crate::text::Source;

/// The columns that are read, as `sacct --format` takes them.
pub const COLUMNS: &str = "JobID,JobIDRaw,JobName,User,Account,QOS,Partition,State,Submit,Eligible,Start,\
                           End,ElapsedRaw,TimelimitRaw,ReqTRES,AllocTRES,NodeList,ExitCode,AdminComment";
/// Columns without which nothing can be said of a job.
pub(crate) const NEEDED: [&str; 5] = ["JobID", "State", "Submit", "ElapsedRaw", "AllocTRES"];
/// Between columns where names may hold sacct's own `|`: the unit separator of ASCII.
pub const SEPARATOR: char = '\u{1f}';

/// One job, or one start of a job that was started anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRow {
    /// As users are told of it, such as `7` or `4_3`.
    pub id: String,
    /// Its number, also of a task of an array; empty if the column is not there.
    pub raw_id: String,
    /// What its user calls it.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its account.
    pub account: String,
    /// Its quality of service.
    pub qos: String,
    /// Its partition.
    pub partition: String,
    /// `COMPLETED`, `RUNNING` and so on, without by whom.
    pub state: String,
    /// When it was submitted, in seconds. Text is read as if the clock were never changed.
    pub submit_s: Option<u64>,
    /// When it could have started.
    pub eligible_s: Option<u64>,
    /// When it started.
    pub start_s: Option<u64>,
    /// When it ended.
    pub end_s: Option<u64>,
    /// How long it ran, or has run.
    pub elapsed_s: u64,
    /// Its time limit.
    pub limit_s: Option<u64>,
    /// What it asked.
    pub asked: Tres,
    /// What it was given.
    pub given: Tres,
    /// Its nodes, as a list of Slurm's.
    pub nodes: String,
    /// Exit code and signal, such as `1:0`.
    pub exit: String,
    /// What operators and hotpot have written.
    pub admin_comment: String,
}

/// Trackable resources, such as `cpu=2,mem=200M,node=2,gres/gpu=2,gres/gpu:a100=2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tres {
    /// CPUs.
    pub cpus: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Nodes.
    pub nodes: u64,
    /// GPUs and instances, those with a type counted too.
    pub gpus: u64,
    /// Of them, by type, those whose type is accounted (`AccountingStorageTRES`).
    pub typed_gpus: BTreeMap<String, u64>,
    /// Shards.
    pub shards: u64,
    /// Percent of MPS.
    pub mps: u64,
    /// What Slurm bills.
    pub billing: u64,
}

impl Tres {
    /// Reads a list; words that are not known are passed over.
    pub fn parse(text: &str) -> Self {
        let mut tres = Self::default();
        for (name, value) in text.split(',').filter_map(|word| word.split_once('=')) {
            let count = value.parse().unwrap_or(0);
            match name {
                "cpu" => tres.cpus = count,
                "mem" => tres.memory_mib = slurm_memory_mib(value).unwrap_or(0),
                "node" => tres.nodes = count,
                "billing" => tres.billing = count,
                "gres/gpu" => tres.gpus = count,
                "gres/shard" => tres.shards = count,
                "gres/mps" => tres.mps = count,
                _ => {
                    if let Some(kind) = name.strip_prefix("gres/gpu:") {
                        tres.typed_gpus.insert(kind.to_owned(), count);
                    }
                }
            }
        }
        let typed = tres.typed_gpus.values().sum();
        tres.gpus = tres.gpus.max(typed);
        tres
    }

    /// Whether GPUs or parts of them are in it.
    pub fn has_gpus(&self) -> bool {
        self.gpus > 0 || self.shards > 0 || self.mps > 0
    }
}

/// Whether the first line names sacct's columns.
pub(crate) fn is_header(line: &str) -> bool {
    let names: Vec<&str> = line.split(separator(line)).collect();
    names.len() > 1 && NEEDED.iter().filter(|name| names.contains(name)).count() >= 2
}

fn separator(line: &str) -> char {
    if line.contains(SEPARATOR) { SEPARATOR } else { '|' }
}

/// All jobs of a list, and how many lines could not be told apart because a name holds the separator.
///
/// # Errors
/// A missing column, or more than [`WORKLOADS_MAX`] jobs.
pub fn rows(source: &Source) -> Result<(Vec<JobRow>, usize), ReadError> {
    let mut lines = source.text().lines();
    let head = lines.next().unwrap_or_default();
    let separator = separator(head);
    let names: Vec<&str> = head.split(separator).map(str::trim).collect();
    if let Some(missing) = NEEDED.iter().find(|name| !names.contains(name)) {
        let way_out = format!("write it with: sacct --allocations --parsable2 --format={COLUMNS}");
        return Err(source.error(format!("has no column {missing}"), way_out));
    }
    let (mut rows, mut unclear) = (Vec::new(), 0);
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let values: Vec<&str> = line.split(separator).collect();
        if values.len() != names.len() {
            unclear += 1;
            continue;
        }
        let fields: BTreeMap<&str, &str> = names.iter().copied().zip(values).collect();
        let row = row(|name| fields.get(name).map_or("", |value| value.trim()));
        // `7.batch` and `7.0` are steps.
        if !row.id.contains('.') {
            rows.push(row);
        }
        if rows.len() > WORKLOADS_MAX {
            let what = format!("has more than {WORKLOADS_MAX} jobs");
            return Err(source.error(what, "ask sacct for less time"));
        }
    }
    Ok((rows, unclear))
}

fn row<'a>(get: impl Fn(&str) -> &'a str) -> JobRow {
    let text = |name| get(name).to_owned();
    let minutes = get("TimelimitRaw").parse::<u64>().ok();
    JobRow {
        id: text("JobID"),
        raw_id: text("JobIDRaw"),
        name: text("JobName"),
        user: text("User"),
        account: text("Account"),
        qos: text("QOS"),
        partition: text("Partition"),
        state: get("State").split(' ').next().unwrap_or_default().to_owned(),
        submit_s: moment_s(get("Submit")),
        eligible_s: moment_s(get("Eligible")),
        start_s: moment_s(get("Start")),
        end_s: moment_s(get("End")),
        elapsed_s: get("ElapsedRaw").parse().unwrap_or(0),
        limit_s: minutes.map(|minutes| minutes.saturating_mul(60)),
        asked: Tres::parse(get("ReqTRES")),
        given: Tres::parse(get("AllocTRES")),
        nodes: Some(text("NodeList")).filter(|nodes| nodes != "None assigned").unwrap_or_default(),
        exit: text("ExitCode"),
        admin_comment: text("AdminComment"),
    }
}

/// Seconds since 1970 as such, or as `2026-11-30T10:11:50`.
fn moment_s(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds).filter(|seconds| *seconds > 0);
    }
    let (date, time) = text.split_once('T')?;
    let numbers = |text: &str, mark| {
        let found: Option<Vec<u64>> = text.split(mark).map(|part| part.parse().ok()).collect();
        found.filter(|numbers| numbers.len() == 3)
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let [year, month, day] = date.as_slice().try_into().ok()?;
    let [hour, minute, second] = time.as_slice().try_into().ok()?;
    let within =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let within = within && hour < 24 && minute < 60 && second < 61;
    within.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970 to a date of the Gregorian calendar. Years are counted from March, so that the day that
/// some have more is their last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    const TO_1970: u64 = 719_468;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - TO_1970
}

/// Jobs as arrivals: each comes when it could have started, asks what it was given, and runs as long as it
/// ran. One that never started is left out; one that still runs is taken to end now. Owners are users.
///
/// * `shard_mib` — device memory of one shard.
///
/// # Errors
/// As [`rows`]; a list without a job that has started.
pub fn trace(source: &Source, shard_mib: u64, notes: &mut Vec<String>) -> Result<Trace, ReadError> {
    let (mut rows, unclear) = rows(source)?;
    let all = rows.len();
    rows.retain(|row| row.start_s.is_some() && row.given.cpus + row.given.nodes > 0);
    let arrives = |row: &JobRow| row.eligible_s.max(row.submit_s).unwrap_or(0);
    rows.sort_by_key(arrives);
    let Some(first) = rows.first().map(arrives) else {
        return Err(source.error("has no job that has started", "ask sacct for more time"));
    };
    let mut note = |count: usize, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    note(unclear, "line(s) left out: a name holds the separator");
    note(all - rows.len(), "job(s) left out: they never started");
    let running = rows.iter().filter(|row| row.end_s.is_none()).count();
    note(running, "job(s) still run: they are taken to end now");
    let arrival = |(at, row): (usize, &JobRow)| {
        let at_ms = (arrives(row) - first).saturating_mul(1000);
        let workload = workload(at, row, at_ms, shard_mib);
        Arrival { at_ms, runs_ms: Some(row.elapsed_s.saturating_mul(1000)), workload }
    };
    Ok(Trace { arrivals: rows.iter().enumerate().map(arrival).collect() })
}

fn workload(at: usize, row: &JobRow, submitted_ms: u64, shard_mib: u64) -> Workload {
    let members = row.given.nodes.max(1);
    let each = |total: u64| total.div_ceil(members);
    let gpus = gpus(row, members, shard_mib);
    let demand = Demand {
        cpu_milli: each(row.given.cpus).saturating_mul(1000),
        memory_mib: each(row.given.memory_mib),
        gpus,
        ..Demand::default()
    };
    let owner = Owner::new(if row.user.is_empty() { &row.account } else { &row.user });
    let name = format!("{} #{}", row.name, row.id);
    let workload = Workload::new(WorkloadId(at as u64), name, owner, demand);
    Workload {
        submitted_ms,
        members: u32::try_from(members).unwrap_or(u32::MAX),
        time_limit_ms: row.limit_s.map(|limit| limit.saturating_mul(1000)),
        ..workload
    }
}

fn gpus(row: &JobRow, members: u64, shard_mib: u64) -> Option<GpuDemand> {
    let profile = row.given.typed_gpus.iter().find(|(kind, _)| kind.contains("g."));
    let (count, each) = match (row.given.gpus, profile) {
        (0, _) if row.given.shards > 0 => {
            let memory_mib = row.given.shards.div_ceil(members).saturating_mul(shard_mib);
            (members, GpuAsk::Fraction { compute_milli: 0, memory_mib })
        }
        (0, _) if row.given.mps > 0 => {
            let milli = (row.given.mps.div_ceil(members)).saturating_mul(10).min(1000);
            (members, GpuAsk::Fraction { compute_milli: milli as u32, memory_mib: 0 })
        }
        (0, _) => return None,
        (_, Some((kind, count))) => (*count, GpuAsk::Profile(kind.clone())),
        (count, None) => (count, GpuAsk::Whole),
    };
    let count = u32::try_from(count.div_ceil(members)).unwrap_or(u32::MAX);
    let (isolation, modes) = (Isolation::None, ModeSet::ALL);
    Some(GpuDemand { count, each, accepts: Vec::new(), isolation, modes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_seconds_or_dates() {
        assert_eq!(moment_s("1796033510"), Some(1_796_033_510));
        assert_eq!(moment_s("2026-11-30T10:11:50"), Some(1_796_033_510));
        assert_eq!(moment_s("2000-02-29T00:00:00"), Some(951_782_400));
        assert_eq!(moment_s("1970-01-01T00:00:01"), Some(1));
        for text in ["Unknown", "None", "", "0", "2026-13-01T00:00:00", "2026-1-1", "x-1-1T1:1:1"] {
            assert_eq!(moment_s(text), None, "{text}");
        }
    }

    #[test]
    fn resources_are_counted_by_type() {
        let tres =
            Tres::parse("billing=16,cpu=16,gres/gpu:1g.10gb=2,gres/gpu=3,mem=2000M,node=2,x=1");
        assert_eq!((tres.cpus, tres.memory_mib, tres.nodes, tres.gpus), (16, 2000, 2, 3));
        assert_eq!((tres.typed_gpus["1g.10gb"], tres.billing), (2, 16));
        assert!(tres.has_gpus() && !Tres::parse("cpu=1").has_gpus());
    }
}
