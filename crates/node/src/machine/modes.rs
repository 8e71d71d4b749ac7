//! Sharing modes made real: MIG mode, compute mode and the MPS daemon of a GPU.

use model::{SharingKind, SharingMode};

use super::Machine;
use super::error::MachineError;
use crate::compute_mode;
use crate::driver::Fault;
use crate::inventory::ComputeMode;
use crate::journal::Change;
use crate::mig;
use crate::time_slice::Turn;

/// The properties of a GPU by which its sharing mode is known.
#[derive(Clone, Copy, Debug)]
struct Properties {
    mig: bool,
    /// Whether the folder of its MPS daemon is there; the daemon may be dead.
    mps_folder: bool,
    /// `None` in MIG mode.
    compute_mode: Option<ComputeMode>,
}

/// What a sharing mode asks for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    mig: bool,
    mps: bool,
    /// `None` if any will do.
    compute_mode: Option<ComputeMode>,
}

impl Machine {
    /// Puts a GPU into a sharing mode; what is so already is left alone.
    ///
    /// # Errors
    /// Somebody uses the GPU, the mode cannot be had (with the reason), or the journal cannot be
    /// written. Properties that were changed before that stay changed until [`Machine::restore`].
    pub fn set_mode(&mut self, gpu: &str, mode: SharingMode) -> Result<(), MachineError> {
        let found = self.properties(gpu)?;
        if found.compute_mode == Some(ComputeMode::Prohibited) {
            let why = "its compute mode is prohibited: somebody keeps everybody off it";
            return Err(MachineError::refused(gpu, why));
        }
        let wanted = self.wanted(gpu, mode.kind())?;
        let mps_is_so =
            if wanted.mps { self.take_over_mps(gpu).is_ok_and(|it| it) } else { !found.mps_folder };
        let mode_is_so = wanted.compute_mode.is_none_or(|mode| found.compute_mode == Some(mode));
        if found.mig == wanted.mig && mode_is_so && mps_is_so {
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

    /// Under MPS only the server should have a context; else a process that forgot the daemon's pipe
    /// would run beside it, without caps (NVIDIA MPS guide, "Compute modes"). Who has a GPU alone
    /// finds it as it was at first: that is the choice of whoever runs the machine.
    fn wanted(&self, gpu: &str, kind: SharingKind) -> Result<Wanted, MachineError> {
        let compute_mode = match kind {
            SharingKind::Mps => Some(ComputeMode::ExclusiveProcess),
            SharingKind::TimeSlice | SharingKind::MemoryCapped => Some(ComputeMode::Default),
            SharingKind::Mig => None,
            SharingKind::Exclusive => {
                let before = self.before_of(gpu)?;
                before.iter().find_map(|was| match was {
                    Change::ComputeMode { mode } => ComputeMode::parse(mode),
                    Change::Layout { .. }
                    | Change::MigMode { .. }
                    | Change::Turn { .. }
                    | Change::MpsDaemon { .. } => None,
                })
            }
        };
        let (mig, mps) = (kind == SharingKind::Mig, kind == SharingKind::Mps);
        Ok(Wanted { mig, mps, compute_mode })
    }

    /// Takes down what is not wanted before it sets up what is.
    fn apply(&mut self, gpu: &str, wanted: Wanted) -> Result<(), MachineError> {
        let found = self.properties(gpu)?;
        let daemon = |on| Change::MpsDaemon { on };
        if found.mps_folder && !wanted.mps {
            // The folder is hotpot's own: at first there was none.
            self.change(gpu, &daemon(false), &daemon(false))?;
        }
        if found.mig != wanted.mig {
            self.switch_mig(gpu, found)?;
        }
        if let Some(mode) = wanted.compute_mode {
            let set = self.switch_compute_mode(gpu, mode);
            // Without root the caps still hold for whoever uses the daemon, as all tasks do.
            let tolerated = |error: &MachineError| {
                wanted.mps && error.fault().is_some_and(|fault| *fault == Fault::NoPermission)
            };
            set.or_else(|error| if tolerated(&error) { Ok(()) } else { Err(error) })?;
        }
        if wanted.mps && !self.take_over_mps(gpu).is_ok_and(|it| it) {
            self.change(gpu, &daemon(true), &daemon(false))?;
        }
        Ok(())
    }

    /// Switches MIG mode; what is lost by that is noted, to come back.
    fn switch_mig(&mut self, gpu: &str, found: Properties) -> Result<(), MachineError> {
        if found.mig {
            self.note_layout(gpu)?;
        }
        if let Some(mode) = found.compute_mode.filter(|mode| *mode != ComputeMode::Default) {
            self.journal.note(gpu, &compute_mode_change(mode))?;
        }
        let (what, was) = (Change::MigMode { on: !found.mig }, Change::MigMode { on: found.mig });
        self.change(gpu, &what, &was)
    }

    fn switch_compute_mode(&mut self, gpu: &str, mode: ComputeMode) -> Result<(), MachineError> {
        let found = self.properties(gpu)?.compute_mode.unwrap_or_default();
        if found == mode {
            return Ok(());
        }
        self.change(gpu, &compute_mode_change(mode), &compute_mode_change(found))
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
        let mps_folder = self.mps_folder(gpu).exists();
        Ok(Properties { mig, mps_folder, compute_mode })
    }
}

pub(super) fn compute_mode_change(mode: ComputeMode) -> Change {
    Change::ComputeMode { mode: mode.as_str().to_owned() }
}
