//! A pod, by itself or in a template: its containers together, and what stands at the pod.

use std::collections::BTreeMap;

use formats::tree::{Entry, Value};

use super::doc::{Doc, at, fields, get, items, text, word};
use super::{amounts, names, profiles};
use crate::card::Card;
use crate::finding::Severity::{NotWhatYouThink, Refused};
use crate::finding::{Edit, Finding};

/// Programs that let several GPUs work together, by words of a container's command.
const TOGETHER: [&str; 6] = ["torchrun", "nccl", "mpirun", "deepspeed", "accelerate", "nproc"];

/// What is wrong with a pod.
pub(super) fn check(doc: &Doc<'_>, pod: &Entry, spec: &Entry, card: Option<&Card>) -> Vec<Finding> {
    let mut found = names::check(doc, pod, spec);
    let containers = || items(spec, "initContainers").iter().chain(items(spec, "containers"));
    let mut instances: BTreeMap<String, u64> = BTreeMap::new();
    for container in containers() {
        let amounts = amounts::of(container);
        found.extend(amounts::check(doc, &amounts, card));
        found.extend(profiles::check(doc, &amounts, spec, card));
        found.extend(together(doc, container, profiles::sum(&profiles::instances(&amounts))));
    }
    for container in items(spec, "containers") {
        for (profile, count) in profiles::instances(&amounts::of(container)) {
            let sum = instances.entry(profile).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    found.extend(profiles::together(doc, spec, &instances, card));
    found.extend(host_ipc(doc, spec, profiles::sum(&instances)));
    found.extend(items(spec, "resourceClaims").iter().filter_map(|claim| source(doc, claim)));
    found
}

/// Several instances for a program that wants its GPUs to reach each other.
fn together(doc: &Doc<'_>, container: &Entry, instances: u64) -> Option<Finding> {
    let words = ["command", "args"].into_iter().flat_map(|key| items(container, key));
    let of_command = |one: &Entry| {
        let text = text(one).unwrap_or_default().to_ascii_lowercase();
        TOGETHER.iter().any(|word| text.contains(word))
    };
    let variable = |one: &&Entry| word(one, "name").is_some_and(|name| name.starts_with("NCCL_"));
    let env = items(container, "env").iter().find(variable);
    let sign = words.into_iter().find(|one| of_command(one)).or(env)?;
    (instances > 1).then(|| {
        Finding::new(
            ("mig-without-peers", NotWhatYouThink),
            doc.value(sign),
            format!("the container has {instances} MIG instances: these have no peer access to each other, a CUDA process sees one of them, and NCCL cannot join them"),
            "ask for whole cards, nvidia.com/gpu: N, or for one larger instance",
        )
    })
}

fn host_ipc(doc: &Doc<'_>, spec: &Entry, instances: u64) -> Option<Finding> {
    let (key, value) = get(spec, "hostIPC")?;
    let is_set = matches!(value.value, Value::Flag(true));
    (is_set && instances > 1).then(|| {
        Finding::new(
            ("mig-without-peers", NotWhatYouThink),
            doc.key(key),
            format!("the pod has {instances} MIG instances: CUDA IPC does not reach from one to another, with hostIPC or without"),
            "leave hostIPC out, and ask for whole cards or for one larger instance if processes share GPU memory",
        )
    })
}

/// `source:` of a pod's claim, as it was written up to Kubernetes 1.30.
fn source(doc: &Doc<'_>, claim: &Entry) -> Option<Finding> {
    let (key, value) = get(claim, "source")?;
    let mut inner = fields(value);
    let (name, of) = inner.next()?;
    let edit = inner.next().is_none().then(|| {
        let word = text(of)?;
        let (first, last) = doc.block(key)?;
        let is_short = last <= first + 1 && !word.contains(['\n', '#']);
        let span = doc.key(key).start..doc.span((first, last)).end;
        is_short.then(|| Edit::new(span, format!("{}: {word}", name.name)))
    });
    Some(
        Finding::new(
            ("claim-source", Refused),
            doc.key(key),
            "a pod's claim has no field `source` since Kubernetes 1.31: the server answers `unknown field`",
            format!("write {} beside the claim's name, without source", name.name),
        )
        .with(edit.flatten()),
    )
}

/// The product that a pod wants by its node selector, and the cards of the node if it says so too.
pub(super) fn product(spec: &Entry) -> Option<(&str, Option<u64>)> {
    let selector = at(spec, &["nodeSelector"])?;
    let count = word(selector, "nvidia.com/gpu.count").and_then(|text| text.parse().ok());
    Some((word(selector, "nvidia.com/gpu.product")?, count))
}
