//! Whom to ask to leave so that one member of a workload finds room: as few as can be.
//!
//! Looked for on one node at a time, since a member sits on one. Sets of guests are tried by growing
//! size over all nodes, so the first size with a set that will do is the least; guests that leave
//! anyway cost nothing. "Fits" is asked of [`Scorer`] on a copy of the node without the set.

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

use model::{Gpu, Node, NodeId, Share, SharingMode, WorkloadId};

use crate::fit::Pick;
use crate::placement::{Key, Scorer};

/// Most sets looked at in one search. Past it the best set counts from which nobody can be left out,
/// which may be larger than the smallest.
const TRIES_MAX: u32 = 50_000;
/// Most sets looked at in all searches of one plan.
const TRIES_PLAN_MAX: u32 = 200_000;

/// A resident that may be counted on to leave. In order of preference as a victim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guest {
    pub(crate) priority: i32,
    /// Time that its members have worked so far, summed.
    pub(crate) lost_ms: u64,
    pub(crate) workload: WorkloadId,
    /// Its members, all of which are lost.
    pub(crate) members: u32,
    /// Whether it leaves anyway.
    pub(crate) leaving: bool,
    /// When it is gone, asked now or before.
    pub(crate) by_ms: u64,
}

/// A node on which room could be made.
pub(crate) struct Site<'a> {
    pub(crate) id: NodeId,
    pub(crate) node: &'a Node,
    pub(crate) guests: Vec<Guest>,
}

/// Who has to be gone from a node; those that leave anyway included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) node: NodeId,
    pub(crate) victims: Vec<WorkloadId>,
}

/// What a set costs; the least is best, and of equals the first node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Members of those that would have stayed.
    fresh: u64,
    /// When all are gone. It comes early, so that whoever waits for some that leave does not turn to
    /// others in the next plan, whom somebody else has asked meanwhile.
    by_ms: u64,
    /// Members of those that leave anyway.
    leaving: u64,
    priority: i32,
    lost_ms: u64,
}

/// What one member asks for, by any of the alternatives.
pub(crate) struct Ask<'a> {
    scorer: &'a Scorer,
    keys: Vec<&'a Key>,
    picks: Vec<Pick>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(scorer: &'a Scorer, keys: Vec<&'a Key>) -> Self {
        Self { scorer, keys, picks: Vec::new() }
    }

    fn fits(&mut self, node: &Node) -> bool {
        let Self { scorer, keys, picks } = self;
        keys.iter().any(|key| scorer.options(node, key, picks).is_ok())
    }

    /// Whether the node's CPU and memory suffice; the alternatives differ in GPUs only.
    fn fits_host(&self, node: &Node) -> bool {
        self.keys.first().is_none_or(|key| node.fits_host(&key.demand).is_ok())
    }

    /// GPUs that are lacking, by the alternative that lacks the fewest.
    fn lacking(&self, node: &Node) -> usize {
        let lacking =
            |key: &&Key| key.demand.gpu_count().saturating_sub(self.scorer.able_gpus(node, key));
        self.keys.iter().map(lacking).min().unwrap_or(0)
    }

    fn gpu_count(&self) -> usize {
        self.keys.first().map_or(0, |key| key.demand.gpu_count())
    }
}

/// The cheapest set of guests after whose end a member fits, and on which node; `None` if not even
/// all of them suffice anywhere.
///
/// * `sites` — ascending by node.
/// * `tried` — sets looked at in this plan so far.
pub(crate) fn search(sites: &[Site<'_>], ask: &mut Ask<'_>, tried: &mut u32) -> Option<Choice> {
    let pots: Vec<Pot<'_>> = sites.iter().flat_map(|site| Pot::of(site, ask)).collect();
    let least = pots.iter().map(|pot| pot.least).min()?;
    let most = pots.iter().map(|pot| weight(&pot.fresh)).max()?;
    let most_tries = TRIES_MAX.min(TRIES_PLAN_MAX.saturating_sub(*tried));
    let (mut tries, mut best) = (most_tries, None);
    for members in least..=most {
        for pot in pots.iter().filter(|pot| pot.least <= members) {
            pot.cheapest(members, ask, &mut tries, &mut best);
        }
        if best.is_some() || tries == 0 {
            break;
        }
    }
    *tried += most_tries - tries;
    if let Some((_, choice)) = best {
        return Some(choice);
    }
    pots.iter().map(|pot| pot.without_spares(ask)).min_by_key(|(cost, _)| *cost).map(|(_, set)| set)
}

/// Guests of one node that can help one another: all of them, or the tenants of one GPU.
struct Pot<'a> {
    site: &'a Site<'a>,
    /// The node without those that leave anyway.
    base: Rc<Node>,
    /// Those that would stay, the best victims first.
    fresh: Vec<Guest>,
    leaving: Vec<Guest>,
    /// Fewer members than that never suffice.
    least: u64,
}

