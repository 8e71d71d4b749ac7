//! Claims with fields that exist in no version of the API, as they go round, and the claim that they mean.

use formats::tree::{Entry, Key};
use model::Catalogue;

use super::doc::{Doc, fields, text, word};
use crate::finding::Severity::Refused;
use crate::finding::{Edit, Finding};

/// Fields that are invented in a claim's spec.
const INVENTED: [&str; 9] =
    ["count", "gpu-type", "gpuType", "gpu", "gpus", "type", "model", "sharing", "strategy"];
/// Of these the names of a card's model.
const MODEL: [&str; 4] = ["gpu-type", "gpuType", "type", "model"];
/// Fields of `sharing` that are understood; of the length of a turn nothing is kept, as a card's turns have no length to choose.
const IN_SHARING: [&str; 2] = ["strategy", "interval"];
/// Devices of a request (API reference, ResourceClaim).
const COUNT_MAX: u64 = 32;

/// What the invented fields ask.
struct Meant {
    count: u64,
    model: Option<String>,
    sharing: Option<&'static str>,
}

/// Invented fields of a claim's spec, with the claim that they mean where all of it is understood.
pub(super) fn check(doc: &Doc<'_>, (key, spec): (&Key, &Entry)) -> Option<Finding> {
    let invented = fields(spec).filter(|(key, _)| INVENTED.contains(&key.name.as_str()));
    let invented: Vec<&Key> = invented.map(|(key, _)| key).collect();
    let first = invented.first()?;
    let names: Vec<&str> = invented.iter().map(|key| key.name.as_str()).collect();
    let happens = format!(
        "a claim's spec has no {}, in no version: a strict server answers `unknown field`, a lenient one drops them and keeps an empty claim, which gives nothing",
        names.join(", ")
    );
    let instead = "how many stands in requests[].exactly.count, the model and the way of sharing are the driver's, with hotpot in a GpuShare; the length of a turn is nowhere, as a card has four by name: see examples/kubernetes/taking-turns.yaml";
    let edit = meant(spec).and_then(|meant| rewritten(doc, key, &meant));
    Some(Finding::new(("invented-field", Refused), doc.key(first), happens, instead).with(edit))
}

/// Whether an edit makes the spec one of v1.
pub(super) fn is_mended(doc: &Doc<'_>, (key, spec): (&Key, &Entry)) -> bool {
    meant(spec).and_then(|meant| rewritten(doc, key, &meant)).is_some()
}

/// All of it, or nothing: a field that is not understood is for a person.
fn meant(spec: &Entry) -> Option<Meant> {
    let mut meant = Meant { count: 1, model: None, sharing: None };
    let mut some = false;
    for (key, value) in fields(spec) {
        some = true;
        match key.name.as_str() {
            "count" => {
                let count = text(value)?.parse().ok();
                meant.count = count.filter(|count| (1..=COUNT_MAX).contains(count))?;
            }
            name if MODEL.contains(&name) => meant.model = Some(model(text(value)?)?),
            "sharing" if fields(value).all(|(key, _)| IN_SHARING.contains(&key.name.as_str())) => {
                meant.sharing = Some(sharing(word(value, "strategy").or(text(value))?)?);
            }
            _ => return None,
        }
    }
    some.then_some(meant)
}

/// The catalogue's name, however it is spelt.
fn model(name: &str) -> Option<String> {
    let plain = |text: &str| {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.collect::<String>().to_ascii_lowercase()
    };
    let catalogue = Catalogue::shipped().ok()?;
    catalogue.iter().find(|model| plain(&model.name) == plain(name)).map(|model| model.name.clone())
}

fn sharing(strategy: &str) -> Option<&'static str> {
    let letters = strategy.chars().filter(char::is_ascii_alphanumeric);
    match letters.collect::<String>().to_ascii_lowercase().as_str() {
        "timeslicing" | "timeslice" | "timesliced" | "timeshare" => Some("time-slice"),
        "mps" => Some("mps"),
        "exclusive" => Some("exclusive"),
        _ => None,
    }
}

/// The edit that puts a spec of v1 in the place of the block.
fn rewritten(doc: &Doc<'_>, key: &Key, meant: &Meant) -> Option<Edit> {
    let indent = doc.indent(key)?;
    let block = doc.block(key)?;
    let span = doc.span(block);
    if doc.has_anchors(block) {
        return None;
    }
    let count = meant.count;
    let mut lines: Vec<String> = doc.comments(block).into_iter().map(str::to_owned).collect();
    lines.extend([
        "spec:".to_owned(),
        "  devices:".to_owned(),
        "    requests:".to_owned(),
        "      - name: gpus".to_owned(),
        "        exactly:".to_owned(),
        "          deviceClassName: gpu.hotpot.dev".to_owned(),
        format!("          count: {count}"),
    ]);
    if meant.model.is_some() || meant.sharing.is_some() {
        lines.extend(
            [
                "    config:",
                "      - requests: [gpus]",
                "        opaque:",
                "          driver: gpu.hotpot.dev",
                "          parameters:",
                "            apiVersion: hotpot.dev/v1",
                "            kind: GpuShare",
            ]
            .map(str::to_owned),
        );
        lines.extend(meant.sharing.map(|way| format!("            sharing: {way}")));
        lines.extend(meant.model.iter().map(|model| format!("            models: [{model}]")));
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("{indent}{line}")).collect();
    Some(Edit::new(span, lines.join("\n")))
}
