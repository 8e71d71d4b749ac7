//! The jobs of a run and their tasks, and which tasks may start as far as other jobs go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use formats::{DependencyKind, Job};
use model::{GpuAsk, GpuDemand, ModeSet, SharingKind, Workload, WorkloadId};

use crate::conditions::{Condition, Names, conditions};
use crate::error::RunError;
use crate::task::{Ending, State, Task};

/// A job of this run.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// What its file says.
    pub job: Job,
    /// Position of its first task.
    pub first: usize,
    /// Where its script is kept, if it is one.
    pub script: Option<PathBuf>,
    /// Conditions, with the jobs of this run that they are about.
    after: Vec<Condition>,
    started: usize,
    ended: usize,
    ok: usize,
    /// Whether its held tasks have all been looked at once.
    judged: bool,
}

/// What a condition or a list of them comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Never,
    Pending,
    Met,
}

/// Everything that a run has to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Jobs in the order of the files.
    pub jobs: Vec<Posted>,
    /// Tasks of all jobs; a position is the task's id to the engine.
    pub tasks: Vec<Task>,
    first_number: u64,
    workloads: Vec<Arc<Workload>>,
    /// Tasks that wait for other jobs, by job.
    held: BTreeMap<usize, BTreeSet<usize>>,
    /// Tasks that have ended since the held ones were looked at.
    news: Vec<usize>,
    left: usize,
}

/// The modes in which a process can use all of its shares: it talks to one MPS daemon, of which each
/// GPU has its own here, and CUDA sees one MIG device (NVIDIA MIG user guide, "CUDA visible devices").
fn usable_by_one_process(gpus: &GpuDemand) -> ModeSet {
    match gpus.each {
        GpuAsk::Fraction { .. } if gpus.count > 1 => gpus.modes.and(ModeSet::of(&[
            SharingKind::Exclusive,
            SharingKind::TimeSlice,
            SharingKind::MemoryCapped,
        ])),
        GpuAsk::Fraction { .. } | GpuAsk::Whole | GpuAsk::Profile(_) => gpus.modes,
    }
}

impl Posted {
    /// Tasks that ended well, and tasks that ended.
    pub fn counts(&self) -> (usize, usize) {
        (self.ok, self.ended)
    }

    /// Its task with an index, or its only one.
    fn task_of(&self, index: Option<u32>) -> Option<usize> {
        match (&self.job.array, index) {
            (Some(array), Some(index)) => {
                array.indices.binary_search(&index).ok().map(|at| self.first + at)
            }
            (None, None) => Some(self.first),
            (Some(_), None) | (None, Some(_)) => None,
        }
    }
}

impl Work {
    /// Makes tasks of the jobs and ties their dependencies.
    ///
    /// # Errors
    /// A dependency on a job that is not in this run, or on one that waits for it in turn; a job
    /// that needs several machines.
    pub fn new(jobs: Vec<Job>) -> Result<Self, RunError> {
        let mut work = Self { first_number: 1, ..Self::default() };
        for job in jobs {
            work.post(job)?;
        }
        work.tie()?;
        work.refuse_circles()?;
        Ok(work)
    }

    fn post(&mut self, mut job: Job) -> Result<(), RunError> {
        if job.pattern.members > 1 {
            let (job, members) = (job.pattern.name.clone(), job.pattern.members);
            return Err(RunError::Gang { job, members });
        }
        if let Some(gpus) = &mut job.pattern.demand.gpus {
            gpus.modes = usable_by_one_process(gpus);
        }
        let first = self.tasks.len();
        for workload in job.tasks(WorkloadId(first as u64)) {
            let index = workload.array.map(|member| member.index);
            let (job, state) = (self.jobs.len(), State::Held);
            self.held.entry(self.jobs.len()).or_default().insert(self.tasks.len());
            self.tasks.push(Task { job, index, attempts: 0, state });
            self.workloads.push(Arc::new(workload));
        }
        self.left = self.tasks.len();
        let (script, after) = (None, Vec::new());
        self.jobs.push(Posted {
            job,
            first,
            script,
            after,
            started: 0,
            ended: 0,
            ok: 0,
            judged: false,
        });
        Ok(())
    }

