//! The thread that talks to the driver. It measures when somebody asks, at most once in an interval,
//! and opens the driver anew when it no longer answers.
//!
//! A thread of its own, so that a driver that hangs holds up nothing but measuring.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use node::driver::{Driver, DriverError};
use node::sampler::{Remembered, Sampler};
use node::tenant::Tenants;
use tokio::sync::oneshot;

use crate::observation::Observation;
use crate::occupants::{Occupancy, booked};

/// How often the machine is asked anew what it has, rather than how it does.
const INVENTORY_PERIOD: Duration = Duration::from_secs(600);

/// How often a driver that does not answer is tried again, at most.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// While a GPU is lost, the driver is opened anew after so many intervals: to whoever had it open when
/// it was lost, a GPU does not come back.
const REOPEN_INTERVALS: u32 = 30;

/// But not less often than this.
const REOPEN_PERIOD_MAX: Duration = Duration::from_secs(60);

/// Who asked, and waits for what was seen; `None` says that the driver does not answer.
pub(crate) type Reply = oneshot::Sender<Option<Arc<Observation>>>;

/// How to measure.
#[derive(Clone, Debug)]
pub(crate) struct Measuring {
    /// An observation younger than this is given again.
    pub(crate) interval: Duration,
    /// The state folder, where runs are published.
    pub(crate) state: PathBuf,
    /// The driver's library, where it is not to be looked for.
    pub(crate) library: Option<PathBuf>,
    /// Who knows who sits on cards beside runs.
    pub(crate) occupancy: Option<Arc<dyn Occupancy>>,
    /// Told when the driver goes and comes back.
    pub(crate) notice: fn(&str),
}

/// How a time with one driver ends.
enum End {
    /// Nobody will ask any more.
    Closed,
    /// The driver failed while somebody was waiting.
    Failed(DriverError, Option<Reply>),
    /// It is to be opened anew, for the sake of a GPU that is lost.
    Reopen,
}

impl Measuring {
    /// Answers requests until nobody can make one any more. Begins with a driver that is open.
    pub(crate) fn run(&self, first: Driver, requests: &Receiver<Reply>) {
        let mut driver = Ok(first);
        let mut waiting = None;
        let mut log = Log { notice: self.notice, said: None };
        let mut remembered = Remembered::default();
        loop {
            let end = match driver {
                Ok(driver) => {
                    self.with(&driver, waiting.take(), requests, (&mut log, &mut remembered))
                }
                Err(error) => End::Failed(error, waiting.take()),
            };
            match end {
                End::Closed => return,
                End::Reopen => {}
                End::Failed(error, unanswered) => {
                    log.down(&error);
                    let Some(next) = down(unanswered, requests) else { return };
                    waiting = Some(next);
                }
            }
            driver = crate::open(self.library.as_deref());
        }
    }

    /// Measures with one driver for as long as it answers.
    fn with(
        &self,
        driver: &Driver,
        mut waiting: Option<Reply>,
        requests: &Receiver<Reply>,
        (log, remembered): (&mut Log, &mut Remembered),
    ) -> End {
        let mut session = match Session::new(driver, self, remembered) {
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
                        *remembered = session.sampler.remembered();
                        last = Some((Instant::now(), Arc::clone(&seen)));
                        seen
                    }
                    Err(error) => return End::Failed(error, Some(reply)),
                },
            };
            log.up();
            let lost = seen.sample.gpus.iter().any(|gpu| gpu.lost);
            // Who has gone meanwhile needs no answer.
            let _ = reply.send(Some(seen));
            if lost && session.opened.elapsed() >= self.reopen_period() {
                return End::Reopen;
            }
            session.look_again();
        }
    }

    fn reopen_period(&self) -> Duration {
        self.interval.saturating_mul(REOPEN_INTERVALS).min(REOPEN_PERIOD_MAX)
    }
}

/// What is said of the driver, each once.
struct Log {
    notice: fn(&str),
    /// Why it does not answer.
    said: Option<String>,
}

impl Log {
    fn down(&mut self, error: &DriverError) {
        let error = error.to_string();
        if self.said.as_ref() != Some(&error) {
            (self.notice)(&format!("not measuring: {error}"));
            self.said = Some(error);
        }
    }

    fn up(&mut self) {
        if self.said.take().is_some() {
            (self.notice)("measuring again");
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
    occupancy: Option<Arc<dyn Occupancy>>,
    opened: Instant,
    looked: Instant,
}

impl<'d> Session<'d> {
    fn new(
        driver: &'d Driver,
        measuring: &Measuring,
        remembered: &Remembered,
    ) -> Result<Self, DriverError> {
        let inventory = Arc::new(driver.inventory()?);
        let sampler = Sampler::resume(driver, Tenants::new(&measuring.state), remembered)?;
        let (now, occupancy) = (Instant::now(), measuring.occupancy.clone());
        Ok(Self { driver, sampler, inventory, occupancy, opened: now, looked: now })
    }

    fn observe(&mut self) -> Result<Arc<Observation>, DriverError> {
        let occupants = self.occupancy.as_ref().map(|known| known.occupants()).unwrap_or_default();
        self.sampler.seat(occupants.iter().map(booked).collect());
        let begun = Instant::now();
        let sample = self.sampler.sample()?;
        let took = begun.elapsed();
        let (inventory, given) = (Arc::clone(&self.inventory), self.sampler.tenants().given());
        Ok(Arc::new(Observation { inventory, sample, given: given.to_vec(), occupants, took }))
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
    let mut session = Session::new(driver, measuring, &Remembered::default())?;
    session.sampler.sample()?;
    std::thread::sleep(node::sampler::PROFILE_PERIOD + Duration::from_millis(10));
    session.observe()
}
