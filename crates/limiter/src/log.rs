//! Lines for whoever looks for a reason, in the file that `HOTPOT_LIMITER_LOG` names. Nothing is written
//! without it, and never to the program's own output.

use std::fmt::{Arguments, Write};

/// The longest line in bytes; more is cut off.
const LINE: usize = 512;

/// A line in the making.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for &byte in text.as_bytes() {
            // One place is kept for the end of the line.
            if self.length.saturating_add(1) < LINE
                && let Some(place) = self.bytes.get_mut(self.length)
            {
                *place = if byte == b'\n' { b' ' } else { byte };
                self.length = self.length.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// Appends one line: the process number and what there is to say. Takes no memory, and one `write(2)`.
pub(crate) fn line(what: Arguments) {
    // SAFETY: the name ends; the value is read before anything else runs on this thread.
    let path = unsafe { libc::getenv(c"HOTPOT_LIMITER_LOG".as_ptr()) };
    if path.is_null() {
        return;
    }
    let mut line = Line { bytes: [0; LINE], length: 0 };
    let _ = write!(line, "hotpot-limiter {}: {what}", std::process::id());
    if let Some(end) = line.bytes.get_mut(line.length) {
        *end = b'\n';
    }
    let flags =
        libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a path that ends; bytes of ours; a descriptor that nobody else has. What fails, fails: a
    // log is no reason to disturb the program, which must not find its errno changed either.
    unsafe {
        let errno = *libc::__errno_location();
        let file = libc::open(path, flags, 0o644);
        if file >= 0 {
            libc::write(file, line.bytes.as_ptr().cast(), line.length.saturating_add(1));
            libc::close(file);
        }
        *libc::__errno_location() = errno;
    }
}
