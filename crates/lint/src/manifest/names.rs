//! Names of hotpot's at a pod: labels, its gate, the label of its nodes.

use formats::is_slip;
use formats::tree::{Entry, Key, Value};

use super::doc::{Doc, at, fields, get, items, text};
use crate::finding::Finding;
use crate::finding::Severity::{NotWhatYouThink, Refused, WaitsForEver};

/// How all begin.
const GROUP: &str = "hotpot.dev/";
/// Labels of a pod.
const LABELS: [&str; 4] =
    ["hotpot.dev/gang", "hotpot.dev/gang-size", "hotpot.dev/webhook", "hotpot.dev/ask"];
/// Annotations that the chart makes.
const ANNOTATIONS: [&str; 1] = ["hotpot.dev/policy"];
/// The gate at which pods wait.
const GATES: [&str; 1] = ["hotpot.dev/placement"];
/// Labels of nodes.
const NODES: [&str; 1] = ["hotpot.dev/gpu"];

/// What is wrong with the names at a pod.
pub(super) fn check(doc: &Doc<'_>, pod: &Entry, spec: &Entry) -> Vec<Finding> {
    let labels = || at(pod, &["metadata", "labels"]).into_iter().flat_map(fields);
    let annotations = at(pod, &["metadata", "annotations"]).into_iter().flat_map(fields);
    let selector = || at(spec, &["nodeSelector"]).into_iter().flat_map(fields);
    let mut found: Vec<Finding> =
        labels().filter_map(|(key, _)| of_key(doc, key, &LABELS)).collect();
    found.extend(annotations.filter_map(|(key, _)| of_annotation(doc, key)));
    found.extend(selector().filter_map(|(key, _)| slip_of(doc, key, &NODES)));
    found.extend(labels().chain(selector()).filter_map(|(key, value)| no_text(doc, key, value)));
    let gates = items(spec, "schedulingGates").iter().filter_map(|gate| get(gate, "name"));
    found.extend(gates.filter_map(|(_, name)| gate(doc, name)));
    found
}

/// The known name that another one is with a slip in it.
fn meant(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let is_known = known.contains(&name);
    known.iter().copied().find(|other| !is_known && is_slip(name, other))
}

fn slip_of(doc: &Doc<'_>, key: &Key, known: &[&'static str]) -> Option<Finding> {
    let meant = meant(&key.name, known)?;
    let happens =
        format!("{} is no name of hotpot's: it says nothing, and nobody complains", key.name);
    let instead = format!("write {meant}");
    let finding = Finding::new(("hotpot-name", NotWhatYouThink), doc.key(key), happens, instead);
    Some(finding.with(doc.rename(key, meant)))
}

fn of_key(doc: &Doc<'_>, key: &Key, known: &[&'static str]) -> Option<Finding> {
    slip_of(doc, key, known).or_else(|| {
        let is_strange = key.name.starts_with(GROUP) && !known.contains(&key.name.as_str());
        let happens =
            format!("{} is no name of hotpot's: it says nothing, and nobody complains", key.name);
        let instead = format!("its labels are {}", known[..3].join(", "));
        is_strange
            .then(|| Finding::new(("hotpot-name", NotWhatYouThink), doc.key(key), happens, instead))
    })
}

fn of_annotation(doc: &Doc<'_>, key: &Key) -> Option<Finding> {
    let is_label = LABELS.contains(&key.name.as_str()) || meant(&key.name, &LABELS).is_some();
    if ANNOTATIONS.contains(&key.name.as_str()) || !is_label {
        return None;
    }
    let happens = format!("{} is a label: as an annotation it says nothing", key.name);
    let instead = "write it under metadata.labels";
    Some(Finding::new(("hotpot-name", NotWhatYouThink), doc.key(key), happens, instead))
}

fn gate(doc: &Doc<'_>, name: &Entry) -> Option<Finding> {
    let written = text(name)?;
    let meant = meant(written, &GATES);
    if GATES.contains(&written) || (meant.is_none() && !written.starts_with(GROUP)) {
        return None;
    }
    let happens =
        format!("nobody opens a gate {written}: the pod is pending for ever, SchedulingGated");
    let instead = format!("write {}", GATES[0]);
    let finding = Finding::new(("hotpot-gate", WaitsForEver), doc.value(name), happens, instead);
    Some(finding.with(doc.replace(name, GATES[0])))
}

/// A number or a flag where the API has text.
fn no_text(doc: &Doc<'_>, key: &Key, value: &Entry) -> Option<Finding> {
    let ours = [GROUP, "nvidia.com/"].iter().any(|group| key.name.starts_with(group));
    let is_text = !matches!(value.value, Value::Number(_) | Value::Flag(_));
    if !ours || is_text {
        return None;
    }
    let span = doc.value(value);
    let quoted = doc.written(value).map(|word| format!("\"{word}\""));
    let instead = format!("write {}: {}", key.name, quoted.clone().unwrap_or_default());
    let happens = "values of labels are text: the server answers that it cannot put a number or a bool where a string belongs";
    let edit = quoted.and_then(|quoted| doc.replace(value, quoted));
    Some(Finding::new(("label-not-text", Refused), span, happens, instead).with(edit))
}