impl<'a> Pot<'a> {
    /// The pots of a node that suffice if all in them are gone.
    fn of(site: &'a Site<'a>, ask: &mut Ask<'_>) -> Vec<Self> {
        let (mut leaving, mut fresh): (Vec<_>, Vec<_>) =
            site.guests.iter().cloned().partition(|guest| guest.leaving);
        leaving.sort_unstable();
        fresh.sort_unstable();
        let base = Rc::new(without(site.node, &leaving));
        if !ask.fits(&without(&base, &fresh)) {
            return Vec::new();
        }
        let sets: Vec<Vec<Guest>> = match (ask.fits_host(&base), ask.gpu_count()) {
            // Somebody's CPU or memory is needed, which anybody may have.
            (false, _) | (true, 0) => [fresh].to_vec(),
            // What is lacking is lacking on one GPU.
            (true, 1) if !ask.fits(&base) => {
                let tenants = |gpu| {
                    fresh
                        .iter()
                        .filter(|guest| held(gpu, guest.workload).is_some())
                        .cloned()
                        .collect()
                };
                base.gpus().iter().map(tenants).collect()
            }
            (true, _) => {
                fresh.retain(|guest| span(&base, guest) > 0);
                [fresh].to_vec()
            }
        };
        let pot = |fresh| Self {
            site,
            base: Rc::clone(&base),
            fresh,
            leaving: leaving.clone(),
            least: 0,
        };
        let mut pots: Vec<Self> = sets.into_iter().map(pot).collect();
        pots.retain_mut(|pot| pot.bound(ask));
        pots
    }

    /// Finds out how many it takes at least; false if all are too few.
    fn bound(&mut self, ask: &mut Ask<'_>) -> bool {
        if ask.fits(&self.base) {
            return true;
        }
        if !ask.fits(&without(&self.base, &self.fresh)) {
            return false;
        }
        let mut count = self.least_for_gpus(ask);
        while count < self.fresh.len() && !ask.fits(&without(&self.base, &self.strongest(count))) {
            count += 1;
        }
        let mut each: Vec<u64> = self.fresh.iter().map(|guest| u64::from(guest.members)).collect();
        each.sort_unstable();
        self.least = each.iter().take(count).sum();
        true
    }

    /// Every GPU that is lacking takes a tenant of it, and one guest frees no more than it sits on.
    fn least_for_gpus(&self, ask: &Ask<'_>) -> usize {
        let mut spans: Vec<usize> =
            self.fresh.iter().map(|guest| span(&self.base, guest)).collect();
        spans.sort_unstable_by(|one, other| other.cmp(one));
        let mut lacking = ask.lacking(&self.base);
        let needed = spans.iter().take_while(|span| {
            let more = lacking > 0;
            lacking = lacking.saturating_sub(**span);
            more
        });
        needed.count().max(1)
    }

    /// Guests that together free no less of anything than any `count` of them: where they do not
    /// suffice, no `count` of them do.
    fn strongest(&self, count: usize) -> Vec<Guest> {
        let mut found = BTreeSet::new();
        let mut take = |count: usize, amount: &dyn Fn(WorkloadId) -> Option<u64>| {
            let all = self.fresh.iter().enumerate();
            let all = all.filter_map(|(at, guest)| Some((amount(guest.workload)?, at)));
            let mut all: Vec<(u64, usize)> = all.collect();
            all.sort_unstable_by(|one, other| other.cmp(one));
            found.extend(all.into_iter().take(count).map(|(_, at)| at));
        };
        let on_host = |id| self.base.residents().iter().filter(move |r| r.workload == id);
        take(count, &|id| Some(on_host(id).map(|r| r.cpu_milli).fold(0, u64::saturating_add)));
        take(count, &|id| Some(on_host(id).map(|r| r.memory_mib).fold(0, u64::saturating_add)));
        for gpu in self.base.gpus() {
            // Where an instance sits counts for more than its size.
            let count = if gpu.mode() == SharingMode::Mig { usize::MAX } else { count };
            take(count, &|id| Some(held(gpu, id)?.0));
            take(count, &|id| Some(held(gpu, id)?.1));
        }
        found.into_iter().map(|at| self.fresh[at].clone()).collect()
    }

    /// The cheapest set with so many members of guests that would have stayed, if it is cheaper than
    /// the best so far.
    fn cheapest(
        &self,
        members: u64,
        ask: &mut Ask<'_>,
        tries: &mut u32,
        best: &mut Option<(Cost, Choice)>,
    ) {
        let mut rest = *tries;
        subsets(&self.fresh, members, &mut Vec::new(), tries, &mut |fresh| {
            let cheap = best.as_ref().is_none_or(|(known, _)| self.cost(fresh) < *known);
            if cheap && ask.fits(&without(&self.base, fresh)) {
                // All that leave anyway will do; fewer may.
                self.note([fresh, &self.leaving[..]].concat(), best);
                self.complete(fresh, ask, &mut rest, best);
            }
        });
        *tries = (*tries).min(rest);
    }

