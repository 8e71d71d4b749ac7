//! What labs on one host must not take twice: blocks of ports, the package manager, the cgroups, what is built.
//!
//! A claim is a socket with an abstract name. The kernel gives each name to one process, and takes it
//! back when that process ends, however it ends; no file is left. Names belong to a network namespace.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use crate::error::LabError;

/// A name that no other process has as long as this lives.
#[derive(Debug)]
pub struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Takes a name, unless somebody has it.
    #[must_use]
    pub fn take(name: &str) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(format!("hotpot-lab-{name}")).ok()?;
        UnixListener::bind_addr(&address).ok().map(|socket| Self { _socket: socket })
    }

    /// Waits until the name is free.
    ///
    /// # Errors
    /// It was not within the limit.
    pub fn wait(name: &str, limit: Duration) -> Result<Self, LabError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(claim) = Self::take(name) {
                return Ok(claim);
            }
            if Instant::now() > end {
                let text = format!("another lab has kept `{name}` for {} s", limit.as_secs());
                return Err(LabError::Options(text));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
