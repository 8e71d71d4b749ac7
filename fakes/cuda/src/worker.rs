//! The thread that goes on with what streams have put off, and calls host functions.

use std::sync::PoisonError;
use std::time::Duration;

use crate::action::{Action, HostFunction, Put};
use crate::calls::{self, Process};
use crate::driver::Driver;
use crate::handles::Handle;

/// How long is slept between two looks at the GPU.
pub(crate) const STEP: Duration = Duration::from_micros(20);

/// Starts the thread, or wakes it.
pub(crate) fn wake(driver: &mut Driver, process: &'static Process) {
    if !driver.has_worker {
        driver.has_worker = true;
        let named = std::thread::Builder::new().name("cuda-host-func".into());
        // Without a thread the stream stands still, which is what a client would see of a driver
        // that cannot make one.
        let _ = named.spawn(move || run(process));
    }
    process.wake.notify_one();
}

fn run(process: &'static Process) {
    loop {
        let mut driver = process.lock();
        while driver.putting_off.is_empty() {
            driver = process.wake.wait(driver).unwrap_or_else(PoisonError::into_inner);
        }
        let mut moved = false;
        let mut ready = Vec::new();
        for stream in driver.putting_off.clone() {
            moved |= go_on(&mut driver, process, stream, &mut ready);
        }
        drop(driver);
        for (stream, function) in ready {
            calls::in_host_function(|| function.call());
            finish(&mut process.lock(), stream);
        }
        if !moved {
            std::thread::sleep(STEP);
        }
    }
}

/// Goes on with what one stream has put off, up to what cannot be done yet. A host function whose turn
/// has come is added to `ready`.
fn go_on(
    driver: &mut Driver,
    process: &'static Process,
    handle: Handle,
    ready: &mut Vec<(Handle, HostFunction)>,
) -> bool {
    let mut moved = false;
    loop {
        let first = driver.streams.get(handle).map(|stream| stream.put_off.front().copied());
        let Some(Some((serial, action))) = first else {
            driver.putting_off.retain(|other| *other != handle);
            return moved;
        };
        if let Action::Host(function) = action {
            let dry = driver.is_run_dry(process, handle, serial).unwrap_or(true);
            let stream = driver.streams.get_mut(handle);
            if let Some(stream) = stream.filter(|stream| dry && !stream.in_host_function) {
                stream.in_host_function = true;
                ready.push((handle, function));
                moved = true;
            }
            return moved;
        }
        match driver.start(process, handle, action, serial) {
            Ok(Put::Full(_) | Put::NotYet(_)) => return moved,
            // What fails now can be told to nobody; the stream goes on.
            Ok(Put::Done) | Err(_) => {
                moved = true;
                if let Some(stream) = driver.streams.get_mut(handle) {
                    stream.put_off.pop_front();
                }
            }
        }
    }
}

/// Notes that a stream's host function has returned.
fn finish(driver: &mut Driver, handle: Handle) {
    if let Some(stream) = driver.streams.get_mut(handle) {
        stream.in_host_function = false;
        stream.put_off.pop_front();
    }
}

impl HostFunction {
    fn call(self) {
        match self {
            Self::Plain(function, data) => function(data.0),
            Self::Callback(function, stream, data) => function(stream, 0, data.0),
        }
    }
}
