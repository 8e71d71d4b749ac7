//! What a node says of who uses its GPUs: the simulated driver's own ledger of memory that processes hold, and
//! hotpot's book of what was granted.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fake_gpu::{Gpus, Held};
use fake_machine::{Machine, layout};
use model::Share;

use super::judge::{Claim, Part};
use crate::slurm::Bench;

/// A node's books.
pub(super) struct Books {
    node: &'static str,
    machine: Machine,
    gpus: Option<Gpus>,
    /// hotpot's files of jobs, if there are any.
    jobs: PathBuf,
}

/// Device memory that a job's process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) job: u32,
    pub(super) device: String,
    pub(super) is_instance: bool,
    pub(super) bytes: u64,
}

impl Books {
    pub(super) fn open(bench: &Bench, node: &'static str) -> Result<Self, String> {
        let folder = bench.cluster.machine(node);
        let machine = Machine::open(folder.join(layout::STATE));
        let machine = machine.map_err(|error| format!("{node}: {error}"))?;
        Ok(Self { node, machine, gpus: None, jobs: folder.join("jobs") })
    }

    /// What the driver has booked for processes of jobs that are alive.
    pub(super) fn uses(&mut self) -> Vec<Use> {
        if self.gpus.is_none() {
            // There is none until a first process uses a GPU.
            self.gpus = Gpus::open_existing(&self.machine).ok().flatten();
        }
        let held = self.gpus.as_ref().map(Gpus::held).unwrap_or_default();
        held.iter().filter_map(|one| self.of_job(one)).collect()
    }

    /// The kernel tells whose a process is; one that has ended since is nobody's.
    fn of_job(&self, held: &Held) -> Option<Use> {
        let environment = fs::read(format!("/proc/{}/environ", held.pid)).ok()?;
        let job = job_of(&environment)?;
        let device = match held.place.instance {
            None => format!("{}/{}", self.node, held.place.gpu),
            Some((gpu, compute)) => format!("{}/{}:{gpu}.{compute}", self.node, held.place.gpu),
        };
        let bytes = held.bytes.iter().sum();
        Some(Use { job, device, is_instance: held.place.instance.is_some(), bytes })
    }

    /// What hotpot's Prolog has told tasks of jobs, by job and count of its starts: whether they may run.
    pub(super) fn told(&self) -> BTreeMap<(u32, u64), bool> {
        let files = self.files("task").into_iter();
        files
            .filter_map(|(job, text)| told(&text).map(|(start, runs)| ((job, start), runs)))
            .collect()
    }

    /// What was granted of memory, in MiB; all of a card or instance is a whole one.
    pub(super) fn granted(&self) -> Vec<Claim> {
        let files = self.files("grants").into_iter();
        files.flat_map(|(job, text)| granted(self.node, job, &text)).collect()
    }

    fn files(&self, kind: &str) -> BTreeMap<u32, String> {
        let entries = fs::read_dir(&self.jobs).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let (job, of) = name.split_once('.')?;
            let job = job.parse().ok().filter(|_| of == kind)?;
            Some((job, fs::read_to_string(entry.path()).ok()?))
        };
        entries.filter_map(read).collect()
    }
}

fn job_of(environment: &[u8]) -> Option<u32> {
    let words = environment.split(|byte| *byte == 0);
    let mut values = words.filter_map(|word| word.strip_prefix(b"SLURM_JOB_ID="));
    std::str::from_utf8(values.next()?).ok()?.parse().ok()
}

/// The count of starts in a job's file, and whether its tasks may run.
fn told(text: &str) -> Option<(u64, bool)> {
    let start = text.lines().find_map(|line| line.strip_prefix("restart "))?.parse().ok()?;
    Some((start, !text.lines().any(|line| line.starts_with("sent-back "))))
}

fn granted(node: &str, job: u32, text: &str) -> Vec<Claim> {
    let grants: Vec<(u32, serde_json::Value)> = serde_json::from_str(text).unwrap_or_default();
    let one = |(_, grant): (u32, serde_json::Value)| {
        let device = format!("{node}/{}", grant["device"].as_str()?);
        let part = match serde_json::from_value(grant["share"].clone()).ok()? {
            Share::Exclusive | Share::Mig { .. } => Part::Whole,
            Share::TimeSlice { memory_mib }
            | Share::Mps { memory_mib, .. }
            | Share::MemoryCapped { memory_mib, .. } => Part::Of(memory_mib),
        };
        Some(Claim { job, device, part })
    };
    grants.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_environment() {
        assert_eq!(job_of(b"A=1\0SLURM_JOB_ID=42\0SLURM_JOB_ID_X=7\0"), Some(42));
        assert_eq!(job_of(b"MY_SLURM_JOB_ID=42\0"), None);
    }

    #[test]
    fn a_jobs_files_are_read() {
        let head = "hotpot-slurm-task/1\nrestart 2\n";
        let back = format!("{head}sent-back n1: held by slurm/7\n");
        assert_eq!(told(&back), Some((2, false)));
        assert_eq!(told(&format!("{head}device 0 GPU-1\n")), Some((2, true)));
        assert_eq!(told("hotpot-slurm-task/1\n"), None);
        let share = Share::MemoryCapped { memory_mib: 5120, compute_milli: 0 };
        let of = |share| serde_json::json!({ "gpu": "GPU-1", "device": "GPU-1", "share": share });
        let text = serde_json::json!([[0, of(share)], [1, of(Share::Exclusive)]]).to_string();
        let parts: Vec<_> = granted("n1", 7, &text).into_iter().map(|claim| claim.part).collect();
        assert_eq!(parts, [Part::Of(5120), Part::Whole]);
    }
}
