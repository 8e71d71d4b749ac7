//! What the site has chosen: `hotpot.conf` beside slurm.conf, `Name=value` lines as in Slurm's own files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::SharingKind;
use thiserror::Error;

use crate::agents;
use crate::ask;
use crate::layout::Ways;

/// Where slurm.conf is unless `SLURM_CONF` says otherwise (slurm.conf manual: the configured default, which
/// is this one in Debian's and SchedMD's packages).
const SLURM_CONF: &str = "/etc/slurm/slurm.conf";
/// The file.
pub const FILE: &str = "hotpot.conf";
/// MiB of one shard unless said otherwise: fine enough that little is lost by rounding, and some hundred
/// shards a card.
pub const SHARD_MIB_DEFAULT: u64 = 256;

/// The site's choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Device memory that one shard stands for.
    pub shard_mib: u64,
    /// How a card is shared by jobs that hold shards of it and do not say.
    pub sharing: SharingKind,
    /// Where job numbers are written for dcgm-exporter (`--hpc-job-mapping-dir`), by GPU.
    pub job_mapping: Option<PathBuf>,
    /// Where the files of jobs lie that the plugin reads.
    pub jobs: PathBuf,
    /// What Slurm calls cards, by their name in the catalogue.
    pub card_types: BTreeMap<String, String>,
    /// Where device files lie.
    pub devices: PathBuf,
    /// Where the driver tells the numbers of instances' device files.
    pub capabilities: PathBuf,
    /// How nodes are reached to change their layout.
    pub ways: Ways,
    /// Where nodes' agents answer; see [`crate::agents::Agents::new`].
    pub agents: Option<String>,
    /// File with the token that they want.
    pub agents_token: Option<PathBuf>,
}

/// The file cannot be used.
#[derive(Debug, Error)]
#[error("{}{at}: {why}", path.display())]
pub struct SiteError {
    path: PathBuf,
    at: String,
    why: String,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            shard_mib: SHARD_MIB_DEFAULT,
            sharing: SharingKind::MemoryCapped,
            job_mapping: None,
            jobs: PathBuf::from("/run/hotpot/slurm"),
            card_types: BTreeMap::new(),
            devices: PathBuf::from("/dev"),
            capabilities: PathBuf::from("/proc/driver/nvidia/capabilities"),
            ways: Ways::default(),
            agents: None,
            agents_token: None,
        }
    }
}

/// The folder of slurm.conf.
pub fn conf_folder() -> PathBuf {
    let named = std::env::var_os("SLURM_CONF").filter(|name| !name.is_empty());
    let conf = named.map_or_else(|| PathBuf::from(SLURM_CONF), PathBuf::from);
    conf.parent().map(Path::to_owned).unwrap_or_default()
}

