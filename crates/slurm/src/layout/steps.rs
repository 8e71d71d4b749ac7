//! One node on its way from one layout to another, or back. Each step may be done again, so that whoever goes
//! on after a kill begins with the last one that the journal has.

use std::thread;
use std::time::{Duration, Instant};

use super::card::{CardLayout, Files, NodeLayout, Request};
use super::journal::{Journal, Line, Old, Step};
use super::note::ask;
use super::plan::NodePlan;
use super::standing::{Standing, answers, jobs_on};
use super::{LayoutError, edit, files, ways};
use crate::commands::Slurm;
use crate::site::{Site, conf_folder};

/// The way forward.
const FORWARD: [Step; 9] = [
    Step::Note,
    Step::Drain,
    Step::Wait,
    Step::Divide,
    Step::Stop,
    Step::Files,
    Step::Start,
    Step::Back,
    Step::Resume,
];
const POLL: Duration = Duration::from_millis(200);

/// How long something may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs on a node may go on; `None` for as long as they like.
    pub wait: Option<Duration>,
    /// A node may take to come back.
    pub back_within: Duration,
}

/// What hotpot says on the way.
pub(super) type Say<'a> = &'a dyn Fn(&str);

/// One node.
pub(super) struct Way<'a> {
    pub(super) journal: &'a mut Journal,
    pub(super) site: &'a Site,
    pub(super) limits: Limits,
    pub(super) say: Say<'a>,
    pub(super) plan: &'a NodePlan,
    pub(super) old: Option<Old>,
    pub(super) files: Option<Files>,
    /// Why it is on its way back.
    pub(super) back: Option<String>,
    /// Whether slurmctld may be stopped or not know the node, as we left it so.
    pub(super) away: bool,
}

/// What has to be done to bring a node back that had come to a step.
pub(super) fn way_back(reached: Step, old: &Old) -> &'static [Step] {
    match reached {
        Step::Plan | Step::Undo | Step::Note => &[],
        Step::Drain | Step::Wait => &FORWARD[8..],
        // Instances that are made anew have other device files, which gres.conf must name.
        Step::Divide if old.cards.iter().all(|card| card.layout == CardLayout::Whole) => {
            &[Step::Divide, Step::Resume]
        }
        Step::Divide
        | Step::Stop
        | Step::Files
        | Step::Start
        | Step::Back
        | Step::Resume
        | Step::Done
        | Step::End => &FORWARD[1..],
    }
}

impl Way<'_> {
    /// Goes forward, from a step on.
    pub(super) fn forward(&mut self, from: Step) -> Result<(), LayoutError> {
        let begin = FORWARD.iter().position(|step| *step == from).unwrap_or(0);
        self.walk(&FORWARD[begin..])
    }

    /// Does steps, each written down before, and closes the node.
    pub(super) fn walk(&mut self, steps: &[Step]) -> Result<(), LayoutError> {
        for step in steps {
            if *step == Step::Note {
                // Nothing is changed by looking.
                self.old = Some(self.note()?);
            }
            self.journal.write(self.line(*step))?;
            self.make(*step)?;
        }
        self.journal.write(self.line(Step::Done))
    }

    fn line(&self, step: Step) -> Line {
        let mut line = Line::of(step, Some(&self.plan.node));
        line.back = self.back.is_some();
        line.why.clone_from(&self.back);
        line.old = self.old.clone().filter(|_| step == Step::Note);
        line.files = self.files.clone().filter(|_| step == Step::Stop);
        line
    }

    fn make(&mut self, step: Step) -> Result<(), LayoutError> {
        match step {
            Step::Drain => self.drain(),
            Step::Wait => self.wait(),
            Step::Divide => self.divide(),
            Step::Stop => self.stop(),
            Step::Files => self.write_files(),
            Step::Start => self.start(),
            Step::Back => self.until_back(),
            Step::Resume => self.resume(),
            Step::Plan | Step::Undo | Step::Note | Step::Done | Step::End => Ok(()),
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.plan.node
    }

    fn tell(&self, text: &str) {
        (self.say)(&format!("{}: {text}", self.plan.node));
    }

    pub(super) fn wrong(&self, why: impl ToString) -> LayoutError {
        LayoutError::node(&self.plan.node, why)
    }

    fn old(&self) -> Result<&Old, LayoutError> {
        self.old.as_ref().ok_or_else(|| self.wrong("the journal does not say what it was"))
    }
}

