//! The controller: observe, decide, write, observe anew.
//!
//! `watching` observes, `book` is what is known, `observation` one moment of it; `world` turns that into the engine's terms (`fleet`: cards, `host`: CPU and memory,
//! `held`, `holder`: who has what, `ask`: who wants what, `stage`: how far each pod has come, `gang`: who starts with whom, `disruption`: who may be asked to leave, `eligible`: which nodes will do, `selecting`: by what expressions,
//! `tried`: from which pods were handed back); `decide` is one cycle; `allocation` is what a claim is given; `templates` are those of asks
//! by resource names, `missed` the pods that have come in untranslated, `prospect` is what could be given to whom if all were idle;
//! `act` and `tell` write, in the terms that `leader` wins. All but `watching`, `act`, `tell`, `leader`, the ends of `templates` and `question`, and this file are pure.

mod act;
mod allocation;
mod ask;
mod book;
pub mod decide;
mod disruption;
mod eligible;
mod fleet;
mod gang;
mod held;
mod holder;
mod host;
mod leader;
mod missed;
pub mod observation;
pub(crate) mod prospect;
pub mod question;
mod selecting;
mod stage;
mod tell;
pub mod templates;
pub mod tried;
mod watching;
mod world;

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use engine::Planner;
use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use model::Policy;

use self::act::{Hands, Written};
use self::allocation::Stamp;
use self::book::Book;
use self::leader::Term;
pub use self::leader::{Candidate, LEASE};
use self::tried::Tried;
use self::watching::Change;

/// Writes at once.
const WRITES_MAX: usize = 32;
/// A cycle comes at least so often: what waits is told anew, what was missed is found.
const PERIOD: Duration = Duration::from_secs(10);
/// Between two cycles.
const PAUSE: Duration = Duration::from_millis(20);
/// An act whose writes are not answered within this is given up.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// The API server's policies follow the lease by a watch: this is time for it.
const LEARNED: Duration = Duration::from_millis(500);

/// What happens in the controller, for whoever runs it.
pub trait Log {
    /// Something was done or went wrong.
    fn line(&mut self, text: &str);
}

/// Stands for the lease, and leads whenever it is won, until `stop`.
///
/// # Errors
/// A watch has ended, which never is unless its task has died.
pub async fn run(
    client: Client,
    candidate: &Candidate,
    policy: Policy,
    stop: impl Future<Output = ()>,
    log: &mut impl Log,
) -> Result<(), String> {
    let mut stop = std::pin::pin!(stop);
    loop {
        let term = tokio::select! {
            term = candidate.win(&client, |why| log.line(&format!("waits: {why}"))) => term,
            () = &mut stop => return Ok(()),
        };
        log.line(&format!("leads, for the {}. term", term.epoch));
        // The API server's policies have learned of the term when the lists are asked for that it begins with.
        tokio::time::sleep(LEARNED).await;
        let stopped = tokio::select! {
            led = lead(&client, &term, policy.clone(), log) => { led?; false }
            () = term.ended() => false,
            () = &mut stop => true,
        };
        if stopped {
            candidate.give_up(&client, term.epoch).await;
            return Ok(());
        }
        log.line(
            "the term is over: the lease was not renewed in time, or another controller has it",
        );
    }
}

/// What is remembered from cycle to cycle.
struct Memory {
    planner: Planner,
    tried: Tried,
    /// What was wrong in the last cycle, and has been said.
    wrong: BTreeSet<String>,
}

/// Observes, decides and writes; whoever calls it drops it when the term is over.
async fn lead(
    client: &Client,
    term: &Term,
    policy: Policy,
    log: &mut impl Log,
) -> Result<(), String> {
    let reporter = Reporter { controller: "hotpot".into(), instance: None };
    let events = Recorder::new(client.clone(), reporter);
    let hands = Hands { client, term, events: &events };
    let mut memory =
        Memory { planner: Planner::new(policy), tried: Tried::default(), wrong: BTreeSet::new() };
    loop {
        until_in_doubt(&hands, &mut memory, log).await?;
        log.line("it is not known what has been written: all is listed anew");
    }
}

/// Goes round until it is not known what came of a write: nothing may be planned on a book that lacks what was given.
async fn until_in_doubt(
    hands: &Hands<'_>,
    memory: &mut Memory,
    log: &mut impl Log,
) -> Result<(), String> {
    let (_until_the_end, mut changes) = watching::all(hands.client);
    let mut book = Book::default();
    loop {
        let waited = tokio::time::timeout(PERIOD, changes.recv()).await;
        let is_due = waited.is_err();
        let first = match waited {
            Ok(None) => return Err("the watches have ended".into()),
            Ok(first) => first,
            Err(_) => None,
        };
        let more = std::iter::from_fn(|| changes.try_recv().ok());
        for change in first.into_iter().chain(more) {
            if let Change::Failed(why) = &change {
                log.line(why);
            }
            change.enter(&mut book);
        }
        let has_changed = book.changed();
        if book.is_whole() && (has_changed || is_due) {
            if !cycle(hands, &mut book, memory, log).await {
                return Ok(());
            }
            // What comes meanwhile is looked at together.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// One cycle; whether it is known what was written.
async fn cycle(
    hands: &Hands<'_>,
    book: &mut Book,
    Memory { planner, tried, wrong: known }: &mut Memory,
    log: &mut impl Log,
) -> bool {
    let stamp = Stamp { at: Time(Timestamp::now()), epoch: hands.term.epoch };
    let seen = book.observation();
    let live: BTreeSet<&str> =
        seen.pods.values().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    tried.keep(|uid| live.contains(uid));
    let decided = decide::decide(&seen, planner, tried, &stamp, share_id);
    let mut wrong: BTreeSet<String> = decided.alarms.into_iter().collect();
    let mut is_known = true;
    let write = |act| async move {
        let mut written = Written::default();
        let done = tokio::time::timeout(WRITE_MAX, act::carry_out(hands, &act, &mut written)).await;
        done.unwrap_or_else(|_| written.give_up(WRITE_MAX));
        written
    };
    let writes = stream::iter(decided.acts).map(write);
    let mut writes = writes.buffer_unordered(WRITES_MAX);
    while let Some(written) = writes.next().await {
        written.claims.into_iter().for_each(|claim| book.claims.put(claim));
        written.templates.into_iter().for_each(|template| book.templates.put(template));
        written.pods.into_iter().for_each(|pod| book.pods.put(pod));
        wrong.extend(written.errors);
        is_known &= !written.is_unknown;
    }
    // What was wrong before has been said.
    wrong.difference(known).for_each(|text| log.line(text));
    *known = wrong;
    is_known
}

fn share_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
