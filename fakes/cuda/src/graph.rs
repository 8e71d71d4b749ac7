//! Graphs: nodes and the order between them.

use std::collections::BTreeMap;

use crate::action::{HostFunction, Value};
use crate::calls::exports;
use crate::driver::Driver;
use crate::handles::Handle;
use crate::launch::Launch;
use crate::layouts::{Copy3, EdgeData};
use crate::movement::Movement;
use crate::pointers::{get, get_list, put, put_list};
use crate::result::{Error, INVALID_VALUE, Outcome};

/// A graph.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) id: u32,
    pub(crate) nodes: Vec<Handle>,
    /// From and to.
    pub(crate) edges: Vec<(Handle, Handle)>,
    /// It is the content of a node.
    pub(crate) is_child: bool,
}

/// A node of a graph.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) graph: Handle,
    pub(crate) kind: NodeKind,
    /// The node of which it is the copy in a cloned graph.
    original: Handle,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum NodeKind {
    Kernel(Launch),
    /// With the description that a client has given, if it was one.
    Move(Movement, Option<Box<Copy3>>),
    Host(HostFunction),
    Empty,
    /// All of another graph.
    Child(Handle),
    Wait(Handle),
    Record(Handle),
    Alloc {
        device: usize,
        bytes: u64,
        address: u64,
    },
    Free(u64),
    /// Waits for a value in memory, or writes it.
    Value(Value, bool),
}

impl NodeKind {
    /// `CUgraphNodeType`.
    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Move(Movement::Copy { .. }, _) => 1,
            Self::Move(Movement::Fill { .. }, _) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Alloc { .. } => 10,
            Self::Free(_) => 11,
            Self::Value(..) => 12,
        }
    }
}

