//! Xid events: errors that the driver writes into the kernel's log, counted as they come.

use std::collections::BTreeMap;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::answers::{Answers, Ask};

/// Events taken in one round; more stay for the next.
const EVENTS_MAX: usize = 64;

/// Different codes that are counted; NVIDIA's list knows some 150.
const CODES_MAX: usize = 256;

/// The Xid events of one GPU.
#[derive(Debug, Default)]
pub(super) struct Xids<'d> {
    /// A set of its own: registering a GPU that cannot do it frees the set.
    events: Option<EventSet<'d>>,
    history: XidHistory,
}

/// The Xid events that were seen of one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct XidHistory {
    /// Code of the last; 0 for none.
    last: u64,
    counts: BTreeMap<u64, u64>,
}

impl<'d> Xids<'d> {
    /// Goes on from what was seen before.
    pub(super) fn new(history: XidHistory) -> Self {
        Self { events: None, history }
    }

    /// What was seen so far.
    pub(super) fn history(&self) -> &XidHistory {
        &self.history
    }

    /// Begins to listen.
    pub(super) fn listen(&mut self, nvml: &'d Nvml, device: &Device<'d>, answers: &mut Answers) {
        self.events = answers.ask(Ask::Events, || {
            let set = nvml.create_event_set()?;
            let kind = EventTypes::CRITICAL_XID_ERROR;
            device.register_events(kind, set).map_err(|error| error.error)
        });
    }

    /// Takes the events that have come, without waiting; the counts of all so far, `None` where the
    /// driver tells of none.
    pub(super) fn read(&mut self) -> Option<BTreeMap<u64, u64>> {
        for _ in 0..EVENTS_MAX {
            // Without events the wait ends in a timeout; of a lost GPU in that error, but only once
            // all its events are taken.
            let Some(Ok(event)) = self.events.as_ref().map(|events| events.wait(0)) else { break };
            if let Some(XidError::Value(code)) = event.event_data {
                self.history.count(code);
            }
        }
        let told = self.events.is_some() || !self.history.counts.is_empty();
        told.then(|| self.history.counts.clone())
    }

    /// Code of the last event; 0 for none.
    pub(super) fn last(&self) -> u64 {
        self.history.last
    }
}

impl XidHistory {
    fn count(&mut self, code: u64) {
        self.last = code;
        if self.counts.len() < CODES_MAX || self.counts.contains_key(&code) {
            *self.counts.entry(code).or_default() += 1;
        }
    }
}
