//! The processes on a GPU, all of them or an error: whoever looks before it changes something must not
//! take "cannot be told" for "nobody".

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use crate::driver::{DriverError, Fault};

/// Tries of one list. It is asked for in two calls, its length and its content, and a process that
/// comes between them makes the second fail.
const TRIES: u32 = 10;
const MPS_CLIENTS: &str = "nvmlDeviceGetMPSComputeRunningProcesses_v3";

/// Every process on a device: compute, graphics, and clients of MPS where the driver lists them.
///
/// # Errors
/// The GPU is lost, or the driver refuses otherwise.
pub fn all(device: &Device<'_>) -> Result<Vec<ProcessInfo>, DriverError> {
    let mut found = compute(device)?;
    let graphics = || device.running_graphics_processes();
    let more = [listed("nvmlDeviceGetGraphicsRunningProcesses_v3", graphics), mps_clients(device)];
    for list in more {
        match list {
            Ok(processes) => found.extend(processes),
            Err(error) if error.is(&Fault::NotSupported) || error.is(&Fault::TooOld) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Processes that compute on a device.
///
/// # Errors
/// The GPU is lost, or the driver refuses otherwise.
pub fn compute(device: &Device<'_>) -> Result<Vec<ProcessInfo>, DriverError> {
    listed("nvmlDeviceGetComputeRunningProcesses_v3", || device.running_compute_processes())
}

/// Clients of MPS on a device.
///
/// # Errors
/// The GPU is lost, or the driver refuses otherwise.
pub fn mps_clients(device: &Device<'_>) -> Result<Vec<ProcessInfo>, DriverError> {
    listed(MPS_CLIENTS, || device.mps_running_compute_processes())
}

fn listed(
    call: &'static str,
    ask: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, DriverError> {
    let mut answer = ask();
    for _ in 1..TRIES {
        if !matches!(answer, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        answer = ask();
    }
    answer.map_err(DriverError::of(call))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_list_that_grows_is_asked_for_again_but_not_for_ever() {
        let asked = Cell::new(0);
        let grows_until = |calm: u32| {
            asked.set(0);
            listed("nvmlX", || {
                asked.set(asked.get() + 1);
                if asked.get() < calm { Err(NvmlError::InsufficientSize(None)) } else { Ok(vec![]) }
            })
        };
        assert!(grows_until(3).is_ok());
        assert_eq!(asked.get(), 3);
        assert!(grows_until(u32::MAX).is_err());
        assert_eq!(asked.get(), TRIES);
    }
}
