//! Which jobs are on a GPU, for dcgm-exporter (`--hpc-job-mapping-dir`): a file named after the GPU's
//! position, a job's number a line.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::files::Granted;
use super::{Node, NodeError, file_error};
use crate::whole;

/// Held by whoever edits, as Prologs and Epilogs do at once. The exporter passes over names that are no GPU's.
const LOCK: &str = ".lock";
/// Rights of the files: the exporter may be another user's.
const MODE: u32 = 0o644;

impl Node {
    /// Writes a job down at its GPUs.
    pub(super) fn map_job(&self, granted: &[Granted], id: u32) -> Result<(), NodeError> {
        self.edit_mapping(granted, |jobs| {
            jobs.insert(id);
        })
    }

    /// Strikes a job out.
    pub(super) fn unmap_job(&self, granted: &[Granted], id: u32) -> Result<(), NodeError> {
        self.edit_mapping(granted, |jobs| {
            jobs.remove(&id);
        })
    }

    fn edit_mapping(
        &self,
        granted: &[Granted],
        edit: impl Fn(&mut BTreeSet<u32>),
    ) -> Result<(), NodeError> {
        let Some(folder) = &self.site.job_mapping else { return Ok(()) };
        let lock = fs::create_dir_all(folder).and_then(|()| File::create(folder.join(LOCK)));
        let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
        let _held_till_the_end = lock.map_err(file_error(folder))?;
        for (_, grant) in granted {
            let Ok(device) = self.machine.driver().device(&grant.gpu) else { continue };
            let Ok(index) = device.index() else { continue };
            let path = folder.join(index.to_string());
            edit_one(&path, &edit).map_err(file_error(&path))?;
        }
        Ok(())
    }
}

fn edit_one(path: &Path, edit: &impl Fn(&mut BTreeSet<u32>)) -> io::Result<()> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut jobs = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    edit(&mut jobs);
    let text: String = jobs.iter().map(|job| format!("{job}\n")).collect();
    whole::write(path, &text, MODE)
}
