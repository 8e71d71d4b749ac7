//! Stream capture: streams whose work becomes nodes of a graph, and calls that break it.

use std::cell::Cell;
use std::collections::BTreeSet;

use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::layouts::EdgeData;
use crate::pointers::{get, get_list, put, put_if};
use crate::result::{
    Error, ILLEGAL_STATE, INVALID_VALUE, Outcome, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};
use crate::stream::{Role, thread_number};

/// A capture under way.
pub(crate) struct Capture {
    id: u64,
    /// The stream in which it began.
    origin: Handle,
    mode: u32,
    thread: u64,
    graph: Handle,
    /// The graph is the client's: it stays if the capture fails.
    to_clients: bool,
    invalid: bool,
}

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

thread_local! {
    /// What `cuThreadExchangeStreamCaptureMode` has set.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

impl Driver {
    fn capture_by(&mut self, id: u64) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|capture| capture.id == id)
    }

    /// Makes a capture fail: no stream adds to it, and its end tells so.
    pub(crate) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.capture_by(id) {
            capture.invalid = true;
        }
    }

    /// Refuses a call that could disturb captures, and breaks those it would: by cuda.h's rules for
    /// `cuThreadExchangeStreamCaptureMode`.
    pub(crate) fn forbid_unsafe(&mut self) -> Outcome {
        if self.captures.is_empty() {
            return Ok(());
        }
        let (mode, thread) = (MODE.get(), thread_number());
        let disturbed = |capture: &Capture| match mode {
            GLOBAL => capture.mode == GLOBAL || capture.thread == thread && capture.mode != RELAXED,
            THREAD_LOCAL => capture.thread == thread && capture.mode != RELAXED,
            _ => false,
        };
        let mut hit = false;
        for capture in self.captures.iter_mut().filter(|capture| disturbed(capture)) {
            capture.invalid = true;
            hit = true;
        }
        if hit { Err(STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses to wait for a context while one of its streams is captured, and breaks that capture.
    pub(crate) fn forbid_captured(&mut self, context: Handle) -> Outcome {
        let captured =
            |stream: &crate::stream::Stream| stream.context == context && stream.capture.is_some();
        let hit = self.streams.find(captured);
        let ids: Vec<u64> = hit.iter().filter_map(|hit| self.streams.get(*hit)?.capture).collect();
        ids.iter().for_each(|id| self.invalidate(*id));
        if ids.is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Whether what is put into a stream is captured. The legacy stream must not be used while a
    /// stream that goes in step with it is captured.
    pub(crate) fn takes_captured(&mut self, handle: Handle) -> Result<bool, Error> {
        if self.captures.is_empty() {
            return Ok(false);
        }
        let capture = self.stream(handle)?.capture;
        if self.stream(handle)?.role == Role::Legacy {
            let ids = self.captured_in_step(handle)?;
            ids.iter().for_each(|id| self.invalidate(*id));
            return if ids.is_empty() { Ok(false) } else { Err(STREAM_CAPTURE_IMPLICIT) };
        }
        match capture.and_then(|id| self.capture_by(id)) {
            None => Ok(false),
            Some(capture) if capture.invalid => Err(STREAM_CAPTURE_INVALIDATED),
            Some(_) => Ok(true),
        }
    }

    /// The captures of streams that go in step with a legacy stream; none for other streams.
    fn captured_in_step(&self, handle: Handle) -> Result<Vec<u64>, Error> {
        let stream = self.stream(handle)?;
        if stream.role != Role::Legacy {
            return Ok(Vec::new());
        }
        let context = stream.context;
        let in_step =
            |other: &crate::stream::Stream| other.context == context && other.is_blocking();
        let found = self.streams.find(in_step);
        Ok(found.iter().filter_map(|stream| self.streams.get(*stream)?.capture).collect())
    }

    /// Adds a node behind all that a captured stream has done.
    pub(crate) fn capture(&mut self, handle: Handle, kind: NodeKind) -> Result<Handle, Error> {
        let stream = self.stream(handle)?;
        let behind = stream.tail.clone();
        let capture = stream.capture.and_then(|id| self.capture_by(id)).ok_or(ILLEGAL_STATE)?;
        let graph = capture.graph;
        let node = self.add_node(graph, &behind, kind)?;
        self.stream_mut(handle)?.tail = vec![node];
        Ok(node)
    }

    /// Lets a stream wait for what a capture has done, which makes it a part of it.
    pub(crate) fn join_capture(&mut self, handle: Handle, id: u64, behind: &[Handle]) -> Outcome {
        let capture = self.capture_by(id).ok_or(crate::result::CAPTURED_EVENT)?;
        if capture.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let stream = self.stream_mut(handle)?;
        if stream.role == Role::Legacy {
            self.invalidate(id);
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        if stream.capture.is_some_and(|other| other != id) {
            let other = stream.capture;
            self.invalidate(id);
            other.into_iter().for_each(|other| self.invalidate(other));
            return Err(STREAM_CAPTURE_MERGE);
        }
        stream.capture = Some(id);
        for node in behind {
            if !stream.tail.contains(node) {
                stream.tail.push(*node);
            }
        }
        Ok(())
    }

    /// Whether all that the streams of a capture have done lies before the end of its first one.
    fn is_joined(&self, capture: &Capture) -> bool {
        let Some(graph) = self.graphs.get(capture.graph) else { return false };
        let tail = |handle| self.streams.get(handle).map(|stream| stream.tail.clone());
        let mut reached: BTreeSet<Handle> = BTreeSet::new();
        let mut next = tail(capture.origin).unwrap_or_default();
        while let Some(node) = next.pop() {
            if reached.insert(node) {
                let before = graph.edges.iter().filter(|(_, to)| *to == node);
                next.extend(before.map(|(from, _)| *from));
            }
        }
        let streams = self.streams.find(|stream| stream.capture == Some(capture.id));
        streams.into_iter().filter_map(tail).flatten().all(|node| reached.contains(&node))
    }

    fn begin_capture(
        &mut self,
        handle: Handle,
        mode: u32,
        into: Option<(Handle, Vec<Handle>)>,
    ) -> Outcome {
        let stream = self.stream(handle)?;
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        if stream.role == Role::Legacy {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let id = self.next_serial();
        let to_clients = into.is_some();
        let (graph, tail) = match into {
            Some(into) => into,
            None => (self.create_graph(), Vec::new()),
        };
        let thread = thread_number();
        let capture =
            Capture { id, origin: handle, mode, thread, graph, to_clients, invalid: false };
        self.captures.push(capture);
        let stream = self.stream_mut(handle)?;
        (stream.capture, stream.tail) = (Some(id), tail);
        Ok(())
    }

    /// Ends the capture of a stream; its graph.
    fn end_capture(&mut self, handle: Handle) -> Result<Handle, Error> {
        let id = self.stream(handle)?.capture.ok_or(ILLEGAL_STATE)?;
        let at = self.captures.iter().position(|capture| capture.id == id);
        let at = at.ok_or(ILLEGAL_STATE)?;
        let Some(capture) = self.captures.get(at) else { return Err(ILLEGAL_STATE) };
        if capture.origin != handle {
            self.invalidate(id);
            return Err(STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread_number() {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let joined = self.is_joined(capture);
        let capture = self.captures.swap_remove(at);
        for stream in self.streams.find(|stream| stream.capture == Some(id)) {
            if let Some(stream) = self.streams.get_mut(stream) {
                stream.capture = None;
                stream.tail.clear();
            }
        }
        let failure = match (capture.invalid, joined) {
            (true, _) => Some(STREAM_CAPTURE_INVALIDATED),
            (false, false) => Some(STREAM_CAPTURE_UNJOINED),
            (false, true) => None,
        };
        let Some(failure) = failure else { return Ok(capture.graph) };
        if !capture.to_clients {
            self.destroy_graph(capture.graph)?;
        }
        Err(failure)
    }

    /// Status by cuda.h: 0 for none, 1 while it goes on, 2 once it is broken.
    fn capture_status(&mut self, handle: Handle) -> Result<(u32, u64, Handle), Error> {
        let capture = self.stream(handle)?.capture;
        Ok(match capture.and_then(|id| self.capture_by(id)) {
            None => (0, 0, 0),
            Some(capture) if capture.invalid => (2, capture.id, 0),
            Some(capture) => (1, capture.id, capture.graph),
        })
    }
}

/// Where the caller of `cuStreamGetCaptureInfo` wants things; any but the status may be null.
struct Info {
    status: *mut u32,
    id: *mut u64,
    graph: *mut Handle,
    nodes: *mut *const Handle,
    edges: *mut *const EdgeData,
    count: *mut usize,
}

impl Call {
    /// The stream that a handle means, if it may be waited for or asked: not while it is captured.
    pub(crate) fn checked_for_waiting(&self, handle: Handle) -> Result<Handle, Error> {
        let mut driver = self.lock();
        let handle = self.resolve(&mut driver, handle)?;
        if driver.takes_captured(handle)? {
            let capture = driver.stream(handle)?.capture;
            capture.into_iter().for_each(|id| driver.invalidate(id));
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(handle)
    }

    fn capture_info(&self, stream: Handle, to: &Info) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        // The legacy stream cannot be asked while one in step with it is captured, which goes on all the
        // same (cuda.h, `cuStreamIsCapturing`).
        if !driver.captured_in_step(stream)?.is_empty() {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        let (status, id, graph) = driver.capture_status(stream)?;
        put(to.status, status)?;
        if status != 1 {
            return Ok(());
        }
        let tail = &driver.stream(stream)?.tail;
        put_if(to.id, id);
        put_if(to.graph, graph);
        // Good until the stream's next node, as cuda.h says of this list.
        put_if(to.nodes, tail.as_ptr());
        put_if(to.edges, std::ptr::null());
        put_if(to.count, tail.len());
        Ok(())
    }

    fn update_dependencies(&self, stream: Handle, nodes: &[Handle], flags: u32) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        if !driver.takes_captured(stream)? {
            return Err(ILLEGAL_STATE);
        }
        if flags > 1 || nodes.iter().any(|node| driver.nodes.get(*node).is_none()) {
            return Err(INVALID_VALUE);
        }
        let tail = &mut driver.stream_mut(stream)?.tail;
        if flags == 1 {
            tail.clear();
        }
        for node in nodes {
            if !tail.contains(node) {
                tail.push(*node);
            }
        }
        Ok(())
    }
}

const NOWHERE: Info = Info {
    status: std::ptr::null_mut(),
    id: std::ptr::null_mut(),
    graph: std::ptr::null_mut(),
    nodes: std::ptr::null_mut(),
    edges: std::ptr::null_mut(),
    count: std::ptr::null_mut(),
};

exports! { CAPTURE;
    "cuStreamBeginCapture" 10000 call [cuStreamBeginCapture_ptsz 10000] fn cuStreamBeginCapture(
        stream: Handle,
    ) |call| {
        let mut driver = call.lock();
        let stream = call.resolve(&mut driver, stream)?;
        driver.begin_capture(stream, GLOBAL, None)
    }

    "cuStreamBeginCapture" 10010 call [cuStreamBeginCapture_v2_ptsz 10010] fn cuStreamBeginCapture_v2(
        stream: Handle, mode: u32,
    ) |call| {
        let mut driver = call.lock();
        let stream = call.resolve(&mut driver, stream)?;
        driver.begin_capture(stream, mode, None)
    }

    "cuStreamBeginCaptureToGraph" 12030 call [cuStreamBeginCaptureToGraph_ptsz 12030] fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, behind: *const Handle, _edges: *const EdgeData,
        count: usize, mode: u32,
    ) |call| {
        let behind = get_list(behind, count)?;
        let mut driver = call.lock();
        let stream = call.resolve(&mut driver, stream)?;
        driver.graph(graph)?;
        driver.begin_capture(stream, mode, Some((graph, behind)))
    }

    "cuStreamEndCapture" 10000 call [cuStreamEndCapture_ptsz 10000] fn cuStreamEndCapture(
        stream: Handle, to: *mut Handle,
    ) |call| {
        let mut driver = call.lock();
        let stream = call.resolve(&mut driver, stream)?;
        let graph = driver.end_capture(stream);
        put(to, graph.unwrap_or(0))?;
        graph.map(|_| ())
    }

    "cuStreamIsCapturing" 10000 call [cuStreamIsCapturing_ptsz 10000] fn cuStreamIsCapturing(
        stream: Handle, to: *mut u32,
    ) |call| { call.capture_info(stream, &Info { status: to, ..NOWHERE }) }

    "cuStreamGetCaptureInfo" 10010 call [cuStreamGetCaptureInfo_ptsz 10010] fn cuStreamGetCaptureInfo(stream: Handle, status: *mut u32, id: *mut u64) |call| {
        call.capture_info(stream, &Info { status, id, ..NOWHERE })
    }

    "cuStreamGetCaptureInfo" 11030 call [cuStreamGetCaptureInfo_v2_ptsz 11030] fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: *mut u32, id: *mut u64, graph: *mut Handle,
        nodes: *mut *const Handle, count: *mut usize,
    ) |call| { call.capture_info(stream, &Info { status, id, graph, nodes, count, ..NOWHERE }) }

    "cuStreamGetCaptureInfo" 12030 call [cuStreamGetCaptureInfo_v3_ptsz 12030] fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: *mut u32, id: *mut u64, graph: *mut Handle,
        nodes: *mut *const Handle, edges: *mut *const EdgeData, count: *mut usize,
    ) |call| { call.capture_info(stream, &Info { status, id, graph, nodes, edges, count }) }

    "cuStreamUpdateCaptureDependencies" 11030 call [cuStreamUpdateCaptureDependencies_ptsz 11030] fn cuStreamUpdateCaptureDependencies(
        stream: Handle, nodes: *const Handle, count: usize, flags: u32,
    ) |call| { call.update_dependencies(stream, &get_list(nodes, count)?, flags) }

    "cuStreamUpdateCaptureDependencies" 12030 call [cuStreamUpdateCaptureDependencies_v2_ptsz 12030] fn cuStreamUpdateCaptureDependencies_v2(
        stream: Handle, nodes: *const Handle, _edges: *const EdgeData, count: usize, flags: u32,
    ) |call| { call.update_dependencies(stream, &get_list(nodes, count)?, flags) }

    "cuThreadExchangeStreamCaptureMode" 10010 call fn cuThreadExchangeStreamCaptureMode(mode: *mut u32)
    |_| {
        let new = get(mode)?;
        if new > RELAXED { return Err(INVALID_VALUE) }
        put(mode, MODE.replace(new))
    }
}