    /// The task's workload, as the engine is given it.
    pub fn workload(&self, id: usize) -> &Arc<Workload> {
        &self.workloads[id]
    }

    /// The job of a task.
    pub fn job_of(&self, id: usize) -> &Posted {
        &self.jobs[self.tasks[id].job]
    }

    /// What people call a task: `embed[7]`.
    pub fn name(&self, id: usize) -> &str {
        &self.workloads[id].name
    }

    /// Numbers the tasks on from `first`. Until then they count from 1.
    pub fn number_from(&mut self, first: u64) {
        self.first_number = first;
    }

    /// A task's number, which no other task in the same state folder has (`SLURM_JOB_ID`).
    pub fn number(&self, id: usize) -> u64 {
        self.first_number + id as u64
    }

    /// The number of a task's job: that of the job's first task.
    pub fn job_number(&self, id: usize) -> u64 {
        self.number(self.job_of(id).first)
    }

    /// How a task is called where only letters, digits and `_` may stand, as Slurm does: `12_7`.
    pub fn label(&self, id: usize) -> String {
        let number = self.job_number(id);
        match self.tasks[id].index {
            Some(index) => format!("{number}_{index}"),
            None => number.to_string(),
        }
    }

    /// Notes that a task waits for a seat.
    pub fn wait(&mut self, id: usize, since_ms: u64) {
        self.let_go(id);
        self.tasks[id].state = State::Waiting { since_ms };
    }

    /// Notes that a task has been started.
    pub fn start(&mut self, id: usize, since_ms: u64) {
        self.tasks[id].state = State::Running { since_ms };
        self.attempted(id, self.tasks[id].attempts + 1);
    }

    /// Notes how often a task has been started.
    pub fn attempted(&mut self, id: usize, attempts: u32) {
        let task = &mut self.tasks[id];
        if task.attempts == 0 && attempts > 0 {
            self.jobs[task.job].started += 1;
        }
        task.attempts = attempts;
    }

    fn let_go(&mut self, id: usize) {
        let job = self.tasks[id].job;
        if let Some(held) = self.held.get_mut(&job) {
            held.remove(&id);
            if held.is_empty() {
                self.held.remove(&job);
            }
        }
    }

    /// Notes how a task ended. A second end is not counted.
    pub fn end(&mut self, id: usize, ending: Ending) {
        if matches!(self.tasks[id].state, State::Ended(_)) {
            return;
        }
        self.let_go(id);
        self.news.push(id);
        self.left -= 1;
        let task = &mut self.tasks[id];
        let posted = &mut self.jobs[task.job];
        posted.ended += 1;
        posted.ok += usize::from(ending.is_ok());
        task.state = State::Ended(ending);
    }

    /// Whether every task is over.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Held tasks that may start now, and those that never can.
    pub fn released(&mut self) -> (Vec<usize>, Vec<usize>) {
        let news = std::mem::take(&mut self.news);
        let (mut free, mut never) = (Vec::new(), Vec::new());
        for (job, held) in &self.held {
            for id in self.to_judge(*job, held, &news) {
                match self.standing(id) {
                    Standing::Met => free.push(id),
                    Standing::Never => never.push(id),
                    Standing::Pending => {}
                }
            }
        }
        for job in self.held.keys() {
            self.jobs[*job].judged = true;
        }
        (free, never)
    }

