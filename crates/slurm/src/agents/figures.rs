//! The few figures of an agent's Prometheus text that are shown. What has no line is not known.

use std::collections::BTreeMap;

/// Whether the driver answers.
const UP: &str = "hotpot_up";
/// A card: what it is.
const GPU: &str = "hotpot_gpu_info";
/// An instance: what it is, and where it begins.
const MIG: &str = "hotpot_mig_info";

/// All families that are read.
pub const NAMES: [&str; 18] = [
    UP,
    GPU,
    MIG,
    "hotpot_gpu_lost",
    "hotpot_gpu_mig_enabled",
    "hotpot_gpu_memory_size_bytes",
    "hotpot_gpu_memory_used_bytes",
    "hotpot_gpu_busy_ratio",
    "hotpot_gpu_engine_active_ratio",
    "hotpot_gpu_temperature_celsius",
    "hotpot_gpu_power_watts",
    "hotpot_gpu_last_xid",
    "hotpot_mig_memory_size_bytes",
    "hotpot_mig_memory_used_bytes",
    "hotpot_mig_engine_active_ratio",
    "hotpot_tenant_memory_used_bytes",
    "hotpot_tenant_sm_ratio",
    "hotpot_tenant_processes",
];

/// What an agent tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub(super) gpus: BTreeMap<u32, GpuFigures>,
    /// By card and number of the GPU instance.
    pub(super) instances: BTreeMap<(u32, u32), InstanceFigures>,
    /// Jobs of Slurm, by card, instance and job.
    pub(super) tenants: BTreeMap<(u32, Option<u32>, u32), TenantFigures>,
}

/// Of a card.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GpuFigures {
    pub(super) uuid: String,
    pub(super) model: Option<String>,
    pub(super) lost: bool,
    pub(super) in_mig: bool,
    pub(super) memory_total_bytes: Option<u64>,
    pub(super) memory_used_bytes: Option<u64>,
    pub(super) busy_ratio: Option<f64>,
    pub(super) engine_ratio: Option<f64>,
    pub(super) temperature_celsius: Option<f64>,
    pub(super) power_watts: Option<f64>,
    pub(super) xid: Option<u64>,
}

/// Of a MIG instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InstanceFigures {
    pub(super) uuid: String,
    pub(super) profile: String,
    pub(super) start: Option<u32>,
    pub(super) memory_total_bytes: Option<u64>,
    pub(super) memory_used_bytes: Option<u64>,
    pub(super) engine_ratio: Option<f64>,
}

/// What a job's processes have on a card or instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantFigures {
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// Part of the card's SM time, 0 to 1.
    pub sm_ratio: Option<f64>,
    /// How many processes.
    pub processes: usize,
}

impl Figures {
    /// Reads a scrape.
    ///
    /// # Errors
    /// It is none of `hotpot agent`, or its driver does not answer.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut figures, mut up) = (Self::default(), None);
        for line in text.lines() {
            let Some((name, labels, value)) = sample(line) else { continue };
            if name == UP {
                up = Some(value > 0.0);
            }
            figures.take(name, &labels, value);
        }
        match up {
            Some(true) => Ok(figures),
            Some(false) => Err("its GPU driver does not answer".into()),
            None => Err("what answers is no hotpot agent".into()),
        }
    }

    fn take(&mut self, name: &str, labels: &Labels, value: f64) -> Option<()> {
        let gpu = labels.number("gpu")?;
        match name.strip_prefix("hotpot_")?.split_once('_')? {
            ("gpu", of) => self.gpus.entry(gpu).or_default().take(of, labels, value),
            ("mig", of) => {
                let key = (gpu, labels.number("gpu_instance")?);
                self.instances.entry(key).or_default().take(of, labels, value);
            }
            ("tenant", of) if labels.get("tenant_kind") == Some("slurm-job") => {
                let key = (gpu, labels.number("gpu_instance"), labels.number("tenant")?);
                self.tenants.entry(key).or_default().take(of, value);
            }
            _ => {}
        }
        Some(())
    }
}

impl GpuFigures {
    fn take(&mut self, of: &str, labels: &Labels, value: f64) {
        if let Some(uuid) = labels.get("uuid") {
            uuid.clone_into(&mut self.uuid);
        }
        match of {
            "info" => self.model = labels.get("model").map(str::to_owned),
            "lost" => self.lost = value > 0.0,
            "mig_enabled" => self.in_mig = value > 0.0,
            "memory_size_bytes" => self.memory_total_bytes = whole(value),
            "memory_used_bytes" => self.memory_used_bytes = whole(value),
            "busy_ratio" => self.busy_ratio = Some(value),
            "engine_active_ratio" => self.engine_ratio = Some(value),
            "temperature_celsius" => self.temperature_celsius = Some(value),
            "power_watts" => self.power_watts = Some(value),
            "last_xid" => self.xid = whole(value),
            _ => {}
        }
    }
}

