//! Our own policy: sit where the fleet loses least of what the expected mix could still make of it.
//!
//! A node is worth the GPU compute that workloads of the expected mix will still find room for on
//! it. For one GPU with some compute left that is a recursion over the mix: the next workload that
//! fits takes its part, and the rest is worth what the rest is worth. The node's sum is cut where
//! its vCPUs will run out first. A seat costs the worth that it destroys beyond what it uses; on GPU
//! models that few workloads can do without, use is cheap, on sought-after ones it is dear.
//! `docs/policy.md` explains the terms and shows what each is good for.

use alloc::vec;
use alloc::vec::Vec;

use model::{Fleet, HotpotTerms, MixShape, Node};

use super::Candidate;
use super::fragment::Mix;

/// Part of the vCPUs of the best-equipped node that a largest block needs.
const BLOCK_CPU: f64 = 0.9;
/// Part of a node's vCPUs that its idle GPUs may count on.
const CPU_PART: f64 = 0.95;

/// What the mix promises on each kind of GPU.
#[derive(Default)]
pub(crate) struct Outlook {
    terms: HotpotTerms,
    models: Vec<ModelOutlook>,
    wide: Vec<Wide>,
    block: Block,
}

/// By thousandths left on a GPU of one model, 0 to 1000.
#[derive(Clone, Default)]
struct ModelOutlook {
    /// GPUs that the mix is expected to use of them.
    gpus: Vec<f64>,
    /// Thousandths of vCPU that it is expected to need for that.
    cpu_milli: Vec<f64>,
    /// Demand for the model per GPU of it, over that of the whole fleet, less 1.
    scarcity: f64,
    /// Worth of an idle GPU beyond that of its compute.
    idle: f64,
}

/// A workload of several GPUs.
struct Wide {
    shape: usize,
    gpu_count: u64,
    cpu_milli: u64,
    weight: f64,
}

/// The fleet's largest node, as a block that one workload may ask for.
#[derive(Default)]
struct Block {
    gpu_count: u64,
    cpu_milli: u64,
    worth: f64,
}

impl Outlook {
    /// The outlook of a fleet under a mix; `shapes` are those that `mix` was prepared from.
    pub(crate) fn new(terms: HotpotTerms, shapes: &[MixShape], mix: &Mix, fleet: &Fleet) -> Self {
        let doubt = of_milli(terms.doubt_milli);
        let supply = supply(fleet);
        let scarcity = scarcity(shapes, mix, &supply);
        let models = (0..=u16::MAX)
            .zip(scarcity)
            .map(|(model, scarcity)| ModelOutlook {
                scarcity,
                ..recursion(doubt, shapes, mix, model)
            })
            .collect();
        let several = |(_, shape): &(usize, &MixShape)| shape.gpu_count > 1;
        let wide = |(at, shape): (usize, &MixShape)| Wide {
            shape: at,
            gpu_count: u64::from(shape.gpu_count),
            cpu_milli: shape.cpu_milli,
            weight: of_milli(terms.wide_milli) * shape.weight * f64::from(shape.gpu_count),
        };
        let wide = shapes.iter().enumerate().filter(several).map(wide).collect();
        Self { terms, models, wide, block: Block::of(terms, fleet) }
    }

    /// GPUs that a seat uses, less the worth that it takes from the node, in steps. Seats that differ
    /// by less than a step are equal; then the fuller GPU and the first node of the fleet are
    /// filled first, which keeps others empty.
    ///
    /// * `lost` — what is lost of it beside others, in GPUs.
    pub(crate) fn score(&self, mix: &Mix, candidate: &Candidate<'_>, lost: f64) -> i64 {
        let node = candidate.node;
        let used = candidate.taken_milli() as f64 / 1000.0;
        let left = |index: usize| candidate.node.gpus()[index].free_milli();
        let left_after = |index: usize| {
            let pick = candidate.picks.iter().find(|pick| usize::from(pick.gpu) == index);
            pick.map_or_else(|| left(index), |pick| pick.left_after_milli)
        };
        let before = self.worth(mix, node, node.cpu_free_milli(), left);
        let after = self.worth(mix, node, candidate.cpu_after_milli(), left_after);
        let scarcity: f64 = candidate
            .picks
            .iter()
            .map(|pick| {
                let taken = f64::from(pick.left_milli - pick.left_after_milli) / 1000.0;
                self.model(node, usize::from(pick.gpu)).map_or(0.0, |m| m.scarcity * taken)
            })
            .sum();
        let charge = of_milli(self.terms.scarcity_milli) * scarcity;
        let gain = used - (before - after) - charge - lost;
        libm::floor(gain / of_milli(self.terms.step_milli.max(1)) + 0.5) as i64
    }

