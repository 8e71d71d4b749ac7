//! Standard output and standard error.

use std::io::{ErrorKind, IsTerminal, Write};

use simulator::report::harmless;

use crate::failure::{Answer, Failure};

/// Prints text; a reader that has gone away (`hotpot … | head`) is no failure.
pub(crate) fn print(text: &str) -> Result<Answer, Failure> {
    print_bytes(text.as_bytes())
}

/// As [`print()`], for bytes.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<Answer, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Screen(error)),
        _ => Ok(Answer::Yes),
    }
}

/// Prints for people on standard error. Names from files and arguments may be in it, so nothing that
/// steers a terminal gets through.
pub(crate) fn note(text: &str) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{}", harmless(text));
}

/// Prints an error on standard error.
pub(crate) fn complain(text: &str) {
    note(&format!("hotpot: {text}"));
}

/// Whether standard output takes colour: a terminal, and nobody has said no (no-color.org).
pub(crate) fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Columns of the screen: what `COLUMNS` says, else the terminal; 80 where neither is known.
pub(crate) fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let seen = || {
        let out = std::io::stdout();
        let (width, _) =
            out.is_terminal().then(|| terminal_size::terminal_size_of(&out)).flatten()?;
        Some(usize::from(width.0))
    };
    told.or_else(seen).filter(|width| *width >= 40).unwrap_or(80)
}
