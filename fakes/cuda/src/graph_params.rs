//! What nodes are told later: parameters of nodes of a graph and of an executable one.

use crate::calls::exports;
use crate::graph::NodeKind;
use crate::graph_nodes::{fill_node, host_node};
use crate::handles::Handle;
use crate::layouts::{AnyParams, Copy3, HostParams, MemsetParams, NodeParams};
use crate::pointers::{get, put};
use crate::result::{INVALID_VALUE, NOT_SUPPORTED};

exports! { GRAPH_PARAMS;
    "cuGraphEventRecordNodeGetEvent" 11010 call fn cuGraphEventRecordNodeGetEvent(
        node: Handle, to: *mut Handle,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Record(event) = driver.node(node)?.kind else { return Err(INVALID_VALUE) };
        put(to, event)
    }

    "cuGraphEventRecordNodeSetEvent" 11010 call fn cuGraphEventRecordNodeSetEvent(
        node: Handle, event: Handle,
    ) |call| { call.set_node(node, NodeKind::Record(event)) }

    "cuGraphEventWaitNodeGetEvent" 11010 call fn cuGraphEventWaitNodeGetEvent(
        node: Handle, to: *mut Handle,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Wait(event) = driver.node(node)?.kind else { return Err(INVALID_VALUE) };
        put(to, event)
    }

    "cuGraphEventWaitNodeSetEvent" 11010 call fn cuGraphEventWaitNodeSetEvent(
        node: Handle, event: Handle,
    ) |call| { call.set_node(node, NodeKind::Wait(event)) }

    "cuGraphNodeGetParams" 13020 call fn cuGraphNodeGetParams(node: Handle, to: *mut NodeParams)
    |call| {
        let kind = call.lock().node(node)?.kind.clone();
        let any = match kind {
            NodeKind::Kernel(_) => AnyParams { kernel: call.kernel_params(node)? },
            NodeKind::Child(handle) | NodeKind::Wait(handle) | NodeKind::Record(handle) => {
                AnyParams { handle }
            }
            NodeKind::Free(address) => AnyParams { address },
            NodeKind::Empty => AnyParams { words: [0; 29] },
            NodeKind::Move(..) | NodeKind::Host(_) | NodeKind::Alloc { .. }
            | NodeKind::Value(..) => return Err(NOT_SUPPORTED),
        };
        let number = call.lock().node(node)?.kind.number();
        put(to, NodeParams { kind: number, any, ..NodeParams::default() })
    }

    "cuGraphNodeSetParams" 12020 call fn cuGraphNodeSetParams(node: Handle, params: *mut NodeParams)
    |call| {
        let (kind, _) = call.any_node(&get(params.cast_const())?)?;
        call.set_node(node, kind)
    }

    "cuGraphNodeSetParams" 13040 call fn cuGraphNodeSetParams_v2(
        node: Handle, params: *mut NodeParams,
    ) |call| {
        let (kind, _) = call.any_node(&get(params.cast_const())?)?;
        call.set_node(node, kind)
    }

    "cuGraphExecNodeSetParams" 12020 call fn cuGraphExecNodeSetParams(
        exec: Handle, node: Handle, params: *mut NodeParams,
    ) |call| {
        let (kind, _) = call.any_node(&get(params.cast_const())?)?;
        call.set_step(exec, node, kind)
    }

    "cuGraphExecMemcpyNodeSetParams" 10020 call fn cuGraphExecMemcpyNodeSetParams(
        exec: Handle, node: Handle, copy: *const Copy3, _context: Handle,
    ) |call| {
        let kind = call.lock().copy_node(get(copy)?)?;
        call.set_step(exec, node, kind)
    }

    "cuGraphExecMemsetNodeSetParams" 10020 call fn cuGraphExecMemsetNodeSetParams(
        exec: Handle, node: Handle, params: *const MemsetParams, _context: Handle,
    ) |call| { call.set_step(exec, node, fill_node(&get(params)?)?) }

    "cuGraphExecHostNodeSetParams" 10020 call fn cuGraphExecHostNodeSetParams(
        exec: Handle, node: Handle, params: *const HostParams,
    ) |call| { call.set_step(exec, node, host_node(&get(params)?)?) }
}
