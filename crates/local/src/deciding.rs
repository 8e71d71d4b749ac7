//! What is to start now: dependencies first, then the engine's plan.

use std::collections::BTreeMap;

use model::{Plan, Refusal};
use nix::sys::signal::Signal;

use crate::runner::Runner;
use crate::task::Ending;

impl Runner<'_> {
    /// Lets tasks into the queue whose dependencies are met, and ends those whose cannot be; the end
    /// of one may be news to the next.
    pub(crate) fn release_held(&mut self) {
        loop {
            let (free, never) = self.work.released();
            for id in free {
                self.work.wait(id, self.snapshot.now_ms);
                self.snapshot.submit(self.work.workload(id).clone());
                self.dirty = true;
            }
            if never.is_empty() {
                return;
            }
            never.into_iter().for_each(|id| self.conclude(id, Ending::DependencyNever));
        }
    }

    /// Decides what to start, and makes it so.
    pub(crate) fn plan_and_start(&mut self) {
        self.dirty = false;
        let plan = self.planner.plan(&self.snapshot);
        let broken = engine::check(&self.snapshot, &plan, self.planner.policy());
        if let Some(first) = broken.first() {
            self.watch.told(&format!("a plan breaks the rules: {first}; please report this"));
            return self.stop(Signal::SIGTERM);
        }
        self.refuse_for_good(&plan);
        self.carry_out(&plan);
    }

    fn gpus_aside(&self) -> usize {
        let nodes = self.snapshot.fleet().nodes().iter();
        nodes.flat_map(model::Node::gpus).filter(|gpu| gpu.is_set_aside()).count()
    }

    /// Ends tasks that can never run here, and remembers why most of the others wait.
    fn refuse_for_good(&mut self, plan: &Plan) {
        let mut reasons: BTreeMap<&str, (usize, &Refusal)> = BTreeMap::new();
        let nothing_runs = self.live.is_empty() && plan.steps.is_empty();
        let aside = self.gpus_aside();
        if aside > 0 {
            // What is refused now might fit on a GPU that comes back.
            if nothing_runs && !plan.waiting.is_empty() {
                self.is_stranded = true;
                self.watch.told(&format!("{aside} GPUs are set aside: the rest cannot be started"));
            }
            return;
        }
        for (id, refusal) in &plan.waiting {
            // With nothing running and nothing to start, waiting would be for ever.
            if refusal.is_never() || nothing_runs {
                let text = refusal.to_string();
                let why = text.strip_prefix("can never run here: ").unwrap_or(&text).to_string();
                self.conclude(id.0 as usize, Ending::NeverFits(why));
                self.dirty = true;
            } else {
                reasons.entry(refusal.kind()).or_insert((0, refusal)).0 += 1;
            }
        }
        let most = reasons.values().max_by_key(|(count, _)| *count);
        self.reason = most.map(|(_, refusal)| refusal.to_string());
    }
}
