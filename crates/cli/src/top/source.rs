//! Where pictures come from: a thread of its own that asks, so that a driver or a slurmctld which stops
//! answering does not take the screen with it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Picture;

/// How long it may take to the first answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A picture, or why there is none.
pub(super) type Round = Result<Picture, String>;

/// Who is asked, for the words when it is silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whom {
    pub(super) name: &'static str,
    pub(super) way_out: &'static str,
    /// Silence is told after this time beyond the interval.
    pub(super) silence: Duration,
}

/// Pictures as they come.
pub(super) struct Source {
    rounds: Receiver<Round>,
    since: Instant,
    whom: Whom,
}

impl Source {
    /// Starts a thread that asks every `interval`.
    ///
    /// * `ask` — sends pictures for as long as they are taken; an error is told, and it is begun anew.
    pub(super) fn start(
        interval: Duration,
        whom: Whom,
        mut ask: impl FnMut(&SyncSender<Round>) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let (sender, rounds) = sync_channel(1);
        // It ends with the process: who hangs cannot be waited for.
        thread::spawn(move || {
            while let Err(error) = ask(&sender) {
                if sender.send(Err(error)).is_err() {
                    return;
                }
                thread::sleep(interval);
            }
        });
        Self { rounds, since: Instant::now(), whom }
    }

    /// Waits for the next picture.
    ///
    /// # Errors
    /// What is said instead, or that nothing is said.
    pub(super) fn wait(&mut self) -> Round {
        match self.rounds.recv_timeout(PATIENCE) {
            Ok(round) => self.seen(round),
            Err(RecvTimeoutError::Timeout) => Err(self.silence()),
            Err(RecvTimeoutError::Disconnected) => Err("measuring has ended".into()),
        }
    }

    /// The next picture if it has come; what is wrong if none came for long.
    pub(super) fn look(&mut self, interval: Duration) -> Option<Round> {
        match self.rounds.try_recv() {
            Ok(round) => Some(self.seen(round)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected)
                if self.since.elapsed() > interval + self.whom.silence =>
            {
                Some(Err(self.silence()))
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    fn seen(&mut self, round: Round) -> Round {
        self.since = Instant::now();
        round
    }

    fn silence(&self) -> String {
        let Whom { name, way_out, .. } = self.whom;
        format!("{name} has not answered for {} s; {way_out}", self.since.elapsed().as_secs())
    }
}
