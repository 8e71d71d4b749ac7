//! MPS daemons of a machine's GPUs: started, found again, looked after.

use std::path::{Path, PathBuf};

use super::Machine;
use super::error::MachineError;
use crate::journal::Change;
use crate::mps::{Caps, Daemon, Mps};

/// Folder of MPS daemons that serve all users: the state folder of root lets nobody else in.
const MPS_OF_ROOT: &str = "/run/hotpot/mps";
const STATE_OF_ROOT: &str = "/var/lib/hotpot";

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
    /// those anew that have died or do not answer.
    pub fn look_after(&mut self) -> Vec<Mended> {
        let ill = self.daemons.iter().filter_map(|(gpu, daemon)| {
            let why = daemon.health().err()?;
            Some((gpu.clone(), why.to_string()))
        });
        let ill: Vec<(String, String)> = ill.collect();
        let mended = ill.into_iter().map(|(gpu, why)| {
            let daemon = |on| Change::MpsDaemon { on };
            let again =
                self.with_lock(|machine| machine.change(&gpu, &daemon(true), &daemon(false)));
            Mended { left: again.err().map(|error| error.to_string()), gpu, why }
        });
        mended.collect()
    }

    pub(super) fn start_mps(&mut self, gpu: &str) -> Result<(), MachineError> {
        if self.adopt_mps(gpu) {
            return Ok(());
        }
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
        self.daemons.remove(gpu);
        Ok(Mps::clear(&self.mps_folder(gpu))?)
    }

    /// Whether a daemon runs for the GPU and answers, whoever started it.
    pub(super) fn adopt_mps(&mut self, gpu: &str) -> bool {
        let Ok(mps) = Mps::find() else { return false };
        let Ok(Some(daemon)) = mps.adopt(&self.mps_folder(gpu), self.mps) else { return false };
        self.daemons.insert(gpu.to_owned(), daemon);
        true
    }

    /// Variables that make a process a client of the GPU's daemon. One that we know is not asked
    /// again, as asking starts a process: that it is there suffices.
    pub(super) fn mps_variables(
        &mut self,
        gpu: &str,
        caps: Caps,
    ) -> Result<Vec<(String, String)>, MachineError> {
        let lives = |daemon: &&Daemon| Path::new(&format!("/proc/{}", daemon.pid())).exists();
        if !self.daemons.get(gpu).as_ref().is_some_and(lives) && !self.adopt_mps(gpu) {
            let why = "no MPS daemon runs for it; set its mode again";
            return Err(MachineError::refused(gpu, why));
        }
        Ok(self.daemons.get(gpu).map(|daemon| daemon.variables(caps)).unwrap_or_default())
    }

    fn refuse_mps_clients(&self, gpu: &str) -> Result<(), MachineError> {
        let device = self.driver.device(gpu).ok();
        let clients = device.and_then(|device| device.mps_running_compute_processes().ok());
        // Where the driver does not say, as for a lost GPU, there is nothing left to be spared.
        let clients = clients.unwrap_or_default();
        if clients.is_empty() {
            return Ok(());
        }
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
