//! MPS daemons of a machine's GPUs: started, found again, looked after.

use std::path::{Path, PathBuf};

use super::Machine;
use super::error::MachineError;
use crate::driver::Fault;
use crate::journal::Change;
use crate::mps::{Caps, Daemon, Mps, MpsError};
use crate::processes;
use crate::tool::ToolError;

/// Folder of MPS daemons that serve all users: the state folder of root lets nobody else in.
const MPS_OF_ROOT: &str = "/run/hotpot/mps";
const STATE_OF_ROOT: &str = "/var/lib/hotpot";

/// Looks in a row at which a daemon that lives is not well, until it is replaced: its clients lose
/// their GPU by that, and a machine under load is slow to answer.
const FAILURES_MAX: u32 = 3;

/// An MPS daemon that was not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// UUID of the GPU.
    pub gpu: String,
    /// What was wrong with it. Its clients have lost their GPU.
    pub why: String,
    /// `None` if a new one runs; else why not.
    pub left: Option<String>,
}

impl Machine {
    /// Looks after the MPS daemons of the GPUs that this process has put into that mode, and starts
    /// those anew that have died, or that do not answer three times in a row. A GPU whose daemon
    /// cannot be started is told once; [`Machine::set_mode`] tries again.
    pub fn look_after(&mut self) -> Vec<Mended> {
        let ill = self.daemons.iter().filter_map(|(gpu, daemon)| {
            let why = daemon.health().err().map(|why| why.to_string());
            let failures = self.mps_failures.entry(gpu.clone()).or_default();
            *failures = if why.is_some() { *failures + 1 } else { 0 };
            let is_due = !daemon.lives() || *failures >= FAILURES_MAX;
            Some((gpu.clone(), why?)).filter(|_| is_due)
        });
        let ill: Vec<(String, String)> = ill.collect();
        let mended = ill.into_iter().map(|(gpu, why)| {
            let daemon = |on| Change::MpsDaemon { on };
            let again =
                self.with_lock(|machine| machine.change(&gpu, &daemon(true), &daemon(false)));
            if again.is_err() {
                self.daemons.remove(&gpu);
            }
            Mended { left: again.err().map(|error| error.to_string()), gpu, why }
        });
        mended.collect()
    }

    /// Takes over the daemon that runs, or starts one. One that runs and is not well has as many
    /// tries as are left to it.
    pub(super) fn start_mps(&mut self, gpu: &str) -> Result<(), MachineError> {
        loop {
            match self.take_over_mps(gpu) {
                Ok(true) => return Ok(()),
                Ok(false) => break,
                Err(error @ MachineError::Tool(ToolError::Missing { .. })) => return Err(error),
                Err(_) if self.mps_failures.get(gpu) >= Some(&FAILURES_MAX) => break,
                Err(_) => {}
            }
        }
        self.mps_failures.remove(gpu);
        let folder = self.mps_folder(gpu);
        // What runs but is not well, or is left of one that was killed, makes room.
        Mps::clear(&folder)?;
        let daemon = Mps::find()?.start(gpu, &folder, self.mps, Caps::default())?;
        self.daemons.insert(gpu.to_owned(), daemon);
        Ok(())
    }

    /// Ends the daemon, unless it has clients: they would lose their GPU.
    pub(super) fn stop_mps(&mut self, gpu: &str) -> Result<(), MachineError> {
        self.refuse_mps_clients(gpu)?;
        // One that does not answer is ended without being asked.
        let _answers = self.take_over_mps(gpu);
        match self.daemons.remove(gpu) {
            Some(daemon) => Ok(daemon.stop()?),
            None => Ok(Mps::clear(&self.mps_folder(gpu))?),
        }
    }

    /// Takes over the daemon that runs for the GPU, whoever started it; `false` if none runs.
    ///
    /// # Errors
    /// One runs but is not well, or the tool is missing.
    pub(super) fn take_over_mps(&mut self, gpu: &str) -> Result<bool, MachineError> {
        let found = Mps::find()?.adopt(&self.mps_folder(gpu), self.mps);
        let daemon = match found {
            Ok(Some(daemon)) => daemon,
            // It ended while it was looked at.
            Ok(None) | Err(MpsError::Gone { .. }) => return Ok(false),
            Err(error) => {
                *self.mps_failures.entry(gpu.to_owned()).or_default() += 1;
                return Err(error.into());
            }
        };
        self.mps_failures.remove(gpu);
        self.daemons.insert(gpu.to_owned(), daemon);
        Ok(true)
    }

    /// Variables that make a process a client of the GPU's daemon. One that we know is not asked
    /// again, as asking starts a process: that it is there suffices.
    pub(super) fn mps_variables(
        &mut self,
        gpu: &str,
        caps: Caps,
    ) -> Result<Vec<(String, String)>, MachineError> {
        if !self.daemons.get(gpu).is_some_and(Daemon::lives) && !self.take_over_mps(gpu)? {
            let why = "no MPS daemon runs for it; set its mode again";
            return Err(MachineError::refused(gpu, why));
        }
        Ok(self.daemons.get(gpu).map(|daemon| daemon.variables(caps)).unwrap_or_default())
    }

    fn refuse_mps_clients(&self, gpu: &str) -> Result<(), MachineError> {
        let asked = self.driver.device(gpu).and_then(|device| processes::mps_clients(&device));
        let clients = match asked {
            Ok(clients) if clients.is_empty() => return Ok(()),
            // On a lost GPU there is nothing left to be spared.
            Err(error) if error.is(&Fault::Lost) => return Ok(()),
            other => other.map_err(|error| error.on(gpu))?,
        };
        let pids: Vec<String> = clients.iter().map(|client| client.pid.to_string()).collect();
        let why = format!("processes {} still use MPS on it", pids.join(" "));
        Err(MachineError::refused(gpu, why))
    }

    /// The folder of a GPU's MPS daemon: short, as addresses of sockets must be.
    pub(super) fn mps_folder(&self, gpu: &str) -> PathBuf {
        let short: String = gpu.trim_start_matches("GPU-").chars().take(8).collect();
        if self.state == Path::new(STATE_OF_ROOT) {
            return Path::new(MPS_OF_ROOT).join(short);
        }
        self.state.join("mps").join(short)
    }
}
