//! A call of sbatch, and the options of a script, for those who hand them on to Slurm: nothing is
//! judged here that Slurm judges itself.

use std::collections::BTreeMap;

use crate::directives::{self, Directives, split};
use crate::error::{Complaint, ReadError, quote};
use crate::job::Warning;
use crate::options::{self, Takes};
use crate::text::Source;

/// The words behind `sbatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    options: Vec<Given>,
    /// The script's file; none if sbatch reads the script elsewhere.
    pub script: Option<String>,
    /// What the script is given.
    pub arguments: Vec<String>,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    /// Its long name; as it was written if it is not known here.
    name: String,
    value: Option<String>,
    words: Vec<String>,
}

impl Call {
    /// Takes the words apart. An option that is not known here, such as one of a plugin, has its value
    /// behind `=` or none.
    ///
    /// # Errors
    /// An option without the value that it needs.
    pub fn of(words: &[String]) -> Result<Self, Complaint> {
        let mut call = Self::default();
        let mut rest = words.iter().cloned();
        while let Some(word) = rest.next() {
            let ends = word == "--";
            if !ends && word.len() > 1 && word.starts_with('-') {
                call.option(word, &mut rest)?;
                continue;
            }
            call.script = if ends { rest.next() } else { Some(word) };
            call.arguments = rest.collect();
            return Ok(call);
        }
        Ok(call)
    }

    /// Adds an option behind the others.
    ///
    /// * `word` — the option with its value behind `=`.
    ///
    /// # Errors
    /// As [`Call::of`].
    pub fn add(&mut self, word: &str) -> Result<(), Complaint> {
        self.option(word.to_string(), &mut std::iter::empty())
    }

    fn option(
        &mut self,
        word: String,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), Complaint> {
        let (name, value) = split(&word);
        let known = options::find_cut(name);
        let takes = known.map_or(Takes::Perhaps, |(_, _, takes, _)| *takes);
        let long = known.map_or(name, |(long, ..)| *long).to_string();
        let is_short = !word.starts_with("--");
        // `-HW`: letters that take nothing may stand together (getopt(3)).
        if let Some(others) = value.clone().filter(|_| is_short && takes == Takes::Nothing) {
            let words = vec![format!("-{name}")];
            self.options.push(Given { name: long, value: None, words });
            return self.option(format!("-{others}"), rest);
        }
        let mut words = vec![word];
        let value = match (takes, value) {
            (Takes::Value, None) => {
                let next = rest.next().ok_or_else(|| {
                    Complaint::new(
                        format!("{} has no value", quote(&words[0])),
                        format!("write --{long}=VALUE"),
                    )
                })?;
                words.push(next.clone());
                Some(next)
            }
            (_, value) => value,
        };
        self.options.push(Given { name: long, value, words });
        Ok(())
    }

    /// The value of an option, the last one if it was given more than once; empty if it has none.
    ///
    /// * `option` — its long name.
    pub fn value(&self, option: &str) -> Option<&str> {
        let given = self.options.iter().rev().find(|given| given.name == option)?;
        Some(given.value.as_deref().unwrap_or(""))
    }

    /// The words of all options but some.
    ///
    /// * `names` — long names of those that are left out.
    pub fn without(&self, names: &[&str]) -> Vec<String> {
        let kept = self.options.iter().filter(|given| !names.contains(&given.name.as_str()));
        kept.flat_map(|given| given.words.clone()).collect()
    }
}

/// The options in the lines of a script with their values, by long name; empty where there is none.
///
/// # Errors
/// What is no script, and lines that cannot be read.
pub fn in_script(source: &Source) -> Result<BTreeMap<&'static str, String>, ReadError> {
    let directives = Directives::of(source)?;
    Ok(directives.all().map(|(option, value)| (option, value.to_string())).collect())
}

/// A line of a script without some options, if it has any of them.
///
/// * `names` — their long names.
pub fn line_without(line: &str, names: &[&str]) -> String {
    let own = line.strip_prefix("#SBATCH").filter(|rest| rest.starts_with([' ', '\t']));
    let call = own.and_then(|rest| Call::of(&directives::words(rest).ok()?).ok());
    match call.filter(|call| names.iter().any(|name| call.value(name).is_some())) {
        None => line.to_string(),
        Some(call) => {
            let words = call.without(names).into_iter();
            let quoted: Vec<String> = words
                .map(|word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")))
                .collect();
            format!("#SBATCH {}", quoted.join(" "))
        }
    }
}

/// Whether output is added to files that are there (`--open-mode`).
///
/// # Errors
/// What is no mode.
pub fn appends(text: &str) -> Result<bool, Complaint> {
    crate::launching::open_mode(text)
}

/// The signal ahead of the time limit (`--signal`).
///
/// # Errors
/// What is no signal, or one that hotpot does not send.
pub fn warning(text: &str) -> Result<Warning, Complaint> {
    crate::launching::warning(text)
}
