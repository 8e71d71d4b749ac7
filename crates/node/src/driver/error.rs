//! What the driver refuses, in words: the one place where NVML's codes become errors.

use std::path::PathBuf;

use nvml_wrapper::error::NvmlError;

/// The code of the newest calls that the safe table does not name.
const INSUFFICIENT_RESOURCES: u32 = 23;
const ARGUMENT_VERSION_MISMATCH: u32 = 25;
const INVALID_STATE: u32 = 29;

/// The driver cannot be reached, or refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The library cannot be loaded.
    #[error(
        "no NVIDIA driver: cannot load `{path}`: {why}. Install the NVIDIA driver, or name its \
         library in HOTPOT_NVML, or try hotpot on simulated GPUs: --simulate-gpus a100-80gb:1"
    )]
    NoLibrary {
        /// The file or name that was tried.
        path: PathBuf,
        /// What the loader says.
        why: String,
    },
    /// A call was refused.
    #[error("{fault} ({call}{})", gpu.as_ref().map(|gpu| format!(" on {gpu}")).unwrap_or_default())]
    Call {
        /// The NVML function.
        call: &'static str,
        /// The GPU, if it was about one: UUID, or index where the UUID is not known.
        gpu: Option<String>,
        /// Why.
        fault: Fault,
    },
}

/// Why the driver refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The kernel module is not there.
    #[error("the NVIDIA kernel module is not loaded; load it with `modprobe nvidia`")]
    NotLoaded,
    /// The library does not have the function, or not this version of it.
    #[error("the NVIDIA driver is too old for this; install a newer one")]
    TooOld,
    /// The GPU fell off the bus.
    #[error("the GPU is lost: it no longer answers on the bus; drain the machine and restart it")]
    Lost,
    /// The GPU must be reset.
    #[error("the GPU needs a reset: end what runs on it, then `nvidia-smi --gpu-reset`")]
    ResetRequired,
    /// Root only.
    #[error("not permitted: changing GPUs needs root; run hotpot as root or have an admin do it")]
    NoPermission,
    /// Somebody uses it.
    #[error("in use: end the processes on it first; monitoring such as DCGM counts too")]
    InUse,
    /// It is not in a state in which this can be done.
    #[error("the GPU is not in a state for this now; look at it with `nvidia-smi -q`")]
    WrongState,
    /// No room for an instance.
    #[error("no room left on the GPU for this instance")]
    NoRoom,
    /// No such thing.
    #[error("the driver knows no such device or instance")]
    NotFound,
    /// The GPU cannot do it.
    #[error("this GPU or driver does not support it")]
    NotSupported,
    /// Library and kernel module are of different releases.
    #[error("driver library and kernel module differ in version; restart the machine")]
    Mismatch,
    /// It took too long.
    #[error("the driver did not answer in time")]
    Timeout,
    /// The operating system keeps the device away, such as by a device cgroup.
    #[error("the operating system keeps the GPU from this process (device cgroup?)")]
    Forbidden,
    /// NVML's answer cannot be read.
    #[error("the driver's answer cannot be read: {0}")]
    Unreadable(String),
    /// Any other code.
    #[error("the driver refuses with code {0}")]
    Code(u32),
}

impl DriverError {
    /// A refused call.
    pub fn call(call: &'static str, fault: Fault) -> Self {
        Self::Call { call, gpu: None, fault }
    }

    /// The same error with the GPU that it is about, unless it names one.
    #[must_use]
    pub fn on(self, name: &str) -> Self {
        match self {
            Self::Call { call, gpu: None, fault } => {
                Self::Call { call, gpu: Some(name.to_owned()), fault }
            }
            Self::Call { gpu: Some(_), .. } | Self::NoLibrary { .. } => self,
        }
    }

    /// Why a call was refused; `None` if the driver could not be reached at all.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::NoLibrary { .. } => None,
            Self::Call { fault, .. } => Some(fault),
        }
    }

    /// Whether the call was refused for this reason.
    pub fn is(&self, fault: &Fault) -> bool {
        self.fault() == Some(fault)
    }

    /// What the wrapper says of a call, in our words.
    pub fn of(call: &'static str) -> impl Fn(NvmlError) -> Self {
        move |error| Self::call(call, Fault::of(error))
    }
}

/// A code of a raw call as a result.
///
/// # Errors
/// Any code but 0.
pub(crate) fn check(call: &'static str, code: u32) -> Result<(), DriverError> {
    match code {
        0 => Ok(()),
        code => Err(DriverError::call(call, Fault::of(NvmlError::from(code)))),
    }
}

impl Fault {
    /// What the wrapper says, in our words.
    #[allow(deprecated, reason = "one of NVML's codes is deprecated but may still come")]
    fn of(error: NvmlError) -> Self {
        match error {
            NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => Self::NotLoaded,
            NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => Self::TooOld,
            NvmlError::GpuLost => Self::Lost,
            NvmlError::ResetRequired => Self::ResetRequired,
            NvmlError::NoPermission => Self::NoPermission,
            NvmlError::InUse => Self::InUse,
            NvmlError::NotFound => Self::NotFound,
            NvmlError::NotSupported => Self::NotSupported,
            NvmlError::LibRmVersionMismatch => Self::Mismatch,
            NvmlError::Timeout => Self::Timeout,
            NvmlError::OperatingSystem => Self::Forbidden,
            NvmlError::UnexpectedVariant(INSUFFICIENT_RESOURCES) => Self::NoRoom,
            NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH) => Self::TooOld,
            NvmlError::UnexpectedVariant(INVALID_STATE) => Self::WrongState,
            NvmlError::Utf8Error(_)
            | NvmlError::NulError(_)
            | NvmlError::LibloadingError(_)
            | NvmlError::StringTooLong { .. }
            | NvmlError::IncorrectBits(_)
            | NvmlError::SetReleaseFailed
            | NvmlError::GetPciInfoFailed
            | NvmlError::PciInfoToCFailed => Self::Unreadable(error.to_string()),
            NvmlError::UnexpectedVariant(_)
            | NvmlError::Uninitialized
            | NvmlError::InvalidArg
            | NvmlError::AlreadyInitialized
            | NvmlError::InsufficientSize(_)
            | NvmlError::InsufficientPower
            | NvmlError::IrqIssue
            | NvmlError::CorruptedInfoROM
            | NvmlError::InsufficientMemory
            | NvmlError::NoData
            | NvmlError::VgpuEccNotSupported
            | NvmlError::Unknown => Self::Code(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_words_with_a_way_on() {
        let words = |code| check("nvmlX", code).map_err(|e| e.on("GPU-1").to_string());
        assert_eq!(words(0), Ok(()));
        assert!(words(15).is_err_and(|text| text.contains("lost") && text.contains("GPU-1")));
        assert!(words(23).is_err_and(|text| text.contains("no room")));
        assert!(words(13).is_err_and(|text| text.contains("too old")));
        assert!(words(4).is_err_and(|text| text.contains("root")));
        assert!(words(29).is_err_and(|text| text.contains("state") && !text.contains("in use")));
        assert!(words(777).is_err_and(|text| text.contains("777") && text.contains("nvmlX")));
    }
}
