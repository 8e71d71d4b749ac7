//! Executable graphs: made of a graph, changed, launched. A launch does one node after the other.

use std::collections::BTreeSet;

use fake_gpu::Work;

use crate::action::Action;
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::layouts::{InstantiateParams, KernelParams, KernelParamsV1, UpdateResult};
use crate::pointers::{get, put, put_if};
use crate::result::{
    Error, GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, Outcome, STREAM_CAPTURE_UNSUPPORTED,
};

/// An executable graph.
pub(crate) struct Exec {
    id: u32,
    flags: u64,
    /// What it does in which order, by the nodes of the graph that it was made of.
    steps: Vec<(Handle, NodeKind)>,
    /// Nodes that a launch leaves out.
    disabled: BTreeSet<Handle>,
}

const AUTO_FREE: u64 = 1;
const ALL_FLAGS: u64 = 15;

/// `CUgraphExecUpdateResult`.
const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;

impl Driver {
    fn exec_mut(&mut self, handle: Handle) -> Result<&mut Exec, Error> {
        self.execs.used(handle);
        self.execs.get_mut(handle).ok_or(INVALID_VALUE)
    }

    /// What a graph does in which order, with the content of child graphs in their place.
    fn steps(&self, graph: Handle) -> Result<Vec<(Handle, NodeKind)>, Error> {
        let mut steps = Vec::new();
        for node in self.in_order(graph)? {
            let kind = &self.node(node)?.kind;
            if let NodeKind::Child(child) = kind {
                steps.extend(self.steps(*child)?);
            } else {
                steps.push((node, kind.clone()));
            }
        }
        Ok(steps)
    }

    fn instantiate(&mut self, graph: Handle, flags: u64) -> Result<Handle, Error> {
        if flags & !ALL_FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        let steps = self.steps(graph)?;
        let id = u32::try_from(self.next_serial()).unwrap_or(0);
        Ok(self.execs.insert(Exec { id, flags, steps, disabled: BTreeSet::new() }))
    }

    /// Takes over what another graph of the same form does.
    fn update(&mut self, exec: Handle, graph: Handle) -> Result<UpdateResult, Error> {
        let new = self.steps(graph)?;
        let exec = self.exec_mut(exec)?;
        let failed = |result, node| Ok(UpdateResult { result, node, from: 0 });
        if new.len() != exec.steps.len() {
            return failed(TOPOLOGY_CHANGED, 0);
        }
        let pairs = exec.steps.iter().zip(&new);
        let mut changed = pairs.filter(|((_, old), (_, new))| old.number() != new.number());
        if let Some((_, (node, _))) = changed.next() {
            return failed(TYPE_CHANGED, *node);
        }
        for ((_, old), (_, new)) in exec.steps.iter_mut().zip(new) {
            *old = new;
        }
        Ok(UpdateResult::default())
    }

    /// Backs all allocation nodes with memory, and tells what must be done in the stream.
    fn begin_launch(&mut self, call: &Call, exec: Handle) -> Result<Vec<Action>, Error> {
        self.execs.used(exec);
        let exec = self.execs.get(exec).ok_or(INVALID_VALUE)?;
        let auto_free = exec.flags & AUTO_FREE != 0;
        let enabled = |(node, _): &&(Handle, NodeKind)| !exec.disabled.contains(node);
        let steps: Vec<NodeKind> =
            exec.steps.iter().filter(enabled).map(|(_, kind)| kind.clone()).collect();
        for step in &steps {
            let NodeKind::Alloc { device, bytes, address } = *step else { continue };
            // What the launch before will have freed by then is there again.
            let freed =
                steps.iter().any(|step| matches!(step, NodeKind::Free(at) if *at == address));
            if self.is_graph_memory(address) {
                if !freed && !auto_free {
                    return Err(INVALID_VALUE);
                }
            } else {
                self.begin_graph_memory(call.process, device, bytes, address)?;
            }
        }
        let mut actions = Vec::new();
        for step in steps {
            self.add_actions(step, &mut actions)?;
        }
        Ok(actions)
    }

