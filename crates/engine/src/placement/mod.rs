//! Which of several possible seats is best: one closed set of policies behind one call.
//!
//! A score is an integer, higher is better, and equal scores go to the node that stands first in
//! the fleet. Scores of one policy are comparable for one demand only.

mod beside;
mod candidate;
mod fgd;
pub mod fragment;
mod hotpot;
mod mig;
mod packing;
mod weighted;

use alloc::vec::Vec;
use core::cmp::Reverse;

use model::{
    Beside, Class, Demand, Fleet, Gpu, GpuAsk, MixShape, Node, NodeId, Placement, Policy, Refusal,
    Share, SharingMode, Workload,
};

use crate::fit::{self, Pick};
use crate::interference::Company;
use beside::Neighbourhood;
pub(crate) use candidate::{Candidate, Key, Nature};
use fragment::{Mix, Stands};
use hotpot::Outlook;

/// A policy made ready for one fleet.
pub(crate) struct Scorer {
    placement: Placement,
    modes: Vec<SharingMode>,
    mix: Mix,
    stands: Stands,
    outlook: Outlook,
    neighbourhood: Neighbourhood,
    options: Vec<Pick>,
}

impl Scorer {
    /// * `observed` — the mix where the policy brings none.
    /// * `company` — what is remembered of pairs of tenants.
    pub(crate) fn new(
        policy: &Policy,
        observed: &[MixShape],
        fleet: &Fleet,
        company: Company,
    ) -> Self {
        let mix = if policy.mix.is_empty() { observed } else { &policy.mix };
        let prepared = Mix::new(mix, fleet);
        let ours = policy.placement == Placement::Hotpot;
        let outlook = ours.then(|| Outlook::new(policy.hotpot, mix, &prepared, fleet));
        Self {
            placement: policy.placement.clone(),
            modes: policy.modes.clone(),
            mix: prepared,
            stands: Stands::default(),
            outlook: outlook.unwrap_or_default(),
            neighbourhood: Neighbourhood::new(policy, company),
            options: Vec::new(),
        }
    }

    /// The best seat on one node: its score, with the shares left in `picks` by GPU index; or what
    /// the node lacks.
    pub(crate) fn seat(
        &mut self,
        id: NodeId,
        node: &Node,
        key: &Key,
        picks: &mut Vec<Pick>,
    ) -> Result<i64, Refusal> {
        let mut options = core::mem::take(&mut self.options);
        let found = self.options(node, key, &mut options);
        let score = found.map(|()| self.choose(id, node, key, &options, picks));
        self.options = options;
        score
    }

    /// Every share that the GPUs of a node could grant and all there could bear; see [`fit::options`].
    pub(crate) fn options(
        &self,
        node: &Node,
        key: &Key,
        options: &mut Vec<Pick>,
    ) -> Result<(), Refusal> {
        fit::options(node, &key.demand, &self.modes, options)?;
        let Err(refusal) = self.neighbourhood.retain_bearable(node, key, options) else {
            return Ok(());
        };
        fit::enough(&key.demand, options.len(), Some(refusal))
    }

    /// Whom seats are beside, where the policy minds that.
    pub(crate) fn beside(&self, node: &Node, key: &Key, picks: &[Pick]) -> Option<Beside> {
        self.neighbourhood.beside(node, key, picks)
    }

    /// What is remembered of pairs of tenants, for the next that is made.
    pub(crate) fn into_company(self) -> Company {
        self.neighbourhood.into_company()
    }

    /// GPUs of a node that could each grant a share, its CPU and memory left aside.
    pub(crate) fn able_gpus(&self, node: &Node, key: &Key) -> usize {
        (0..=u8::MAX)
            .zip(node.gpus())
            .filter(|(at, gpu)| self.on_gpu(*at, gpu, key).is_ok())
            .count()
    }

    /// The share that one GPU could grant and all there could bear, the node's CPU and memory left aside.
    pub(crate) fn on_gpu(&self, index: u8, gpu: &Gpu, key: &Key) -> Result<Share, Refusal> {
        let Some(gpus) = &key.demand.gpus else {
            return Err(Refusal::GpuCount { asked: 0, offered: 0, because: None });
        };
        let pick = fit::pick(index, gpu, gpus, gpus.accepts.first(), &self.modes)?;
        self.neighbourhood.bears(gpu, key, &pick)?;
        Ok(pick.share)
    }

