//! What `nvidia-smi` shows of the GPUs: asked of the simulated NVML, as the real one asks the real. So it sees
//! what any program sees, in a capped task too.

use std::time::Duration;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

/// The simulated NVML, beside this program. Never what the loader would find: that may be a real one.
const LIBRARY: &str = "libhotpot_fake_nvml.so";
/// A little longer than the driver's period of sampling: a program is told a use once it has watched that long.
const PERIOD: Duration = Duration::from_millis(200);
/// Room for the path of a process's program, in bytes (`PATH_MAX`).
const NAME_MAX: usize = 4096;
/// Columns of that path.
const NAME_COLUMNS: usize = 33;
const MIB: u64 = 1 << 20;
const RULE: &str =
    "+-------------------------------------------------------------------------------+\n";

/// The index of a GPU, and the GPU if it can be reached.
type Slot<'nvml> = (u32, Result<Device<'nvml>, NvmlError>);

/// Opens the simulated driver.
///
/// # Errors
/// The library is not there, or the environment names no simulated machine.
pub fn open() -> Result<Nvml, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let library = program.with_file_name(LIBRARY);
    if !library.exists() {
        let way_out = "build it with `cargo build -p fake-nvml`";
        return Err(format!("{}: it is not there; {way_out}", library.display()));
    }
    let opened = Nvml::builder().lib_path(library.as_os_str()).init();
    opened.map_err(|error| format!("Failed to initialize NVML: {error}"))
}

/// `-L`: a line for each GPU, and below it one for each of its MIG devices.
///
/// # Errors
/// The driver's.
pub fn list(nvml: &Nvml) -> Result<String, String> {
    let mut lines = Vec::new();
    for (index, gpu) in gpus(nvml)? {
        match gpu.and_then(|gpu| lines_of(index, &gpu)) {
            Ok(more) => lines.extend(more),
            Err(error) => lines.push(unreachable(index, &error)),
        }
    }
    Ok(lines.join("\n"))
}

fn lines_of(index: u32, gpu: &Device<'_>) -> Result<Vec<String>, NvmlError> {
    let mut lines = vec![format!("GPU {index}: {} (UUID: {})", gpu.name()?, gpu.uuid()?)];
    for (at, part) in mig_devices(gpu) {
        let (profile, uuid) = (profile(&part)?, part.uuid()?);
        lines.push(format!("  MIG {profile:<11} Device {at:>2}: (UUID: {uuid})"));
    }
    Ok(lines)
}

/// Without arguments: versions, the GPUs with memory and use, and their processes.
///
/// # Errors
/// The driver's.
pub fn overview(nvml: &Nvml) -> Result<String, String> {
    let gpus = gpus(nvml)?;
    if gpus.iter().flat_map(|(_, gpu)| gpu).any(|gpu| !processes(gpu).is_empty()) {
        std::thread::sleep(PERIOD);
    }
    let mut text = head(nvml).map_err(|error| error.to_string())?;
    for (index, gpu) in &gpus {
        let rows = match gpu {
            Ok(gpu) => rows(*index, gpu).unwrap_or_else(|error| unreachable_row(*index, &error)),
            Err(error) => unreachable_row(*index, error),
        };
        text.push_str(&rows);
    }
    text.push_str(RULE);
    text.push_str(&process_table(nvml, &gpus));
    text.push_str(RULE.trim_end());
    Ok(text)
}

fn head(nvml: &Nvml) -> Result<String, NvmlError> {
    let (driver, cuda) = (nvml.sys_driver_version()?, nvml.sys_cuda_driver_version()?);
    let cuda = format!("{}.{}", cuda / 1000, cuda % 1000 / 10);
    let versions =
        format!("NVIDIA-SMI {driver:<14} Driver Version: {driver:<14} CUDA Version: {cuda}");
    let marked = wide("SIMULATED by hotpot: there are no such GPUs in this machine");
    let heads = row("GPU", "Name", "Memory-Usage", "GPU-Util");
    Ok([RULE, &marked, &wide(&versions), RULE, &heads, RULE].concat())
}

/// A row of one cell.
fn wide(text: &str) -> String {
    format!("| {text:<77} |\n")
}

/// The row of a GPU, and those of its MIG devices.
fn rows(index: u32, gpu: &Device<'_>) -> Result<String, NvmlError> {
    let use_percent = gpu.utilization_rates().map(|rates| format!("{}%", rates.gpu));
    let use_percent = use_percent.unwrap_or_else(|_| "N/A".into());
    let mut rows = row(&index.to_string(), &gpu.name()?, &memory(gpu), &use_percent);
    for (at, part) in mig_devices(gpu) {
        let name = format!("  MIG {} Device {at}", profile(&part)?);
        rows.push_str(&row("", &name, &memory(&part), "N/A"));
    }
    Ok(rows)
}

