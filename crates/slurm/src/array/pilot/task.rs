//! What a task of an array is started with: variables, files, its script.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use local::environment;
use local::pattern::{self, Names};
use local::process::Start;

use crate::array::folder::Folder;
use crate::array::ledger::Open;

/// What is the same for all tasks of a pilot.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// The node's name in Slurm.
    pub(super) node: String,
    user: String,
    array: u64,
    job: u64,
    variables: BTreeMap<OsString, OsString>,
}

impl Surroundings {
    /// * `ids` — number of the Slurm array, and of the pilot's job.
    /// * `run` — name of the run, see [`local::containment::name`].
    pub(super) fn of(
        folder: &Folder,
        (array, job): (u64, u64),
        around: environment::Surroundings,
        run: String,
    ) -> Self {
        let mut variables = around.inherited;
        let indices = &folder.spec.indices;
        let (first, last) = (indices.first().unwrap_or(&0), indices.last().unwrap_or(&0));
        let step = match indices.as_slice() {
            [first, second, ..] => second - first,
            _ => 1,
        };
        for (name, value) in [
            ("SLURM_ARRAY_TASK_COUNT", indices.len().to_string()),
            ("SLURM_ARRAY_TASK_MIN", first.to_string()),
            ("SLURM_ARRAY_TASK_MAX", last.to_string()),
            ("SLURM_ARRAY_TASK_STEP", step.to_string()),
            ("HOTPOT_RUN", run),
        ] {
            variables.insert(name.into(), value.into());
        }
        let node = std::env::var("SLURMD_NODENAME").unwrap_or(around.host);
        Self { node, user: around.user, array, job, variables }
    }
}

/// A task ready to be started. Output of an earlier try is taken away: whoever still writes into it has
/// a file without a name.
pub(super) fn start(folder: &Folder, around: &Surroundings, open: Open) -> Start {
    let order = &folder.order;
    let names = Names {
        job: around.array,
        task: around.job,
        index: Some(open.index),
        name: &order.name,
        user: &around.user,
        host: &around.node,
    };
    let path = |text: &str| order.directory.join(pattern::expand(&unique(text), &names));
    let (output, error) = (path(&order.output), order.error.as_deref().map(path));
    if open.attempt > 1 && !order.append {
        for earlier in [Some(&output), error.as_ref()].into_iter().flatten() {
            let _ = fs::symlink_metadata(earlier)
                .is_ok_and(|facts| facts.is_file() && fs::remove_file(earlier).is_ok());
        }
    }
    let mut command = vec![folder.script().into_os_string()];
    command.extend(order.arguments.iter().map(OsString::from));
    Start {
        command,
        env: variables(around, open),
        folder: order.directory.clone(),
        output,
        error,
        input: order.input.as_deref().map(path).filter(|input| *input != Path::new("/dev/null")),
        append: order.append,
    }
}

fn variables(around: &Surroundings, open: Open) -> BTreeMap<OsString, OsString> {
    let mut variables = around.variables.clone();
    let index = open.index.to_string();
    variables.insert("SLURM_ARRAY_TASK_ID".into(), index.clone().into());
    variables.insert("HOTPOT_TASK".into(), index.into());
    variables.insert("HOTPOT_ATTEMPT".into(), open.attempt.to_string().into());
    // Set by Slurm from the first restart on; a task restarts by its own count.
    match open.attempt {
        0 | 1 => variables.remove(&OsString::from("SLURM_RESTART_COUNT")),
        tries => variables.insert("SLURM_RESTART_COUNT".into(), (tries - 1).to_string().into()),
    };
    variables
}

/// `%j` is the job's number, which all tasks of a pilot share: the index is put behind it.
fn unique(pattern: &str) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let letter = after[digits..].chars().next();
        let end = digits + letter.map_or(0, char::len_utf8);
        out.push('%');
        out.push_str(&after[..end]);
        if matches!(letter, Some('j' | 'J')) {
            out.push_str("_%a");
        }
        rest = &after[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_job_gets_the_index_behind_it() {
        let cases = [
            ("slurm-%A_%a.out", "slurm-%A_%a.out"),
            ("%x-%j.log", "%x-%j_%a.log"),
            ("%8j", "%8j_%a"),
            ("100%%j", "100%%j"),
            ("%", "%"),
            ("é%j%é", "é%j_%a%é"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(unique(pattern), expected, "{pattern}");
        }
    }
}
