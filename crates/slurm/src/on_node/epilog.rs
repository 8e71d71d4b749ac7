//! After a job's last task, however it ended: what it held is counted and taken back.

use std::collections::BTreeSet;

use node::account::Account;
use node::gpu_lock::Taken;
use node::journal::Change;
use node::machine::MachineError;
use serde::Serialize;

use super::{Node, NodeError, holder, locked};
use crate::job::Job;
use crate::usage::{self, UsedOn};

/// Files of a job that say what it has.
const TOLD: [&str; 2] = ["task", "grants"];

/// What a job had booked with its limiter on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Used {
    /// Position in gres.conf.
    pub index: u32,
    /// What CUDA calls the device.
    pub device: String,
    /// The account.
    pub account: Account,
}

/// What was found that jobs had left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Jobs that held something and are gone.
    pub gone: Vec<u32>,
    /// Why accounting has not taken what jobs used, which is no fault of the node.
    pub usage: Option<String>,
}

impl Node {
    /// Takes back what a job held on this node, and says what it had used. Run again, it finds nothing.
    ///
    /// # Errors
    /// The journal cannot be written, or a limit or a file cannot be taken away.
    pub fn epilog(&mut self, id: u32) -> Result<Vec<Used>, NodeError> {
        let granted = self.read_grants(id);
        let used = granted.iter().filter_map(|(index, grant)| {
            let account = self.machine.account(grant)?;
            Some(Used { index: *index, device: grant.device.clone(), account })
        });
        let used: Vec<Used> = used.collect();
        self.keep_usage(id, &used);
        self.take_back(id)?;
        self.remove_files(id, &["lock"])?;
        Ok(used)
    }

    /// Nothing that goes wrong here takes a node out of use: the job is over, and only its figures are lost.
    fn keep_usage(&self, id: u32, used: &[Used]) {
        let Some(used) = UsedOn::of(&self.name, used) else { return };
        if usage::write(&self.jobs, id, &used).is_ok() {
            // `tidy` does it if this cannot be started.
            let _started = usage::publish_later(&self.name);
        }
    }

    /// Takes back what jobs hold that Slurm no longer has on this node: their Epilog never ran. Says which.
    ///
    /// # Errors
    /// As [`Node::epilog`], or Slurm does not answer.
    pub fn tidy(&mut self) -> Result<Tidied, NodeError> {
        let published = usage::publish(self.slurm, &self.jobs, false);
        let holds = self.machine.holds()?;
        let held: BTreeSet<u32> =
            holds.iter().filter_map(|hold| super::job_of(&hold.who)).collect();
        let mut gone = Vec::new();
        for id in self.jobs_with_files().union(&held).copied() {
            if !Job::may_be_there(self.slurm, id, |_| true)? {
                self.take_back(id)?;
                self.remove_files(id, &["lock"])?;
                gone.extend(held.contains(&id).then_some(id));
            }
        }
        self.put_back_unheld()?;
        Ok(Tidied { gone, usage: published.err().map(|error| error.to_string()) })
    }

    /// Puts back what a Prolog had begun that was killed before it noted a hold. Divisions of cards are left
    /// alone: a change of the node's layout may be under way.
    fn put_back_unheld(&mut self) -> Result<(), NodeError> {
        let noted = self.machine.journal().before().map_err(MachineError::from)?;
        let is_division = |was: &Change| ["layout", "mig-mode"].contains(&was.aspect());
        let divided: BTreeSet<&String> =
            noted.iter().filter(|(_, was)| is_division(was)).map(|(gpu, _)| gpu).collect();
        let gpus = noted.iter().map(|(gpu, _)| gpu).filter(|gpu| !divided.contains(gpu)).cloned();
        self.put_back(gpus.collect())
    }

    /// Takes back what a job holds here, and puts GPUs that nobody else holds back as they were.
    pub(super) fn take_back(&mut self, id: u32) -> Result<(), NodeError> {
        let granted = self.read_grants(id);
        let who = holder(id);
        let held = self.machine.holds()?.into_iter().filter(|hold| hold.who == who);
        let mut gpus: BTreeSet<String> = held.map(|hold| hold.gpu).collect();
        gpus.extend(granted.iter().map(|(_, grant)| grant.gpu.clone()));
        if gpus.is_empty() {
            return self.remove_files(id, &TOLD);
        }
        let mut first_error = None;
        for (_, grant) in &granted {
            // The rest is taken back all the same.
            let revoked = self.machine.revoke(grant);
            first_error = first_error.or(revoked.err());
        }
        self.machine.release_all(&who)?;
        self.unmap_job(&granted, id)?;
        self.put_back(gpus)?;
        self.remove_files(id, &TOLD)?;
        first_error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Puts GPUs back as they were before hotpot, as far as nobody holds them.
    fn put_back(&mut self, gpus: BTreeSet<String>) -> Result<(), NodeError> {
        let mut locks = Vec::new();
        let mut free = Vec::new();
        for gpu in gpus {
            if let Taken::Ours(lock) = locked(&gpu)? {
                locks.push(lock);
                free.push(gpu);
            }
        }
        // What cannot be put back now stays in the journal for the next time.
        let _left = self.machine.restore(&free)?;
        Ok(())
    }
}