/// The steps.
impl Way<'_> {
    /// The node as slurmctld has it; `None` where we have left it away.
    fn standing(&self) -> Result<Option<Standing>, LayoutError> {
        if self.away && !answers(Slurm) {
            return Ok(None);
        }
        let standing = Standing::ask(Slurm, self.node())?;
        if standing.is_none() && !self.away {
            return Err(self.wrong("slurmctld does not know it"));
        }
        Ok(standing)
    }

    fn update(&self, words: &[&str]) -> Result<(), LayoutError> {
        let name = format!("nodename={}", self.node());
        Slurm.call("scontrol", &[&["update", &name], words].concat())?;
        Ok(())
    }

    fn drain(&self) -> Result<(), LayoutError> {
        let Some(standing) = self.standing()? else { return Ok(()) };
        let ours = self.reason();
        if standing.taken(&ours).is_some() {
            // Theirs is not to be lost; whether we go on is seen next.
            return Ok(());
        }
        self.update(&["state=drain", &format!("reason={ours}")])
    }

    /// By which we know a node that is out of use by us.
    fn reason(&self) -> String {
        format!("hotpot layout {}", self.journal.id)
    }

    /// Nothing more is changed on a node that somebody else takes out of use meanwhile. Back it goes, and stays
    /// out of use; only one that registers itself anew would be in use.
    fn refuse_taken(&self, standing: &Standing) -> Result<(), LayoutError> {
        let Some(reason) = standing.taken(&self.reason()) else { return Ok(()) };
        let theirs = format!("somebody else has it {} ({reason})", standing.state);
        if self.back.is_none() {
            return Err(self.wrong(theirs));
        }
        match self.old()?.dynamic {
            false => Ok(()),
            true => Err(self.wrong(format!(
                "{theirs}, which is lost when it registers anew; put it in use now, and drain it again when it is back"
            ))),
        }
    }

    fn wait(&self) -> Result<(), LayoutError> {
        let (begun, mut told) = (Instant::now(), Vec::new());
        loop {
            let Some(standing) = self.standing()? else { return Ok(()) };
            self.refuse_taken(&standing)?;
            let jobs = jobs_on(Slurm, self.node())?;
            if jobs.is_empty() && !standing.is_busy() {
                return Ok(());
            }
            if jobs != told && !jobs.is_empty() {
                self.tell(&format!("waiting for jobs {}", jobs.join(", ")));
                told = jobs;
            }
            if let Some(limit) = self.limits.wait.filter(|limit| begun.elapsed() >= *limit) {
                let why =
                    format!("jobs {} have not ended in {} s", told.join(", "), limit.as_secs());
                return Err(self.wrong(why));
            }
            if !standing.is_drained() {
                self.drain()?;
            }
            thread::sleep(POLL);
        }
    }

    fn divide(&mut self) -> Result<(), LayoutError> {
        let old = self.old()?.clone();
        let (cards, files) = if self.back.is_some() {
            let as_it_was = Files {
                id: self.journal.id,
                gres_conf: old.gres_conf.clone(),
                gres: old.gres.clone(),
                dynamic: old.dynamic,
            };
            let whole = old.cards.iter().all(|card| card.layout == CardLayout::Whole);
            (old.cards.clone(), Some(as_it_was).filter(|_| whole))
        } else {
            (self.plan.becomes(), None)
        };
        for card in &cards {
            self.tell(&format!("{} becomes {}", card.gpu, card.layout.words()));
        }
        let told = ask(self.site, self.node(), Some(&Request::Divide(cards)))?;
        self.files = Some(files.unwrap_or_else(|| rendered(self.journal.id, &old, &told)));
        Ok(())
    }

    /// The node first: if it cannot be reached, slurmctld goes on.
    fn stop(&self) -> Result<(), LayoutError> {
        let (ways, dynamic) = (&self.site.ways, self.old()?.dynamic);
        let known = if dynamic { Standing::ask(Slurm, self.node())? } else { None };
        if let Some(standing) = known {
            self.refuse_taken(&standing)?;
            let name = format!("nodename={}", self.node());
            Slurm.call("scontrol", &["delete", &name])?;
        }
        ways.launch_on_node(self.node(), &ways.stop_slurmd)?;
        if !dynamic {
            ways::launch_here(self.node(), &ways.stop_slurmctld)?;
        }
        Ok(())
    }

    /// Where the way back cannot be gone either, the other nodes get their slurmctld again.
    pub(super) fn let_others_go_on(&self) {
        let stopped = self.away && self.old.as_ref().is_some_and(|old| !old.dynamic);
        if stopped && !answers(Slurm) {
            let started = ways::launch_here(self.node(), &self.site.ways.start_slurmctld);
            if let Err(error) = started {
                self.tell(&format!("slurmctld does not run: {error}"));
            }
        }
    }

    fn write_files(&self) -> Result<(), LayoutError> {
        let wanted = self.wanted()?;
        // Where each node has a gres.conf to itself, the one here is none of its.
        if !self.site.ways.own_gres_conf {
            files::write_gres_conf(&conf_folder(), self.node(), false, wanted)?;
        }
        files::write_slurm_conf(&conf_folder(), self.node(), wanted)?;
        ask(self.site, self.node(), Some(&Request::Files(wanted.clone()))).map(drop)
    }

    fn wanted(&self) -> Result<&Files, LayoutError> {
        let missing = || self.wrong("the journal does not say what its files should be");
        self.files.as_ref().ok_or_else(missing)
    }

    fn start(&self) -> Result<(), LayoutError> {
        let ways = &self.site.ways;
        if !self.old()?.dynamic {
            ways::launch_here(self.node(), &ways.start_slurmctld)?;
        }
        Ok(ways.launch_on_node(self.node(), &ways.start_slurmd)?)
    }

    fn until_back(&self) -> Result<(), LayoutError> {
        let wanted = self.wanted()?.gres.clone();
        let there = |it: &Standing| it.is_there() && edit::same(&it.gres, &wanted);
        self.until(there).map(drop)
    }

    /// Whoever else takes it out of use keeps it so.
    fn resume(&self) -> Result<(), LayoutError> {
        let ours = self.reason();
        let standing = self.until(|standing| {
            let taken = standing.taken(&ours).is_some();
            if standing.is_out() && !taken {
                // Somebody may be faster; what stands then is looked at next.
                let _looked_at_next = self.update(&["state=resume"]);
            }
            taken || standing.is_there() && !standing.is_out()
        })?;
        let back = if self.back.is_some() { "is back as it was" } else { "is back" };
        self.tell(&standing.taken(&ours).map_or(back.to_owned(), |reason| {
            format!("{back} and stays {}, as somebody else has it ({reason})", standing.state)
        }));
        if let Err(error) = files::tell_rules(&conf_folder(), Slurm, self.site, self.journal.id) {
            // The node is well.
            let way = "`hotpot slurm facts` writes what job_submit.lua should know";
            self.tell(&format!("{error}; {way}"));
        }
        Ok(())
    }

    /// Looks until the node is as it should be.
    fn until(&self, fine: impl Fn(&Standing) -> bool) -> Result<Standing, LayoutError> {
        let begun = Instant::now();
        loop {
            // slurmctld may be about to start.
            let seen = Standing::ask(Slurm, self.node());
            if let Ok(Some(standing)) = &seen
                && fine(standing)
            {
                return Ok(standing.clone());
            }
            if begun.elapsed() >= self.limits.back_within {
                let seconds = self.limits.back_within.as_secs();
                let seen = match seen {
                    Ok(Some(Standing { state, gres, reason, .. })) => {
                        format!("it is {state} with Gres={gres} ({reason})")
                    }
                    Ok(None) => "slurmctld does not know it".to_owned(),
                    Err(error) => error.to_string(),
                };
                return Err(self.wrong(format!("it has not come back in {seconds} s: {seen}")));
            }
            thread::sleep(POLL);
        }
    }
}

/// What is to stand in a node's files after its cards were divided.
fn rendered(id: u64, old: &Old, told: &NodeLayout) -> Files {
    let (mut lines, mut gres) = (told.gres_conf.clone(), told.node_gres.clone());
    if !old.shards {
        let kept = lines.lines().filter(|line| !line.contains(" Name=shard "));
        lines = kept.map(|line| format!("{line}\n")).collect();
        gres =
            gres.split(',').filter(|word| !word.starts_with("shard")).collect::<Vec<_>>().join(",");
    }
    Files { id, gres_conf: lines, gres: edit::merged(&old.gres, &gres), dynamic: old.dynamic }
}