impl Driver {
    pub(crate) fn graph(&self, handle: Handle) -> Result<&Graph, Error> {
        self.graphs.get(handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node(&self, handle: Handle) -> Result<&Node, Error> {
        self.nodes.get(handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn create_graph(&mut self) -> Handle {
        let id = u32::try_from(self.next_serial()).unwrap_or(0);
        self.graphs.insert(Graph { id, ..Graph::default() })
    }

    /// Adds a node behind others of the same graph.
    pub(crate) fn add_node(
        &mut self,
        graph: Handle,
        behind: &[Handle],
        kind: NodeKind,
    ) -> Result<Handle, Error> {
        let found = self.graph(graph)?;
        if !behind.iter().all(|other| found.nodes.contains(other)) {
            return Err(INVALID_VALUE);
        }
        let kind = if let NodeKind::Child(child) = kind {
            NodeKind::Child(self.clone_graph(child, true)?)
        } else {
            kind
        };
        let node = self.nodes.insert(Node { graph, kind, original: 0 });
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.nodes.push(node);
            graph.edges.extend(behind.iter().map(|other| (*other, node)));
        }
        Ok(node)
    }

    /// Takes a graph away, what its nodes contain too.
    pub(crate) fn destroy_graph(&mut self, handle: Handle) -> Outcome {
        let graph = self.graphs.remove(handle).ok_or(INVALID_VALUE)?;
        for node in graph.nodes {
            self.drop_node(node)?;
        }
        Ok(())
    }

    fn drop_node(&mut self, node: Handle) -> Outcome {
        match self.nodes.remove(node).map(|node| node.kind) {
            Some(NodeKind::Child(child)) => self.destroy_graph(child),
            _ => Ok(()),
        }
    }

    fn clone_graph(&mut self, handle: Handle, is_child: bool) -> Result<Handle, Error> {
        let from = self.graph(handle)?.clone();
        let clone = self.create_graph();
        let mut copies: BTreeMap<Handle, Handle> = BTreeMap::new();
        for node in &from.nodes {
            let kind = self.node(*node)?.kind.clone();
            let copy = self.add_node(clone, &[], kind)?;
            if let Some(copy) = self.nodes.get_mut(copy) {
                copy.original = *node;
            }
            copies.insert(*node, copy);
        }
        let edges = from.edges.iter().filter_map(|(a, b)| Some((*copies.get(a)?, *copies.get(b)?)));
        let edges = edges.collect();
        if let Some(graph) = self.graphs.get_mut(clone) {
            (graph.edges, graph.is_child) = (edges, is_child);
        }
        Ok(clone)
    }

    /// A graph's nodes, each behind all that it depends on; an error if they go round in a circle.
    pub(crate) fn in_order(&self, handle: Handle) -> Result<Vec<Handle>, Error> {
        let graph = self.graph(handle)?;
        let mut open: BTreeMap<Handle, usize> = graph.nodes.iter().map(|node| (*node, 0)).collect();
        let mut next: BTreeMap<Handle, Vec<Handle>> = BTreeMap::new();
        for (from, to) in &graph.edges {
            *open.entry(*to).or_default() += 1;
            next.entry(*from).or_default().push(*to);
        }
        let mut order: Vec<Handle> =
            graph.nodes.iter().filter(|node| open.get(node) == Some(&0)).copied().collect();
        let mut at = 0;
        while let Some(node) = order.get(at).copied() {
            at += 1;
            for to in next.get(&node).into_iter().flatten() {
                if let Some(count) = open.get_mut(to) {
                    *count -= 1;
                    if *count == 0 {
                        order.push(*to);
                    }
                }
            }
        }
        if order.len() == graph.nodes.len() { Ok(order) } else { Err(INVALID_VALUE) }
    }

    fn edges_changed(
        &mut self,
        graph: Handle,
        from: &[Handle],
        to: &[Handle],
        add: bool,
    ) -> Outcome {
        let found = self.graph(graph)?;
        let known = |node: &Handle| found.nodes.contains(node);
        if !from.iter().chain(to).all(known) {
            return Err(INVALID_VALUE);
        }
        let edges = &mut self.graphs.get_mut(graph).ok_or(INVALID_VALUE)?.edges;
        for edge in from.iter().copied().zip(to.iter().copied()) {
            if edges.contains(&edge) == add {
                return Err(INVALID_VALUE);
            }
            if add {
                edges.push(edge);
            } else {
                edges.retain(|other| *other != edge);
            }
        }
        Ok(())
    }

    /// The nodes before a node, or behind it.
    fn neighbours(&self, node: Handle, before: bool) -> Result<Vec<Handle>, Error> {
        let edges = &self.graph(self.node(node)?.graph)?.edges;
        let other = |(from, to): &(Handle, Handle)| {
            let (own, other) = if before { (to, from) } else { (from, to) };
            (*own == node).then_some(*other)
        };
        Ok(edges.iter().filter_map(other).collect())
    }

    fn write_edges(
        &self,
        graph: Handle,
        from: *mut Handle,
        to: *mut Handle,
        count: *mut usize,
    ) -> Outcome {
        let edges = &self.graph(graph)?.edges;
        let (starts, ends): (Vec<Handle>, Vec<Handle>) = edges.iter().copied().unzip();
        let room = if from.is_null() { 0 } else { get(count)? };
        put_list(from, count, &starts)?;
        if !to.is_null() {
            put(count, room)?;
            put_list(to, count, &ends)?;
        }
        Ok(())
    }
}

exports! { GRAPH;
    "cuGraphCreate" 10000 call fn cuGraphCreate(to: *mut Handle, flags: u32) |call| {
        if flags != 0 || to.is_null() { return Err(INVALID_VALUE) }
        put(to, call.lock().create_graph())
    }

    "cuGraphDestroy" 10000 call fn cuGraphDestroy(graph: Handle) |call| {
        let mut driver = call.lock();
        if driver.graph(graph)?.is_child { return Err(INVALID_VALUE) }
        driver.destroy_graph(graph)
    }

    "cuGraphClone" 10000 call fn cuGraphClone(to: *mut Handle, graph: Handle) |call| {
        put(to, call.lock().clone_graph(graph, false)?)
    }

    "cuGraphNodeFindInClone" 10000 call fn cuGraphNodeFindInClone(
        to: *mut Handle, original: Handle, clone: Handle,
    ) |call| {
        let driver = call.lock();
        let nodes = &driver.graph(clone)?.nodes;
        let is_it = |node: &&Handle| driver.node(**node).is_ok_and(|n| n.original == original);
        put(to, *nodes.iter().find(is_it).ok_or(INVALID_VALUE)?)
    }

    "cuGraphDestroyNode" 10000 call fn cuGraphDestroyNode(node: Handle) |call| {
        let mut driver = call.lock();
        let graph = driver.node(node)?.graph;
        if let Some(graph) = driver.graphs.get_mut(graph) {
            graph.nodes.retain(|other| *other != node);
            graph.edges.retain(|(from, to)| *from != node && *to != node);
        }
        driver.drop_node(node)
    }

    "cuGraphGetNodes" 10000 call fn cuGraphGetNodes(
        graph: Handle, to: *mut Handle, count: *mut usize,
    ) |call| { put_list(to, count, &call.lock().graph(graph)?.nodes) }

    "cuGraphGetRootNodes" 10000 call fn cuGraphGetRootNodes(
        graph: Handle, to: *mut Handle, count: *mut usize,
    ) |call| {
        let driver = call.lock();
        let graph = driver.graph(graph)?;
        let is_root = |node: &&Handle| !graph.edges.iter().any(|(_, to)| to == *node);
        let roots: Vec<Handle> = graph.nodes.iter().filter(is_root).copied().collect();
        put_list(to, count, &roots)
    }

    "cuGraphGetEdges" 10000 call fn cuGraphGetEdges(
        graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize,
    ) |call| { call.lock().write_edges(graph, from, to, count) }

    "cuGraphGetEdges" 12030 call fn cuGraphGetEdges_v2(
        graph: Handle, from: *mut Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize,
    ) |call| {
        let driver = call.lock();
        let plain = vec![EdgeData::default(); driver.graph(graph)?.edges.len()];
        let room = if from.is_null() { 0 } else { get(count)? };
        driver.write_edges(graph, from, to, count)?;
        if !data.is_null() && !from.is_null() {
            put(count, room)?;
            put_list(data, count, &plain)?;
        }
        Ok(())
    }

    "cuGraphNodeGetDependencies" 10000 call fn cuGraphNodeGetDependencies(
        node: Handle, to: *mut Handle, count: *mut usize,
    ) |call| { put_list(to, count, &call.lock().neighbours(node, true)?) }

    "cuGraphNodeGetDependencies" 12030 call fn cuGraphNodeGetDependencies_v2(
        node: Handle, to: *mut Handle, _data: *mut EdgeData, count: *mut usize,
    ) |call| { put_list(to, count, &call.lock().neighbours(node, true)?) }

    "cuGraphNodeGetDependentNodes" 10000 call fn cuGraphNodeGetDependentNodes(
        node: Handle, to: *mut Handle, count: *mut usize,
    ) |call| { put_list(to, count, &call.lock().neighbours(node, false)?) }

    "cuGraphNodeGetDependentNodes" 12030 call fn cuGraphNodeGetDependentNodes_v2(
        node: Handle, to: *mut Handle, _data: *mut EdgeData, count: *mut usize,
    ) |call| { put_list(to, count, &call.lock().neighbours(node, false)?) }

    "cuGraphAddDependencies" 10000 call fn cuGraphAddDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, count: usize,
    ) |call| {
        let (from, to) = (get_list(from, count)?, get_list(to, count)?);
        call.lock().edges_changed(graph, &from, &to, true)
    }

    "cuGraphAddDependencies" 12030 call fn cuGraphAddDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, _data: *const EdgeData, count: usize,
    ) |call| {
        let (from, to) = (get_list(from, count)?, get_list(to, count)?);
        call.lock().edges_changed(graph, &from, &to, true)
    }

    "cuGraphRemoveDependencies" 10000 call fn cuGraphRemoveDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, count: usize,
    ) |call| {
        let (from, to) = (get_list(from, count)?, get_list(to, count)?);
        call.lock().edges_changed(graph, &from, &to, false)
    }

    "cuGraphRemoveDependencies" 12030 call fn cuGraphRemoveDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, _data: *const EdgeData, count: usize,
    ) |call| {
        let (from, to) = (get_list(from, count)?, get_list(to, count)?);
        call.lock().edges_changed(graph, &from, &to, false)
    }

    "cuGraphNodeGetType" 10000 call fn cuGraphNodeGetType(node: Handle, to: *mut u32) |call| {
        put(to, call.lock().node(node)?.kind.number())
    }

    "cuGraphNodeGetContainingGraph" 13010 call fn cuGraphNodeGetContainingGraph(
        node: Handle, to: *mut Handle,
    ) |call| { put(to, call.lock().node(node)?.graph) }

    "cuGraphGetId" 13010 call fn cuGraphGetId(graph: Handle, to: *mut u32) |call| {
        put(to, call.lock().graph(graph)?.id)
    }

    "cuGraphDebugDotPrint" 11030 call fn cuGraphDebugDotPrint(
        graph: Handle, _path: *const std::ffi::c_char, _flags: u32,
    ) |call| { call.lock().graph(graph).map(|_| ()) }
}
