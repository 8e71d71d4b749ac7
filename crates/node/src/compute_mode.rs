//! Who may make contexts on a GPU: reading and setting the driver's compute mode.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode as DriverMode;

use crate::driver::{Driver, DriverError, Fault};
use crate::inventory::ComputeMode;

/// The mode in force; the default one where a GPU has no such modes. `None` while MIG mode is on: then
/// instances have modes, and the GPU has none (NVML header, `nvmlDeviceGetComputeMode`).
///
/// # Errors
/// The GPU is lost, or the driver refuses otherwise.
pub fn read(device: &Device<'_>) -> Result<Option<ComputeMode>, DriverError> {
    if device.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Ok(None);
    }
    let mode = device.compute_mode().map_err(DriverError::of("nvmlDeviceGetComputeMode"));
    let mode = match mode {
        Err(error) if error.is(&Fault::NotSupported) => return Ok(Some(ComputeMode::Default)),
        other => other?,
    };
    Ok(Some(match mode {
        DriverMode::Default => ComputeMode::Default,
        DriverMode::Prohibited => ComputeMode::Prohibited,
        // The thread variant was removed from drivers long ago; it admitted one process as well.
        DriverMode::ExclusiveProcess | DriverMode::ExclusiveThread => ComputeMode::ExclusiveProcess,
    }))
}

/// Sets the mode; does nothing if it is in force. MIG mode must be off.
///
/// # Errors
/// [`Fault::NoPermission`] without root, and others.
pub fn set(driver: &Driver, uuid: &str, mode: ComputeMode) -> Result<(), DriverError> {
    let mut device = driver.device(uuid)?;
    if read(&device).map_err(|error| error.on(uuid))? == Some(mode) {
        return Ok(());
    }
    let wanted = match mode {
        ComputeMode::Default => DriverMode::Default,
        ComputeMode::Prohibited => DriverMode::Prohibited,
        ComputeMode::ExclusiveProcess => DriverMode::ExclusiveProcess,
    };
    let call = DriverError::of("nvmlDeviceSetComputeMode");
    device.set_compute_mode(wanted).map_err(|error| call(error).on(uuid))
}
