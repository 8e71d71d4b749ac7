//! All that a simulated machine is at one moment, faults to come included.

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::gpu::Gpu;
use crate::process::{Process, ProcessKind};
use crate::spec::GpuSpec;

/// What happens instead of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The call fails with that code.
    Fail(Code),
    /// The calling process gets SIGKILL; the call is not carried out.
    Kill,
    /// The call is carried out that many ms later.
    SleepMs(u64),
    /// A process appears on a GPU and stays; then the call is carried out. With a list's second call
    /// as the moment, the list has grown since the first call told its length.
    Arrive {
        /// Index of the GPU.
        gpu: u32,
        /// The process, shown although none such may exist.
        pid: u32,
        /// In which list it stands.
        kind: ProcessKind,
    },
}

/// A fault to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The function, such as `nvmlDeviceGetMemoryInfo`, or `*` for any.
    pub call: String,
    /// At which call of it in each process, from 1; 0 for each call.
    pub nth: u64,
    /// What happens then.
    pub effect: Effect,
}

/// A critical error that the driver has reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    /// Position in the history, from 1.
    pub sequence: u64,
    /// Index of the GPU.
    pub gpu: u32,
    /// Xid code, such as 79.
    pub code: u64,
    /// GPU instance and compute instance, where it is tied to one.
    pub instance: Option<(u32, u32)>,
}

/// The machine. Every field may be set as a test needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Driver, such as `615.71.05`.
    pub driver: String,
    /// NVML, such as `13.615.71.05`.
    pub nvml: String,
    /// Newest CUDA: thousands are the major number, tens the minor.
    pub cuda: i32,
    /// The driver is not loaded: initialisation fails.
    pub unloaded: bool,
    /// The caller counts as an unprivileged user: changes are refused.
    pub unprivileged: bool,
    /// Callers other than root count as unprivileged, as with a real driver. Off at first, so that a
    /// simulated machine can be tried by anybody.
    pub root_only: bool,
    /// The driver can hold memory limits on cgroups.
    pub memory_limits: bool,
    /// Functions that the driver lacks; calling one fails. For true absence of a symbol see
    /// [`without_symbols`](crate::without_symbols).
    pub missing: Vec<String>,
    /// Faults to come.
    pub faults: Vec<Fault>,
    /// The last critical errors, the oldest first.
    pub xids: Vec<Xid>,
    /// GPUs in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Made in ms since 1970.
    pub created_ms: u64,
    /// Number of the last instance made on any GPU.
    pub(crate) serial: u32,
}

/// Critical errors that are kept.
const XIDS_MAX: usize = 256;

impl State {
    pub(crate) fn new(specs: &[GpuSpec], now_ms: u64) -> Self {
        let count: u32 = specs.iter().map(|spec| spec.count).sum();
        let models = specs.iter().flat_map(|spec| (0..spec.count).map(|_| spec.model.as_str()));
        let gpu = |(index, model)| {
            let mut gpu = Gpu::new(model, index, count);
            gpu.start_meter(now_ms);
            gpu
        };
        Self {
            driver: "615.71.05".into(),
            nvml: "13.615.71.05".into(),
            cuda: 13_050,
            unloaded: false,
            unprivileged: false,
            root_only: false,
            memory_limits: true,
            missing: Vec::new(),
            faults: Vec::new(),
            xids: Vec::new(),
            gpus: (0u32..).zip(models).map(gpu).collect(),
            created_ms: now_ms,
            serial: 0,
        }
    }

    /// The GPU at an index.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if there is none.
    pub fn gpu(&self, index: u32) -> Result<&Gpu, Code> {
        self.gpus.get(index as usize).ok_or(Code::InvalidArgument)
    }

    /// As [`State::gpu`], to be changed.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if there is none.
    pub fn gpu_mut(&mut self, index: u32) -> Result<&mut Gpu, Code> {
        self.gpus.get_mut(index as usize).ok_or(Code::InvalidArgument)
    }

    /// Makes the `nth` call (from 1; 0 for each) of a function in each process fail.
    pub fn fail(&mut self, call: &str, nth: u64, code: Code) {
        self.faults.push(Fault { call: call.into(), nth, effect: Effect::Fail(code) });
    }

    /// Reports a critical error of a GPU to everybody who waits for one.
    pub fn report_xid(&mut self, gpu: u32, code: u64) {
        let sequence = self.xids.last().map_or(1, |last| last.sequence + 1);
        self.xids.push(Xid { sequence, gpu, code, instance: None });
        let surplus = self.xids.len().saturating_sub(XIDS_MAX);
        self.xids.drain(..surplus);
    }

    /// What a function's call number `nth` of all its calls, and `total` of all calls, runs into.
    pub fn fault(&self, call: &str, nth: u64, total: u64) -> Option<Effect> {
        let hit = |fault: &&Fault| {
            let at = if fault.call == "*" { total } else { nth };
            (fault.call == "*" || fault.call == call) && (fault.nth == 0 || fault.nth == at)
        };
        self.faults.iter().find(hit).map(|fault| fault.effect)
    }

    /// Puts the process of an [`Effect::Arrive`] on its GPU.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if there is no such GPU.
    pub(crate) fn arrive(&mut self, gpu: u32, pid: u32, kind: ProcessKind) -> Result<(), Code> {
        self.gpu_mut(gpu)?.add(Process { kind, ..Process::compute(pid, 64).phantom() });
        Ok(())
    }

    /// The number of the next instance.
    pub(crate) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    pub(crate) fn settle(&mut self, now_ms: u64) {
        for gpu in &mut self.gpus {
            gpu.settle(now_ms);
        }
    }
}
