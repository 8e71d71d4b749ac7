//! gres.conf: shards and MPS beside the GPUs that they are parts of.
//!
//! What slurmd makes of it: gres.conf manual, and runs of Slurm 22.05 on nodes with made-up devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::conf::{self, Record};
use crate::finding::Severity::{NotWhatYouThink, Refused};
use crate::finding::{Edit, Finding};
use crate::site::Site;
use crate::spread;

/// Nodes that are looked at; sites have some thousands.
const NODES_MAX: usize = 100_000;
/// Lines of all nodes times nodes.
const PAIRS_MAX: usize = 1_000_000;

/// The lines that count on a node, or on several of the same lines.
struct View<'a> {
    node: String,
    lines: Vec<&'a Record>,
    /// Whether there may be GPUs that no line names: slurmd looks for them by itself, or another file is included.
    detects: bool,
    /// Whether some line is of GPUs.
    has_gpus: bool,
    /// How many GPUs the node has; `None` if slurmd alone knows, or there are none.
    gpus: Option<u64>,
    /// Their files; `None` if a line does not say.
    files: Option<BTreeSet<String>>,
}

/// What is wrong in a gres.conf.
pub(crate) fn check(text: &str, site: &Site) -> Vec<Finding> {
    let records = conf::records(text);
    let (mut findings, mut seen) = (Vec::new(), BTreeSet::new());
    for view in views(text, &records) {
        let found = of_view(&view).into_iter().chain(below_slurm_conf(&view, site));
        findings.extend(found.filter(|one| seen.insert((one.name, one.span.start))));
    }
    findings
}

/// The most that one card of any node has of `shard` or `mps`; `None` if that is not known.
pub(crate) fn most_of_card(text: &str, name: &str) -> Option<u64> {
    let records = conf::records(text);
    let views = views(text, &records);
    let of_view = |view: &View<'_>| {
        let (lines, gpus) = (view.named(name), view.gpus?);
        let of_line = |line: &&Record| {
            let cards = files(line).map_or(gpus, |files| files.len() as u64);
            Some(amount(line)?.div_ceil(cards.max(1)))
        };
        lines.iter().map(of_line).collect::<Option<Vec<u64>>>()?.into_iter().max()
    };
    views.iter().filter_map(of_view).max()
}

/// One view for each set of lines that counts on some node.
fn views<'a>(text: &str, records: &'a [Record]) -> Vec<View<'a>> {
    let includes = conf::includes(text);
    let mut of_all = Vec::new();
    let mut of_node: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        match record.get("nodename") {
            None => of_all.push(at),
            Some(names) => {
                for name in conf::expand(&names.value).unwrap_or(vec![names.value.clone()]) {
                    of_node.entry(name).or_default().push(at);
                }
            }
        }
        if of_node.len() > NODES_MAX {
            break;
        }
    }
    if of_node.is_empty() {
        of_node.insert(String::new(), Vec::new());
    }
    let mut seen = BTreeMap::new();
    for (node, mut lines) in of_node.into_iter().take(PAIRS_MAX / (of_all.len() + 1) + 1) {
        lines.extend(&of_all);
        lines.sort_unstable();
        seen.entry(lines).or_insert(node);
    }
    let view = |(lines, node): (Vec<usize>, String)| {
        View::of(node, lines.iter().map(|at| &records[*at]).collect(), includes)
    };
    seen.into_iter().map(view).collect()
}

impl<'a> View<'a> {
    fn of(node: String, lines: Vec<&'a Record>, includes: bool) -> Self {
        let looks =
            |line: &&Record| line.get("autodetect").is_some() && !line.is("autodetect", "off");
        let detects = includes || lines.iter().any(looks);
        let mut view = Self { node, lines, detects, has_gpus: false, gpus: None, files: None };
        let gpus = view.named("gpu");
        view.has_gpus = !gpus.is_empty();
        let of_line = |line: &&Record| match files(line) {
            Some(files) => Some(files.len() as u64),
            None if line.get("multiplefiles").is_some() => Some(1),
            None => amount(line),
        };
        let each: Option<Vec<u64>> = gpus.iter().map(of_line).collect();
        let sum = each.map(|each| each.into_iter().fold(0, u64::saturating_add));
        let of_gpus: Option<Vec<Vec<String>>> = gpus.iter().map(|gpu| files(gpu)).collect();
        view.gpus = sum.filter(|sum| *sum > 0 && !detects);
        view.files = of_gpus.map(|files| files.into_iter().flatten().collect());
        view
    }

    /// Its lines of a name that stand for something.
    fn named(&self, name: &str) -> Vec<&'a Record> {
        let counts = |line: &&&Record| line.is("name", name) && amount(line) != Some(0);
        self.lines.iter().filter(counts).copied().collect()
    }

    fn of_node(&self) -> String {
        match self.node.as_str() {
            "" => String::new(),
            node => format!(" on {node}"),
        }
    }
}

fn files(line: &Record) -> Option<Vec<String>> {
    conf::expand(&line.get("file")?.value)
}

/// What a line stands for: its count, else its files, else 1.
fn amount(line: &Record) -> Option<u64> {
    match line.get("count") {
        Some(item) => conf::count(&item.value),
        None if line.get("file").is_some() => files(line).map(|files| files.len() as u64),
        None => Some(1),
    }
}

