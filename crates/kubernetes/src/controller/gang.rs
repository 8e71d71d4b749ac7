//! Gangs: pods that start together or not at all, by labels that a Job's or a StatefulSet's template carries. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use model::Workload;

use super::observation::{Key, node_of};
use super::stage::{Member, Stage};
use crate::names;

/// A pod with how far it has come.
type Staged = (Arc<Pod>, Stage);

/// All gangs, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Gangs(BTreeMap<Key, Gang>);

#[derive(Debug, Default)]
struct Gang {
    size: usize,
    pods: Vec<Staged>,
}

/// What becomes of a gang's pods.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Each is looked at by itself: the gang has started, or needs none of ours.
    Apart(Vec<Staged>),
    /// Not all can start: who waits is told why, and who was given devices gives them back.
    NotYet {
        /// Those who wait.
        waiting: Vec<Arc<Pod>>,
        /// Those who have been given devices.
        given: Vec<Arc<Pod>>,
        /// Why.
        why: String,
    },
    /// They are to be placed together.
    Together {
        /// Those who wait, with what each asks.
        members: Vec<Member>,
        /// What one of them is to the engine.
        workload: Box<Workload>,
        /// Those who have been given devices.
        given: Vec<Arc<Pod>>,
    },
}

/// The gang of a pod and its size; `None` if it is in none.
///
/// # Errors
/// The size is no number of pods.
pub(super) fn of(pod: &Pod) -> Result<Option<(Key, usize)>, String> {
    let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let Some(gang) = label(names::GANG) else { return Ok(None) };
    let size = label(names::GANG_SIZE).ok_or_else(|| {
        format!("label {}: how many pods are in gang {gang} must be said", names::GANG_SIZE)
    })?;
    let size = size.parse().ok().filter(|size| (1..=4096).contains(size));
    let size =
        size.ok_or_else(|| format!("label {}: must be a number, 1 to 4096", names::GANG_SIZE))?;
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    Ok(Some(((namespace, gang.clone()), size)))
}

impl Gangs {
    /// Adds a pod of a gang; the gang is as large as its largest pod says.
    pub(super) fn add(&mut self, (gang, size): (Key, usize), pod: Arc<Pod>, stage: Stage) {
        let gang = self.0.entry(gang).or_default();
        gang.size = gang.size.max(size);
        gang.pods.push((pod, stage));
    }

    /// What becomes of each gang.
    pub(super) fn verdicts(self) -> impl Iterator<Item = Verdict> {
        self.0.into_iter().flat_map(|((_, name), gang)| gang.verdicts(&name))
    }
}

impl Gang {
    /// Whoever has been let go is not called back. Pods that are over count for those of the same controller alone: the next run of a
    /// job may be a gang of the same name.
    fn has_started(&self) -> bool {
        let over = self.pods.iter().filter(|(_, stage)| matches!(stage, Stage::Over));
        let over: Vec<&str> = over.filter_map(|(pod, _)| controller(pod)).collect();
        let is_bound = |pod: &Pod| node_of(pod).is_some();
        self.pods.iter().any(|(pod, stage)| match stage {
            Stage::Past | Stage::Open => true,
            Stage::Over => false,
            Stage::Ready
            | Stage::Held(_)
            | Stage::HandedBack(_)
            | Stage::Unclaimed(_)
            | Stage::Halfway
            | Stage::Refused(_)
            | Stage::Waits(..) => {
                is_bound(pod) || controller(pod).is_some_and(|owner| over.contains(&owner))
            }
        })
    }

    fn verdicts(mut self, name: &str) -> Vec<Verdict> {
        if self.has_started() {
            return vec![Verdict::Apart(self.pods)];
        }
        self.pods.sort_by(|(one, _), (other, _)| one.metadata.name.cmp(&other.metadata.name));
        let (known, not_known): (Vec<Staged>, Vec<Staged>) = self
            .pods
            .into_iter()
            .partition(|(_, stage)| matches!(stage, Stage::Ready | Stage::Waits(..)));
        let missing = self.size.saturating_sub(known.len());
        let mut all = if missing > 0 {
            let why = format!(
                "gang {name}: {} of {} members are here and can start",
                known.len(),
                self.size
            );
            vec![not_yet(known, why)]
        } else {
            let (first, later) = chosen(known, self.size);
            let mut all = vec![together(first, name)];
            if !later.is_empty() {
                all.push(not_yet(
                    later,
                    format!("gang {name}: its first {} start first", self.size),
                ));
            }
            all
        };
        all.push(Verdict::Apart(not_known));
        all
    }
}

/// The UID of what makes a pod anew.
fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// So many, those who have been given devices among them.
fn chosen(mut known: Vec<Staged>, size: usize) -> (Vec<Staged>, Vec<Staged>) {
    known.sort_by_key(|(_, stage)| !matches!(stage, Stage::Ready));
    let later = known.split_off(size.min(known.len()));
    (known, later)
}

fn not_yet(pods: Vec<Staged>, why: String) -> Verdict {
    let (given, waiting): (Vec<Staged>, Vec<Staged>) =
        pods.into_iter().partition(|(_, stage)| matches!(stage, Stage::Ready));
    let only = |all: Vec<Staged>| all.into_iter().map(|(pod, _)| pod).collect();
    Verdict::NotYet { waiting: only(waiting), given: only(given), why }
}

