//! The plugin's arguments, as its line in `plugstack.conf` gives them.

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;

/// Where the node's agent leaves a file for each job, if the line does not say otherwise.
const JOBS: &str = "/run/hotpot/slurm";

/// What the plugin was told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// `jobs=FOLDER`: has a file `JOBID.task` for each job; `%n` stands for the node's name.
    pub(crate) jobs: String,
    /// `hotpot=PROGRAM`.
    pub(crate) hotpot: Option<PathBuf>,
    /// `prolog=PROGRAM`: makes that file where Slurm has not run it.
    pub(crate) prolog: Option<PathBuf>,
}

impl Arguments {
    /// Reads what Slurm passes with each call.
    ///
    /// # Errors
    /// A word that has no meaning here.
    ///
    /// # Safety
    /// `words` points to `count` strings, or `count` is not above zero.
    pub(crate) unsafe fn of(count: c_int, words: *const *const c_char) -> Result<Self, String> {
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 || words.is_null() {
            return Self::read(std::iter::empty::<&str>());
        }
        // SAFETY: there are `count` of them, says the caller.
        let words = unsafe { std::slice::from_raw_parts(words, count) };
        // SAFETY: each is a string that ends with a zero byte, says the caller.
        Self::read(words.iter().map(|&word| unsafe { CStr::from_ptr(word) }.to_string_lossy()))
    }

    fn read<T: AsRef<str>>(words: impl Iterator<Item = T>) -> Result<Self, String> {
        let mut read = Self { jobs: JOBS.into(), hotpot: None, prolog: None };
        for word in words {
            match word.as_ref().split_once('=') {
                Some(("jobs", folder)) => read.jobs = folder.into(),
                Some(("hotpot", program)) => read.hotpot = Some(program.into()),
                Some(("prolog", program)) => read.prolog = Some(program.into()),
                _ => {
                    return Err(format!(
                        "plugstack.conf: '{}' means nothing to libhotpot_spank.so; it takes jobs=FOLDER, \
                         hotpot=PROGRAM and prolog=PROGRAM",
                        word.as_ref()
                    ));
                }
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    #[test]
    fn what_is_not_said_has_a_default_and_what_is_unknown_is_an_error() {
        let read = |words: &[&str]| Arguments::read(words.iter());
        let plain = read(&[]).unwrap();
        assert_eq!((plain.jobs.as_str(), plain.hotpot), ("/run/hotpot/slurm", None));
        let told = read(&["jobs=/x/%n", "hotpot=/opt/hotpot", "prolog=/p"]).unwrap();
        assert_eq!((told.jobs.as_str(), told.hotpot), ("/x/%n", Some("/opt/hotpot".into())));
        assert_eq!(told.prolog, Some("/p".into()));
        assert!(read(&["job=/x"]).unwrap_err().contains("'job=/x'"));
    }
}
