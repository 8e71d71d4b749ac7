//! Memory of graphs: nodes that allocate.
//!
//! Their memory is taken when the graph runs, and the driver keeps it for the next run. It counts from
//! the moment the graph is made ready to run: as the sum of all its allocations, for what the driver
//! will reuse among them cannot be known. When such a graph is gone the books follow the driver again.
//! Bodies of conditional nodes cannot allocate (`CUDA_CONDITIONAL_NODE_PARAMS`, `cuda.h`).

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{MutexGuard, PoisonError};

use caps::Kind;

use super::amount::{Amount, blocks};
use super::ground::{capped, reserve};
use crate::abi::{AllocNode, Code, Device, Handle, NOT_FOUND, SUCCESS, read};
use crate::entry::hooks::hooks;
use crate::tenant::{Gpu, Now, Tenant};
use crate::{compute, driver, tenant};

/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: c_int = 2;
/// `CU_GRAPH_NODE_TYPE_GRAPH`.
const NODE_GRAPH: c_int = 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
const NODE_ALLOC: c_int = 10;
/// How deep graphs are looked into.
const DEPTH_MAX: u32 = 8;

hooks! { NOT_FOUND;
    fn instantiate_logged(
        to: *mut Handle, graph: Handle, node: *mut Handle, log: *mut c_char, room: usize
    ) as "cuGraphInstantiate":
        cuGraphInstantiate 10000, cuGraphInstantiate_v2 11000;
    fn instantiate(to: *mut Handle, graph: Handle, flags: u64) as "cuGraphInstantiateWithFlags":
        cuGraphInstantiateWithFlags 11040;
    fn instantiate_with(
        to: *mut Handle, graph: Handle, parameters: *mut c_void
    ) as "cuGraphInstantiateWithParams":
        cuGraphInstantiateWithParams 12000, cuGraphInstantiateWithParams_ptsz 12000 per_thread;
    fn destroy(exec: Handle) as "cuGraphExecDestroy": cuGraphExecDestroy 10000;
    fn trim(device: Device) as "cuDeviceGraphMemTrim": cuDeviceGraphMemTrim 11040;
}

/// Graphs with memory on one GPU that can be launched.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Bytes by handle.
    ready: BTreeMap<usize, u64>,
    /// Of graphs that the driver is making ready, in bytes.
    coming: u64,
    /// What is in the books, in bytes; what is about to be reserved included.
    booked: u64,
}

impl Graphs {
    fn sum(&self) -> u64 {
        self.ready.values().fold(self.coming, |sum, bytes| sum.saturating_add(*bytes))
    }
}

fn lock(gpu: &Gpu) -> MutexGuard<'_, Graphs> {
    gpu.graphs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the books follow: the most that graphs which can be launched may take, or what the driver still
/// has of those that are gone.
pub(crate) fn settle(gpu: &Gpu) {
    {
        let graphs = lock(gpu);
        if graphs.booked == 0 && graphs.sum() == 0 {
            return;
        }
    }
    let mut reserved = 0;
    // SAFETY: a place of ours.
    let code = unsafe { driver::graph_memory(gpu.device, RESERVED, &raw mut reserved) };
    let reserved = if code == SUCCESS { reserved } else { 0 };
    let mut graphs = lock(gpu);
    let now = graphs.sum().max(reserved);
    gpu.settle(Kind::Graph, graphs.booked, now);
    graphs.booked = now;
}

