//! What the plugin would publish of this machine, for whoever wants to see it first: no cluster is needed, and nothing is written.

use k8s_openapi::api::resource::v1::ResourceSlice;
use node::backend::Enforcement;
use node::driver::DriverError;

use super::devices::Offers;
use super::look::Looker;
use super::slices::{self, Features, Pool};

/// The slices of this machine's GPUs on an API server that keeps all of them, as of Kubernetes 1.36.
///
/// * `node` — the node's name.
///
/// # Errors
/// The driver does not answer.
pub fn preview(node: &str) -> Result<Vec<ResourceSlice>, DriverError> {
    let mut looker = Looker::new(None, Enforcement::Cooperative, |_| {});
    let inventory = looker.look()?;
    // None in a build whose tests have passed: the catalogue is compiled in.
    let offers = Offers::of(&inventory, &Offers::default()).unwrap_or_default();
    let pool = Pool {
        node: node.to_owned(),
        node_uid: String::new(),
        effect: "NoSchedule",
        features: Features::ALL,
    };
    let mut slices = slices::wanted(&offers, &pool);
    for slice in &mut slices {
        // Its owner is the node, whose number is the cluster's to give.
        slice.metadata.owner_references = None;
    }
    Ok(slices)
}