fn row(index: &str, name: &str, memory: &str, use_percent: &str) -> String {
    format!("| {index:>3}  {name:<39.39} | {memory:>19} | {use_percent:>8} |\n")
}

/// Used and all memory of a device; in MIG mode the driver does not tell everybody that of the whole GPU.
fn memory(device: &Device<'_>) -> String {
    device.memory_info().map_or_else(
        |_| "N/A".into(),
        |memory| format!("{}MiB / {}MiB", memory.used / MIB, memory.total / MIB),
    )
}

fn process_table(nvml: &Nvml, gpus: &[Slot<'_>]) -> String {
    let heads = ["GPU", "GI", "CI", "PID", "Type", "Process name", "GPU Memory"].map(str::to_owned);
    let mut text = wide("Processes:") + &process_row(&heads);
    let mut none = true;
    for (index, gpu) in gpus {
        for (kind, process) in gpu.iter().flat_map(processes) {
            none = false;
            text.push_str(&process_row(&cells(nvml, *index, kind, &process)));
        }
    }
    if none {
        text.push_str(&wide("  No running processes found"));
    }
    text
}

fn process_row([gpu, gi, ci, pid, kind, name, memory]: &[String; 7]) -> String {
    format!(
        "| {gpu:>3}  {gi:>3}  {ci:>3}  {pid:>9}  {kind:<4}  {name:<NAME_COLUMNS$}  {memory:>10} |\n"
    )
}

fn cells(nvml: &Nvml, gpu: u32, kind: &str, process: &ProcessInfo) -> [String; 7] {
    let instance = |id: Option<u32>| id.map_or_else(|| "N/A".into(), |id| id.to_string());
    let name = nvml.sys_process_name(process.pid, NAME_MAX);
    let memory = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => format!("{}MiB", bytes / MIB),
        UsedGpuMemory::Unavailable => "N/A".into(),
    };
    [
        gpu.to_string(),
        instance(process.gpu_instance_id),
        instance(process.compute_instance_id),
        process.pid.to_string(),
        kind.into(),
        ending(&name.unwrap_or_else(|_| "[Not Found]".into())),
        memory,
    ]
}

/// The end of a path, which tells more than its beginning.
fn ending(name: &str) -> String {
    let surplus = name.chars().count().saturating_sub(NAME_COLUMNS);
    if surplus == 0 {
        return name.into();
    }
    let kept: String = name.chars().skip(surplus + 3).collect();
    format!("...{kept}")
}

/// The processes of a GPU that the driver shows to us, by their letters.
fn processes(gpu: &Device<'_>) -> Vec<(&'static str, ProcessInfo)> {
    let lists = [
        ("C", gpu.running_compute_processes()),
        ("G", gpu.running_graphics_processes()),
        ("M+C", gpu.mps_running_compute_processes()),
    ];
    let of = |(kind, list)| {
        let list: Result<Vec<ProcessInfo>, NvmlError> = list;
        list.unwrap_or_default().into_iter().map(move |process| (kind, process))
    };
    lists.into_iter().flat_map(of).collect()
}

/// All GPUs by index.
fn gpus(nvml: &Nvml) -> Result<Vec<Slot<'_>>, String> {
    let count = nvml.device_count().map_err(|error| error.to_string())?;
    Ok((0..count).map(|index| (index, nvml.device_by_index(index))).collect())
}

/// The MIG devices of a GPU by index; none without MIG.
fn mig_devices<'nvml>(gpu: &Device<'nvml>) -> Vec<(u32, Device<'nvml>)> {
    let most = gpu.mig_device_count().unwrap_or(0);
    (0..most).filter_map(|at| Some((at, gpu.mig_device_by_index(at).ok()?))).collect()
}

/// The profile of a MIG device, which ends its name.
fn profile(part: &Device<'_>) -> Result<String, NvmlError> {
    let name = part.name()?;
    Ok(name.rsplit_once(" MIG ").map_or(name.as_str(), |(_, profile)| profile).to_owned())
}

fn unreachable(index: u32, error: &NvmlError) -> String {
    format!("Unable to determine the device handle for GPU {index}: {error}")
}

fn unreachable_row(index: u32, error: &NvmlError) -> String {
    row(&index.to_string(), &format!("cannot be reached: {error}"), "ERR!", "ERR!")
}
