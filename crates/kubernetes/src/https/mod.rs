//! Servers that the API server calls: `keys` makes their certificates, `trust` shares those among replicas and has the API server trust
//! them, `listen` serves.

pub(crate) mod keys;
pub(crate) mod listen;
pub(crate) mod trust;

/// How a server is called.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    /// Its namespace, where its Secret is.
    pub(crate) namespace: String,
    /// Its Service, and its Secret of the same name.
    pub(crate) service: String,
    /// More names and addresses that its certificate is for.
    pub(crate) also_named: Vec<String>,
}
