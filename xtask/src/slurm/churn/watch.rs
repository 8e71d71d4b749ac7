//! Looks at the cluster from outside while jobs come and go: at what slurmctld has given to running jobs, at what
//! the simulated driver has booked for processes, and at what hotpot has granted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::books::{Books, Use};
use super::judge::{Claim, Pair, Part, over, pairs};
use super::nodes::{self, NODES, SHARDS};
use super::scontrol::{self, Shown};
use crate::slurm::Bench;

const EVERY: Duration = Duration::from_millis(250);

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) looks: usize,
    /// How much there was to judge: of running jobs, of processes, of grants.
    pub(super) claims: [usize; 3],
    /// Pairs by slurmctld's word.
    pub(super) booked: BTreeSet<Pair>,
    /// Pairs by the driver's ledger.
    pub(super) used: BTreeSet<Pair>,
    /// Pairs by hotpot's book.
    pub(super) granted: BTreeSet<Pair>,
    /// Moments at which a card's shards, the caps on it and its memory came to more than it has.
    pub(super) over: [usize; 3],
    /// Jobs that hotpot sent back, with their count of starts.
    pub(super) sent_back: BTreeSet<(u32, u64)>,
}

/// What watcher and submitter tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The watcher may go.
    pub(super) over: AtomicBool,
    /// Jobs that wait, at the last look.
    pub(super) waiting: AtomicUsize,
}

/// Looks until it is told that all is over.
pub(super) fn watch(bench: &Bench, with_hotpot: bool, shared: &Shared) -> Result<Seen, String> {
    let books = NODES.iter().map(|node| Books::open(bench, node)).collect::<Result<_, _>>()?;
    let mut watcher = Watcher { books, with_hotpot, parts: BTreeMap::new(), seen: Seen::default() };
    while !shared.over.load(Relaxed) {
        let begun = Instant::now();
        watcher.look(bench, shared);
        std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
    Ok(watcher.seen)
}

struct Watcher {
    books: Vec<Books>,
    with_hotpot: bool,
    /// Whether jobs have parts of cards, by their number.
    parts: BTreeMap<u32, bool>,
    seen: Seen,
}

impl Watcher {
    fn look(&mut self, bench: &Bench, shared: &Shared) {
        // First, so that Slurm knows the jobs of all processes.
        let uses: Vec<Use> = self.books.iter_mut().flat_map(Books::uses).collect();
        // A file comes before its job's tasks and goes after them: it is there before this answer or after it.
        let mut told = self.told();
        let Ok(text) = bench.run("scontrol", &["show", "job", "-o", "-d"]) else { return };
        told.extend(self.told());
        let jobs = scontrol::read(&text);
        let waiting = jobs.iter().filter(|job| job.state == "PENDING").count();
        shared.waiting.store(waiting, Relaxed);
        self.parts.extend(jobs.iter().map(|job| (job.job, job.wants_shards)));
        self.seen.looks += 1;
        let using: BTreeSet<u32> = uses.iter().map(|one| one.job).collect();
        let has_tasks = |job: &&Shown| {
            let told_so = told.get(&(job.job, job.restarts)).copied().unwrap_or(false);
            !self.with_hotpot || told_so || using.contains(&job.job)
        };
        self.booked(&running(&jobs, has_tasks));
        self.used(&uses);
        self.granted();
        let back = told.into_iter().filter(|(_, runs)| !runs);
        self.seen.sent_back.extend(back.map(|(start, _)| start));
    }

    fn told(&self) -> BTreeMap<(u32, u64), bool> {
        self.books.iter().flat_map(Books::told).collect()
    }

    fn booked(&mut self, claims: &[Claim]) {
        self.seen.claims[0] += claims.len();
        self.seen.booked.extend(pairs(claims));
        self.seen.over[0] += over(claims, SHARDS).len();
    }

    fn used(&mut self, uses: &[Use]) {
        let (card_mib, instance_mib) = nodes::memory_mib();
        self.seen.claims[1] += uses.len();
        self.seen.used.extend(pairs(&of_processes(uses, &self.parts)));
        for (is_instance, most_mib) in [(false, card_mib), (true, instance_mib)] {
            let of = uses.iter().filter(|one| one.is_instance == is_instance);
            let bytes = of.map(|one| Claim {
                job: one.job,
                device: one.device.clone(),
                part: Part::Of(one.bytes),
            });
            self.seen.over[2] += over(&bytes.collect::<Vec<_>>(), most_mib << 20).len();
        }
    }

    fn granted(&mut self) {
        let look = |books: &[Books]| books.iter().flat_map(Books::granted).collect::<Vec<Claim>>();
        let (first, most) = (look(&self.books), nodes::memory_mib().0);
        self.seen.claims[2] += first.len();
        if over(&first, most).is_empty() && pairs(&first).is_empty() {
            return;
        }
        // The files are not of one moment; what is there before and after one is.
        let again = look(&self.books);
        let both: Vec<Claim> = first.into_iter().filter(|claim| again.contains(claim)).collect();
        self.seen.granted.extend(pairs(&both));
        self.seen.over[1] += over(&both, most).len();
    }
}

/// What jobs have whose Prolog is through and whose tasks run. A job that goes back, and one that Slurm has started
/// without its Prolog, is running for Slurm before that is known; its tasks are kept waiting or ended at once.
fn running(jobs: &[Shown], has_tasks: impl Fn(&&Shown) -> bool) -> Vec<Claim> {
    let runs = jobs.iter().filter(|job| job.state == "RUNNING" && !job.in_prolog);
    runs.filter(has_tasks).flat_map(|job| job.held.iter().cloned()).collect()
}

/// Processes as claims: an instance is one job's, and so is a card but for jobs that asked for a part.
fn of_processes(uses: &[Use], parts: &BTreeMap<u32, bool>) -> Vec<Claim> {
    let claim = |one: &Use| {
        let has_part = !one.is_instance && parts.get(&one.job).copied().unwrap_or(false);
        let part = if has_part { Part::Of(one.bytes) } else { Part::Whole };
        Claim { job: one.job, device: one.device.clone(), part }
    };
    uses.iter().map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_count_while_they_run_with_tasks() {
        let of = |job, state: &str, in_prolog| Shown {
            job,
            state: state.into(),
            in_prolog,
            held: vec![Claim { job, device: "n1/0".into(), part: Part::Whole }],
            ..Shown::default()
        };
        let jobs = [
            of(1, "RUNNING", false),
            of(2, "RUNNING", true),
            of(3, "COMPLETING", false),
            of(4, "RUNNING", false),
        ];
        let claims = running(&jobs, |job| job.job != 4);
        assert_eq!(claims.iter().map(|claim| claim.job).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn processes_of_two_jobs_on_an_instance_or_a_whole_card_are_pairs() {
        let of = |job, device: &str, is_instance| Use {
            job,
            device: device.into(),
            is_instance,
            bytes: 1,
        };
        let parts = BTreeMap::from([(1, true), (2, true), (3, false), (4, true), (5, true)]);
        let uses = [
            of(1, "n1/0", false),
            of(2, "n1/0", false),
            of(3, "n1/1", false),
            of(3, "n1/1", false),
            of(1, "n1/1", false),
            of(4, "n1/3:7.0", true),
            of(5, "n1/3:7.0", true),
        ];
        let found = pairs(&of_processes(&uses, &parts));
        let found: Vec<_> = found.into_iter().map(|(_, a, b)| (a, b)).collect();
        assert_eq!(found, [(1, 3), (4, 5)]);
    }
}
