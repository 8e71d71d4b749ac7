//! What cluster is wanted.

use fake_machine::GpuSpec;
use lab_base::LabError;

/// Nodes at most: each has containerd, a kubelet and addresses of its own.
const NODES_MAX: u32 = 8;

/// What cluster is wanted. The default: one node with 2 a100-80gb.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes with a kubelet: `n1`, `n2`, …; 0 to 8.
    pub nodes: u32,
    /// GPUs of each; 0 to 64.
    pub gpus: u32,
    /// Their model, as `fake_machine::GpuSpec` names it.
    pub gpu: String,
    /// More words for the API server, as `--runtime-config=…`.
    pub apiserver: Vec<String>,
    /// More words for the scheduler.
    pub scheduler: Vec<String>,
    /// More words for the controller manager.
    pub controllers: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 1,
            gpus: 2,
            gpu: "a100-80gb".into(),
            apiserver: Vec::new(),
            scheduler: Vec::new(),
            controllers: Vec::new(),
        }
    }
}

impl Options {
    /// The nodes' names.
    pub fn all_nodes(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("n{number}")).collect()
    }

    /// Looks for what cannot be.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.nodes > NODES_MAX {
            return Err(LabError::Options(format!(
                "at most {NODES_MAX} nodes have a kubelet; more can be objects"
            )));
        }
        self.specs().map(drop)
    }

    /// The GPUs of a node.
    pub(crate) fn specs(&self) -> Result<Vec<GpuSpec>, LabError> {
        lab_base::machine::specs(&self.gpu, self.gpus)
    }
}
