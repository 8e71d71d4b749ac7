//! How an sbatch script wants its tasks started: output, working folder, environment, signal.

use std::path::PathBuf;

use crate::directives::Directives;
use crate::error::{Complaint, ReadError, quote};
use crate::job::{Export, Launch, Program, Warning};

/// What `--signal=NAME` alone means (sbatch manual): a minute.
const BEFORE_DEFAULT_MS: u64 = 60_000;

/// The launch of a script.
///
/// * `processes` — tasks on one node, as Slurm calls them.
pub(crate) fn launch(
    directives: &Directives<'_>,
    text: &str,
    processes: u32,
) -> Result<Launch, ReadError> {
    let path = |option: &str| directives.text(option).map(str::to_string);
    let (export, env) = directives.read("export", export)?.unwrap_or_default();
    Ok(Launch {
        program: Program::Script(text.to_string()),
        directory: directives.text("chdir").map(PathBuf::from),
        output: path("output"),
        error: path("error"),
        input: path("input"),
        append: directives.read("open-mode", open_mode)?.unwrap_or(false),
        export,
        env,
        index_variable: None,
        warning: directives.read("signal", warning)?,
        processes,
    })
}

pub(crate) fn open_mode(text: &str) -> Result<bool, Complaint> {
    match text {
        "append" | "a" => Ok(true),
        "truncate" | "t" => Ok(false),
        _ => Err(Complaint::new(format!("{} is no mode", quote(text)), "give append or truncate")),
    }
}

/// `ALL`, `NONE`, or names and `NAME=value`; with `ALL` among them all are taken.
fn export(text: &str) -> Result<(Export, Vec<(String, String)>), Complaint> {
    let (mut all, mut names, mut env) = (false, Vec::new(), Vec::new());
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match item.split_once('=') {
            _ if item.eq_ignore_ascii_case("all") => all = true,
            _ if item.eq_ignore_ascii_case("none") || item.eq_ignore_ascii_case("nil") => {}
            Some((name, value)) if is_name(name) => env.push((name.to_string(), value.to_string())),
            None if is_name(item) => names.push(item.to_string()),
            _ => {
                let what = format!("{} is no variable", quote(item));
                return Err(Complaint::new(what, "give ALL, NONE, NAME or NAME=value"));
            }
        }
    }
    let export = match (all, names.is_empty()) {
        (true, _) => Export::All,
        (false, true) => Export::Nothing,
        (false, false) => Export::Named(names),
    };
    Ok((export, env))
}

/// Whether it can name an environment variable.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `[B:]NAME[@seconds]`, the name with or without `SIG`; numbers for the common ones.
pub(crate) fn warning(text: &str) -> Result<Warning, Complaint> {
    let refuse = || {
        let what = format!("{} is no signal", quote(text));
        Complaint::new(what, "give NAME@SECONDS, such as USR1@60 or B:TERM@30")
    };
    let (flags, rest) = text.rsplit_once(':').unwrap_or(("", text));
    let (name, before_ms) = match rest.split_once('@') {
        Some((name, seconds)) => {
            let seconds = seconds.parse::<u16>().map_err(|_| refuse())?;
            (name, u64::from(seconds) * 1000)
        }
        None => (rest, BEFORE_DEFAULT_MS),
    };
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known = [("1", "HUP"), ("2", "INT"), ("10", "USR1"), ("12", "USR2"), ("15", "TERM")];
    let of_number = known.iter().find(|(number, word)| *number == name || *word == name);
    let (_, signal) = of_number.ok_or_else(refuse)?;
    let to_script = flags.contains(['B', 'b']);
    Ok(Warning { signal: (*signal).to_string(), before_ms, to_script })
}
