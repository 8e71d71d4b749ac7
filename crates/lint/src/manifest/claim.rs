//! Claims of devices, templates of claims and classes of devices: versions, fields, and what stands in hotpot's GpuShare.

use formats::tree::{Entry, Key, Value};
use formats::{is_slip, near};

use super::doc::{Doc, at, fields, get, items, text, word};
use super::{folk, version};
use crate::finding::Severity::{NotWhatYouThink, Refused};
use crate::finding::{Edit, Finding};
use crate::mig;

/// The fields of resource.k8s.io/v1 (API reference), by what they are fields of.
const SPEC: [&str; 1] = ["devices"];
const DEVICES: [&str; 3] = ["requests", "constraints", "config"];
const REQUEST: [&str; 3] = ["name", "exactly", "firstAvailable"];
const EXACTLY: [&str; 7] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
];
const CONFIG: [&str; 2] = ["requests", "opaque"];
const OPAQUE: [&str; 2] = ["driver", "parameters"];
/// Those of hotpot's configuration.
const SHARE: [&str; 9] = [
    "apiVersion",
    "kind",
    "sharing",
    "memoryMiB",
    "computeMilli",
    "profile",
    "class",
    "models",
    "priority",
];
const WAYS: [&str; 5] = ["exclusive", "time-slice", "mps", "mig", "memory-capped"];
const CLASSES: [&str; 4] = ["training", "batch", "service", "interactive"];
/// hotpot's driver and its class of devices.
const DRIVER: &str = "gpu.hotpot.dev";
/// Lengths of a turn with NVIDIA's driver.
const INTERVALS: [&str; 4] = ["Default", "Short", "Medium", "Long"];

/// What is wrong with an object, if it is of dynamic resource allocation.
pub(super) fn check(doc: &Doc<'_>, object: &Entry) -> Vec<Finding> {
    let spec = match word(object, "kind").unwrap_or_default() {
        "ResourceClaim" | "DeviceClass" => get(object, "spec"),
        "ResourceClaimTemplate" => get(object, "spec").and_then(|(_, spec)| get(spec, "spec")),
        _ => None,
    };
    let is_claim = word(object, "kind") != Some("DeviceClass");
    let goes_on = spec.is_some_and(|spec| !is_claim || can_be_v1(doc, spec));
    let mut found: Vec<Finding> = version::check(doc, object, goes_on).into_iter().collect();
    let (Some(version), Some((key, spec))) = (version::of(object), spec) else { return found };
    if !is_claim {
        found.extend(configs(doc, spec));
        return found;
    }
    let invented = folk::check(doc, (key, spec));
    let is_v1 = version == "v1" && invented.is_none();
    found.extend(invented);
    if is_v1 {
        found.extend(strange(doc, spec, &SPEC, "a claim's spec"));
    }
    if let Some(devices) = at(spec, &["devices"]) {
        found.extend(strange(doc, devices, &DEVICES, "spec.devices"));
        for request in items(devices, "requests").iter().filter(|_| is_v1) {
            found.extend(of_request(doc, request));
        }
        found.extend(configs(doc, devices));
    }
    found
}

/// Whether a claim's spec is, or is made by edits, one of v1.
fn can_be_v1(doc: &Doc<'_>, (key, spec): (&Key, &Entry)) -> bool {
    let can = |request: &Entry| flat(request).is_empty() || below_exactly(doc, request).is_some();
    match at(spec, &["devices"]) {
        Some(devices) => items(devices, "requests").iter().all(can),
        None => folk::is_mended(doc, (key, spec)),
    }
}

/// The fields of a request that stand below `exactly` in v1, and here do not.
fn flat(request: &Entry) -> Vec<&Key> {
    let keys = fields(request).map(|(key, _)| key);
    keys.filter(|key| EXACTLY.contains(&key.name.as_str())).collect()
}

/// Fields that are none; one with a slip is put right.
fn strange(doc: &Doc<'_>, entry: &Entry, known: &[&'static str], of: &str) -> Vec<Finding> {
    let strange = fields(entry).filter(|(key, _)| !known.contains(&key.name.as_str()));
    let found = strange.map(|(key, _)| {
        let meant = known.iter().copied().find(|name| is_slip(&key.name, name));
        let free = meant.filter(|name| get(entry, name).is_none());
        let instead = match meant {
            Some(meant) => format!("write {meant}"),
            None => format!("its fields are {}", known.join(", ")),
        };
        let happens = format!(
            "{of} has no field {}: the server or the driver answers `unknown field`",
            key.name
        );
        let finding = Finding::new(("unknown-field", Refused), doc.key(key), happens, instead);
        finding.with(free.and_then(|name| doc.rename(key, name)))
    });
    found.collect()
}

fn of_request(doc: &Doc<'_>, request: &Entry) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(first) = flat(request).first() {
        let happens = "in v1 the fields of a request stand below `exactly`: the server answers `unknown field`, or that one of exactly and firstAvailable is missing";
        let instead = format!("put {} and its like below `exactly:`", first.name);
        let mut finding =
            Finding::new(("request-without-exactly", Refused), doc.key(first), happens, instead);
        finding.edits = below_exactly(doc, request).unwrap_or_default();
        found.push(finding);
    } else {
        found.extend(strange(doc, request, &REQUEST, "a request"));
    }
    let below = at(request, &["exactly"]).into_iter().chain(items(request, "firstAvailable"));
    for exactly in below {
        let known: Vec<&'static str> = EXACTLY.into_iter().chain(["name"]).collect();
        found.extend(strange(doc, exactly, &known, "a request"));
        let class = get(exactly, "deviceClassName").map(|(_, class)| class);
        found.extend(class.and_then(|class| name(doc, class, "class of devices")));
    }
    found
}

