//! What one scrape is made of: a sample, and the facts about the machine that go with it.

use std::sync::Arc;
use std::time::Duration;

use node::inventory::Inventory;
use node::sample::Sample;
use node::tenant::Given;

use crate::occupants::Occupant;

/// What was found out at one moment.
#[derive(Clone, Debug)]
pub struct Observation {
    /// What the machine has; as of the last look, minutes ago at most.
    pub inventory: Arc<Inventory>,
    /// What was measured.
    pub sample: Sample,
    /// What running tasks have been given.
    pub given: Vec<Given>,
    /// Who sits on cards by claims of Kubernetes.
    pub occupants: Vec<Occupant>,
    /// How long measuring took.
    pub took: Duration,
}
