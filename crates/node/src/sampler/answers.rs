//! What one GPU answers: asks, and remembers what it cannot do so that it is not asked again.

use nvml_wrapper::error::NvmlError;

/// Things that a GPU may not be able to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Memory,
    Use,
    Encoder,
    Decoder,
    Temperature,
    Fields,
    Power,
    Energy,
    SmClock,
    MemoryClock,
    PcieReplays,
    Mig,
    Compute,
    Graphics,
    Mps,
    ProcessUse,
    Profile,
    InstanceProfile,
    Events,
}

/// The state of a conversation with one GPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// One bit for each thing that it cannot tell.
    refused: u32,
    /// The driver said in this round that the GPU is gone.
    lost: bool,
}

impl Answers {
    /// Begins a round: what was lost may be back.
    pub(super) fn begin(&mut self) {
        self.lost = false;
    }

    /// Whether the driver has said in this round that the GPU is gone.
    pub(super) fn lost(self) -> bool {
        self.lost
    }

    /// Asks again for what was refused, since the GPU's mode has changed.
    pub(super) fn forget(&mut self) {
        self.refused = 0;
    }

    /// Whether something is known to be in vain.
    pub(super) fn refused(self, what: Ask) -> bool {
        self.refused & 1 << what as u32 != 0
    }

    /// Notes that something is not worth asking.
    pub(super) fn refuse(&mut self, what: Ask) {
        self.refused |= 1 << what as u32;
    }

    /// Makes a call, unless it is known to be in vain.
    pub(super) fn ask<T>(
        &mut self,
        what: Ask,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        if self.lost || self.refused(what) {
            return None;
        }
        match call() {
            Ok(answer) => Some(answer),
            Err(NvmlError::GpuLost) => {
                self.lost = true;
                None
            }
            Err(
                NvmlError::NotSupported
                | NvmlError::FunctionNotFound
                | NvmlError::FailedToLoadSymbol(_)
                | NvmlError::NoPermission,
            ) => {
                self.refuse(what);
                None
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_asked_once() {
        let mut answers = Answers::default();
        let mut calls = 0;
        for _ in 0..3 {
            let answer = answers.ask(Ask::Encoder, || {
                calls += 1;
                Err::<(), _>(NvmlError::NotSupported)
            });
            assert_eq!(answer, None);
        }
        assert_eq!(calls, 1);
        assert_eq!(answers.ask(Ask::Decoder, || Ok(7)), Some(7), "other things are still asked");
        answers.forget();
        assert_eq!(answers.ask(Ask::Encoder, || Ok(7)), Some(7));
    }

    #[test]
    fn a_passing_error_is_asked_again_and_a_lost_gpu_in_the_next_round() {
        let mut answers = Answers::default();
        assert_eq!(answers.ask(Ask::Power, || Err::<u32, _>(NvmlError::Unknown)), None);
        assert_eq!(answers.ask(Ask::Power, || Ok(7)), Some(7));
        assert_eq!(answers.ask(Ask::Power, || Err::<u32, _>(NvmlError::GpuLost)), None);
        assert!(answers.lost());
        assert_eq!(answers.ask(Ask::Use, || Ok(7)), None);
        answers.begin();
        assert_eq!(answers.ask(Ask::Use, || Ok(7)), Some(7));
    }
}
