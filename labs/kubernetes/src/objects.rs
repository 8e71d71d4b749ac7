//! Nodes that are objects alone: the scheduler binds pods to them, and nobody runs them. For the scheduler's view of many nodes.

use lab_base::LabError;

use crate::cluster::Cluster;

/// Nodes of one call to the API server.
const BATCH: usize = 50;

/// Takes the mark of a new node off.
const NEW: &str = "node.kubernetes.io/not-ready:NoSchedule-";

/// Such a node.
#[derive(Clone, Debug)]
pub struct ObjectNode {
    /// Its name.
    pub name: String,
    /// CPUs that it claims.
    pub cpus: u32,
    /// Memory that it claims, in MiB.
    pub memory_mib: u64,
}

impl Cluster {
    /// Adds nodes that are objects alone. The cluster must have been brought up without the controller that looks for signs of life:
    /// [`WITHOUT_SIGNS_OF_LIFE`] among [`Options::controllers`](crate::Options::controllers).
    ///
    /// # Errors
    /// The API server does not take them.
    pub fn add_nodes(&self, nodes: &[ObjectNode]) -> Result<(), LabError> {
        for batch in nodes.chunks(BATCH) {
            let text: String = batch.iter().map(manifest).collect();
            self.kubectl_with(&["create", "-f", "-"], &text)?;
            self.kubectl_with(
                &["apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "-"],
                &text,
            )?;
            // The API server marks every new node, and the controller that would take the mark off is not there.
            let names = batch.iter().map(|node| node.name.as_str());
            let words: Vec<&str> =
                ["taint", "nodes"].into_iter().chain(names).chain([NEW]).collect();
            self.kubectl(&words)?;
        }
        Ok(())
    }
}

/// Leaves nodes alone of which no kubelet tells.
pub const WITHOUT_SIGNS_OF_LIFE: &str = "--controllers=-node-lifecycle-controller";

fn manifest(node: &ObjectNode) -> String {
    let ObjectNode { name, cpus, memory_mib } = node;
    let amounts = format!("{{cpu: \"{cpus}\", memory: {memory_mib}Mi, pods: \"250\"}}");
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n\
         status:\n  capacity: {amounts}\n  allocatable: {amounts}\n  conditions: [{{type: Ready, status: \"True\", reason: Object, \
         message: an object alone, lastHeartbeatTime: \"2026-01-01T00:00:00Z\", lastTransitionTime: \"2026-01-01T00:00:00Z\"}}]\n---\n"
    )
}
