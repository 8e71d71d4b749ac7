//! What a driver answers when it does not do what it was asked for.

use serde::{Deserialize, Serialize};

/// NVML's return codes other than success, by the numbers of `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("NVML error {} ({self:?})", *self as u32)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are NVML's own")]
#[repr(u32)]
pub enum Code {
    Uninitialized = 1,
    InvalidArgument = 2,
    NotSupported = 3,
    NoPermission = 4,
    NotFound = 6,
    InsufficientSize = 7,
    DriverNotLoaded = 9,
    Timeout = 10,
    FunctionNotFound = 13,
    GpuIsLost = 15,
    ResetRequired = 16,
    OperatingSystem = 17,
    LibRmVersionMismatch = 18,
    InUse = 19,
    Memory = 20,
    NoData = 21,
    InsufficientResources = 23,
    ArgumentVersionMismatch = 25,
    GpuNotFound = 28,
    Unknown = 999,
}
