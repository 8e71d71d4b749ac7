//! `hotpot report slurm`, `hotpot slurm size`, and bringing what was used into Slurm's accounting.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args as Group, ValueEnum};
use formats::Source;
use slurm::queue_view::{QueueView, not_shown};
use slurm::report::{self, By, Cards, MARGIN_PERCENT, RUNS_MIN, Report, Size, Sizing, Wish};
use slurm::site::Site;
use slurm::{Slurm, usage};

use crate::failure::{Answer, Failure};
use crate::{inputs, screen, words};

#[derive(Debug, Group)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct OfSlurm {
    /// How far back.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = since_s)]
    pub(crate) since: u64,
    /// Jobs of this user only.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// What the lines are of.
    #[arg(long, value_enum, default_value_t = Lines::User)]
    pub(crate) by: Lines,
    #[command(flatten)]
    pub(crate) sizing: SizingChoice,
    /// Read a list of sacct's from a file, - for standard input, instead of asking Slurm.
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// With --from: how many shards a card has.
    #[arg(long, value_name = "NUMBER", requires = "from")]
    pub(crate) shards_per_card: Option<u64>,
    /// Form of what is printed.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    pub(crate) output: Form,
}

const EXAMPLES: &str = "Examples:
  hotpot report slurm --since 30d --by account
  hotpot report slurm --user ann --by name --output json
  sacct -aXDP -S now-30days -o JobID,JobName,User,Account,QOS,Partition,State,Submit,Start,End,\\
ElapsedRaw,AllocTRES,NodeList,AdminComment | hotpot report slurm --from - --shards-per-card 317

GPU-hours are GPU equivalents: a whole GPU is 1, shards are their part of a card, a MIG instance
its compute slices.";

/// How sizes are suggested.
#[derive(Debug, Group)]
pub(crate) struct SizingChoice {
    /// What is suggested beyond the most memory that was held, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = MARGIN_PERCENT)]
    pub(crate) margin: u64,
    /// Completed runs below which nothing is suggested.
    #[arg(long, value_name = "NUMBER", default_value_t = RUNS_MIN)]
    pub(crate) min_runs: usize,
}

#[derive(Debug, Group)]
pub(crate) struct SizeOf {
    /// Name of the jobs.
    pub(crate) name: String,
    /// Whose. Default: yours.
    #[arg(long, value_name = "USER", default_value_t = own_name(), hide_default_value = true)]
    pub(crate) user: String,
    /// How far back.
    #[arg(long, value_name = "TIME", default_value = SIZED_BY, value_parser = since_s)]
    pub(crate) since: u64,
    #[command(flatten)]
    pub(crate) sizing: SizingChoice,
}

/// Runs of so long count for a size.
const SIZED_BY: &str = "30d";
/// As [`SIZED_BY`], in seconds.
pub(super) const SIZED_BY_S: u64 = 30 * 86_400;

pub(super) fn own_name() -> String {
    name_of(nix::unistd::Uid::effective())
}

/// A user's name; its number where it has none.
pub(super) fn name_of(uid: nix::unistd::Uid) -> String {
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lines {
    User,
    Account,
    Qos,
    Name,
    Partition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// The lines only.
    Csv,
}

pub(crate) fn run(options: &OfSlurm) -> Result<Answer, Failure> {
    let by = match options.by {
        Lines::User => By::User,
        Lines::Account => By::Account,
        Lines::Qos => By::Qos,
        Lines::Name => By::Name,
        Lines::Partition => By::Partition,
    };
    let user = options.user.as_deref();
    let report = match &options.from {
        Some(path) => {
            let source = inputs::accounts_source(path)?;
            let shard_mib = site()?.shard_mib;
            let cards = Cards { view: None, shards: options.shards_per_card, shard_mib };
            let sizing = options.sizing.sizing();
            report::report(&source, &cards, &Wish { since_s: 0, by, user, sizing })?
        }
        None => {
            let of = Of { since_s: options.since, user, name: None };
            let (mut report, view) = asked(of, by, options.sizing.sizing())?;
            report.quotas = report::quotas(Slurm, &view).map_err(|error| machine(&error))?;
            report
        }
    };
    report.notes.iter().for_each(|note| screen::note(note));
    screen::print(&match options.output {
        Form::Table => report.table(),
        Form::Json => words::to_json(&report),
        Form::Csv => report.csv(),
    })
}

/// Prints `--gpu-mem=2G`, so that a script can use it as it is.
pub(super) fn size(of: &SizeOf) -> Result<Answer, Failure> {
    let found = size_of(&of.user, &of.name, of.since, of.sizing.sizing())?;
    let Some(size) = found else {
        let (name, user) = (&of.name, &of.user);
        screen::note(&format!("{name}: no run of it by {user} was measured"));
        return Ok(Answer::No);
    };
    screen::note(&format!("{}: {}", size.name, size.text));
    match size.option() {
        Some(option) => screen::print(&format!("{option}\n")),
        None => Ok(Answer::No),
    }
}

/// The size of jobs of a user and name; `None` if none was measured.
///
/// * `since_s` — seconds back.
pub(super) fn size_of(
    user: &str,
    name: &str,
    since_s: u64,
    sizing: Sizing,
) -> Result<Option<Size>, Failure> {
    let of = Of { since_s, user: Some(user), name: Some(name) };
    let (report, _) = asked(of, By::Name, sizing)?;
    Ok(report.sizes.into_iter().find(|size| size.name == name))
}

/// Brings what jobs used on this node into Slurm's accounting.
pub(super) fn keep_usage(node: &str) -> Result<Answer, Failure> {
    let folder = site()?.jobs_of(node);
    let left = usage::publish(Slurm, &folder, true).map_err(|error| machine(&error))?;
    Ok(if left == 0 { Answer::Yes } else { Answer::No })
}

/// Jobs that Slurm is asked for.
struct Of<'a> {
    /// Seconds back.
    since_s: u64,
    user: Option<&'a str>,
    name: Option<&'a str>,
}

/// Asks Slurm.
fn asked(of: Of<'_>, by: By, sizing: Sizing) -> Result<(Report, QueueView), Failure> {
    let Of { since_s, user, name } = of;
    let shard_mib = site()?.shard_mib;
    let text = report::ask(Slurm, since_s, user, name).map_err(|error| no_accounts(&error))?;
    let view = QueueView::ask(Slurm, shard_mib).map_err(|error| machine(&error))?;
    not_shown(&view.unread).iter().for_each(|text| screen::note(text));
    let source = Source::from_bytes("sacct", text.into_bytes())?;
    let cards = Cards { view: Some(&view), shards: None, shard_mib };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let wish = Wish { since_s: now.saturating_sub(since_s), by, user, sizing };
    Ok((report::report(&source, &cards, &wish)?, view))
}

impl SizingChoice {
    fn sizing(&self) -> Sizing {
        Sizing { margin_percent: self.margin, runs_min: self.min_runs }
    }
}

fn site() -> Result<Site, Failure> {
    Site::read().map_err(|error| Failure::Usage(error.to_string()))
}

fn machine(error: &slurm::SlurmError) -> Failure {
    Failure::Machine(error.to_string())
}

fn no_accounts(error: &slurm::SlurmError) -> Failure {
    let text = error.to_string();
    Failure::Machine(match text.contains("storage is disabled") {
        true => "Slurm keeps no accounts here (AccountingStorageType in slurm.conf); a report needs slurmdbd".into(),
        false => text,
    })
}

fn since_s(text: &str) -> Result<u64, String> {
    let ms = formats::quantity::duration_ms(text).map_err(|complaint| complaint.to_string())?;
    Ok(ms / 1000)
}
