//! The loop on a terminal. However it ends (key, signal, panic), the terminal is as it was before.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::Picture;
use super::draw::draw;
use super::source::Source;
use super::view::{Next, View};

/// How soon a key, a signal or a picture shows.
const TICK: Duration = Duration::from_millis(50);

/// Signals that end a program; caught so that the terminal is restored first.
pub(super) struct Signals {
    set: SigSet,
    pending: SignalFd,
}

impl Signals {
    /// Holds the signals back; to be done before threads are started, for they take it over.
    pub(super) fn hold() -> io::Result<Self> {
        let set: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { set, pending: SignalFd::with_flags(&set, flags)? })
    }

    fn came(&self) -> Option<Signal> {
        let found = self.pending.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(found.ssi_signo).ok()?).ok()
    }

    /// Lets signals through again, and sends us the one that came: whoever waits for us shall see it.
    pub(super) fn release(self, came: Option<Signal>) -> io::Result<()> {
        self.set.thread_unblock()?;
        if let Some(signal) = came {
            raise(signal)?;
        }
        Ok(())
    }
}

/// Shows pictures until the viewer or a signal ends it; returns the signal.
pub(super) fn show(
    mut source: Source,
    first: Picture,
    signals: &Signals,
    interval: Duration,
) -> io::Result<Option<Signal>> {
    // Sets a hook that restores the terminal before a panic is told.
    let mut terminal = ratatui::try_init()?;
    let ended = turn(&mut terminal, &mut source, first, signals, interval);
    let restored = ratatui::try_restore();
    let came = ended?;
    // With a terminal that has gone away (SIGHUP) there is nothing to restore.
    if came.is_none() {
        restored?;
    }
    Ok(came)
}

/// Waits for a key, and looks whether the terminal is still there: reading keys from one that is gone
/// would never come back, even without the signal that should say so.
fn has_hung_up(keys: &File, wait: Duration) -> io::Result<bool> {
    let mut ends = [PollFd::new(keys.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
    match poll(&mut ends, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    Ok(ends[0].revents().is_some_and(|found| found.intersects(gone)))
}

/// The signal that ended it, or `None` for a key.
fn turn(
    terminal: &mut DefaultTerminal,
    source: &mut Source,
    mut picture: Picture,
    signals: &Signals,
    interval: Duration,
) -> io::Result<Option<Signal>> {
    // Where keys come from, whatever standard input is.
    let keys = File::open("/dev/tty")?;
    let (mut view, mut stale) = (View::default(), true);
    loop {
        if stale {
            terminal.draw(|frame| draw(frame, &picture, &view))?;
        }
        stale = false;
        if let Some(signal) = signals.came() {
            return Ok(Some(signal));
        }
        if has_hung_up(&keys, TICK)? {
            return Ok(Some(Signal::SIGHUP));
        }
        if event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && view.key(key, &picture.pots) == Next::Quit
            {
                return Ok(None);
            }
            stale = true;
        }
        match source.look(interval) {
            Some(Ok(newer)) if !view.paused => {
                (picture, view.trouble, stale) = (newer, None, true);
            }
            Some(Err(trouble)) if view.trouble.as_ref() != Some(&trouble) => {
                (view.trouble, stale) = (Some(trouble), true);
            }
            Some(_) | None => {}
        }
    }
}