    fn choose(
        &mut self,
        id: NodeId,
        node: &Node,
        key: &Key,
        options: &[Pick],
        picks: &mut Vec<Pick>,
    ) -> i64 {
        let demand = &key.demand;
        picks.clear();
        let count = demand.gpu_count();
        let whole = demand.gpus.as_ref().is_none_or(|gpus| gpus.each == GpuAsk::Whole);
        if count != 1 || whole || !self.weighs_gpus() {
            picks.extend_from_slice(options);
            if !whole {
                self.rank(id, node, key, picks);
            }
            picks.truncate(count);
            picks.sort_by_key(|pick| pick.gpu);
            return self.score(id, &Candidate { node, key, picks });
        }
        let mut best = i64::MIN;
        for (at, option) in options.iter().enumerate() {
            if options[..at].iter().any(|earlier| same_kind(earlier, option, node)) {
                continue;
            }
            let alone = core::slice::from_ref(option);
            let score = self.score(id, &Candidate { node, key, picks: alone });
            let fuller = picks.first().is_none_or(|seen| option.left_milli < seen.left_milli);
            if score > best || (score == best && fuller && self.placement == Placement::Hotpot) {
                best = score;
                picks.clear();
                picks.push(*option);
            }
        }
        best
    }

    /// Brings the GPUs for a workload that shares several of them into order: by their scores one by
    /// one, or the fullest first, as FGD's artifact has it.
    fn rank(&mut self, id: NodeId, node: &Node, key: &Key, picks: &mut [Pick]) {
        if self.weighs_gpus() && self.placement != Placement::Fgd {
            picks.sort_by_cached_key(|pick| {
                let alone = core::slice::from_ref(pick);
                Reverse(self.score(id, &Candidate { node, key, picks: alone }))
            });
        } else {
            picks.sort_by_key(|pick| pick.left_milli);
        }
    }

    /// The keys under which a workload is scored: one per alternative of GPU models, best first.
    pub(crate) fn keys(&self, workload: &Workload) -> Vec<Key> {
        let minds_class = matches!(self.placement, Placement::Weighted { .. });
        let class = if minds_class { workload.class } else { Class::Batch };
        let (class, nature) =
            self.neighbourhood.nature(workload).unwrap_or((class, Nature::default()));
        let demand = &workload.demand;
        let alternatives = demand.gpus.as_ref().map_or(0, |gpus| gpus.accepts.len());
        let only = |alternative: usize| {
            let mut demand = demand.clone();
            if let Some(gpus) = &mut demand.gpus {
                gpus.accepts = gpus.accepts.get(alternative).cloned().into_iter().collect();
            }
            Key { demand, class, nature: nature.clone() }
        };
        (0..alternatives.max(1)).map(only).collect()
    }

    /// Whether the policy scores each GPU of a node, or takes the fullest that fits.
    fn weighs_gpus(&self) -> bool {
        use Placement::{Fgd, Hotpot, Weighted};
        matches!(self.placement, Fgd | Hotpot | Weighted { .. })
    }

    fn score(&mut self, id: NodeId, candidate: &Candidate<'_>) -> i64 {
        match &self.placement {
            // The draw is made among the feasible nodes; see `Lottery`.
            Placement::Random { .. } => 0,
            Placement::DotProduct => packing::dot_product(candidate),
            Placement::GpuClustering => packing::gpu_clustering(candidate),
            Placement::GpuPacking => packing::gpu_packing(candidate),
            Placement::BestFit => packing::best_fit(candidate),
            Placement::Spread => packing::spread(candidate),
            Placement::Fgd => {
                fgd::score(&self.mix, self.stands.of(id, candidate.node, &self.mix), candidate)
            }
            Placement::Weighted { memory_weight_milli, affinity_weight_milli, affinity } => {
                weighted::score(candidate, *memory_weight_milli, *affinity_weight_milli, affinity)
            }
            Placement::Hotpot if asks_for_profile(&candidate.key.demand) => mig::score(candidate),
            Placement::Hotpot => {
                let lost = self.neighbourhood.lost(candidate.node, candidate.key, candidate.picks);
                self.outlook.score(&self.mix, candidate, lost)
            }
        }
    }
}

fn asks_for_profile(demand: &Demand) -> bool {
    demand.gpus.as_ref().is_some_and(|gpus| matches!(gpus.each, GpuAsk::Profile(_)))
}

/// Whether two GPUs would be left alike, so that scoring one of them is enough.
fn same_kind(one: &Pick, other: &Pick, node: &Node) -> bool {
    let gpu = |pick: &Pick| node.gpus().get(usize::from(pick.gpu));
    let idle = |pick: &Pick| gpu(pick).is_some_and(model::Gpu::is_idle);
    one.left_milli == other.left_milli
        && one.share == other.share
        && idle(one)
        && idle(other)
        && gpu(one).map(|gpu| gpu.model().id) == gpu(other).map(|gpu| gpu.model().id)
}