    /// The held tasks of a job whose standing may have changed since they were judged.
    ///
    /// * `news` — tasks of any job that have ended since.
    fn to_judge(&self, job: usize, held: &BTreeSet<usize>, news: &[usize]) -> Vec<usize> {
        let posted = &self.jobs[job];
        let twins = |condition: &Condition| condition.kind == DependencyKind::AfterCorr;
        if !posted.after.iter().any(twins) {
            // All of them stand as one does.
            let pending = held.first().is_some_and(|id| self.standing(*id) == Standing::Pending);
            return if pending { Vec::new() } else { held.iter().copied().collect() };
        }
        if !posted.judged || posted.after.len() > 1 {
            return held.iter().copied().collect();
        }
        let twins = news.iter().filter_map(|id| posted.task_of(self.tasks[*id].index));
        twins.filter(|id| held.contains(id)).collect()
    }

    fn standing(&self, id: usize) -> Standing {
        let conditions = &self.job_of(id).after;
        let each = |condition: &Condition| {
            let jobs = condition.jobs.iter().map(|other| &self.jobs[*other]);
            let of_jobs = jobs.map(|other| self.of_job(condition.kind, other, id));
            of_jobs.min().unwrap_or(Standing::Met)
        };
        let any = conditions.first().is_some_and(|condition| condition.any);
        let standings = conditions.iter().map(each);
        let all = if any { standings.max() } else { standings.min() };
        all.unwrap_or(Standing::Met)
    }

    /// What a condition on another job comes to for a task.
    fn of_job(&self, kind: DependencyKind, other: &Posted, id: usize) -> Standing {
        let count = other.job.task_count();
        let failed = other.ended - other.ok;
        let once = |is: bool| if is { Standing::Met } else { Standing::Pending };
        match kind {
            // One that was never started has ended all the same, and nothing more will come of it.
            DependencyKind::After => once(other.started == count || other.ended == count),
            DependencyKind::AfterAny | DependencyKind::Singleton => once(other.ended == count),
            DependencyKind::AfterOk if failed > 0 => Standing::Never,
            DependencyKind::AfterOk => once(other.ok == count),
            DependencyKind::AfterNotOk if other.ok == count => Standing::Never,
            DependencyKind::AfterNotOk => once(other.ended == count),
            DependencyKind::AfterCorr => self.of_twin(other, id),
        }
    }

    /// What the task of the same index in another job means for one.
    fn of_twin(&self, other: &Posted, id: usize) -> Standing {
        let twin = other.task_of(self.tasks[id].index);
        match twin.map(|twin| &self.tasks[twin].state) {
            Some(State::Ended(ending)) if ending.is_ok() => Standing::Met,
            Some(State::Held | State::Waiting { .. } | State::Running { .. }) => Standing::Pending,
            Some(State::Ended(_)) | None => Standing::Never,
        }
    }

    /// Ties the dependencies of all jobs.
    fn tie(&mut self) -> Result<(), RunError> {
        let names = Names::of(&self.jobs);
        let all: Result<Vec<_>, RunError> =
            (0..self.jobs.len()).map(|at| conditions(&self.jobs, at, &names)).collect();
        for (posted, after) in self.jobs.iter_mut().zip(all?) {
            posted.after = after;
        }
        Ok(())
    }

    /// Jobs that can be put into an order are no circle (Kahn's algorithm).
    fn refuse_circles(&self) -> Result<(), RunError> {
        let mut waits: Vec<usize> = vec![0; self.jobs.len()];
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.jobs.len()];
        for (at, posted) in self.jobs.iter().enumerate() {
            for other in posted.after.iter().flat_map(|condition| &condition.jobs) {
                waits[at] += 1;
                next[*other].push(at);
            }
        }
        let mut ready: Vec<usize> = (0..waits.len()).filter(|at| waits[*at] == 0).collect();
        while let Some(at) = ready.pop() {
            for other in &next[at] {
                waits[*other] -= 1;
                if waits[*other] == 0 {
                    ready.push(*other);
                }
            }
        }
        match waits.iter().position(|waits| *waits > 0) {
            None => Ok(()),
            Some(at) => Err(RunError::Circle { job: self.jobs[at].job.pattern.name.clone() }),
        }
    }
}