impl Site {
    /// Reads the file beside slurm.conf; the defaults if there is none.
    ///
    /// # Errors
    /// It cannot be read, or says something that is not understood.
    pub fn read() -> Result<Self, SiteError> {
        let path = conf_folder().join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(SiteError { path, at: String::new(), why: error.to_string() }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, SiteError> {
        let mut site = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let path = || path.to_owned();
            site.take(line).map_err(|why| SiteError {
                path: path(),
                at: format!(":{number}"),
                why,
            })?;
        }
        Ok(site)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once('=').ok_or("a line is Name=value")?;
        let (name, value) = (name.trim(), value.trim());
        match name.to_ascii_lowercase().as_str() {
            "shardmib" => {
                let number = value.parse().ok().filter(|mib| *mib > 0);
                self.shard_mib = number.ok_or_else(|| format!("ShardMiB={value} is no number"))?;
            }
            "sharing" => {
                let choices = "give capped, timeslice or mps";
                let found = ask::sharing(value).flatten();
                let found =
                    found.filter(|kind| !matches!(kind, SharingKind::Exclusive | SharingKind::Mig));
                self.sharing = found.ok_or_else(|| format!("Sharing={value}: {choices}"))?;
            }
            "jobmapping" => self.job_mapping = Some(PathBuf::from(value)),
            "jobs" if !value.starts_with('/') => {
                return Err(format!("Jobs={value}: give a whole path, such as /run/hotpot/slurm"));
            }
            "jobs" => self.jobs = PathBuf::from(value),
            "cardtypes" => self.card_types = card_types(value)?,
            "devices" => self.devices = PathBuf::from(value),
            "capabilities" => self.capabilities = PathBuf::from(value),
            "agents" => {
                agents::check(value).map_err(|why| format!("Agents={value}: {why}"))?;
                self.agents = Some(value.to_owned());
            }
            "agentstoken" => self.agents_token = Some(PathBuf::from(value)),
            key if self.ways.take(key, value)? => {}
            _ => {
                let known = "ShardMiB, Sharing, JobMapping, Jobs, CardTypes, Devices, Capabilities, Agents, \
                             AgentsToken";
                let ways = Ways::KEYS;
                let known = format!("{known}, {ways}");
                return Err(format!("`{name}` is not known; there are {known}"));
            }
        }
        Ok(())
    }

    /// How users call the way of sharing.
    pub fn sharing_word(&self) -> &'static str {
        match self.sharing {
            SharingKind::TimeSlice => "timeslice",
            SharingKind::Mps => "mps",
            SharingKind::Exclusive | SharingKind::Mig | SharingKind::MemoryCapped => "capped",
        }
    }

    /// The folder of jobs' files of a node: `%n` is its name.
    pub fn jobs_of(&self, node: &str) -> PathBuf {
        of_node(&self.jobs, node)
    }

    /// The folder of a node's device files: `%n` is its name.
    pub fn devices_of(&self, node: &str) -> PathBuf {
        of_node(&self.devices, node)
    }

    /// The folder where a node's driver tells of instances' device files: `%n` is its name.
    pub fn capabilities_of(&self, node: &str) -> PathBuf {
        of_node(&self.capabilities, node)
    }

    /// What Slurm calls whole cards of a model: as the site says, else `a100_80gb` for `a100-80gb`. A dash is
    /// allowed in types, but reads as a range to some tools.
    pub fn card_type(&self, model: &str) -> String {
        self.card_types.get(model).cloned().unwrap_or_else(|| model.replace('-', "_"))
    }
}

fn of_node(path: &Path, node: &str) -> PathBuf {
    PathBuf::from(path.to_string_lossy().replace("%n", node))
}

/// Reads `a100-80gb:a100,h100-80gb:h100`.
fn card_types(value: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |word: &str| {
        let found = word.trim().split_once(':').filter(|(_, kind)| !kind.is_empty());
        let found = found.map(|(model, kind)| (model.to_owned(), kind.to_owned()));
        found.ok_or_else(|| format!("CardTypes: `{word}` is not model:type, as a100-80gb:a100"))
    };
    value.split(',').map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_mistakes_are_named() {
        let path = Path::new("/etc/slurm/hotpot.conf");
        let site =
            Site::parse("# ours\nShardMiB=512\nsharing = mps # all\nJobs=/x/%n\n", path).unwrap();
        assert_eq!((site.shard_mib, site.sharing), (512, SharingKind::Mps));
        assert_eq!(site.jobs_of("n1"), Path::new("/x/n1"));
        let wrong = |text: &str| Site::parse(text, path).unwrap_err().to_string();
        assert!(wrong("\nShardMiB=0").starts_with("/etc/slurm/hotpot.conf:2: "));
        assert!(wrong("Sharing=mig").contains("capped, timeslice or mps"));
        assert!(wrong("Shards=3").contains("there are ShardMiB"));
        assert!(wrong("Jobs=").contains("whole path") && wrong("Jobs=x").contains("whole path"));
        assert!(wrong("Agents=http://login:9400/metrics").contains("{node}"));
        let site =
            Site::parse("Agents=http://{node}:9400/metrics\nAgentsToken=/t\n", path).unwrap();
        assert_eq!(site.agents.as_deref(), Some("http://{node}:9400/metrics"));
        assert_eq!(site.agents_token.as_deref(), Some(Path::new("/t")));
    }
}
