//! `cargo xtask gpu-test`: everything that needs a real GPU, in one go of under ten minutes, for a machine
//! on which nothing else has to be: this program, the limiter's library and `hotpot` beside it are enough.
//!
//! `parts` is what is tried, `bench` where it is tried, `tenant` starts clients under caps, `client` is
//! what they do, `driver` the door to NVIDIA's libraries. On a simulated machine the same script runs from
//! end to end, so that it has been tried before a GPU is there.

pub(crate) mod bench;
pub(crate) mod client;
pub(crate) mod driver;
mod kernels;
mod machine;
mod parts;
pub(crate) mod price;
pub(crate) mod race;
pub(crate) mod simulated;
pub(crate) mod table;
pub(crate) mod tenant;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bench::Bench;
use parts::{Found, Part};

use crate::{Verdict, shell};

/// All parts together take no longer.
const TOTAL: Duration = Duration::from_secs(590);
/// Less is not enough for a part.
const PART_MIN: Duration = Duration::from_secs(10);
/// How long shares are measured with `--quick`, in ms.
const QUICK_MS: u64 = 2_000;

/// What is asked for.
struct Asked {
    only: Option<String>,
    output: PathBuf,
    quick: bool,
    simulated: bool,
    change_settings: bool,
}

impl Asked {
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut asked = Self {
            only: None,
            output: shell::target().join("gpu-test"),
            quick: false,
            simulated: false,
            change_settings: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match *word {
                "--only" => asked.only = Some((*value()?).to_string()),
                "--output" => asked.output = shell::folder(value()?)?.to_path_buf(),
                "--quick" => asked.quick = true,
                "--simulated" => asked.simulated = true,
                "--change-settings" => asked.change_settings = true,
                other => return Err(format!("unknown: {other}; see --help")),
            }
        }
        Ok(asked)
    }

    fn parts(&self) -> Result<Vec<Part>, String> {
        let wanted = |part: &Part| self.only.as_ref().is_none_or(|only| only == part.name);
        let parts: Vec<Part> = parts::ALL.into_iter().filter(wanted).collect();
        if parts.is_empty() {
            Err(format!("there is no such part; there are {}", parts::names()))
        } else {
            Ok(parts)
        }
    }
}

/// What can be asked for.
const HELP: &str = "cargo xtask gpu-test: what holds on a real GPU, part by part, as tables

  --only PART         one part alone
  --output DIR        where gpu-test.md goes; else gpu-test in the target folder
  --quick             shares are measured over 2 s instead of 10
  --simulated         on a simulated GPU: tries the script, measures nothing real
  --change-settings   MIG mode and time slices may be changed, and are put back";

/// Runs the parts that are asked for; see [`HELP`].
pub(crate) fn run(words: &[&str]) -> Verdict {
    if shell::asks_help(words) {
        println!("{HELP}\n\nParts: {}", parts::names());
        return Ok(());
    }
    let asked = Asked::read(words)?;
    let parts = asked.parts()?;
    let output = |error: std::io::Error| format!("{}: {error}", asked.output.display());
    fs::create_dir_all(&asked.output).map_err(output)?;
    let output_folder = fs::canonicalize(&asked.output).map_err(output)?;
    let beside = built(asked.simulated)?;
    let folder = output_folder.join("work");
    fs::create_dir_all(&folder).map_err(output)?;
    let simulated = if asked.simulated {
        Some(simulated::Simulated::make(&beside, &folder, "a100-80gb:1")?)
    } else {
        None
    };
    let environment = simulated.map(|simulated| simulated.environment).unwrap_or_default();
    let mut bench = Bench::make(&beside, folder, environment)?;
    bench.change_settings = asked.change_settings;
    if asked.quick {
        bench.measure_ms = QUICK_MS;
    }
    let mut text = machine::describe(&bench);
    println!("{text}");
    let file = output_folder.join("gpu-test.md");
    let wrong = all(&bench, &parts, &mut text, &file)?;
    println!("written to {}", file.display());
    if wrong.is_empty() {
        let _ = fs::remove_dir_all(&bench.folder);
        return Ok(());
    }
    println!("clients' and limiter's complaints lie in {}", bench.folder.display());
    Err(format!("not as it must be: {}", wrong.join("; ")))
}

/// Tries the parts one by one; what is wrong, by part. Their tables go to the text, and that to the file
/// after each, so that something is left if the machine is taken away.
fn all(
    bench: &Bench,
    parts: &[Part],
    text: &mut String,
    file: &Path,
) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let start = Instant::now();
    for part in parts {
        let left = TOTAL.saturating_sub(start.elapsed());
        let bound = left.min(Duration::from_secs(part.bound_s));
        println!("== {} (at most {} s)", part.name, bound.as_secs());
        let begin = Instant::now();
        bench.begin(bound);
        let found = if bound < PART_MIN {
            Ok(Found::Skipped("the parts before it have taken all the time".to_string()))
        } else {
            (part.run)(bench)
        };
        let mut section = format!("## {}\n\n", part.name);
        match found {
            Ok(Found::Skipped(what)) => {
                let _ = writeln!(section, "skipped: {what}");
            }
            Ok(Found::Done(tables, complaints)) => {
                let tables: Vec<String> = tables.iter().map(table::Table::text).collect();
                section.push_str(&tables.join("\n"));
                for what in complaints {
                    let _ = writeln!(section, "\nNOT AS IT MUST BE: {what}");
                    wrong.push(format!("{}: {what}", part.name));
                }
            }
            Err(error) => {
                let _ = writeln!(section, "FAILED: {error}");
                wrong.push(format!("{}: {error}", part.name));
            }
        }
        let _ = writeln!(section, "\n{:.0} s", begin.elapsed().as_secs_f64());
        println!("{section}");
        let _ = write!(text, "\n{section}");
        fs::write(file, &*text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(wrong)
}

/// The folder of the built files: built now if cargo is there, else as they lie beside this program.
fn built(simulated: bool) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let beside = program.parent().map(Path::to_path_buf).unwrap_or_default();
    if !shell::has_cargo() {
        return Ok(beside);
    }
    let mut words = vec!["build", "--quiet", "-p", "limiter", "-p", "cli"];
    if simulated {
        words.extend(["-p", "fake-cuda", "-p", "fake-nvml", "-p", "fake-tools"]);
    }
    if !cfg!(debug_assertions) {
        words.push("--release");
    }
    if let Err(error) = shell::cargo(&words) {
        println!("{error}: going on with what lies in {}", beside.display());
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_there_is_named_with_those_that_are() {
        let asked = Asked::read(&["--only", "cap", "--quick"]).unwrap();
        assert_eq!(
            asked.parts().unwrap().iter().map(|part| part.name).collect::<Vec<_>>(),
            ["cap"]
        );
        let said = Asked::read(&["--only", "caps"]).unwrap().parts().map(|_| ()).unwrap_err();
        assert!(said.contains("cap, overhead, shares"), "{said}");
        assert!(Asked::read(&["--only"]).is_err() && Asked::read(&["--fast"]).is_err());
        assert!(Asked::read(&["--output", "--quick"]).is_err(), "an option is no folder");
    }
}
