//! A node whose driver does not answer, mostly one without GPUs: Slurm has one Prolog for all nodes, and jobs that want
//! no GPU run there as ever.

use std::fs;
use std::path::PathBuf;

use node::machine::MachineError;

use super::files::{TASK_MODE, head, replace};
use super::{NodeError, Verdict, file_error};
use crate::commands::{Slurm, SlurmError};
use crate::job::Job;
use crate::site::Site;

/// A node that can give nothing.
#[derive(Debug)]
pub struct Without {
    name: String,
    jobs: PathBuf,
    why: NodeError,
}

impl Without {
    /// * `why` — the node cannot be opened.
    ///
    /// # Errors
    /// That, if it is not for the driver.
    pub fn driver(name: &str, site: &Site, why: NodeError) -> Result<Self, NodeError> {
        if !matches!(why, NodeError::Machine(MachineError::Driver(_))) {
            return Err(why);
        }
        Ok(Self { name: name.to_owned(), jobs: site.jobs_of(name), why })
    }

    /// Tells a job's tasks that they have no devices.
    ///
    /// # Errors
    /// The job has booked some, Slurm does not answer, or the file cannot be written.
    pub fn prolog(self, id: u32) -> Result<Verdict, NodeError> {
        let job = match Job::ask(Slurm, id) {
            Ok(Some(job)) => job,
            // Whatever it is, it can have nothing here.
            Ok(None) | Err(SlurmError::Answer { .. }) => return Ok(Verdict::Nothing),
            Err(error) => return Err(error.into()),
        };
        if !job.booked_on(&self.name).is_empty() {
            return Err(self.why);
        }
        let path = self.jobs.join(format!("{id}.task"));
        replace(&path, &head(&job), TASK_MODE).map_err(file_error(&path))?;
        Ok(Verdict::Nothing)
    }

    /// Removes a job's file.
    ///
    /// # Errors
    /// The job was given something, which only the driver can take back.
    pub fn epilog(self, id: u32) -> Result<(), NodeError> {
        if self.jobs.join(format!("{id}.grants")).exists() {
            return Err(self.why);
        }
        // What is not there need not go.
        let _gone = fs::remove_file(self.jobs.join(format!("{id}.task")));
        Ok(())
    }

    /// Removes files of jobs that Slurm no longer has here.
    ///
    /// # Errors
    /// Slurm does not answer, or as [`Without::epilog`].
    pub fn tidy(self) -> Result<(), NodeError> {
        let entries = fs::read_dir(&self.jobs).into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            match name.split_once('.').and_then(|(id, kind)| Some((id.parse().ok()?, kind))) {
                Some((_, "grants")) => return Err(self.why),
                Some((id, "task")) if !Job::may_be_there(Slurm, id, |_| true)? => {
                    let _gone = fs::remove_file(self.jobs.join(&name));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
