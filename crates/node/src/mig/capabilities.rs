//! The device files of an instance, as NVIDIA's driver tells of them.

use std::path::Path;

/// The device files of an instance as NVIDIA's driver names them: the minor numbers are in
/// `/proc/driver/nvidia/capabilities/gpuN/mig/giN/access` and below in `ciN/access`, the files in
/// `/dev/nvidia-caps` (NVIDIA MIG guide, "Device nodes and capabilities").
///
/// * `told` — the folder of capabilities, `/proc/driver/nvidia/capabilities`.
/// * `devices` — that of device files, `/dev`.
/// * `instance` — minor number of the GPU, number of the GPU instance and of the compute instance.
pub fn capability_files(
    told: &Path,
    devices: &Path,
    (minor, gpu_instance, compute_instance): (u32, u32, u32),
) -> Option<[String; 2]> {
    let base = told.join(format!("gpu{minor}/mig/gi{gpu_instance}"));
    let file = |path: &Path| {
        let text = std::fs::read_to_string(path).ok()?;
        let number = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?;
        let name = format!("nvidia-caps/nvidia-cap{}", number.trim());
        Some(devices.join(name).display().to_string())
    };
    let inside = base.join(format!("ci{compute_instance}/access"));
    Some([file(&base.join("access"))?, file(&inside)?])
}
