//! What a container asks by resource names: whole numbers, the same as limit and as request, and what goes together.

use formats::tree::{Entry, Key};

use super::doc::{Doc, at, fields, text};
use crate::card::Card;
use crate::finding::Finding;
use crate::finding::Severity::{Better, Refused, WaitsForEver};

const GPU: &str = "nvidia.com/gpu";
const MEMORY: &str = "nvidia.com/gpumem";
const CORES: &str = "nvidia.com/gpucores";
pub(super) const MIG: &str = "nvidia.com/mig-";
/// Memory that is still read as MiB of one card: 16 TiB. More is an amount in bytes.
const MEMORY_MAX_MIB: u64 = 1 << 24;

/// One resource of a container.
#[derive(Clone, Copy)]
pub(super) struct Amount<'a> {
    /// Whether it stands among the limits, not the requests.
    pub(super) is_limit: bool,
    pub(super) key: &'a Key,
    pub(super) value: &'a Entry,
}

/// The extended resources of GPUs that a container asks.
pub(super) fn of(container: &Entry) -> Vec<Amount<'_>> {
    let of = |section: &str, is_limit| {
        let fields = at(container, &["resources", section]).into_iter().flat_map(fields);
        let ours = fields.filter(|(key, _)| {
            ["nvidia.com/", "hotpot.dev/"].iter().any(|family| key.name.starts_with(family))
        });
        ours.map(move |(key, value)| Amount { is_limit, key, value }).collect::<Vec<_>>()
    };
    [of("limits", true), of("requests", false)].concat()
}

impl Amount<'_> {
    /// The number, if it is a whole one.
    pub(super) fn number(&self) -> Option<u64> {
        text(self.value)?.parse().ok()
    }
}

pub(super) fn check(doc: &Doc<'_>, amounts: &[Amount<'_>], card: Option<&Card>) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        amounts.iter().filter_map(|one| whole(doc, one, amounts)).collect();
    found.extend(amounts.iter().filter_map(|one| no_amount(doc, one)));
    found.extend(amounts.iter().filter_map(|one| range(doc, one, card)));
    found.extend(amounts.iter().filter_map(|one| differ(doc, one, amounts)));
    found.extend(part_alone(doc, amounts));
    found.extend(two_kinds(doc, amounts));
    found
}

/// The amount of a name, the limit before the request.
fn find<'a>(amounts: &'a [Amount<'a>], name: &str) -> Option<&'a Amount<'a>> {
    amounts.iter().find(|one| one.key.name == name)
}