    /// What a node does; kernels that need as many multiprocessors as the one before are one piece
    /// with it.
    fn add_actions(&mut self, step: NodeKind, actions: &mut Vec<Action>) -> Outcome {
        let action = match step {
            NodeKind::Kernel(launch) => {
                let next = launch.work;
                if let Some(Action::Work(last)) = actions
                    .last_mut()
                    .filter(|last| matches!(last, Action::Work(work) if work.sms == next.sms))
                {
                    *last = Work { ns: last.ns.saturating_add(next.ns), sms: next.sms };
                    return Ok(());
                }
                Action::Work(next)
            }
            NodeKind::Move(movement, _) => {
                movement.check(self)?;
                Action::Move(movement, movement.work())
            }
            NodeKind::Host(function) => Action::Host(function),
            NodeKind::Wait(event) => Action::Wait(event, self.event(event)?.wanted),
            NodeKind::Record(event) => self.begin_record(event)?,
            NodeKind::Free(address) => Action::Free(address),
            NodeKind::Value(value, true) => Action::WriteValue(value),
            NodeKind::Value(value, false) => Action::WaitValue(value),
            NodeKind::Alloc { device, bytes, address } => Action::Alloc(device, bytes, address),
            NodeKind::Empty | NodeKind::Child(_) => return Ok(()),
        };
        actions.push(action);
        Ok(())
    }
}

impl Call {
    fn launch_graph(&self, exec: Handle, stream: Handle) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        if driver.takes_captured(stream)? {
            // A captured launch becomes a child graph with the driver; here it is its steps.
            let steps = driver.execs.get(exec).ok_or(INVALID_VALUE)?.steps.clone();
            if steps.iter().any(|(_, kind)| matches!(kind, NodeKind::Alloc { .. })) {
                return Err(STREAM_CAPTURE_UNSUPPORTED);
            }
            for (_, kind) in steps {
                driver.capture(stream, kind)?;
            }
            return Ok(());
        }
        let actions = driver.begin_launch(self, exec)?;
        drop(driver);
        for action in actions {
            self.act(stream, action)?;
        }
        Ok(())
    }

    pub(crate) fn set_step(&self, exec: Handle, node: Handle, kind: NodeKind) -> Outcome {
        let mut driver = self.lock();
        let exec = driver.exec_mut(exec)?;
        let found = exec.steps.iter_mut().find(|(other, _)| *other == node);
        let (_, old) =
            found.filter(|(_, old)| old.number() == kind.number()).ok_or(INVALID_VALUE)?;
        *old = kind;
        Ok(())
    }

    /// As a node of a graph is now, so shall it be in the executable one.
    fn set_step_as(&self, exec: Handle, node: Handle) -> Outcome {
        let kind = self.lock().node(node)?.kind.clone();
        self.set_step(exec, node, kind)
    }
}

