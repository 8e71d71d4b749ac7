//! Looks at the machine's GPUs from time to time, and tells those who publish and those who report health.
//!
//! By a driver of its own: a look must not wait for a claim that is being prepared, nor the other way round.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use node::backend::Enforcement;
use node::driver::{Driver, DriverError};
use node::inventory::Inventory;
use tokio::sync::watch;
use tokio::task::JoinError;

use super::Notice;
use super::devices::Offers;

/// What was seen last, and when.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// What the node offers.
    pub(super) offers: Arc<Offers>,
    /// When the driver said so.
    pub(super) at: SystemTime,
}

/// Looks, and looks again until nobody listens.
pub(super) struct Looker {
    /// Whose driver, opened when it can be.
    driver: Option<Driver>,
    library: Option<std::path::PathBuf>,
    /// What was found out about the limiter when the machine was opened.
    limiter: Enforcement,
    notice: Notice,
}

impl Looker {
    pub(super) fn new(
        library: Option<std::path::PathBuf>,
        limiter: Enforcement,
        notice: Notice,
    ) -> Self {
        Self { driver: None, library, limiter, notice }
    }

    /// Looks once.
    ///
    /// # Errors
    /// The driver does not answer.
    pub(super) fn look(&mut self) -> Result<Inventory, DriverError> {
        let driver = match self.driver.take() {
            Some(driver) => driver,
            None => match &self.library {
                Some(path) => Driver::open_library(path)?,
                None => Driver::open()?,
            },
        };
        // One that fails is opened anew the next time: it may have been replaced.
        let mut inventory = driver.inventory()?;
        self.driver = Some(driver);
        for device in &mut inventory.devices {
            device.backends.limiter = self.limiter.clone();
        }
        Ok(inventory)
    }

    /// Looks every so often; what does not answer leaves what was seen before, with its age.
    ///
    /// # Errors
    /// A look has panicked: nothing more would be seen.
    pub(super) async fn run(
        mut self,
        seen: watch::Sender<Seen>,
        every: Duration,
    ) -> Result<(), JoinError> {
        let mut silent = false;
        while !seen.is_closed() {
            tokio::time::sleep(every).await;
            let looked = tokio::task::spawn_blocking(move || {
                let looked = self.look();
                (self, looked)
            });
            let (again, looked) = looked.await?;
            self = again;
            match looked {
                Ok(inventory) => {
                    silent = false;
                    let before = Arc::clone(&seen.borrow().offers);
                    if let Ok(offers) = Offers::of(&inventory, &before) {
                        seen.send_replace(Seen { offers: Arc::new(offers), at: SystemTime::now() });
                    }
                }
                Err(error) if !silent => {
                    silent = true;
                    (self.notice)(&format!("the GPUs' driver does not answer: {error}"));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}