/// What the nodes of a graph allocate, by GPU.
fn needs(graph: Handle, depth: u32, sums: &mut BTreeMap<Device, u64>) {
    let mut count = 0;
    // SAFETY: a place of ours; a null list asks for the count.
    if unsafe { driver::graph_nodes(graph, std::ptr::null_mut(), &raw mut count) } != SUCCESS {
        return;
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: room for `count` nodes.
    if unsafe { driver::graph_nodes(graph, nodes.as_mut_ptr(), &raw mut count) } != SUCCESS {
        return;
    }
    for node in nodes.into_iter().take(count) {
        let mut kind = 0;
        // SAFETY: a node that the driver has named.
        if unsafe { driver::node_type(node, &raw mut kind) } != SUCCESS {
            continue;
        }
        if kind == NODE_ALLOC {
            add_allocation(node, sums);
        } else if kind == NODE_GRAPH && depth < DEPTH_MAX {
            let mut child = std::ptr::null_mut();
            // SAFETY: a node with a graph inside.
            if unsafe { driver::child_graph(node, &raw mut child) } == SUCCESS {
                needs(child, depth.saturating_add(1), sums);
            }
        }
    }
}

fn add_allocation(node: Handle, sums: &mut BTreeMap<Device, u64>) {
    let mut parameters = AllocNode::EMPTY;
    // SAFETY: a node that allocates, and a place of ours.
    let code = unsafe { driver::alloc_node(node, &raw mut parameters) };
    if let (SUCCESS, Some(device)) = (code, parameters.placed.location.device()) {
        let sum = sums.entry(device).or_default();
        *sum = sum.saturating_add(blocks(parameters.bytes as u64));
    }
}

/// Counts a graph that is made ready to run.
unsafe fn counted(call: impl Fn() -> Code, to: *mut Handle, graph: Handle) -> Code {
    let tenant = match tenant::now() {
        Now::Free => return call(),
        Now::Refused(code) => return code,
        Now::Capped(tenant) => tenant,
    };
    let mut sums = BTreeMap::new();
    needs(graph, 0, &mut sums);
    if sums.is_empty() {
        return call();
    }
    let parts = || sums.iter().filter_map(|(device, bytes)| Some((tenant.gpu(*device)?, *bytes)));
    for (at, (gpu, bytes)) in parts().enumerate() {
        if let Err(code) = book(tenant, gpu, bytes) {
            parts().take(at).for_each(|(gpu, bytes)| has_come(gpu, bytes, None));
            tenant.gpus().for_each(settle);
            return code;
        }
    }
    let code = call();
    // SAFETY: the driver has written it.
    let exec = unsafe { read(to) }.filter(|_| code == SUCCESS);
    parts().for_each(|(gpu, bytes)| has_come(gpu, bytes, exec));
    if exec.is_none() {
        tenant.gpus().for_each(settle);
    }
    code
}

/// Books what a graph needs beyond what is booked and not needed by the others. It comes from then on.
fn book(tenant: &Tenant, gpu: &Gpu, bytes: u64) -> Result<(), Code> {
    let more = {
        let mut graphs = lock(gpu);
        graphs.coming = graphs.coming.saturating_add(bytes);
        let more = graphs.sum().saturating_sub(graphs.booked);
        graphs.booked = graphs.booked.saturating_add(more);
        more
    };
    reserve(tenant, gpu, Kind::Graph, Amount::Own(more)).inspect_err(|_| {
        let mut graphs = lock(gpu);
        graphs.coming = graphs.coming.saturating_sub(bytes);
        graphs.booked = graphs.booked.saturating_sub(more);
    })
}

/// A graph that came can be launched now, or is none.
fn has_come(gpu: &Gpu, bytes: u64, exec: Option<Handle>) {
    let mut graphs = lock(gpu);
    graphs.coming = graphs.coming.saturating_sub(bytes);
    if let Some(exec) = exec {
        graphs.ready.insert(exec.expose_provenance(), bytes);
    }
}

unsafe fn instantiate_logged(
    call: impl Fn() -> Code,
    to: *mut Handle,
    graph: Handle,
    _node: *mut Handle,
    _log: *mut c_char,
    _room: usize,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, graph) }
}

unsafe fn instantiate(
    call: impl Fn() -> Code,
    to: *mut Handle,
    graph: Handle,
    _flags: u64,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, graph) }
}

unsafe fn instantiate_with(
    call: impl Fn() -> Code,
    to: *mut Handle,
    graph: Handle,
    _parameters: *mut c_void,
) -> Code {
    // SAFETY: the caller's.
    unsafe { counted(call, to, graph) }
}

unsafe fn destroy(call: impl Fn() -> Code, exec: Handle) -> Code {
    let tenant = capped!(call);
    let number = exec.addr();
    // Before the call: afterwards the number may be another's.
    let before: Vec<(&Gpu, u64)> = tenant
        .gpus()
        .filter_map(|gpu| lock(gpu).ready.remove(&number).map(|bytes| (gpu, bytes)))
        .collect();
    let code = call();
    if code == SUCCESS {
        compute::graph_gone(exec);
    }
    for (gpu, bytes) in before {
        if code != SUCCESS {
            lock(gpu).ready.insert(number, bytes);
        }
        settle(gpu);
    }
    code
}

unsafe fn trim(call: impl Fn() -> Code, device: Device) -> Code {
    let tenant = capped!(call);
    let code = call();
    if let Some(gpu) = tenant.gpu(device) {
        settle(gpu);
    }
    code
}
