//! The cap of memory.
//!
//! For each way to get memory: the amount is reserved in the tenant's books, which all its processes
//! share; the driver is called; what it gave is noted by its address or handle, what it did not give is
//! taken off again. What is given back is looked up and taken off after the driver has it. Where the
//! amount is known only afterwards (contexts, pools) it is measured, and undone if it was too much; what
//! nobody asks for by a call (code at its first use, the heap of kernels) is found by `own`.
//!
//! *Rule:* no lock is held over a call that may wait for the GPU, take long, or come back to us.

pub(crate) mod amount;
mod array;
mod context;
mod external;
pub(crate) mod graph;
mod ground;
mod ipc;
pub(crate) mod kept;
mod module;
mod nvml;
pub(crate) mod own;
mod plain;
mod pool;
pub(crate) mod pools;
pub(crate) mod primary;
mod shown;
pub(crate) mod virtual_memory;

use crate::compute;
use crate::entry::hooks::Hook;
use crate::tenant::{self, Now, Tenant};

/// The hooks of this folder's files.
pub(crate) static HOOKS: &[&[Hook]] = &[
    array::HOOKS,
    context::HOOKS,
    external::HOOKS,
    graph::HOOKS,
    ipc::HOOKS,
    module::HOOKS,
    nvml::HOOKS,
    plain::HOOKS,
    pool::HOOKS,
    primary::HOOKS,
    shown::HOOKS,
    virtual_memory::HOOKS,
];

/// After a wait for the GPU pools may have given memory back.
pub(crate) fn waited() {
    if let Now::Capped(tenant) = tenant::now()
        && !compute::any_capturing()
    {
        tenant.pools.settle(tenant);
    }
}

/// Reads anew what pools and graphs hold.
fn settle(tenant: &Tenant) {
    tenant.pools.settle(tenant);
    tenant.gpus().for_each(graph::settle);
}