fn of_view(view: &View<'_>) -> Vec<Finding> {
    let (shards, mps) = (view.named("shard"), view.named("mps"));
    let mut found = Vec::new();
    if let (Some(shard), Some(mps)) = (shards.first(), mps.first()) {
        let later = if shard.span().start > mps.span().start { shard } else { mps };
        found.push(Finding::new(
            ("shard-and-mps", NotWhatYouThink),
            name_of(later),
            format!("a GPU is divided into shards or into MPS, not both: with both loaded{}, jobs with shards are given no CUDA_VISIBLE_DEVICES, and jobs of both kinds meet on one GPU", view.of_node()),
            "keep one of the two, here, in GresTypes and in Gres= of slurm.conf",
        ));
    }
    for (kind, lines) in [("shard", &shards), ("mps", &mps)] {
        found.extend(lines.iter().flat_map(|line| of_line(view, kind, line)));
        found.extend(several(kind, lines));
    }
    found.extend(one_card(view, &mps));
    found
}

fn name_of(line: &Record) -> Range<usize> {
    line.get("name").map_or_else(|| line.span(), |item| item.span.clone())
}

/// A line of shards or MPS and the GPUs of its node.
fn of_line(view: &View<'_>, kind: &str, line: &Record) -> Option<Finding> {
    if view.detects {
        return None;
    }
    if !view.has_gpus {
        return Some(Finding::new(
            ("shared-without-gpu", NotWhatYouThink),
            name_of(line),
            format!(
                "{kind} is a part of a GPU, and no line has Name=gpu{}: slurmd drops it, and jobs that ask for it never start there",
                view.of_node()
            ),
            "put a line such as `Name=gpu File=/dev/nvidia[0-3]` before it, or AutoDetect=nvml",
        ));
    }
    match line.get("file") {
        Some(item) => strange_file(view, kind, line, item.value_span.clone()),
        None => uneven(view, kind, line),
    }
}

fn strange_file(view: &View<'_>, kind: &str, line: &Record, at: Range<usize>) -> Option<Finding> {
    let of_gpus = view.files.as_ref()?;
    let strange = files(line)?.into_iter().find(|file| !of_gpus.contains(file))?;
    Some(Finding::new(
        ("shared-file-of-no-gpu", NotWhatYouThink),
        at,
        format!(
            "{strange} is File of no line with Name=gpu: slurmd discards what {kind} says of it"
        ),
        "name the files of the gpu lines, or leave File out: the count is spread over all GPUs then",
    ))
}

fn uneven(view: &View<'_>, kind: &str, line: &Record) -> Option<Finding> {
    let (item, gpus) = (line.get("count")?, view.gpus?);
    let count = conf::count(&item.value)?;
    spread::uneven(&item.span, (kind, count), gpus, ("Count=", "Gres= of slurm.conf"))
}

/// Several lines for one node, one of them for all its GPUs.
fn several(kind: &str, lines: &[&Record]) -> Option<Finding> {
    let second = lines.get(1)?;
    lines.iter().find(|line| line.get("file").is_none())?;
    Some(Finding::new(
        ("shared-twice", Refused),
        name_of(second),
        format!(
            "two lines with Name={kind} for one node, and not each has a File: slurmd ends with `multiple configurations without \"File\"`"
        ),
        "write one line with the count of all GPUs, or a File in each",
    ))
}

/// MPS on several GPUs of a node, of which Slurm uses one at a time.
fn one_card(view: &View<'_>, lines: &[&Record]) -> Option<Finding> {
    let of_lines: Option<BTreeSet<String>> = lines
        .iter()
        .map(|line| files(line))
        .collect::<Option<Vec<_>>>()
        .map(|files| files.concat().into_iter().collect());
    let gpus =
        of_lines.map_or(view.gpus, |files| Some(files.len() as u64)).filter(|gpus| *gpus > 1)?;
    let has_flag = |line: &&Record| {
        line.get("flags").is_some_and(|item| item.value.to_ascii_lowercase().contains("sharing"))
    };
    if lines.iter().any(has_flag) {
        return None;
    }
    let line = lines.first()?;
    let edit = match line.get("flags") {
        Some(flags) if flags.value.is_empty() => Edit::new(flags.value_span.clone(), "all_sharing"),
        Some(flags) => Edit::new(flags.value_span.end..flags.value_span.end, ",all_sharing"),
        None => Edit::new(line.span().end..line.span().end, " Flags=all_sharing"),
    };
    Some(
        Finding::new(
            ("mps-on-one-gpu", NotWhatYouThink),
            name_of(line),
            format!("of the {gpus} GPUs one at a time is in MPS use: jobs for the others wait"),
            "add Flags=all_sharing to the line",
        )
        .with(Some(edit)),
    )
}

/// Fewer shards than slurm.conf says of the node.
fn below_slurm_conf(view: &View<'_>, site: &Site) -> Option<Finding> {
    // Lines without NodeName are of each node: then the node with fewest shards decides.
    let (node, said) = match view.node.as_str() {
        "" => site.shards_of_node.iter().min_by_key(|(_, shards)| **shards)?,
        node => site.shards_of_node.get_key_value(node)?,
    };
    let lines = view.named("shard");
    let counts: Option<Vec<u64>> = lines.iter().map(|line| amount(line)).collect();
    let has = counts?.into_iter().fold(0, u64::saturating_add);
    let (line, way_out) = (lines.first()?, format!("write the same count in both files: {said}"));
    (has < *said).then(|| {
        let severity = ("shard-count-below-slurm-conf", Refused);
        let happens = format!(
            "slurm.conf says {said} shards of {node}, this file {has}: slurmd does not start there"
        );
        let item = line.get("count").map_or_else(|| name_of(line), |item| item.span.clone());
        Finding::new(severity, item, happens, way_out)
    })
}
