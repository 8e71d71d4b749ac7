//! Nodes of graphs: added one kind at a time or by the function for any kind, read and changed.

use crate::action::{Data, HostFunction};
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::layouts::{
    AllocParams, Copy3, EdgeData, HostParams, KernelParams, KernelParamsV1, Location, MemsetParams,
    NodeParams, PoolProperties,
};
use crate::movement::{Extent, Movement};
use crate::pointers::{get, get_list, put};
use crate::result::{Error, INVALID_VALUE, NOT_SUPPORTED, Outcome};

/// Where a new node goes: its handle, its graph, and what it is behind.
struct At {
    to: *mut Handle,
    graph: Handle,
    behind: *const Handle,
    count: usize,
}

impl Driver {
    pub(crate) fn copy_node(&self, copy: Copy3) -> Result<NodeKind, Error> {
        Ok(NodeKind::Move(self.movement_of(&copy)?, Some(Box::new(copy))))
    }

    fn alloc_node(&mut self, params: &AllocParams) -> Result<(u64, NodeKind), Error> {
        if params.pool.location.kind != Location::DEVICE {
            return Err(NOT_SUPPORTED);
        }
        let (device, _) = self.device(params.pool.location.id)?;
        self.graph_allocation(device, params.bytes as u64)
    }
}

