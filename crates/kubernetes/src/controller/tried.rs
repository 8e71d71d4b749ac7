//! Which nodes the scheduler has handed pods back from: what stands in the way there we do not see, so others come first. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// How long a node is passed over for a pod: first, and at most.
const FIRST_MS: u64 = 10_000;
const MOST_MS: u64 = 300_000;

/// Nodes that pods have been given, by the pods' UIDs.
#[derive(Debug, Default)]
pub struct Tried(BTreeMap<String, BTreeMap<String, Try>>);

#[derive(Clone, Copy, Debug)]
struct Try {
    times: u32,
    until_ms: u64,
}

impl Tried {
    /// A pod has been given a node.
    pub fn note(&mut self, pod: &str, node: &str, now_ms: u64) {
        let one = self
            .0
            .entry(pod.to_owned())
            .or_default()
            .entry(node.to_owned())
            .or_insert(Try { times: 0, until_ms: 0 });
        let pause_ms = FIRST_MS.saturating_mul(1 << one.times.min(5)).min(MOST_MS);
        *one =
            Try { times: one.times.saturating_add(1), until_ms: now_ms.saturating_add(pause_ms) };
    }

    /// The nodes that are passed over for a pod that has been handed back.
    pub fn passed_over(&self, pod: &str, now_ms: u64) -> BTreeSet<String> {
        let nodes = self.0.get(pod).into_iter().flatten();
        nodes.filter(|(_, one)| one.until_ms > now_ms).map(|(node, _)| node.clone()).collect()
    }

    /// Forgets pods that are gone.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|pod, _| is_there(pod));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_passed_over_for_longer_each_time_and_forgotten_with_the_pod() {
        let mut tried = Tried::default();
        tried.note("pod", "n1", 0);
        assert_eq!(tried.passed_over("pod", 9_999), BTreeSet::from(["n1".to_owned()]));
        assert!(tried.passed_over("pod", 10_000).is_empty());
        assert!(tried.passed_over("other", 0).is_empty());
        (0..40).for_each(|_| tried.note("pod", "n1", 0));
        assert!(!tried.passed_over("pod", 299_999).is_empty());
        assert!(tried.passed_over("pod", 300_000).is_empty());
        tried.keep(|_| false);
        assert!(tried.passed_over("pod", 0).is_empty());
    }
}