/// A number that the server takes for a thing that cannot be divided.
fn whole(doc: &Doc<'_>, one: &Amount<'_>, amounts: &[Amount<'_>]) -> Option<Finding> {
    let written = text(one.value)?;
    let milli = milli(written).filter(|milli| !milli.is_multiple_of(1000))?;
    let name = &one.key.name;
    let limit = amounts.iter().find(|other| other.is_limit && other.key.name == *name);
    if !one.is_limit && limit.is_some_and(|limit| limit.number().is_some()) {
        // Then the limit is what is meant: `differ` says so.
        return None;
    }
    let span = doc.value(one.value);
    let happens = format!(
        "the server answers `{name}: Invalid value: \"{written}\": must be an integer`: devices are counted whole"
    );
    if name != GPU || !(10..1000).contains(&milli) {
        let instead = format!(
            "write a whole number; for a part of a card {GPU}: 1 with {MEMORY} and {CORES}"
        );
        return Some(Finding::new(("gpu-fraction", Refused), span, happens, instead));
    }
    let percent = milli / 10;
    let instead = format!(
        "write {GPU}: 1 and {CORES}: {percent}, which hotpot's webhook (and HAMi) gives: {percent} % of a card's compute, and with hotpot as much of its memory; {MEMORY} says the memory by itself"
    );
    let beside = |name: &str| {
        amounts.iter().any(|other| other.is_limit == one.is_limit && other.key.name == name)
    };
    let edit = match beside(CORES) || beside(MEMORY) {
        true => doc.replace(one.value, "1"),
        false => doc.replace_by_two((one.key, one.value), "1", (CORES, percent)),
    };
    Some(Finding::new(("gpu-fraction", Refused), span, happens, instead).with(edit))
}

/// Thousandths of an amount such as `0.5`, `500m`, `1`, rounded up.
fn milli(text: &str) -> Option<u64> {
    if let Some(milli) = text.strip_suffix('m') {
        return milli.parse().ok();
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (first, rest) = part.split_at_checked(3).unwrap_or((part, ""));
    let part: u64 = if digits(part) { format!("{first:0<3}").parse().ok()? } else { return None };
    let more = u64::from(rest.contains(|c| c != '0'));
    whole.checked_mul(1000)?.checked_add(part + more)
}

/// What is no amount at all: `50%`, `1/2`, `-1`.
fn no_amount(doc: &Doc<'_>, one: &Amount<'_>) -> Option<Finding> {
    let written = text(one.value)?;
    let is_negative = written.strip_prefix('-').is_some_and(|rest| milli(rest).is_some());
    let is_share =
        written.contains(['%', '/']) && written.starts_with(|c: char| c.is_ascii_digit());
    let happens = match (is_negative, is_share) {
        (true, _) => {
            format!("the server answers `must be greater than or equal to 0` to {written}")
        }
        (_, true) => format!(
            "{written} is no amount: the server answers `quantities must match the regular expression …`"
        ),
        _ => return None,
    };
    let name = &one.key.name;
    let percent = written.strip_suffix('%').and_then(|number| number.parse::<u64>().ok());
    let percent = percent.filter(|percent| name == GPU && (1..100).contains(percent));
    let instead = match percent {
        Some(percent) => {
            format!("write {GPU}: 1 and {CORES}: {percent}, with hotpot's webhook or HAMi")
        }
        None => "write a whole number".to_owned(),
    };
    Some(Finding::new(("gpus-no-number", Refused), doc.value(one.value), happens, instead))
}

/// Amounts of a card that no card has.
fn range(doc: &Doc<'_>, one: &Amount<'_>, card: Option<&Card>) -> Option<Finding> {
    let (name, span) = (one.key.name.as_str(), doc.value(one.value));
    let written = text(one.value)?;
    let refused = |what: String, instead: &str| {
        Some(Finding::new(("amount-out-of-range", Refused), span.clone(), what, instead))
    };
    if name == CORES && one.number().is_some_and(|percent| percent > 100) {
        let what =
            format!("{name} counts percent of each card: hotpot's webhook refuses {written}");
        return refused(what, "write at most 100, and more cards by nvidia.com/gpu");
    }
    if name != MEMORY {
        return None;
    }
    let bytes = bytes(written);
    if let Some(mib) = bytes.map(|bytes| bytes >> 20).filter(|_| bytes > Some(MEMORY_MAX_MIB)) {
        let what = format!(
            "{name} counts MiB of each card: {written} are {} million MiB, which hotpot's webhook refuses",
            bytes.unwrap_or(0) / 1_000_000
        );
        let edit = (mib > 0).then(|| doc.replace(one.value, mib.to_string())).flatten();
        return refused(what, &format!("write {mib}")).map(|finding| finding.with(edit));
    }
    let card = card.filter(|card| card.memory_mib() > 0)?;
    let (asked, has) = (one.number()?, card.memory_mib());
    (asked > has).then(|| {
        let what = format!("a {} has {has} MiB for a program beside its CUDA context: no card of these ever has {asked}", card.name());
        let instead = format!("write at most {has}, or ask whole cards by {GPU} alone");
        Finding::new(("more-than-a-card", WaitsForEver), span.clone(), what, instead)
    })
}

/// A number with or without a suffix of powers of 1024 or of 1000.
fn bytes(text: &str) -> Option<u64> {
    let units = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40)];
    let units = units.into_iter().chain([
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("", 1),
    ]);
    let (number, unit) =
        units.into_iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A request that is not its limit, or has none.
fn differ(doc: &Doc<'_>, one: &Amount<'_>, amounts: &[Amount<'_>]) -> Option<Finding> {
    let name = &one.key.name;
    let limit = amounts.iter().find(|other| other.is_limit && other.key.name == *name);
    let span = doc.value(one.value);
    let severity = ("request-is-not-limit", Refused);
    let Some(limit) = limit else {
        let happens = format!(
            "{name} is requested without a limit: the server answers `Limit must be set for non overcommitable resources`, unless hotpot's webhook has put a claim in its place"
        );
        let instead = format!("write {name} among the limits; the request is the same by itself");
        return (!one.is_limit).then(|| Finding::new(severity, span, happens, instead));
    };
    let (asked, most) = (text(one.value)?, text(limit.value)?);
    let is_whole = milli(most).is_none_or(|milli| milli.is_multiple_of(1000));
    let is_same = asked == most || (milli(asked).is_some() && milli(asked) == milli(most));
    if one.is_limit || !is_whole || is_same {
        return None;
    }
    let happens = format!(
        "{asked} are requested and {most} are the limit: the server answers `must be equal to {name} limit`, as devices cannot be overcommitted"
    );
    let edit = limit.number().and_then(|most| doc.replace(one.value, most.to_string()));
    let instead = format!("write {most} for both, or the limit alone");
    Some(Finding::new(severity, span, happens, instead).with(edit))
}

/// Memory or compute of cards that are not asked for.
fn part_alone(doc: &Doc<'_>, amounts: &[Amount<'_>]) -> Option<Finding> {
    let has = |one: &Amount<'_>| one.number().is_some_and(|number| number > 0);
    let part =
        [MEMORY, CORES].iter().find_map(|name| find(amounts, name).filter(|one| has(one)))?;
    let name = &part.key.name;
    match find(amounts, GPU) {
        Some(gpu) if gpu.number() == Some(0) => {
            let happens = "0 cards are asked, and a part of each: hotpot's webhook refuses it, and others give nothing";
            let edit = doc.replace(gpu.value, "1");
            let instead = format!("write {GPU}: 1");
            Some(
                Finding::new(("part-of-no-card", Refused), doc.value(gpu.value), happens, instead)
                    .with(edit),
            )
        }
        Some(_) => None,
        None => {
            let happens = format!(
                "{name} stands without {GPU}: hotpot's webhook takes it for one card, and whoever reads the manifest has to know that"
            );
            let edit = doc
                .written(part.value)
                .and_then(|own| doc.replace_by_two((part.key, part.value), own, (GPU, 1)));
            let instead = format!("write {GPU}: 1 beside it");
            Some(
                Finding::new(("part-without-card", Better), doc.key(part.key), happens, instead)
                    .with(edit),
            )
        }
    }
}

/// Cards and instances in one container.
fn two_kinds(doc: &Doc<'_>, amounts: &[Amount<'_>]) -> Option<Finding> {
    let counts = |one: &&Amount<'_>| one.number().is_some_and(|number| number > 0);
    find(amounts, GPU).filter(counts)?;
    let mig = amounts.iter().filter(counts).find(|one| one.key.name.starts_with(MIG))?;
    Some(Finding::new(
        ("gpu-beside-mig", Refused),
        doc.key(mig.key),
        format!(
            "{GPU} and {} in one container are two kinds of devices: hotpot's webhook refuses them, and with NVIDIA's plugin a CUDA process sees one of the two",
            mig.key.name
        ),
        "ask for one of the two; for both make two pods",
    ))
}