impl InstanceFigures {
    fn take(&mut self, of: &str, labels: &Labels, value: f64) {
        let text = |name| labels.get(name).unwrap_or_default().to_owned();
        (self.uuid, self.profile) = (text("uuid"), text("profile"));
        match of {
            "info" => self.start = labels.number("start"),
            "memory_size_bytes" => self.memory_total_bytes = whole(value),
            "memory_used_bytes" => self.memory_used_bytes = whole(value),
            "engine_active_ratio" => self.engine_ratio = Some(value),
            _ => {}
        }
    }
}

impl TenantFigures {
    fn take(&mut self, of: &str, value: f64) {
        match of {
            "memory_used_bytes" => self.memory_bytes = whole(value),
            "sm_ratio" => self.sm_ratio = Some(value),
            "processes" => self.processes = whole(value).unwrap_or(0) as usize,
            _ => {}
        }
    }
}

/// An amount; `None` for what is none.
fn whole(value: f64) -> Option<u64> {
    // 2^53: beyond it a float is not exact, and no card has as much.
    (0.0..9_007_199_254_740_992.0).contains(&value).then_some(value as u64)
}

/// Labels of a sample, in its order.
struct Labels(Vec<(String, String)>);

impl Labels {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.parse().ok()
    }
}

/// A line `name{label="value",…} value` of one of our families; others are passed over.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    if !NAMES.contains(&name) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels(Vec::new()), rest),
    };
    // A time may follow the value.
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name, labels, value))
}

/// Labels up to the brace that closes them, and what follows.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((Labels(labels), rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.push((name.trim().to_owned(), value));
        rest = after;
    }
}

/// A value up to its closing quote, and what follows (Prometheus text format: `\\`, `\"` and `\n`).
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_others_passed_over() {
        let text = "# HELP hotpot_up Whether.\nhotpot_up 1\n\
            hotpot_gpu_info{gpu=\"0\",uuid=\"GPU-a\",product=\"A \\\"b\\\" {x}, y\",model=\"a100-80gb\"} 1\n\
            hotpot_gpu_memory_used_bytes{gpu=\"0\",uuid=\"GPU-a\"} 1.5e9\n\
            hotpot_gpu_busy_ratio{gpu=\"0\",uuid=\"GPU-a\"} 0.25 1700000000\n\
            hotpot_gpu_power_watts{gpu=\"0\",uuid=\"GPU-a\"} NaN\n\
            hotpot_gpu_memory_reserved_bytes{gpu=\"7\"} 1\n\
            hotpot_gpu_busy_ratio{gpu=\"1\n\
            hotpot_tenant_memory_used_bytes{gpu=\"0\",tenant_kind=\"slurm-job\",tenant=\"12\"} 4096\n\
            hotpot_tenant_memory_used_bytes{gpu=\"0\",tenant_kind=\"user\",tenant=\"13\"} 4096\n\
            hotpot_mig_info{gpu=\"1\",uuid=\"MIG-a\",gpu_instance=\"9\",profile=\"1g.10gb\",start=\"2\"} 1\n";
        let figures = Figures::parse(text).unwrap();
        assert_eq!(figures.gpus.len(), 1, "{figures:?}");
        let gpu = &figures.gpus[&0];
        assert_eq!((gpu.uuid.as_str(), gpu.model.as_deref()), ("GPU-a", Some("a100-80gb")));
        assert_eq!((gpu.memory_used_bytes, gpu.busy_ratio), (Some(1_500_000_000), Some(0.25)));
        assert_eq!((gpu.power_watts, gpu.memory_total_bytes), (None, None));
        assert_eq!(figures.tenants.keys().collect::<Vec<_>>(), [&(0, None, 12)]);
        let instance = &figures.instances[&(1, 9)];
        assert_eq!((instance.profile.as_str(), instance.start), ("1g.10gb", Some(2)));
    }

    #[test]
    fn what_is_no_agent_or_has_no_driver_is_told() {
        assert!(Figures::parse("go_goroutines 7\n").unwrap_err().contains("no hotpot agent"));
        assert!(Figures::parse("hotpot_up 0\n").unwrap_err().contains("driver"));
    }
}
