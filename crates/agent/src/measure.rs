//! The thread that talks to the driver. It measures when somebody asks, at most once in an interval,
//! and opens the driver anew when it no longer answers.
//!
//! A thread of its own, so that a driver that hangs holds up nothing but measuring.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use node::driver::{Driver, DriverError};
use node::sampler::Sampler;
use node::tenant::Tenants;
use tokio::sync::oneshot;

use crate::observation::Observation;

/// How often the machine is asked anew what it has, rather than how it does.
const INVENTORY_PERIOD: Duration = Duration::from_secs(600);

/// How often a driver that does not answer is tried again, at most.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Who asked, and waits for what was seen; `None` says that the driver does not answer.
pub(crate) type Reply = oneshot::Sender<Option<Arc<Observation>>>;

/// How to measure.
#[derive(Clone, Debug)]
pub(crate) struct Measuring {
    /// An observation younger than this is given again.
    pub(crate) interval: Duration,
    /// The state folder, where runs are published.
    pub(crate) state: PathBuf,
    /// Told when the driver goes and comes back.
    pub(crate) notice: fn(&str),
}

/// How a time with one driver ends.
enum End {
    /// Nobody will ask any more.
    Closed,
    /// The driver failed while somebody was waiting.
    Failed(DriverError, Option<Reply>),
}

impl Measuring {
    /// Answers requests until nobody can make one any more. Begins with a driver that is open.
    pub(crate) fn run(&self, first: Driver, requests: &Receiver<Reply>) {
        let mut driver = Ok(first);
        let mut waiting = None;
        let mut said: Option<String> = None;
        loop {
            let end = match driver {
                Ok(driver) => self.with(&driver, waiting.take(), requests, &mut said),
                Err(error) => End::Failed(error, waiting.take()),
            };
            let End::Failed(error, unanswered) = end else { return };
            let error = error.to_string();
            if said.as_ref() != Some(&error) {
                (self.notice)(&format!("not measuring: {error}"));
                said = Some(error);
            }
            let Some(next) = down(unanswered, requests) else { return };
            waiting = Some(next);
            driver = Driver::open();
        }
    }

    /// Measures with one driver for as long as it answers.
    fn with(
        &self,
        driver: &Driver,
        mut waiting: Option<Reply>,
        requests: &Receiver<Reply>,
        said: &mut Option<String>,
    ) -> End {
        let mut session = match Session::new(driver, self) {
            Ok(session) => session,
            Err(error) => return End::Failed(error, waiting),
        };
        let mut last: Option<(Instant, Arc<Observation>)> = None;
        loop {
            let Some(reply) = waiting.take().or_else(|| requests.recv().ok()) else {
                return End::Closed;
            };
            if reply.is_closed() {
                continue;
            }
            let young = last.as_ref().filter(|(at, _)| at.elapsed() < self.interval);
            let seen = match young {
                Some((_, seen)) => Arc::clone(seen),
                None => match session.observe() {
                    Ok(seen) => {
                        last = Some((Instant::now(), Arc::clone(&seen)));
                        seen
                    }
                    Err(error) => return End::Failed(error, Some(reply)),
                },
            };
            if said.take().is_some() {
                (self.notice)("measuring again");
            }
            // Who has gone meanwhile needs no answer.
            let _ = reply.send(Some(seen));
            session.look_again();
        }
    }
}

/// Says that the driver does not answer, until it is time to try again with somebody waiting.
fn down(unanswered: Option<Reply>, requests: &Receiver<Reply>) -> Option<Reply> {
    let since = Instant::now();
    let mut asking = unanswered;
    loop {
        if let Some(reply) = asking {
            let _ = reply.send(None);
        }
        let next = requests.recv().ok()?;
        if since.elapsed() >= RETRY_PERIOD {
            return Some(next);
        }
        asking = Some(next);
    }
}

/// One open driver.
struct Session<'d> {
    driver: &'d Driver,
    sampler: Sampler<'d>,
    inventory: Arc<node::inventory::Inventory>,
    looked: Instant,
}

impl<'d> Session<'d> {
    fn new(driver: &'d Driver, measuring: &Measuring) -> Result<Self, DriverError> {
        let inventory = Arc::new(driver.inventory()?);
        let sampler = Sampler::new(driver, Tenants::new(&measuring.state))?;
        Ok(Self { driver, sampler, inventory, looked: Instant::now() })
    }

    fn observe(&mut self) -> Result<Arc<Observation>, DriverError> {
        let begun = Instant::now();
        let sample = self.sampler.sample()?;
        let took = begun.elapsed();
        Ok(Arc::new(Observation { inventory: Arc::clone(&self.inventory), sample, took }))
    }

    /// Takes stock again if the last time is long ago; after an answer, so that nobody waits for it.
    fn look_again(&mut self) {
        if self.looked.elapsed() < INVENTORY_PERIOD {
            return;
        }
        self.looked = Instant::now();
        // If the driver fails here, the next round of measuring finds out.
        if let Ok(inventory) = self.driver.inventory() {
            self.inventory = Arc::new(inventory);
        }
    }
}

/// One observation, with what takes two moments to measure.
pub(crate) fn once(
    driver: &Driver,
    measuring: &Measuring,
) -> Result<Arc<Observation>, DriverError> {
    let mut session = Session::new(driver, measuring)?;
    session.sampler.sample()?;
    std::thread::sleep(node::sampler::PROFILE_PERIOD + Duration::from_millis(10));
    session.observe()
}
