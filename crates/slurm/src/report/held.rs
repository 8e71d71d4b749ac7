//! GPU-hours held and used, by user, account, QOS, partition or name.

use std::collections::BTreeMap;

use formats::sacct::JobRow;
use serde::Serialize;

use super::{Cards, Wish};
use crate::hostlist;
use crate::profiles::profile;
use crate::usage::UsedOn;

const HOUR_S: f64 = 3600.0;
/// MPS counts in percent (gres.conf manual).
const MPS_PER_CARD: f64 = 100.0;

/// What the lines of a report are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Users.
    #[default]
    User,
    /// Accounts.
    Account,
    /// Qualities of service.
    Qos,
    /// Names of jobs.
    Name,
    /// Partitions.
    Partition,
}

/// What some jobs held and used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Whose.
    pub of: String,
    /// Starts of jobs.
    pub jobs: usize,
    /// GPU-hours held, in GPU equivalents: the sum of the next three.
    pub held_gpu_h: f64,
    /// Of whole GPUs.
    pub whole_gpu_h: f64,
    /// Of shares: shards and MPS.
    pub shared_gpu_h: f64,
    /// Of MIG instances.
    pub mig_gpu_h: f64,
    /// GPU time had by those jobs whose GPU time was measured, in hours; `None` if it was of none.
    pub busy_gpu_h: Option<f64>,
    /// What those held.
    pub measured_gpu_h: f64,
}

/// GPU equivalents of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Equivalents {
    pub(super) whole: f64,
    pub(super) shared: f64,
    pub(super) mig: f64,
}

impl Equivalents {
    pub(super) fn sum(self) -> f64 {
        self.whole + self.shared + self.mig
    }
}

impl Cards<'_> {
    /// Shards of the card that a job has shards of.
    pub(super) fn shards_of(&self, row: &JobRow) -> Option<u64> {
        let told = self.view.and_then(|view| view.shards_per_card(&hostlist::expand(&row.nodes)));
        told.or(self.shards).filter(|shards| *shards > 0)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of GPUs are small")]
    pub(super) fn equivalents(&self, row: &JobRow) -> Equivalents {
        let mut found = Equivalents::default();
        let given = &row.given;
        let mut typed = 0;
        for (kind, count) in &given.typed_gpus {
            typed += count;
            match profile(kind) {
                Some(it) => found.mig += *count as f64 * f64::from(it.compute_milli) / 1000.0,
                None => found.whole += *count as f64,
            }
        }
        found.whole += given.gpus.saturating_sub(typed) as f64;
        if let Some(shards) = self.shards_of(row) {
            found.shared += given.shards as f64 / shards as f64;
        }
        found.shared += given.mps as f64 / MPS_PER_CARD;
        found
    }
}

/// Lines by what is wished, and all together.
pub fn lines(rows: &[JobRow], cards: &Cards<'_>, wish: &Wish<'_>) -> (Vec<Line>, Line) {
    let mut by: BTreeMap<&str, Line> = BTreeMap::new();
    let mut total = Line { of: "all".to_owned(), ..Line::default() };
    for row in rows {
        let of = match wish.by {
            By::User => &row.user,
            By::Account => &row.account,
            By::Qos => &row.qos,
            By::Name => &row.name,
            By::Partition => &row.partition,
        };
        let line = by.entry(of).or_insert_with(|| Line { of: of.clone(), ..Line::default() });
        let held = cards.equivalents(row);
        line.add(row, held, wish.since_s);
        total.add(row, held, wish.since_s);
    }
    let mut lines: Vec<Line> = by.into_values().collect();
    lines.sort_by(|one, other| other.held_gpu_h.total_cmp(&one.held_gpu_h));
    (lines, total)
}

impl Line {
    #[expect(clippy::cast_precision_loss, reason = "seconds of some years")]
    fn add(&mut self, row: &JobRow, of: Equivalents, since_s: u64) {
        let before = row.start_s.map_or(0, |start| since_s.saturating_sub(start));
        let hours = row.elapsed_s.saturating_sub(before) as f64 / HOUR_S;
        self.jobs += 1;
        self.whole_gpu_h += of.whole * hours;
        self.shared_gpu_h += of.shared * hours;
        self.mig_gpu_h += of.mig * hours;
        self.held_gpu_h += of.sum() * hours;
        let used = UsedOn::all_of(&row.admin_comment);
        let busy: Vec<f64> = used.iter().filter_map(|one| one.gpu_s).collect();
        if !busy.is_empty() {
            let busy = busy.iter().sum::<f64>() / HOUR_S;
            *self.busy_gpu_h.get_or_insert(0.0) += busy;
            self.measured_gpu_h += of.sum() * hours;
        }
    }
}
