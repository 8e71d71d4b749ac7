//! What a run shows while it goes on: a line that moves on a terminal, a line now and then elsewhere,
//! and failures at once.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use local::{Ending, View, Watch, Work};
use simulator::report::{harmless, shown};

use crate::screen;

/// Failures named one by one; more are only counted.
const NAMED_MAX: usize = 10;
/// Time between lines where there is no terminal.
const LINE_EVERY_MS: u64 = 30_000;
/// Time between drawings on a terminal.
const DRAW_EVERY_MS: u64 = 100;

/// Shows a run on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    last_ms: u64,
    failures: usize,
}

impl Progress {
    /// * `quiet` — whether only what goes wrong is shown.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let template = "{bar:24} {pos}/{len} over, {elapsed}: {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let bar = Some(bar).filter(|bar| !quiet && !bar.is_hidden());
        Self { bar, quiet, last_ms: 0, failures: 0 }
    }

    /// Takes the moving line away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| screen::note(text)),
            None => screen::note(text),
        }
    }
}

impl Watch for Progress {
    fn started(&mut self, _work: &Work, _id: usize, _devices: &str) {}

    fn ended(&mut self, work: &Work, id: usize, ending: &Ending) {
        if ending.is_ok() {
            return;
        }
        self.failures += 1;
        match self.failures {
            number if number <= NAMED_MAX => {
                self.say(&format!("{}: {ending}", shown(work.name(id))));
            }
            number if number == NAMED_MAX + 1 => {
                self.say("more tasks fail, which are not named here; the summary counts them")
            }
            _ => {}
        }
    }

    fn refused(&mut self, work: &Work, id: usize, ending: &Ending, refusals: &[String]) {
        // To a task that did its work all the same it is no news; the summary counts it.
        if !ending.is_ok() && self.failures <= NAMED_MAX {
            for text in refusals {
                self.say(&format!("{}: {text}", shown(work.name(id))));
            }
        }
    }

    fn told(&mut self, text: &str) {
        self.say(text);
    }

    fn stands(&mut self, view: &View) {
        let every_ms = if self.bar.is_some() { DRAW_EVERY_MS } else { LINE_EVERY_MS };
        if self.quiet || view.now_ms < self.last_ms + every_ms {
            return;
        }
        self.last_ms = view.now_ms;
        match &self.bar {
            Some(bar) => {
                bar.set_length(view.tasks as u64);
                bar.set_position((view.done + view.failed) as u64);
                bar.set_message(harmless(&line(view)));
            }
            None => {
                let (over, all) = (view.done + view.failed, view.tasks);
                let passed = humane(Duration::from_millis(view.now_ms));
                screen::note(&format!("{passed}: {over}/{all} over, {}", line(view)));
            }
        }
    }
}

/// `10 running, 8/8 GPUs held, 71 % busy, 40 waiting (GPU in use: 1 tenant on it)`.
fn line(view: &View) -> String {
    let mut parts = vec![format!("{} running", view.running)];
    if view.failed > 0 {
        parts.push(format!("{} failed", view.failed));
    }
    if view.gpus > 0 {
        parts.push(format!("{}/{} GPUs held", view.gpus_held, view.gpus));
    }
    if let Some(ratio) = view.busy_ratio {
        parts.push(format!("{:.0} % busy", ratio * 100.0));
    }
    if view.waiting > 0 {
        let reason = view.reason.as_ref().map(|reason| format!(" ({reason})"));
        parts.push(format!("{} waiting{}", view.waiting, reason.unwrap_or_default()));
    }
    parts.join(", ")
}

/// A span to the second: `1:02:03`.
pub(super) fn humane(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}