/// Edits that put fields of a request one level deeper; `None` where they do not stand one after the other, each in its lines.
fn below_exactly(doc: &Doc<'_>, request: &Entry) -> Option<Vec<Edit>> {
    if ["exactly", "firstAvailable"].iter().any(|name| get(request, name).is_some()) {
        return None;
    }
    let flat = flat(request);
    let blocks: Option<Vec<_>> = flat.iter().map(|key| doc.block(key)).collect();
    let blocks = blocks?;
    let first = blocks.iter().map(|(first, _)| *first).min()?;
    let last = blocks.iter().map(|(_, last)| *last).max()?;
    let is_between = |key: &Key| (first..=last).contains(&key.at.line);
    let others = fields(request).filter(|(key, _)| is_between(key)).count();
    if others != flat.len() {
        return None;
    }
    let indent = doc.indent(flat.first()?)?;
    let edit = |line: usize| {
        let start = doc.span((line, line)).start;
        let head = if line == first { format!("{indent}exactly:\n") } else { String::new() };
        Edit::new(start..start, format!("{head}  "))
    };
    Some((first..=last).map(edit).collect())
}

/// The configurations of a claim or a class.
fn configs(doc: &Doc<'_>, of: &Entry) -> Vec<Finding> {
    let mut found = Vec::new();
    for config in items(of, "config") {
        found.extend(strange(doc, config, &CONFIG, "a configuration"));
        let Some(opaque) = at(config, &["opaque"]) else { continue };
        found.extend(strange(doc, opaque, &OPAQUE, "opaque"));
        found.extend(get(opaque, "driver").and_then(|(_, driver)| name(doc, driver, "driver")));
        let parameters = at(opaque, &["parameters"]);
        match (word(opaque, "driver"), parameters) {
            (Some(DRIVER), Some(share)) => found.extend(of_share(doc, share)),
            (Some("gpu.nvidia.com"), Some(of)) => found.extend(interval(doc, of)),
            _ => {}
        }
    }
    found
}

/// hotpot's name with a slip in it.
fn name(doc: &Doc<'_>, entry: &Entry, of: &str) -> Option<Finding> {
    let written = text(entry).filter(|written| is_slip(written, DRIVER))?;
    let happens = format!("there is no {of} {written}: the claim is given nothing");
    let finding = Finding::new(
        ("hotpot-name", NotWhatYouThink),
        doc.value(entry),
        happens,
        format!("write {DRIVER}"),
    );
    Some(finding.with(doc.replace(entry, DRIVER)))
}

/// hotpot's configuration.
fn of_share(doc: &Doc<'_>, share: &Entry) -> Vec<Finding> {
    let mut found = strange(doc, share, &SHARE, "GpuShare");
    let words: [(&str, &[&'static str]); 4] = [
        ("apiVersion", &["hotpot.dev/v1"]),
        ("kind", &["GpuShare"]),
        ("sharing", &WAYS),
        ("class", &CLASSES),
    ];
    for (field, known) in words {
        let Some((_, value)) = get(share, field) else { continue };
        found.extend(one_of(doc, value, field, known));
    }
    let profile = get(share, "profile").and_then(|(_, value)| Some((value, text(value)?)));
    if let Some((value, written)) = profile.filter(|(_, written)| !mig::exists(written)) {
        let happens =
            format!("no card has a MIG profile {written}: hotpot's webhook refuses the claim");
        let meant = mig::respelt(written);
        let edit = meant.as_ref().and_then(|name| doc.replace(value, name.as_str()));
        let instead = meant.map_or_else(|| mig::nearest(written), |name| format!("write {name}"));
        found.push(
            Finding::new(("mig-unknown", Refused), doc.value(value), happens, instead).with(edit),
        );
    }
    found
}

fn one_of(doc: &Doc<'_>, value: &Entry, field: &str, known: &[&'static str]) -> Option<Finding> {
    let written = text(value).filter(|written| !known.contains(written))?;
    let meant = near(written, known.iter().copied());
    let meant = meant.first().filter(|_| meant.len() == 1 || is_slip(written, meant[0]));
    let instead = match meant {
        Some(meant) => format!("write {meant}"),
        None => format!("write one of {}", known.join(", ")),
    };
    let happens =
        format!("GpuShare knows no {field} `{written}`: hotpot's webhook refuses the claim");
    let edit = meant.and_then(|meant| doc.replace(value, *meant));
    Some(Finding::new(("share-value", Refused), doc.value(value), happens, instead).with(edit))
}

/// The length of a turn, which NVIDIA's driver has by name.
fn interval(doc: &Doc<'_>, parameters: &Entry) -> Option<Finding> {
    let value = at(parameters, &["sharing", "timeSlicingConfig", "interval"])
        .or_else(|| at(parameters, &["sharing", "interval"]))?;
    let known = text(value).is_some_and(|written| INTERVALS.contains(&written));
    let is_word = matches!(value.value, Value::Text(_) | Value::Number(_));
    (is_word && !known).then(|| {
        Finding::new(
            ("turn-in-time", Refused),
            doc.value(value),
            "NVIDIA's driver knows no length of a turn in time: a card has four, by name, for all who are on it",
            format!("write timeSlicingConfig.interval with one of {}", INTERVALS.join(", ")),
        )
    })
}
