//! Sharing modes made real: MIG mode, compute mode and the MPS daemon of a GPU.

use model::{SharingKind, SharingMode};

use super::Machine;
use super::error::MachineError;
use crate::compute_mode;
use crate::inventory::ComputeMode;
use crate::journal::Change;
use crate::mig;
use crate::time_slice::Turn;

/// The properties of a GPU that a sharing mode asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Properties {
    mig: bool,
    mps: bool,
    compute_mode: ComputeMode,
}

impl Properties {
    /// Under MPS only the server may have a context; else a process that forgot the daemon's pipe
    /// would run beside it, without caps (NVIDIA MPS guide, "Compute modes").
    fn of(kind: SharingKind) -> Self {
        let mps = kind == SharingKind::Mps;
        let compute_mode = if mps { ComputeMode::ExclusiveProcess } else { ComputeMode::Default };
        Self { mig: kind == SharingKind::Mig, mps, compute_mode }
    }
}

impl Machine {
    /// Puts a GPU into a sharing mode; what is so already is left alone.
    ///
    /// # Errors
    /// Somebody uses the GPU, the mode cannot be had (with the reason), or the journal cannot be
    /// written. Properties that were changed before that stay changed until [`Machine::restore`].
    pub fn set_mode(&mut self, gpu: &str, mode: SharingMode) -> Result<(), MachineError> {
        let wanted = Properties::of(mode.kind());
        let found = self.properties(gpu)?;
        if wanted == found && (!wanted.mps || self.adopt_mps(gpu)) {
            return Ok(());
        }
        self.with_lock(|machine| machine.apply(gpu, wanted))
    }

    /// Sets the length of turns of processes that share a GPU by taking turns.
    ///
    /// The driver does not tell the length in force; [`Machine::restore`] sets its default again.
    ///
    /// # Errors
    /// The tool is missing, refuses or is silent, or the journal cannot be written.
    pub fn set_turn(&mut self, gpu: &str, turn: Turn) -> Result<(), MachineError> {
        let change = |turn: Turn| Change::Turn { length: turn.as_str().to_owned() };
        self.with_lock(|machine| machine.change(gpu, &change(turn), &change(Turn::Default)))
    }

    /// Takes down what is not wanted before it sets up what is.
    fn apply(&mut self, gpu: &str, wanted: Properties) -> Result<(), MachineError> {
        let found = self.properties(gpu)?;
        if found.mps && !wanted.mps {
            self.change(gpu, &Change::MpsDaemon { on: false }, &Change::MpsDaemon { on: true })?;
        }
        if found.mig != wanted.mig {
            if !wanted.mig {
                // What stands now goes with the mode, and is to come back.
                self.note_layout(gpu)?;
            }
            let (what, was) =
                (Change::MigMode { on: wanted.mig }, Change::MigMode { on: found.mig });
            self.change(gpu, &what, &was)?;
        }
        if found.compute_mode != wanted.compute_mode {
            let mode = |mode: ComputeMode| Change::ComputeMode { mode: mode.as_str().to_owned() };
            self.change(gpu, &mode(wanted.compute_mode), &mode(found.compute_mode))?;
        }
        if wanted.mps && !self.adopt_mps(gpu) {
            self.change(gpu, &Change::MpsDaemon { on: true }, &Change::MpsDaemon { on: false })?;
        }
        Ok(())
    }

    fn note_layout(&mut self, gpu: &str) -> Result<(), MachineError> {
        let was = self.layout(gpu)?;
        if was != (Change::Layout { instances: Vec::new() }) {
            self.change(gpu, &Change::Layout { instances: Vec::new() }, &was)?;
        }
        Ok(())
    }

    fn properties(&self, gpu: &str) -> Result<Properties, MachineError> {
        let device = self.driver.device(gpu)?;
        let mig = mig::mode(&self.driver, gpu)?.is_some_and(|(enabled, _)| enabled);
        let compute_mode = compute_mode::read(&device).map_err(|error| error.on(gpu))?;
        let mps = self.mps_folder(gpu).exists();
        Ok(Properties { mig, mps, compute_mode })
    }
}