fn together(pods: Vec<Staged>, name: &str) -> Verdict {
    let first = pods.iter().find_map(|(_, stage)| {
        if let Stage::Waits(_, workload) = stage { Some(workload.clone()) } else { None }
    });
    let Some(mut workload) = first else { return Verdict::Apart(pods) };
    let is_other = |(_, stage): &Staged| matches!(stage, Stage::Waits(_, other) if other.demand != workload.demand);
    if pods.iter().any(is_other) {
        return not_yet(pods, format!("gang {name}: its members ask for different things"));
    }
    let (mut members, mut given) = (Vec::new(), Vec::new());
    for (pod, stage) in pods {
        if let Stage::Waits(claims, _) = stage {
            members.push(Member { pod, claims });
        } else {
            given.push(pod);
        }
    }
    workload.members = u32::try_from(members.len()).unwrap_or(u32::MAX);
    Verdict::Together { members, workload, given }
}

#[cfg(test)]
mod tests {
    use model::{Demand, Owner, WorkloadId};
    use serde_json::json;

    use super::*;

    fn pod(name: &str, labels: serde_json::Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": name, "namespace": "team", "labels": labels}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn waits(cpu_milli: u64) -> Stage {
        let demand = Demand { cpu_milli, ..Demand::default() };
        let workload = Workload::new(WorkloadId(0), "w".into(), Owner::new("team"), demand);
        Stage::Waits(Vec::new(), Box::new(workload))
    }

    /// What becomes of a gang of three with pods so far: for each verdict a word and pods' names.
    fn becomes(stages: Vec<Stage>) -> Vec<String> {
        let mut gangs = Gangs::default();
        for (stage, at) in stages.into_iter().zip(0..) {
            let pod = pod(
                &format!("p{at}"),
                json!({"hotpot.dev/gang": "g", "hotpot.dev/gang-size": "3"}),
            );
            let gang = of(&pod).unwrap().unwrap();
            gangs.add(gang, pod, stage);
        }
        let names = |pods: &[&Arc<Pod>]| {
            pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>().join(" ")
        };
        let word = |verdict: Verdict| match verdict {
            Verdict::Apart(pods) if pods.is_empty() => None,
            Verdict::Apart(pods) => {
                let pods: Vec<_> = pods.iter().map(|(pod, _)| pod).collect();
                Some(format!("apart {}", names(&pods)))
            }
            Verdict::NotYet { waiting, given, why } => {
                let (waiting, given): (Vec<_>, Vec<_>) =
                    (waiting.iter().collect(), given.iter().collect());
                Some(format!("not yet {}, back {}: {why}", names(&waiting), names(&given)))
            }
            Verdict::Together { members, workload, given } => {
                let members: Vec<_> = members.iter().map(|member| &member.pod).collect();
                let given: Vec<_> = given.iter().collect();
                Some(format!(
                    "{} together {}, with {}",
                    workload.members,
                    names(&members),
                    names(&given)
                ))
            }
        };
        gangs.verdicts().filter_map(word).collect()
    }

    #[test]
    fn a_gang_starts_whole_or_not() {
        assert_eq!(
            becomes(vec![waits(1), waits(1)]),
            ["not yet p0 p1, back : gang g: 2 of 3 members are here and can start"]
        );
        assert_eq!(becomes(vec![waits(1), waits(1), waits(1)]), ["3 together p0 p1 p2, with "]);
        assert_eq!(
            becomes(vec![waits(1), waits(1), Stage::Unclaimed("gpu".into())]),
            ["not yet p0 p1, back : gang g: 2 of 3 members are here and can start", "apart p2"]
        );
        assert_eq!(
            becomes(vec![waits(1), waits(2), waits(1)]),
            ["not yet p0 p1 p2, back : gang g: its members ask for different things"]
        );
        assert_eq!(
            becomes(vec![waits(1), waits(1), waits(1), waits(1)]),
            ["3 together p0 p1 p2, with ", "not yet p3, back : gang g: its first 3 start first"]
        );
    }

    #[test]
    fn what_was_begun_is_finished_or_given_back() {
        assert_eq!(
            becomes(vec![Stage::Ready, waits(1), Stage::Ready]),
            ["1 together p1, with p0 p2"]
        );
        assert_eq!(becomes(vec![Stage::Ready, Stage::Ready, Stage::Ready]), ["apart p0 p1 p2"]);
        assert_eq!(
            becomes(vec![Stage::Ready, waits(1)]),
            ["not yet p1, back p0: gang g: 2 of 3 members are here and can start"]
        );
        assert_eq!(becomes(vec![Stage::Past, waits(1)]), ["apart p0 p1"], "it has started before");
        assert_eq!(
            becomes(vec![Stage::Over, waits(1)]),
            ["not yet p1, back : gang g: 1 of 3 members are here and can start", "apart p0"]
        );
        assert_eq!(becomes(vec![Stage::Open, Stage::Ready, waits(1)]), ["apart p0 p1 p2"]);
    }

    #[test]
    fn a_size_must_be_said() {
        for labels in [
            json!({"hotpot.dev/gang": "g"}),
            json!({"hotpot.dev/gang": "g", "hotpot.dev/gang-size": "0"}),
        ] {
            assert!(of(&pod("p", labels)).unwrap_err().contains("hotpot.dev/gang-size"));
        }
        assert_eq!(of(&pod("p", json!({}))), Ok(None));
    }
}