pub(crate) fn fill_node(params: &MemsetParams) -> Result<NodeKind, Error> {
    let MemsetParams { to, pitch, value, element, width, height } = *params;
    if !matches!(element, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    let extent = Extent { width: width as u64, height: height as u64, depth: 1 };
    Ok(NodeKind::Move(Movement::Fill { to, pitch: pitch as u64, element, value, extent }, None))
}

pub(crate) fn host_node(params: &HostParams) -> Result<NodeKind, Error> {
    let function = params.function.ok_or(INVALID_VALUE)?;
    Ok(NodeKind::Host(HostFunction::Plain(function, Data(params.data))))
}

impl Call {
    /// A kernel node; the function may be given as a kernel of a library.
    pub(crate) fn kernel_node(&self, params: &KernelParams) -> Result<NodeKind, Error> {
        let mut driver = self.lock();
        let mut first = params.first;
        let handle = if first.function == 0 { params.kernel } else { first.function };
        let context = if params.context == 0 && driver.functions.get(handle).is_none() {
            self.current(&driver)?.0
        } else {
            params.context
        };
        first.function = self.function_in(&mut driver, handle, context)?;
        Ok(NodeKind::Kernel(driver.launch_of(self, &first)?))
    }

    fn add(&self, at: &At, kind: NodeKind) -> Outcome {
        let behind = get_list(at.behind, at.count)?;
        if at.to.is_null() {
            return Err(INVALID_VALUE);
        }
        put(at.to, self.lock().add_node(at.graph, &behind, kind)?)
    }

    /// The kind of node that parameters for any node describe; of one that allocates, its address.
    pub(crate) fn any_node(&self, params: &NodeParams) -> Result<(NodeKind, Option<u64>), Error> {
        // SAFETY: every field of the union is numbers and pointers, so that any bytes are a value of
        // each; which one the caller means is the type beside it.
        let kind = unsafe {
            match params.kind {
                0 => self.kernel_node(&params.any.kernel)?,
                1 => self.lock().copy_node(params.any.copy.copy)?,
                2 => fill_node(&params.any.memset)?,
                3 => host_node(&params.any.host)?,
                4 => NodeKind::Child(params.any.handle),
                5 => NodeKind::Empty,
                6 => NodeKind::Wait(params.any.handle),
                7 => NodeKind::Record(params.any.handle),
                10 => {
                    let (address, kind) = self.lock().alloc_node(&params.any.alloc)?;
                    return Ok((kind, Some(address)));
                }
                11 => NodeKind::Free(params.any.address),
                _ => return Err(NOT_SUPPORTED),
            }
        };
        Ok((kind, None))
    }

    fn add_any(&self, at: &At, params: *mut NodeParams) -> Outcome {
        let mut read = get(params.cast_const())?;
        let (kind, address) = self.any_node(&read)?;
        self.add(at, kind)?;
        if let Some(address) = address {
            read.any.alloc.address = address;
            put(params, read)?;
        }
        Ok(())
    }

    /// Puts another kind of the same type in a node's place.
    pub(crate) fn set_node(&self, node: Handle, kind: NodeKind) -> Outcome {
        let mut driver = self.lock();
        let found = driver.nodes.get_mut(node).ok_or(INVALID_VALUE)?;
        if found.kind.number() != kind.number() {
            return Err(INVALID_VALUE);
        }
        found.kind = kind;
        Ok(())
    }

    pub(crate) fn kernel_params(&self, node: Handle) -> Result<KernelParams, Error> {
        let driver = self.lock();
        let NodeKind::Kernel(launch) = &driver.node(node)?.kind else { return Err(INVALID_VALUE) };
        let first = KernelParamsV1 {
            function: launch.function,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            params: launch.parameters.as_pointer(),
            extra: std::ptr::null_mut(),
        };
        let context = driver.function(launch.function).map_or(0, |function| function.context);
        Ok(KernelParams { first, kernel: 0, context })
    }
}

fn at(to: *mut Handle, graph: Handle, behind: *const Handle, count: usize) -> At {
    At { to, graph, behind, count }
}

fn old(params: KernelParamsV1) -> KernelParams {
    KernelParams { first: params, ..KernelParams::default() }
}

exports! { GRAPH_NODES;
    "cuGraphAddKernelNode" 10000 call fn cuGraphAddKernelNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        params: *const KernelParamsV1,
    ) |call| { call.add(&at(to, graph, behind, count), call.kernel_node(&old(get(params)?))?) }

    "cuGraphAddKernelNode" 12000 call fn cuGraphAddKernelNode_v2(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        params: *const KernelParams,
    ) |call| { call.add(&at(to, graph, behind, count), call.kernel_node(&get(params)?)?) }

    "cuGraphKernelNodeGetParams" 10000 call fn cuGraphKernelNodeGetParams(
        node: Handle, to: *mut KernelParamsV1,
    ) |call| { put(to, call.kernel_params(node)?.first) }

    "cuGraphKernelNodeGetParams" 12000 call fn cuGraphKernelNodeGetParams_v2(
        node: Handle, to: *mut KernelParams,
    ) |call| { put(to, call.kernel_params(node)?) }

    "cuGraphKernelNodeSetParams" 10000 call fn cuGraphKernelNodeSetParams(
        node: Handle, params: *const KernelParamsV1,
    ) |call| { call.set_node(node, call.kernel_node(&old(get(params)?))?) }

    "cuGraphKernelNodeSetParams" 12000 call fn cuGraphKernelNodeSetParams_v2(
        node: Handle, params: *const KernelParams,
    ) |call| { call.set_node(node, call.kernel_node(&get(params)?)?) }

    "cuGraphKernelNodeCopyAttributes" 11000 call fn cuGraphKernelNodeCopyAttributes(
        to: Handle, from: Handle,
    ) |call| {
        call.kernel_params(to)?;
        call.kernel_params(from).map(|_| ())
    }

    "cuGraphKernelNodeGetAttribute" 11000 call fn cuGraphKernelNodeGetAttribute(
        node: Handle, _attribute: u32, to: *mut [u64; 8],
    ) |call| {
        call.kernel_params(node)?;
        put(to, [0; 8])
    }

    "cuGraphKernelNodeSetAttribute" 11000 call fn cuGraphKernelNodeSetAttribute(
        node: Handle, _attribute: u32, _value: *const [u64; 8],
    ) |call| { call.kernel_params(node).map(|_| ()) }

    "cuGraphAddMemcpyNode" 10000 call fn cuGraphAddMemcpyNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        copy: *const Copy3, _context: Handle,
    ) |call| {
        let kind = call.lock().copy_node(get(copy)?)?;
        call.add(&at(to, graph, behind, count), kind)
    }

    "cuGraphMemcpyNodeGetParams" 10000 call fn cuGraphMemcpyNodeGetParams(
        node: Handle, to: *mut Copy3,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Move(_, copy) = &driver.node(node)?.kind else { return Err(INVALID_VALUE) };
        put(to, **copy.as_ref().ok_or(INVALID_VALUE)?)
    }

    "cuGraphMemcpyNodeSetParams" 10000 call fn cuGraphMemcpyNodeSetParams(
        node: Handle, copy: *const Copy3,
    ) |call| {
        let kind = call.lock().copy_node(get(copy)?)?;
        call.set_node(node, kind)
    }

    "cuGraphAddMemsetNode" 10000 call fn cuGraphAddMemsetNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        params: *const MemsetParams, _context: Handle,
    ) |call| { call.add(&at(to, graph, behind, count), fill_node(&get(params)?)?) }

    "cuGraphMemsetNodeGetParams" 10000 call fn cuGraphMemsetNodeGetParams(
        node: Handle, params: *mut MemsetParams,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Move(Movement::Fill { to, pitch, element, value, extent }, _) =
            driver.node(node)?.kind
        else {
            return Err(INVALID_VALUE);
        };
        let (pitch, width, height) =
            (pitch as usize, extent.width as usize, extent.height as usize);
        put(params, MemsetParams { to, pitch, value, element, width, height })
    }

    "cuGraphMemsetNodeSetParams" 10000 call fn cuGraphMemsetNodeSetParams(
        node: Handle, params: *const MemsetParams,
    ) |call| { call.set_node(node, fill_node(&get(params)?)?) }

    "cuGraphAddHostNode" 10000 call fn cuGraphAddHostNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        params: *const HostParams,
    ) |call| { call.add(&at(to, graph, behind, count), host_node(&get(params)?)?) }

    "cuGraphHostNodeGetParams" 10000 call fn cuGraphHostNodeGetParams(
        node: Handle, to: *mut HostParams,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Host(HostFunction::Plain(function, data)) = driver.node(node)?.kind else {
            return Err(INVALID_VALUE);
        };
        put(to, HostParams { function: Some(function), data: data.0 })
    }

    "cuGraphHostNodeSetParams" 10000 call fn cuGraphHostNodeSetParams(
        node: Handle, params: *const HostParams,
    ) |call| { call.set_node(node, host_node(&get(params)?)?) }

    "cuGraphAddChildGraphNode" 10000 call fn cuGraphAddChildGraphNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize, child: Handle,
    ) |call| { call.add(&at(to, graph, behind, count), NodeKind::Child(child)) }

    "cuGraphChildGraphNodeGetGraph" 10000 call fn cuGraphChildGraphNodeGetGraph(
        node: Handle, to: *mut Handle,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Child(child) = driver.node(node)?.kind else { return Err(INVALID_VALUE) };
        put(to, child)
    }

    "cuGraphAddEmptyNode" 10000 call fn cuGraphAddEmptyNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
    ) |call| { call.add(&at(to, graph, behind, count), NodeKind::Empty) }

    "cuGraphAddEventRecordNode" 11010 call fn cuGraphAddEventRecordNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize, event: Handle,
    ) |call| {
        call.lock().event(event)?;
        call.add(&at(to, graph, behind, count), NodeKind::Record(event))
    }

    "cuGraphAddEventWaitNode" 11010 call fn cuGraphAddEventWaitNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize, event: Handle,
    ) |call| {
        call.lock().event(event)?;
        call.add(&at(to, graph, behind, count), NodeKind::Wait(event))
    }

    "cuGraphAddMemAllocNode" 11040 call fn cuGraphAddMemAllocNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        params: *mut AllocParams,
    ) |call| {
        let mut read = get(params.cast_const())?;
        let (address, kind) = call.lock().alloc_node(&read)?;
        call.add(&at(to, graph, behind, count), kind)?;
        read.address = address;
        put(params, read)
    }

    "cuGraphMemAllocNodeGetParams" 11040 call fn cuGraphMemAllocNodeGetParams(
        node: Handle, to: *mut AllocParams,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Alloc { device, bytes, address } = driver.node(node)?.kind else {
            return Err(INVALID_VALUE);
        };
        let id = i32::try_from(device).unwrap_or(0);
        let location = Location { kind: Location::DEVICE, id };
        let pool = PoolProperties { kind: 1, location, ..PoolProperties::default() };
        put(to, AllocParams { pool, bytes: bytes as usize, address, ..AllocParams::default() })
    }

    "cuGraphAddMemFreeNode" 11040 call fn cuGraphAddMemFreeNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize, address: u64,
    ) |call| { call.add(&at(to, graph, behind, count), NodeKind::Free(address)) }

    "cuGraphMemFreeNodeGetParams" 11040 call fn cuGraphMemFreeNodeGetParams(
        node: Handle, to: *mut u64,
    ) |call| {
        let driver = call.lock();
        let NodeKind::Free(address) = driver.node(node)?.kind else { return Err(INVALID_VALUE) };
        put(to, address)
    }

    "cuGraphAddNode" 12020 call fn cuGraphAddNode(
        to: *mut Handle, graph: Handle, behind: *const Handle, count: usize,
        params: *mut NodeParams,
    ) |call| { call.add_any(&at(to, graph, behind, count), params) }

    "cuGraphAddNode" 12030 call fn cuGraphAddNode_v2(
        to: *mut Handle, graph: Handle, behind: *const Handle, _edges: *const EdgeData,
        count: usize, params: *mut NodeParams,
    ) |call| { call.add_any(&at(to, graph, behind, count), params) }

    "cuGraphAddNode" 13040 call fn cuGraphAddNode_v3(
        to: *mut Handle, graph: Handle, behind: *const Handle, _edges: *const EdgeData,
        count: usize, params: *mut NodeParams,
    ) |call| { call.add_any(&at(to, graph, behind, count), params) }
}