    /// What a node is worth, in GPUs, with the given vCPUs and thousandths left on each GPU.
    fn worth(&self, mix: &Mix, node: &Node, cpu_milli: u64, left: impl Fn(usize) -> u32) -> f64 {
        let (mut gpus, mut needed, mut needed_idle, mut idle, mut bonus) = (0.0, 0.0, 0.0, 0, 0.0);
        for index in 0..node.gpus().len() {
            let Some(model) = self.model(node, index) else { continue };
            let milli = (left(index) as usize).min(1000);
            gpus += model.gpus[milli];
            needed += model.cpu_milli[milli];
            needed_idle += model.cpu_milli[1000];
            idle += u64::from(milli == 1000);
            bonus += if milli == 1000 { model.idle } else { 0.0 };
        }
        let margin = CPU_PART * node.cpu_milli() as f64 / f64::max(needed_idle, 1e-9);
        let needed = margin.min(of_milli(self.terms.cpu_margin_max_milli)) * needed;
        let mut worth =
            if needed > cpu_milli as f64 { gpus * (cpu_milli as f64 / needed) } else { gpus };
        worth += bonus;
        for wide in self.wide.iter().filter(|wide| cpu_milli >= wide.cpu_milli) {
            let able = |index: &usize| {
                let model = node.gpus()[*index].model().id.0;
                left(*index) == 1000 && mix.need_milli(model, wide.shape).is_some()
            };
            let able = (0..node.gpus().len()).filter(able).count() as u64;
            let by_cpu = cpu_milli / wide.cpu_milli.max(1);
            let copies = (able / wide.gpu_count).min(by_cpu);
            worth += wide.weight * (wide.gpu_count * copies) as f64;
        }
        if idle >= self.block.gpu_count && cpu_milli >= self.block.cpu_milli {
            worth += self.block.worth;
        }
        worth
    }

    fn model(&self, node: &Node, gpu: usize) -> Option<&ModelOutlook> {
        self.models.get(usize::from(node.gpus().get(gpu)?.model().id.0))
    }
}

impl Block {
    fn of(terms: HotpotTerms, fleet: &Fleet) -> Self {
        let count = |node: &Node| node.gpus().len() as u64;
        let gpu_count = fleet.nodes().iter().map(count).max().unwrap_or(0);
        let largest = || fleet.nodes().iter().filter(|node| count(node) == gpu_count);
        let cpu_most = largest().map(Node::cpu_milli).max().unwrap_or(0);
        let cpu_milli = (BLOCK_CPU * cpu_most as f64) as u64;
        let able = largest().filter(|node| node.cpu_milli() >= cpu_milli).map(count).sum::<u64>();
        let share = able as f64 / fleet.gpu_count().max(1) as f64;
        Self {
            gpu_count,
            cpu_milli,
            worth: if gpu_count > 0 { of_milli(terms.block_milli) * (1.0 - share) } else { 0.0 },
        }
    }
}

/// GPUs of the fleet by model id.
fn supply(fleet: &Fleet) -> Vec<f64> {
    let mut supply = Vec::new();
    for gpu in fleet.nodes().iter().flat_map(Node::gpus) {
        let id = usize::from(gpu.model().id.0);
        if supply.len() <= id {
            supply.resize(id + 1, 0.0);
        }
        supply[id] += 1.0;
    }
    supply
}

