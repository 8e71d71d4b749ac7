//! `hotpot slurm layout`: moving nodes' GPUs from one layout to another.

pub(crate) mod args;

use std::fmt::Write as _;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use model::Catalogue;
use slurm::Slurm;
use slurm::layout::{
    self, Demand, Ended, Fleet, LayoutError, Limits, NodeLayout, OnNode, Plan, Request, Run,
};
use slurm::queue_view::not_shown;
use slurm::site::Site;

use crate::args::Output;
use crate::failure::{Answer, Failure};
use crate::screen;
use args::{ApplyLayout, LayoutOfNode, LayoutVerb, LayoutWish, PlanLayout};

pub(super) fn run(verb: &LayoutVerb) -> Result<Answer, Failure> {
    match verb {
        LayoutVerb::Plan(options) => show(options),
        LayoutVerb::Apply(options) => apply(options),
    }
}

/// What a node does by order of the machine that changes it.
pub(super) fn of_node(options: &LayoutOfNode) -> Result<Answer, Failure> {
    let mut node = OnNode::open(&options.node, site()?).map_err(failure)?;
    let told: NodeLayout = if options.set {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| Failure::Machine(format!("standard input: {error}")))?;
        let request: Request = serde_json::from_str(&text)
            .map_err(|error| Failure::Usage(format!("standard input is no request: {error}")))?;
        node.obey(&request)
    } else {
        node.look()
    }
    .map_err(failure)?;
    screen::print(&json(&told)?)
}

fn show(options: &PlanLayout) -> Result<Answer, Failure> {
    let plan = make(&options.wish, &site()?)?;
    if options.output.output == Output::Json {
        return screen::print(&json(&plan)?);
    }
    screen::print(&table(&plan))
}

fn make(wish: &LayoutWish, site: &Site) -> Result<Plan, Failure> {
    let demand = match &wish.want {
        Some(text) => Demand::wanted(text).map_err(Failure::Usage)?,
        None => {
            let asked = Demand::ask(Slurm);
            let (demand, unread) = asked.map_err(|error| Failure::Machine(error.to_string()))?;
            not_shown(&unread).iter().for_each(|text| screen::note(text));
            demand
        }
    };
    let fleet = Fleet::ask(Slurm, site, wish.nodes.as_deref()).map_err(failure)?;
    fleet.notes.iter().for_each(|note| screen::note(note));
    let catalogue = Catalogue::shipped().map_err(|error| Failure::Machine(error.to_string()))?;
    let shard_mib = fleet.shards.then_some(site.shard_mib);
    Ok(layout::plan(&fleet.nodes, &demand, shard_mib, &catalogue))
}

fn apply(options: &ApplyLayout) -> Result<Answer, Failure> {
    let site = site()?;
    let limits = Limits {
        wait: options.wait.map(Duration::from_millis),
        back_within: Duration::from_secs(options.back_within),
    };
    let folder = layout::folder().map_err(failure)?;
    let say = |text: &str| screen::note(text);
    if options.resume || options.undo {
        let run = Run::newest(&folder, (site, limits), &say).map_err(failure)?;
        return carry_out(run, options.undo);
    }
    layout::finished(&folder).map_err(failure)?;
    let plan = match &options.plan {
        Some(path) => read(path)?,
        None => make(&options.wish, &site)?,
    };
    if plan.nodes.is_empty() {
        screen::print(&table(&plan))?;
        return Ok(if plan.unmet.is_empty() { Answer::Yes } else { Answer::No });
    }
    if !options.yes && !is_agreed(&plan)? {
        return Ok(Answer::No);
    }
    let run = Run::begin(&folder, &plan, (site, limits), &say).map_err(failure)?;
    carry_out(run, false)
}

fn carry_out(mut run: Run<'_>, undo: bool) -> Result<Answer, Failure> {
    let id = run.id();
    let ended = if undo { run.undo() } else { run.go() };
    let stands_still = |error: LayoutError| {
        if matches!(error, LayoutError::Usage(_)) {
            return failure(error);
        }
        let ways = "`hotpot slurm layout apply --resume` goes on, `--undo` takes it back";
        Failure::Machine(format!("layout {id}: {error}; {ways}"))
    };
    match ended.map_err(stands_still)? {
        Ended::Done => screen::note(&format!("layout {id} is done")),
        Ended::Undone => screen::note(&format!("layout {id} is taken back")),
        Ended::Failed { node, why } => {
            screen::complain(&format!("layout {id}: {node} is as it was: {why}"));
            return Ok(Answer::No);
        }
    }
    Ok(Answer::Yes)
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let wrong = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(format!("no plan of layouts: {error}")))
}

/// Asks whoever sits there.
fn is_agreed(plan: &Plan) -> Result<bool, Failure> {
    screen::print(&table(plan))?;
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("nobody is there to agree; add --yes".to_owned()));
    }
    screen::note("Carry this out? [y/N]");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|error| Failure::Machine(format!("standard input: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn table(plan: &Plan) -> String {
    let mut text = String::new();
    if plan.nodes.is_empty() {
        text.push_str("nothing to change\n");
    }
    for node in &plan.nodes {
        for card in &node.cards {
            let (name, minor) = (&node.node, card.minor);
            let (was, becomes) = (card.was.words(), card.becomes.words());
            let because = &card.because;
            let _ = writeln!(text, "{name} GPU {minor}: {was} -> {becomes}\n    because {because}");
        }
    }
    for (kind, count) in &plan.unmet {
        let kind = if kind == "gpu" { "whole cards" } else { kind };
        let _ = writeln!(text, "cannot be had on these nodes: {count} × {kind} more");
    }
    text
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(|error| Failure::Machine(error.to_string()))? + "\n")
}

fn site() -> Result<Site, Failure> {
    Site::read().map_err(|error| Failure::Usage(error.to_string()))
}

fn failure(error: LayoutError) -> Failure {
    match error {
        LayoutError::Usage(text) => Failure::Usage(text),
        LayoutError::Machine(_)
        | LayoutError::Driver(_)
        | LayoutError::OnNode(_)
        | LayoutError::Slurm(_)
        | LayoutError::Tool(_)
        | LayoutError::Node { .. }
        | LayoutError::File { .. } => Failure::Machine(error.to_string()),
    }
}
