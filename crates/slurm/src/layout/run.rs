//! A change of layout as a whole: node by node, gone on with after a kill, and taken back.

use std::path::Path;

use super::LayoutError;
use super::card::Files;
use super::journal::{Journal, Line, Old, Step};
use super::plan::{NodePlan, Plan};
use super::steps::{Limits, Way, way_back};
use crate::site::Site;

/// How a change came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All nodes are as planned.
    Done,
    /// A node could not be changed and is as it was; those before it are changed, those behind it not.
    Failed {
        /// Which.
        node: String,
        /// Why.
        why: String,
    },
    /// All nodes are as they were.
    Undone,
}

/// A change that is carried out by this process.
pub struct Run<'a> {
    journal: Journal,
    site: Site,
    limits: Limits,
    say: &'a dyn Fn(&str),
}

/// How far a node has come, by its lines.
#[derive(Default)]
struct Progress {
    old: Option<Old>,
    files: Option<Files>,
    /// On the way forward.
    reached: Option<Step>,
    /// On the way back.
    back: Option<Step>,
    why: Option<String>,
    is_done: bool,
}

impl Progress {
    fn of(lines: &[Line], node: &str) -> Self {
        let mut progress = Self::default();
        for line in lines.iter().filter(|line| line.node.as_deref() == Some(node)) {
            progress.is_done = line.step == Step::Done;
            progress.old = line.old.clone().or(progress.old);
            progress.files = line.files.clone().or(progress.files);
            if line.back {
                progress.back = Some(line.step);
                progress.why.clone_from(&line.why);
            } else {
                progress.reached = Some(line.step);
            }
        }
        progress
    }

    /// Whether it is as it was.
    fn is_back(&self) -> bool {
        self.is_done && self.back.is_some()
    }
}

impl<'a> Run<'a> {
    /// Begins to carry out a plan.
    ///
    /// * `folder` — of journals, see [`super::folder`].
    /// * `say` — is told what happens.
    ///
    /// # Errors
    /// Another change is not finished, or the journal cannot be written.
    pub fn begin(
        folder: &Path,
        plan: &Plan,
        (site, limits): (Site, Limits),
        say: &'a dyn Fn(&str),
    ) -> Result<Self, LayoutError> {
        Ok(Self { journal: Journal::begin(folder, plan)?, site, limits, say })
    }

    /// Opens the newest change.
    ///
    /// # Errors
    /// There is none, or another process carries it out.
    pub fn newest(
        folder: &Path,
        (site, limits): (Site, Limits),
        say: &'a dyn Fn(&str),
    ) -> Result<Self, LayoutError> {
        Ok(Self { journal: Journal::newest(folder)?, site, limits, say })
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.journal.id
    }

    /// Goes on where it is, forward or back.
    ///
    /// # Errors
    /// It stands still, and the journal says where: a way back could not be gone either.
    pub fn go(&mut self) -> Result<Ended, LayoutError> {
        if self.journal.is_over() {
            let why = format!("layout {} is finished; nothing to go on with", self.journal.id);
            return Err(LayoutError::Usage(why));
        }
        if self.is_undoing() {
            return self.take_all_back();
        }
        for node in self.journal.plan()?.nodes.clone() {
            let progress = self.progress(&node.node);
            if progress.is_done && !progress.is_back() {
                continue;
            }
            let why = match (progress.is_back(), &progress.back) {
                (true, _) => progress.why.unwrap_or_default(),
                (false, Some(_)) => self.back(&node)?,
                (false, None) => match self.forward(&node)? {
                    None => continue,
                    Some(why) => why,
                },
            };
            self.journal.write(Line::of(Step::End, None))?;
            return Ok(Ended::Failed { node: node.node, why });
        }
        self.journal.write(Line::of(Step::End, None))?;
        Ok(Ended::Done)
    }

    /// Takes all of it back, the last node first.
    ///
    /// # Errors
    /// As [`Run::go`].
    pub fn undo(&mut self) -> Result<Ended, LayoutError> {
        if !self.is_undoing() {
            self.journal.write(Line::of(Step::Undo, None))?;
        }
        self.take_all_back()
    }

    fn is_undoing(&self) -> bool {
        self.journal.lines().iter().any(|line| line.step == Step::Undo)
    }

    fn progress(&self, node: &str) -> Progress {
        Progress::of(self.journal.lines(), node)
    }

    fn way<'b>(&'b mut self, plan: &'b NodePlan) -> Way<'b> {
        let Progress { old, files, .. } = self.progress(&plan.node);
        let (site, limits, say) = (&self.site, self.limits, self.say);
        let journal = &mut self.journal;
        Way { journal, site, limits, say, plan, old, files, back: None, away: false }
    }

    /// Brings a node forward; if that fails it is brought back, and why it failed is returned.
    fn forward(&mut self, node: &NodePlan) -> Result<Option<String>, LayoutError> {
        let from = self.progress(&node.node).reached.unwrap_or(Step::Note);
        let Err(error) = self.way(node).forward(from) else { return Ok(None) };
        if self.progress(&node.node).old.is_none() {
            // Nothing was changed.
            return Ok(Some(error.to_string()));
        }
        (self.say)(&format!("{error}; it goes back to what it was"));
        self.back_because(node, &error.to_string()).map(Some)
    }

    fn back(&mut self, node: &NodePlan) -> Result<String, LayoutError> {
        let why = self.progress(&node.node).why.unwrap_or_default();
        self.back_because(node, &why)
    }

    /// Brings a node back, from where it is.
    fn back_because(&mut self, node: &NodePlan, why: &str) -> Result<String, LayoutError> {
        let progress = self.progress(&node.node);
        let reached = progress.reached.unwrap_or(Step::Note);
        let steps = progress.old.as_ref().map_or(&[][..], |old| way_back(reached, old));
        let begin = steps.iter().position(|step| Some(*step) == progress.back).unwrap_or(0);
        let mut way = self.way(node);
        way.back = Some(why.to_owned());
        way.away = (Step::Stop..=Step::Back).contains(&reached)
            || progress.back.is_some_and(|back| (Step::Stop..=Step::Back).contains(&back));
        let walked = way.walk(&steps[begin..]);
        if walked.is_err() {
            way.let_others_go_on();
        }
        walked.map(|()| why.to_owned())
    }

    fn take_all_back(&mut self) -> Result<Ended, LayoutError> {
        let nodes = self.journal.plan()?.nodes.clone();
        for node in nodes.iter().rev() {
            let progress = self.progress(&node.node);
            if progress.old.is_some() && !progress.is_back() {
                self.back_because(node, "it was asked for")?;
            }
        }
        self.journal.write(Line::of(Step::End, None))?;
        Ok(Ended::Undone)
    }
}
