//! The bench that parts run on: the GPU, the built files, and how much time is left.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::tenant::{Tenant, words};
use crate::shell;

/// The limiter as it is built.
const LIMITER: &str = "libhotpot_limiter.so";

/// How often the GPU's memory is looked at until it stays the same.
const LOOKS_MAX: usize = 20;

/// Memory used of a GPU: all, and by process.
pub(crate) type Used = (u64, BTreeMap<String, i64>);

/// Where everything is.
pub(crate) struct Bench {
    /// This program, which is the client too.
    pub(crate) program: PathBuf,
    /// The limiter's library.
    pub(crate) limiter: PathBuf,
    /// The program `hotpot`, if it is there.
    pub(crate) hotpot: Option<PathBuf>,
    /// For files of the tests.
    pub(crate) folder: PathBuf,
    /// What clients need to find a simulated driver; empty with a real one.
    pub(crate) environment: Vec<(String, String)>,
    /// The GPU, as a client without limiter sees it.
    pub(crate) gpu: About,
    /// How long shares are measured, in ms.
    pub(crate) measure_ms: u64,
    /// Whether settings of the GPU may be changed and put back.
    pub(crate) change_settings: bool,
    until: Cell<Instant>,
    ns_per_round: OnceCell<f64>,
}

/// A GPU and its driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// With the word before it.
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// CUDA version, such as 13000.
    pub(crate) cuda: String,
    pub(crate) sms: String,
    /// In tenths.
    pub(crate) capability: u32,
    /// Bytes.
    pub(crate) total: u64,
}

impl Bench {
    /// A bench with the files that lie beside `beside`, on the first GPU that CUDA shows.
    ///
    /// * `environment` — what clients need to find a simulated driver.
    pub(crate) fn make(
        beside: &Path,
        folder: PathBuf,
        environment: Vec<(String, String)>,
    ) -> Result<Self, String> {
        let limiter = beside.join(LIMITER);
        if !limiter.exists() {
            return Err(format!("{} is not there; build it, or put it there", limiter.display()));
        }
        // Not by its name: cargo may have put another file there since this program was started.
        let program = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        let mut bench = Self {
            program,
            limiter,
            hotpot: Some(beside.join("hotpot")).filter(|path| path.exists()),
            folder,
            environment,
            gpu: About::default(),
            measure_ms: 10_000,
            change_settings: false,
            until: Cell::new(Instant::now() + Duration::from_secs(60)),
            ns_per_round: OnceCell::new(),
        };
        bench.gpu = bench.about()?;
        Ok(bench)
    }

    /// From now on a part has so long.
    pub(crate) fn begin(&self, bound: Duration) {
        self.until.set(Instant::now() + bound);
    }

    /// What is left of a part's time.
    pub(crate) fn left(&self) -> Duration {
        self.until.get().saturating_duration_since(Instant::now())
    }

    /// What a client without limiter says who runs to its end by itself.
    pub(crate) fn ask(&self, asked: &[String]) -> Result<super::tenant::Client, String> {
        let tenant = Tenant::free(self, "asks")?;
        let client = tenant.start(self, asked)?.end(self)?;
        Ok(client)
    }

    fn about(&self) -> Result<About, String> {
        let tenant = Tenant::free(self, "asks")?;
        let mut client = tenant.start(self, &words("about", &[]))?;
        client.until(self, "total")?;
        Ok(About {
            uuid: format!("GPU-{}", client.text("uuid")?),
            name: client.text("name")?.to_string(),
            cuda: client.text("cuda")?.to_string(),
            sms: client.text("sms")?.to_string(),
            capability: client.text("capability")?.parse().unwrap_or(0),
            total: client.bytes("total")?,
        })
    }

    /// How long one round of our kernel takes here when nobody else uses the GPU.
    pub(crate) fn ns_per_round(&self) -> Result<f64, String> {
        if let Some(known) = self.ns_per_round.get() {
            return Ok(*known);
        }
        let tenant = Tenant::free(self, "calibrates")?;
        let mut client = tenant.start(self, &words("calibrate", &[]))?;
        client.until(self, "target")?;
        let found = client.number("ns_per_round")?;
        if found.is_nan() || found <= 0.0 {
            return Err(format!("a round of the kernel takes {found} ns: the GPU was not idle"));
        }
        println!("    calibrated: {found:.3} ns a round, {}", client.text("target")?);
        Ok(*self.ns_per_round.get_or_init(|| found))
    }

    /// What NVML, seen without limiter, says is used of the GPU: all, and by process. Bytes; -1 where the
    /// driver does not tell. Waits until it stays the same, for what a process leaves goes by and by.
    pub(crate) fn used(&self) -> Result<Used, String> {
        let mut last = self.used_now()?;
        for _ in 0..LOOKS_MAX {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.used_now()?;
            if now.0 == last.0 {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }

    fn used_now(&self) -> Result<Used, String> {
        let client = self.ask(&words("see", &[("uuid", &self.gpu.uuid)]))?;
        let processes = client.all("process.").into_iter();
        let processes = processes.map(|(pid, used)| (pid.to_string(), used.parse().unwrap_or(-1)));
        Ok((client.bytes("used")?, processes.collect()))
    }

    /// Where the GPU's tenants arrange turns.
    pub(crate) fn board(&self, uuid: &str) -> PathBuf {
        self.folder.join(format!("{uuid}.board"))
    }

    /// Tenants that come from now on know nothing of those before.
    pub(crate) fn forget_tenants(&self) {
        let _ = std::fs::remove_file(self.board(&self.gpu.uuid));
    }

    /// Runs `nvidia-smi`; what it prints.
    pub(crate) fn nvidia_smi(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("nvidia-smi");
        command.args(words).envs(self.environment.iter().map(|(name, value)| (name, value)));
        shell::output(&mut command)
    }
}