    /// The fewest of those that leave anyway, as early as can be, that it takes beside those that would
    /// have stayed.
    fn complete(
        &self,
        fresh: &[Guest],
        ask: &mut Ask<'_>,
        tries: &mut u32,
        best: &mut Option<(Cost, Choice)>,
    ) {
        let node = without(self.site.node, fresh);
        let known_ms = fresh.iter().map(|guest| guest.by_ms).max().unwrap_or(0);
        let mut early = self.leaving.clone();
        early.sort_by_key(|guest| guest.by_ms);
        while let Some(last) = early.pop_if(|last| last.by_ms > known_ms) {
            if !ask.fits(&without(&node, &early)) {
                let late = self.leaving.iter().filter(|guest| guest.by_ms == last.by_ms);
                early.retain(|guest| guest.by_ms < last.by_ms);
                early.extend(late.cloned());
                early.sort_unstable();
                break;
            }
        }
        let mut found = false;
        for members in 0..=weight(&early) {
            subsets(&early, members, &mut Vec::new(), tries, &mut |gone| {
                if ask.fits(&without(&node, gone)) {
                    self.note([fresh, gone].concat(), best);
                    found = true;
                }
            });
            if found {
                return;
            }
        }
    }

    /// Remembers a set if it is the cheapest so far.
    fn note(&self, set: Vec<Guest>, best: &mut Option<(Cost, Choice)>) {
        let cost = self.cost(&set);
        if best.as_ref().is_none_or(|(known, _)| cost < *known) {
            *best = Some((cost, self.choice(&set)));
        }
    }

    /// A set from which nobody can be left out: all, and back in comes whoever can stay, the most
    /// important first.
    fn without_spares(&self, ask: &mut Ask<'_>) -> (Cost, Choice) {
        let mut gone: Vec<Guest> = [&self.leaving[..], &self.fresh[..]].concat();
        for at in (0..gone.len()).rev() {
            let guest = gone.remove(at);
            if !ask.fits(&without(self.site.node, &gone)) {
                gone.insert(at, guest);
            }
        }
        (self.cost(&gone), self.choice(&gone))
    }

    fn cost(&self, set: &[Guest]) -> Cost {
        let of = |leaving: bool| {
            let those = set.iter().filter(move |guest| guest.leaving == leaving);
            those.map(|guest| u64::from(guest.members)).sum()
        };
        Cost {
            fresh: of(false),
            by_ms: set.iter().map(|guest| guest.by_ms).max().unwrap_or(0),
            leaving: of(true),
            priority: set.iter().map(|guest| guest.priority).max().unwrap_or(i32::MIN),
            lost_ms: set.iter().map(|guest| guest.lost_ms).fold(0, u64::saturating_add),
        }
    }

    fn choice(&self, set: &[Guest]) -> Choice {
        Choice { node: self.site.id, victims: set.iter().map(|guest| guest.workload).collect() }
    }
}

/// Calls `look` with every set of guests that have so many members together, the first guests first,
/// as long as there are tries.
fn subsets(
    guests: &[Guest],
    members: u64,
    chosen: &mut Vec<Guest>,
    tries: &mut u32,
    look: &mut dyn FnMut(&[Guest]),
) {
    if *tries == 0 {
        return;
    }
    *tries -= 1;
    if members == 0 {
        return look(chosen);
    }
    for (at, guest) in guests.iter().enumerate() {
        let later = &guests[at + 1..];
        let own = u64::from(guest.members);
        if own <= members && members - own <= weight(later) {
            chosen.push(guest.clone());
            subsets(later, members - own, chosen, tries, look);
            chosen.pop();
        }
    }
}

fn weight(guests: &[Guest]) -> u64 {
    guests.iter().map(|guest| u64::from(guest.members)).sum()
}

fn without(node: &Node, guests: &[Guest]) -> Node {
    let mut node = node.clone();
    guests.iter().for_each(|guest| node.release(guest.workload));
    node
}

/// GPUs of the node that a guest sits on.
fn span(node: &Node, guest: &Guest) -> usize {
    node.gpus().iter().filter(|gpu| held(gpu, guest.workload).is_some()).count()
}

/// Thousandths of compute and MiB that a workload keeps from others on a GPU, if it sits there.
fn held(gpu: &Gpu, id: WorkloadId) -> Option<(u64, u64)> {
    let shares = gpu.tenants().iter().filter(|tenant| tenant.workload.id == id);
    let amounts = shares.map(|tenant| match tenant.share {
        Share::Exclusive => (1000, u64::MAX),
        Share::Mps { compute_milli, memory_mib }
        | Share::MemoryCapped { compute_milli, memory_mib } => (compute_milli.into(), memory_mib),
        Share::TimeSlice { memory_mib } => (0, memory_mib),
        Share::Mig { .. } => (0, 0),
    });
    amounts.reduce(|sum, next| (sum.0 + next.0, sum.1.saturating_add(next.1)))
}
