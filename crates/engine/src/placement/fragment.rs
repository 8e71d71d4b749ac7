//! Fragmentation: how much idle GPU the expected mix of workloads could not use.
//!
//! Source: Weng et al., "Beware of Fragmentation", USENIX ATC'23, section 4. Generalised in one
//! point: a GPU whose model a shape does not accept counts as unusable by it, so that nodes may
//! carry several models. The order of additions is part of the definition: published scores are
//! cut to integers, and a different rounding moves whole placements.

use alloc::vec;
use alloc::vec::Vec;

use model::{Fleet, MixShape, Node, NodeId};

/// The expected mix, made ready for a fleet.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    shapes: Vec<Shape>,
    /// By model id and shape: thousandths of each GPU; `None` if the model will not do.
    needs: Vec<Vec<Option<u32>>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) cpu_milli: u64,
    pub(crate) gpu_count: u32,
    pub(crate) weight: f64,
}

/// What a node's GPUs offer one shape.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offer {
    /// Whether some GPU is of an accepted model.
    pub(crate) accepted: bool,
    /// GPUs with enough left for one share.
    pub(crate) fitting: u32,
    /// Thousandths left on the other GPUs.
    pub(crate) unfit_milli: u32,
}

/// One GPU as the metric sees it: model id and thousandths left.
type Left = (u16, u32);

impl Mix {
    /// Prepares a mix for the GPU models of a fleet.
    pub fn new(shapes: &[MixShape], fleet: &Fleet) -> Self {
        let mut needs: Vec<Vec<Option<u32>>> = Vec::new();
        for gpu in fleet.nodes().iter().flat_map(|node| node.gpus()) {
            let id = usize::from(gpu.model().id.0);
            if needs.len() <= id {
                needs.resize(id + 1, Vec::new());
            }
            if needs[id].is_empty() {
                let model = gpu.model();
                let need = |shape: &MixShape| {
                    let accepted = shape.gpu_count > 0 && shape.accepts.accepts(&model.name);
                    accepted.then(|| shape.each.milli_on(model)).flatten()
                };
                needs[id] = shapes.iter().map(need).collect();
            }
        }
        let plain = |shape: &MixShape| Shape {
            cpu_milli: shape.cpu_milli,
            gpu_count: shape.gpu_count,
            weight: shape.weight,
        };
        Self { shapes: shapes.iter().map(plain).collect(), needs }
    }

    /// Thousandths of GPU that are idle on the node and, weighed by the mix, unusable.
    pub fn fragmented_milli(&self, node: &Node) -> f64 {
        let left = lefts(node);
        let offers: Vec<Offer> = (0..self.shapes.len()).map(|at| self.offer(at, &left)).collect();
        self.amount(node.cpu_free_milli(), total(&left), |at| offers[at])
    }

    /// Thousandths that the shape at a position needs of each GPU of the model; `None` if the model
    /// will not do.
    pub(crate) fn need_milli(&self, model: u16, shape: usize) -> Option<u32> {
        self.needs.get(usize::from(model))?.get(shape).copied().flatten()
    }

    /// What GPUs offer the shape at a position of the mix.
    pub(crate) fn offer(&self, shape: usize, left: &[Left]) -> Offer {
        let mut offer = Offer::default();
        for (model, left_milli) in left {
            let need = self.need_milli(*model, shape);
            offer.accepted |= need.is_some();
            if need.is_some_and(|need| *left_milli >= need) {
                offer.fitting += 1;
            } else {
                offer.unfit_milli += left_milli;
            }
        }
        offer
    }

    /// The metric for a node with the given vCPUs and GPU left; offers come by shape.
    pub(crate) fn amount(
        &self,
        cpu_milli: u64,
        total_milli: u64,
        offer: impl Fn(usize) -> Offer,
    ) -> f64 {
        let total = total_milli as f64;
        let (mut lacks_both, mut lacks_gpu, mut lacks_cpu) = (0.0, 0.0, 0.0);
        let (mut cpu_only_fits, mut cpu_only_waits, mut wrong_model) = (0.0, 0.0, 0.0);
        for (at, shape) in self.shapes.iter().enumerate() {
            let cpu = cpu_milli >= shape.cpu_milli;
            let whole = shape.weight * total;
            if shape.gpu_count == 0 {
                *(if cpu { &mut cpu_only_fits } else { &mut cpu_only_waits }) += whole;
                continue;
            }
            let offer = offer(at);
            if !offer.accepted {
                wrong_model += whole;
                continue;
            }
            match (offer.fitting >= shape.gpu_count, cpu) {
                (true, true) => lacks_gpu += shape.weight * f64::from(offer.unfit_milli),
                (true, false) => lacks_cpu += whole,
                (false, true) => lacks_gpu += whole,
                (false, false) => lacks_both += whole,
            }
        }
        lacks_both + lacks_gpu + lacks_cpu + cpu_only_fits + cpu_only_waits + wrong_model
    }
}

/// A node's standing under the mix before anything is placed, kept until the node changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stand {
    fingerprint: Option<u64>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) total_milli: u64,
    pub(crate) amount: f64,
}

/// Standings by node.
#[derive(Debug, Default)]
pub(crate) struct Stands(Vec<Stand>);

impl Stands {
    /// The node's standing, computed anew if the node has changed since it was last asked for.
    pub(crate) fn of(&mut self, id: NodeId, node: &Node, mix: &Mix) -> &Stand {
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, Stand::default());
        }
        let stand = &mut self.0[id.index()];
        if stand.fingerprint != Some(node.fingerprint()) {
            let left = lefts(node);
            stand.fingerprint = Some(node.fingerprint());
            stand.offers.clear();
            stand.offers.extend((0..mix.shapes.len()).map(|at| mix.offer(at, &left)));
            stand.total_milli = total(&left);
            let offers = &stand.offers;
            stand.amount = mix.amount(node.cpu_free_milli(), stand.total_milli, |at| offers[at]);
        }
        stand
    }
}

impl Stand {
    /// The offer to a shape after one GPU goes from `before` to `after` thousandths.
    pub(crate) fn offer_after(
        &self,
        mix: &Mix,
        shape: usize,
        model: u16,
        (before, after): (u32, u32),
    ) -> Offer {
        let mut offer = self.offers[shape];
        let need = mix.need_milli(model, shape);
        if need.is_some_and(|need| before >= need) {
            offer.fitting -= 1;
        } else {
            offer.unfit_milli -= before;
        }
        if need.is_some_and(|need| after >= need) {
            offer.fitting += 1;
        } else {
            offer.unfit_milli += after;
        }
        offer
    }
}

/// Model and thousandths left of each GPU of a node.
pub(crate) fn lefts(node: &Node) -> Vec<Left> {
    node.gpus().iter().map(|gpu| (gpu.model().id.0, gpu.free_milli())).collect()
}

fn total(left: &[Left]) -> u64 {
    left.iter().map(|(_, milli)| u64::from(*milli)).sum()
}

/// Offers to all shapes when several GPUs change at once.
pub(crate) fn offers_of(mix: &Mix, left: &[Left]) -> Vec<Offer> {
    let mut offers = vec![Offer::default(); mix.shapes.len()];
    for (at, offer) in offers.iter_mut().enumerate() {
        *offer = mix.offer(at, left);
    }
    offers
}
