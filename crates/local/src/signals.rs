//! What the kernel tells a run: that a child has changed, that someone wants it to stop.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use crate::error::RunError;
use crate::vfork;

/// Signals that end a run in order, unless this process was started with them ignored (`nohup`, or in
/// the background of a script).
const STOPS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The signals of this process, taken out of its way and read from a descriptor.
#[derive(Debug)]
pub struct Signals {
    queue: SignalFd,
    before: SigSet,
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The process.
    pub pid: u32,
    /// Its exit status, or the signal that killed it.
    pub status: Result<i32, i32>,
}

impl Signals {
    /// Blocks the signals for this thread and those that it starts, and makes this process the
    /// parent of orphans below it (prctl(2), `PR_SET_CHILD_SUBREAPER`).
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub fn take() -> Result<Self, RunError> {
        Self::take_with(&[])
    }

    /// As [`Signals::take`], and hears of other signals too.
    ///
    /// # Errors
    /// As [`Signals::take`].
    pub fn take_with(others: &[Signal]) -> Result<Self, RunError> {
        let mut set: SigSet = others.iter().copied().collect();
        set.add(Signal::SIGCHLD);
        let ignored = ignored();
        let heard = STOPS.into_iter().filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0);
        // One that is blocked is kept for us even if it is ignored.
        heard.for_each(|signal| set.add(signal));
        let mut before = SigSet::empty();
        let refuse = |what| move |error: nix::Error| RunError::System { what, error: error.into() };
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before))
            .map_err(refuse("blocking signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let queue = SignalFd::with_flags(&set, flags).map_err(refuse("reading signals"))?;
        vfork::outlive_file_size_limits();
        nix::sys::prctl::set_child_subreaper(true).map_err(refuse("adopting orphans"))?;
        Ok(Self { queue, before })
    }

    /// Waits until a signal is there or `at_most_ms` have passed.
    pub fn wait(&self, at_most_ms: u64) {
        let timeout = PollTimeout::try_from(at_most_ms.min(60_000)).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.queue.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, timeout);
    }

    /// The stop signals that have come; others are taken off the queue as well.
    pub fn stops(&self) -> Vec<Signal> {
        self.heard().into_iter().filter(|signal| STOPS.contains(signal)).collect()
    }

    /// The signals that have come, but that a child has changed.
    pub fn heard(&self) -> Vec<Signal> {
        let mut found = Vec::new();
        while let Ok(Some(info)) = self.queue.read_signal() {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            found.extend(signal.filter(|signal| *signal != Signal::SIGCHLD));
        }
        found
    }

    /// The children that have ended, orphans that the kernel handed over included.
    pub(crate) fn gone(&self) -> Vec<Gone> {
        self.reap().0
    }

    /// As `gone`, and whether there is no child any more: nothing that a task has started is left, for
    /// orphans below this process become its children.
    pub fn reap(&self) -> (Vec<Gone>, bool) {
        let mut gone = Vec::new();
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) => (pid, Ok(status)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Err(signal as i32)),
                Ok(WaitStatus::StillAlive) => return (gone, false),
                Err(error) => return (gone, error == nix::Error::ECHILD),
                Ok(_) => continue,
            };
            gone.extend(u32::try_from(pid.as_raw()).ok().map(|pid| Gone { pid, status }));
        }
    }
}

/// The signals that this process ignores, one bit each from 1 on (proc_pid_status(5), `SigIgn`).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What has come too late to matter must not end us after all.
        let _ = self.stops();
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
        let _ = nix::sys::prctl::set_child_subreaper(false);
    }
}
