//! `sbatch --gpu-pilots`: the array is not submitted, but handed to `hotpot slurm run`, which submits few jobs that
//! pull the array's tasks.

use std::ffi::{CStr, OsStr, OsString, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;

/// Set for `hotpot slurm run`, which submits the script again, with the line that asks for pilots still in it:
/// it is not handed on twice. The value is the job that this happens in. Jobs inherit the variable, and in them
/// it must not count.
const HANDED_ON: &str = "HOTPOT_SLURM_RUN";

/// Becomes `hotpot slurm run`.
///
/// # Errors
/// Why not; otherwise this does not return, or returns at once if it is `hotpot` that submits.
pub(crate) fn hand_on(pilots: Option<u32>, arguments: &Arguments) -> Result<(), String> {
    let place = std::env::var_os("SLURM_JOB_ID").unwrap_or_else(|| "none".into());
    if std::env::var_os(HANDED_ON).is_some_and(|value| value == place) {
        return Ok(());
    }
    if std::fs::read_link("/proc/self/exe")
        .ok()
        .is_none_or(|it| it.file_name() != Some("sbatch".as_ref()))
    {
        return Err("--gpu-pilots is for sbatch and an array of tasks; leave it out here".into());
    }
    let hotpot = program(arguments)?;
    let line = std::fs::read("/proc/self/cmdline").map_err(|error| error.to_string())?;
    let mut command = Command::new(&hotpot);
    command.args(["slurm", "run"]).env(HANDED_ON, place);
    if let Some(pilots) = pilots {
        command.arg("--pilots").arg(pilots.to_string());
    }
    command.args(words(&line));
    // A script that came by `<` has been read; nothing is lost if it is not a file.
    // SAFETY: moves where the input is read, which nobody reads any more in this process.
    unsafe { libc::lseek(libc::STDIN_FILENO, 0, libc::SEEK_SET) };
    let error = command.exec();
    Err(format!("--gpu-pilots: {} cannot be started: {error}", hotpot.display()))
}

/// The words of a command line, without its first and without the first one that asks for pilots. Where the script
/// asks for pilots and its own arguments have that word too, that is lost.
pub(crate) fn words(line: &[u8]) -> Vec<OsString> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    let mut words: Vec<OsString> =
        line.split(|&byte| byte == 0).skip(1).map(|word| OsString::from_vec(word.into())).collect();
    if let Some(place) = words.iter().position(|word| asks(word.as_bytes())) {
        words.remove(place);
    }
    words
}

/// Whether a word is `--gpu-pilots` or `--gpu-pilots=N`, or as much of it as makes clear what is meant.
fn asks(word: &[u8]) -> bool {
    let name = word.split(|&byte| byte == b'=').next().unwrap_or_default();
    b"--gpu-pilots".starts_with(name) && name.starts_with(b"--gpu-p")
}

/// The program: where the plugin's line says, else in a `bin` beside or above the plugin.
fn program(arguments: &Arguments) -> Result<PathBuf, String> {
    if let Some(told) = &arguments.hotpot {
        return Ok(told.clone());
    }
    let own = own_file().ok_or("--gpu-pilots: the plugin does not find its own file")?;
    let beside = own.parent().map(|folder| folder.join("hotpot"));
    let above = own.ancestors().skip(1).map(|folder| folder.join("bin/hotpot"));
    beside.into_iter().chain(above).find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "--gpu-pilots: there is no program hotpot beside or above {}; your administrator can name it \
             in plugstack.conf: hotpot=/path/to/hotpot",
            own.display()
        )
    })
}

/// The file that this code was loaded from.
pub(crate) fn own_file() -> Option<PathBuf> {
    // SAFETY: all-zero is a value of this structure of pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside = own_file as *const c_void;
    // SAFETY: the address is in this library; the place takes the answer.
    let code = unsafe { libc::dladdr(inside, &raw mut found) };
    if code == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of the file ends with a zero byte and stays while it is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    std::fs::canonicalize(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn all_words_but_the_one_that_asks_are_handed_on() {
        let read = |line: &[u8]| -> Vec<String> {
            words(line).into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        let line = b"sbatch\0--gpu-pilots=4\0--array=1-9\0job.sh\0--gpu-pilots\0\0a b\0";
        assert_eq!(read(line), ["--array=1-9", "job.sh", "--gpu-pilots", "", "a b"]);
        assert_eq!(read(b"sbatch\0--gpu-p\0-a\x001-9\0x\0"), ["-a", "1-9", "x"]);
        assert_eq!(read(b"sbatch\0--gpu-mem=2G\0x\0"), ["--gpu-mem=2G", "x"]);
    }
}