/// Demand per GPU of each model over that of the fleet, less 1: each shape asks of the models that
/// it accepts in proportion to their GPUs.
fn scarcity(shapes: &[MixShape], mix: &Mix, supply: &[f64]) -> Vec<f64> {
    let mut per_gpu = vec![0.0; supply.len()];
    for (at, shape) in shapes.iter().enumerate() {
        let needs =
            (0..=u16::MAX).zip(supply).map(|(model, gpus)| (mix.need_milli(model, at), *gpus));
        let needs: Vec<(Option<u32>, f64)> = needs.collect();
        let able = needs.iter().filter(|(need, _)| need.is_some());
        let offered: f64 = able.map(|(_, gpus)| gpus).sum();
        for (model, (need, _)) in needs.iter().enumerate() {
            let asked = shape.weight * f64::from(shape.gpu_count) * f64::from(need.unwrap_or(0));
            per_gpu[model] += if offered > 0.0 { asked / offered } else { 0.0 };
        }
    }
    let demand: f64 = per_gpu.iter().zip(supply).map(|(milli, gpus)| milli * gpus).sum();
    let all: f64 = supply.iter().sum();
    // Rounded, so that models which nobody prefers come out at 0 and not at a rounding error.
    let relative = |milli: f64| libm::round((milli * all / demand - 1.0) * 1e9) / 1e9;
    per_gpu.into_iter().map(|milli| if demand > 0.0 { relative(milli) } else { 0.0 }).collect()
}

/// `gpus[r]` is the mean over the shapes that fit into `r` of what the shape uses plus `gpus` of
/// what it leaves; a shape counts by its weight and GPUs over its size, for small ones come and go
/// more often per GPU of demand. `doubt` is the weight of the case that nothing comes.
fn recursion(doubt: f64, shapes: &[MixShape], mix: &Mix, model: u16) -> ModelOutlook {
    let (mut gpus, mut cpu_milli) = (vec![0.0; 1001], vec![0.0; 1001]);
    for left in 1..=1000usize {
        let (mut used, mut needed, mut weights) = (0.0, 0.0, 0.0);
        for (at, shape) in shapes.iter().enumerate() {
            let size = mix.need_milli(model, at).unwrap_or(0) as usize;
            if size == 0 || size > left {
                continue;
            }
            let part = size as f64 / 1000.0;
            let count = f64::from(shape.gpu_count);
            let weight = shape.weight * count / part;
            weights += weight;
            used += weight * (part + gpus[left - size]);
            needed += weight * (shape.cpu_milli as f64 / count + cpu_milli[left - size]);
        }
        if weights > 0.0 {
            gpus[left] = used / (weights + doubt);
            cpu_milli[left] = needed / (weights + doubt);
        }
    }
    let idle = idle_worth(shapes, mix, model, &gpus);
    ModelOutlook { gpus, cpu_milli, scarcity: 0.0, idle }
}

/// What an idle GPU must be worth beyond its compute so that no shape is better off breaking it than
/// sitting down on one in use. Doubt alone would have it so where nobody asks for whole GPUs: what
/// is left of an idle one is the larger promise, hence the better hedged. Then GPUs would fill side
/// by side, and none be left for whoever is not in the mix.
fn idle_worth(shapes: &[MixShape], mix: &Mix, model: u16, gpus: &[f64]) -> f64 {
    let sizes = (0..shapes.len()).filter_map(|at| mix.need_milli(model, at));
    let gap = |size: u32| {
        let size = (size as usize).min(1000);
        (1..=1000 / size.max(1))
            .map(|pieces| gpus[pieces * size] - gpus[(pieces - 1) * size])
            .fold(0.0, f64::max)
            - (gpus[1000] - gpus[1000 - size])
    };
    sizes.filter(|size| *size > 0).map(gap).fold(0.0, f64::max)
}

fn of_milli(milli: u32) -> f64 {
    f64::from(milli) / 1000.0
}
