//! Waiting for streams, contexts and events, without holding the tables meanwhile.

use std::time::Duration;

use crate::calls::Call;
use crate::handles::Handle;
use crate::result::{Error, Outcome};

/// Longest sleep between two looks.
const LONGEST: Duration = Duration::from_micros(100);

impl Call {
    /// Looks until it is so: at once a few times, then after sleeps that grow to [`LONGEST`].
    pub(crate) fn wait_until(&self, is_so: impl Fn() -> Result<bool, Error>) -> Outcome {
        let mut sleep = Duration::from_micros(5);
        for look in 0_u64.. {
            if is_so()? {
                return Ok(());
            }
            if look < 4 {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(sleep);
            sleep = (sleep * 2).min(LONGEST);
        }
        Ok(())
    }

    /// Whether a stream has nothing left to do.
    pub(crate) fn is_idle(&self, stream: Handle) -> Result<bool, Error> {
        let mut driver = self.lock();
        Ok(driver.stream(stream)?.put_off.is_empty()
            && driver.is_run_dry(self.process, stream, u64::MAX)?)
    }

    /// Waits until a stream has nothing left to do, and lets pools give memory back.
    pub(crate) fn synchronise_stream(&self, stream: Handle) -> Outcome {
        self.wait_until(|| self.is_idle(stream))?;
        let mut driver = self.lock();
        let context = driver.stream(stream)?.context;
        driver.trim_pools(self.process, context);
        Ok(())
    }

    /// Waits until no stream of a context has anything left to do.
    pub(crate) fn synchronise_context(&self, context: Handle) -> Outcome {
        let mut driver = self.lock();
        driver.forbid_captured(context)?;
        driver.forbid_unsafe()?;
        let streams = driver.streams.find(|stream| stream.context == context);
        drop(driver);
        for stream in streams {
            // One that is destroyed meanwhile has nothing left to do.
            let idle = || Ok(self.is_idle(stream).unwrap_or(true));
            self.wait_until(idle)?;
        }
        self.lock().trim_pools(self.process, context);
        Ok(())
    }

    /// Waits until a stream has put nothing off.
    pub(crate) fn wait_for_put_off(&self, stream: Handle) {
        // One that is destroyed meanwhile has put nothing off.
        let nothing = || Ok(self.lock().stream(stream).map_or(true, |s| s.put_off.is_empty()));
        let _ = self.wait_until(nothing);
    }
}
