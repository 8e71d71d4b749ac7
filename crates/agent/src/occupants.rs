//! Who sits on cards by somebody else's book than that of runs: claims of Kubernetes, whose containers have names.

use std::fmt::Debug;

use node::live::LiveShare;
use node::tenant::{Booked, Given, Tenant};

/// Knows who sits on this machine's cards beside runs.
pub trait Occupancy: Debug + Send + Sync {
    /// Those who sit there now. Asked in each round of measuring, which waits for it: a second at most.
    fn occupants(&self) -> Vec<Occupant>;
}

/// One share of one card, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// UID of the claim.
    pub claim: String,
    /// UUID of the card, or of the MIG device.
    pub device: String,
    /// What it was given.
    pub share: LiveShare,
    /// Who uses it.
    pub pod: PodName,
}

/// Names as the cluster has them; empty what is not known, or what is not one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The claim.
    pub claim: String,
    /// The pod; empty if several have the claim.
    pub pod: String,
    /// The container; empty if several have the claim.
    pub container: String,
}

/// As the sampler reads accounts. The book is believed as that of our own user, who has made it.
pub(crate) fn booked(occupant: &Occupant) -> Booked {
    let tenant = Tenant::Claim(occupant.claim.clone());
    let given = Given { tenant, share: occupant.share.clone() };
    Booked { given, user: nix::unistd::geteuid().as_raw() }
}
