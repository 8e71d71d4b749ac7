//! `hotpot slurm`: what hotpot adds to Slurm.

pub(crate) mod args;
mod check;
mod conf;
pub(crate) mod explain;
mod layout;
mod on_node;
pub(crate) mod report;
mod right_size;
mod tasks;
mod waiting;

use std::io::IsTerminal;
use std::process::Command;

use local::clock::Clock;
use slurm::array::folder::Folder;
use slurm::array::given::Given;
use slurm::array::submission::{self, Asked, Prepared, Submitted, Wish};
use slurm::array::{ArrayError, pilot, queue};

use crate::failure::{Answer, Failure};
use crate::screen;
use args::{RunArray, Slurm, SlurmVerb};

pub(crate) fn run(options: &Slurm) -> Result<Answer, Failure> {
    match &options.verb {
        SlurmVerb::Run(options) => match &options.resume {
            Some(named) => resume(named, options),
            None => run_array(options),
        },
        SlurmVerb::Tasks(options) => tasks::run(options),
        SlurmVerb::Conf(of) => conf::conf(of),
        SlurmVerb::Facts => conf::facts(),
        SlurmVerb::Check(of) => check::check(of),
        SlurmVerb::Layout(options) => layout::run(&options.verb),
        SlurmVerb::LayoutOfNode(options) => layout::of_node(options),
        SlurmVerb::Explain(of) => explain::explain(&of.job, of.output.output),
        SlurmVerb::Size(of) => report::size(of),
        SlurmVerb::KeepUsage { node } => report::keep_usage(node),
        SlurmVerb::Prolog(of) => on_node::prolog(of),
        SlurmVerb::Epilog(of) => on_node::epilog(of),
        SlurmVerb::Tidy { node } => on_node::tidy(node),
        SlurmVerb::SendBack { job, why } => on_node::send_back(*job, why),
        SlurmVerb::Pilot { folder } => {
            let fine = pilot::run(folder, &|text| screen::note(&format!("{} {text}", now())));
            Ok(if fine.map_err(refused)? { Answer::Yes } else { Answer::No })
        }
    }
}

/// Seconds since 1970, for a pilot's log.
fn now() -> String {
    let ms = Clock::calendar_ms();
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn wish(options: &RunArray) -> Wish {
    Wish {
        pilots: options.pilots.map(|pilots| pilots as usize),
        pilot_limit_ms: options.pilot_time,
        place: options.folder.clone(),
    }
}

fn run_array(options: &RunArray) -> Result<Answer, Failure> {
    own_options_first(&options.words)?;
    let wish = wish(options);
    let mut words = options.words.clone();
    let Some(mut given) = Given::read(&words).map_err(refused)? else {
        if options.right_size {
            right_size::pass_over();
        }
        return plain(&words);
    };
    if options.right_size {
        right_size::apply(&mut given, &mut words).map_err(refused)?;
    }
    let prepared = match submission::prepare(&given, &wish).map_err(refused)? {
        Asked::Array(prepared) => *prepared,
        Asked::Plain => return plain(&words),
    };
    let journal = prepared.folder.look().map_err(refused)?;
    let submitted = match prepared.submit(&wish, journal.ledger()) {
        Ok(submitted) => submitted,
        Err(error) => {
            prepared.folder.remove();
            return Err(Failure::Machine(error.to_string()));
        }
    };
    announce(&prepared, &submitted, options)
}

fn resume(named: &str, options: &RunArray) -> Result<Answer, Failure> {
    let folder = Folder::find(named).map_err(refused)?;
    if !folder.is_ours() {
        let path = folder.path().display();
        return Err(Failure::Usage(format!(
            "{path}: of another user, whose script would run as you"
        )));
    }
    let wish = wish(options);
    let mut journal = folder.journal().map_err(refused)?;
    let unread = |error| Failure::Machine(format!("{}: {error}", folder.path().display()));
    journal.catch_up().map_err(unread)?;
    for array in submission::submissions(&folder, journal.ledger()) {
        let there = queue::elements(array).map_err(|error| Failure::Machine(error.to_string()))?;
        if !there.is_empty() {
            let count = there.len();
            return Err(Failure::Machine(format!(
                "{count} pilots of job {array} are in the queue and go on with the array; \
                 nothing to resume (scancel {array} ends them)"
            )));
        }
    }
    let at_ms = Clock::calendar_ms();
    let written = journal.change(|ledger| {
        // Nobody is left who could still end them.
        let mut events = ledger.take_back(|_| true, u32::MAX, at_ms);
        if options.retry_failed {
            events.extend(ledger.again(at_ms));
        }
        events
    });
    written.map_err(|error| {
        let path = journal.path().display().to_string();
        Failure::Machine(format!("{path}: cannot be written: {error}"))
    })?;
    if journal.ledger().waiting() == 0 {
        screen::note("nothing is left to do: all tasks have ended");
        return tasks::answer(journal.ledger());
    }
    let prepared = Prepared::again(folder).map_err(refused)?;
    let submitted = prepared
        .submit(&wish, journal.ledger())
        .map_err(|error| Failure::Machine(error.to_string()))?;
    announce(&prepared, &submitted, options)
}

/// Says what was submitted, as sbatch does, and waits if that is wanted.
fn announce(
    prepared: &Prepared,
    submitted: &Submitted,
    options: &RunArray,
) -> Result<Answer, Failure> {
    match prepared.parsable {
        true => screen::print(&format!("{}\n", submitted.shown))?,
        false => screen::print(&format!("Submitted batch job {}\n", submitted.job))?,
    };
    if std::io::stderr().is_terminal() {
        let (pilots, job) = (submitted.pilots, submitted.job);
        let plural = if pilots == 1 { "" } else { "s" };
        screen::note(&format!(
            "{pilots} pilot{plural}; see the tasks with: hotpot slurm tasks {job}"
        ));
    }
    if options.wait || prepared.wait {
        return waiting::wait(&prepared.folder);
    }
    Ok(Answer::Yes)
}

/// sbatch's words hold none of ours: sbatch would not know them.
fn own_options_first(words: &[String]) -> Result<(), Failure> {
    const OWN: [&str; 6] =
        ["--pilots", "--pilot-time", "--folder", "--resume", "--retry-failed", "--right-size"];
    let options = words.iter().take_while(|word| word.starts_with('-'));
    for word in options {
        let name = word.split('=').next().unwrap_or_default();
        if OWN.contains(&name) {
            let text = format!("{name}: put hotpot's own options before those of sbatch");
            return Err(Failure::Usage(text));
        }
    }
    Ok(())
}

/// No array: nothing to pull, so sbatch has it.
fn plain(words: &[String]) -> Result<Answer, Failure> {
    screen::note("no array: handed on to sbatch (add --array=1-N to run many tasks)");
    let program = std::env::var_os("HOTPOT_SBATCH").unwrap_or("sbatch".into());
    match Command::new(&program).args(words).status() {
        Ok(status) if status.success() => Ok(Answer::Yes),
        Ok(_) => Ok(Answer::No),
        Err(error) => {
            let program = program.to_string_lossy();
            Err(Failure::Machine(format!("{program}: {error}; is Slurm installed here?")))
        }
    }
}

fn refused(error: ArrayError) -> Failure {
    match error {
        ArrayError::Script(error) => Failure::Input(error),
        ArrayError::Usage(text) => Failure::Usage(text),
        ArrayError::File { .. } | ArrayError::Slurm(_) | ArrayError::System(_) => {
            Failure::Machine(error.to_string())
        }
    }
}