exports! { GRAPH_EXEC;
    "cuGraphInstantiate" 10000 call fn cuGraphInstantiate(
        to: *mut Handle, graph: Handle, error_node: *mut Handle, _log: *mut u8, _room: usize,
    ) |call| {
        put_if(error_node, 0);
        put(to, call.lock().instantiate(graph, 0)?)
    }

    "cuGraphInstantiate" 11000 call fn cuGraphInstantiate_v2(
        to: *mut Handle, graph: Handle, error_node: *mut Handle, _log: *mut u8, _room: usize,
    ) |call| {
        put_if(error_node, 0);
        put(to, call.lock().instantiate(graph, 0)?)
    }

    "cuGraphInstantiateWithFlags" 11040 call fn cuGraphInstantiateWithFlags(
        to: *mut Handle, graph: Handle, flags: u64,
    ) |call| { put(to, call.lock().instantiate(graph, flags)?) }

    "cuGraphInstantiateWithParams" 12000 call [cuGraphInstantiateWithParams_ptsz 12000] fn cuGraphInstantiateWithParams(
        to: *mut Handle, graph: Handle, params: *mut InstantiateParams,
    ) |call| {
        let read = get(params.cast_const())?;
        put(to, call.lock().instantiate(graph, read.flags)?)?;
        put(params, InstantiateParams { error_node: 0, result: 0, ..read })
    }

    "cuGraphUpload" 11010 call [cuGraphUpload_ptsz 11010] fn cuGraphUpload(
        exec: Handle, stream: Handle,
    ) |call| {
        let mut driver = call.lock();
        call.resolve(&mut driver, stream)?;
        driver.exec_mut(exec).map(|_| ())
    }

    "cuGraphLaunch" 10000 call [cuGraphLaunch_ptsz 10000] fn cuGraphLaunch(
        exec: Handle, stream: Handle,
    ) |call| { call.launch_graph(exec, stream) }

    "cuGraphExecDestroy" 10000 call fn cuGraphExecDestroy(exec: Handle) |call| {
        let mut driver = call.lock();
        driver.execs.used(exec);
        driver.execs.remove(exec).map(|_| ()).ok_or(INVALID_VALUE)
    }

    "cuGraphExecGetFlags" 12000 call fn cuGraphExecGetFlags(exec: Handle, to: *mut u64) |call| {
        put(to, call.lock().exec_mut(exec)?.flags)
    }

    "cuGraphExecGetId" 13010 call fn cuGraphExecGetId(exec: Handle, to: *mut u32) |call| {
        put(to, call.lock().exec_mut(exec)?.id)
    }

    "cuGraphExecUpdate" 10020 call fn cuGraphExecUpdate(
        exec: Handle, graph: Handle, node: *mut Handle, result: *mut u32,
    ) |call| {
        let updated = call.lock().update(exec, graph)?;
        put_if(node, updated.node);
        put(result, updated.result)?;
        if updated.result == 0 { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }

    "cuGraphExecUpdate" 12000 call fn cuGraphExecUpdate_v2(
        exec: Handle, graph: Handle, result: *mut UpdateResult,
    ) |call| {
        let updated = call.lock().update(exec, graph)?;
        put(result, updated)?;
        if updated.result == 0 { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }

    "cuGraphExecKernelNodeSetParams" 10010 call fn cuGraphExecKernelNodeSetParams(
        exec: Handle, node: Handle, params: *const KernelParamsV1,
    ) |call| {
        let params = KernelParams { first: get(params)?, ..KernelParams::default() };
        call.set_step(exec, node, call.kernel_node(&params)?)
    }

    "cuGraphExecKernelNodeSetParams" 12000 call fn cuGraphExecKernelNodeSetParams_v2(
        exec: Handle, node: Handle, params: *const KernelParams,
    ) |call| { call.set_step(exec, node, call.kernel_node(&get(params)?)?) }

    "cuGraphExecEventRecordNodeSetEvent" 11010 call fn cuGraphExecEventRecordNodeSetEvent(
        exec: Handle, node: Handle, event: Handle,
    ) |call| { call.set_step(exec, node, NodeKind::Record(event)) }

    "cuGraphExecEventWaitNodeSetEvent" 11010 call fn cuGraphExecEventWaitNodeSetEvent(
        exec: Handle, node: Handle, event: Handle,
    ) |call| { call.set_step(exec, node, NodeKind::Wait(event)) }

    "cuGraphExecChildGraphNodeSetParams" 11010 call fn cuGraphExecChildGraphNodeSetParams(
        exec: Handle, _node: Handle, child: Handle,
    ) |call| {
        let nodes = call.lock().graph(child)?.nodes.clone();
        nodes.into_iter().try_for_each(|node| call.set_step_as(exec, node))
    }

    "cuGraphNodeSetEnabled" 11060 call fn cuGraphNodeSetEnabled(
        exec: Handle, node: Handle, enabled: u32,
    ) |call| {
        let mut driver = call.lock();
        let exec = driver.exec_mut(exec)?;
        if !exec.steps.iter().any(|(other, _)| *other == node) { return Err(INVALID_VALUE) }
        if enabled == 0 {
            exec.disabled.insert(node);
        } else {
            exec.disabled.remove(&node);
        }
        Ok(())
    }

    "cuGraphNodeGetEnabled" 11060 call fn cuGraphNodeGetEnabled(
        exec: Handle, node: Handle, to: *mut u32,
    ) |call| {
        let mut driver = call.lock();
        let exec = driver.exec_mut(exec)?;
        if !exec.steps.iter().any(|(other, _)| *other == node) { return Err(INVALID_VALUE) }
        put(to, u32::from(!exec.disabled.contains(&node)))
    }
}
