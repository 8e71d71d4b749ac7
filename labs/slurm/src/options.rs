//! What cluster is wanted.

use fake_machine::GpuSpec;

use lab_base::LabError;

use crate::ports::NODES_MAX;

/// What cluster is wanted. The default: 2 nodes with 4 a100 each and 80 shards a card, no accounting,
/// no REST, no cgroups.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes `n1`, `n2`, …; 1 to 100.
    pub nodes: u32,
    /// GPUs of each node; 0 to 64.
    pub gpus: u32,
    /// Their model, as `fake_machine::GpuSpec` names it.
    pub gpu: String,
    /// Their type in Slurm, `gpu:TYPE`.
    pub gres_type: String,
    /// `gres/shard` of each GPU; 0 for none.
    pub shards: u32,
    /// CPUs that each node claims; the host may have fewer.
    pub cpus: u32,
    /// Memory that each node claims, in MiB; the host may have less.
    pub memory_mib: u32,
    /// MariaDB and slurmdbd: accounting, QOS, limits. Takes seconds to come up.
    pub accounting: bool,
    /// slurmrestd on loopback, with JSON web tokens.
    pub rest: bool,
    /// Users of this host that get an association in the account `lab`; only with `accounting`.
    pub users: Vec<String>,
    /// Jobs open only the device files of their GPUs and keep to their memory (cgroup v1). One such
    /// cluster runs at a time on a host, as Slurm names the cgroups after nodes; others wait for it.
    pub cgroup: bool,
    /// Jobs of partition `online` send those of `batch` back into the queue.
    pub preempt: bool,
    /// Nodes `d1`, `d2`, … that register themselves (`slurmd -Z`), each at its own address of 127.0.0.0/8.
    pub dynamic: u32,
    /// Lines to add at the end of `slurm.conf`; of a key that is there twice, Slurm takes the last.
    pub slurm_conf: String,
    /// `Gres=` of each node, instead of `gpu:TYPE:GPUS,shard:N`.
    pub gres: Option<String>,
    /// `gres.conf`, instead of the one made, written once for each node with `@NODE@` as the node's name
    /// and `@DEV@` as the folder of its device files. Any file named there as `@DEV@/…` is made.
    pub gres_conf: Option<String>,
    /// Files beside `slurm.conf`: name (`job_submit.lua`, `plugstack.conf`) and text.
    pub files: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 2,
            gpus: 4,
            gpu: "a100-80gb".into(),
            gres_type: "a100".into(),
            shards: 80,
            cpus: 16,
            memory_mib: 16_000,
            accounting: false,
            rest: false,
            users: vec!["root".into(), "nobody".into()],
            cgroup: false,
            preempt: false,
            dynamic: 0,
            slurm_conf: String::new(),
            gres: None,
            gres_conf: None,
            files: Vec::new(),
        }
    }
}

impl Options {
    /// Refuses what cannot be carried out anywhere.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if !(1..=NODES_MAX).contains(&self.nodes) || self.dynamic > NODES_MAX {
            let text = format!("1 to {NODES_MAX} nodes, and up to {NODES_MAX} dynamic ones");
            return Err(LabError::Options(text));
        }
        if self.cpus == 0 || self.memory_mib == 0 {
            return Err(LabError::Options("a node needs CPUs and memory".into()));
        }
        self.specs().map(drop)
    }

    /// The GPUs of a node's simulated machine.
    pub(crate) fn specs(&self) -> Result<Vec<GpuSpec>, LabError> {
        lab_base::machine::specs(&self.gpu, self.gpus)
    }

    /// The nodes that `slurm.conf` names.
    pub(crate) fn static_nodes(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("n{number}")).collect()
    }

    /// The nodes that register themselves.
    pub(crate) fn dynamic_nodes(&self) -> Vec<String> {
        (1..=self.dynamic).map(|number| format!("d{number}")).collect()
    }

    /// All nodes.
    pub(crate) fn all_nodes(&self) -> Vec<String> {
        [self.static_nodes(), self.dynamic_nodes()].concat()
    }

    /// `Gres=` of a node; empty if it has nothing.
    pub(crate) fn node_gres(&self) -> String {
        let made = match (self.gpus, self.shards) {
            (0, _) => String::new(),
            (gpus, 0) => format!("gpu:{}:{gpus}", self.gres_type),
            (gpus, per) => format!("gpu:{}:{gpus},shard:{}", self.gres_type, per * gpus),
        };
        self.gres.clone().unwrap_or(made)
    }

    /// The names of `Gres=`, each once, `gpu` first.
    pub(crate) fn gres_names(&self) -> Vec<String> {
        let mut names = vec!["gpu".to_string()];
        for gres in self.node_gres().split(',') {
            let name = gres.split(':').next().unwrap_or_default().to_string();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}
