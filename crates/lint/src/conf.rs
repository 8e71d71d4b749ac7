//! Lines of Slurm's configuration files, as keys with values and their places (slurm.conf manual: `#` ends a line, a backslash
//! at its end continues it, letter case of keys does not count, quotes hold blanks).

use std::ops::Range;

use crate::input::Kind;

/// Names that a list of hosts or files is written out to, at most.
const LIST_MAX: usize = 4096;

/// Keys that slurm.conf alone has.
const SLURM_CONF: [&str; 10] = [
    "clustername",
    "slurmctldhost",
    "controlmachine",
    "grestypes",
    "taskplugin",
    "selecttype",
    "selecttypeparameters",
    "partitionname",
    "slurmctldport",
    "accountingstoragetype",
];

/// One line with its continuations.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) items: Vec<Item>,
}

/// `Key=Value`.
#[derive(Debug)]
pub(crate) struct Item {
    /// The key in small letters.
    pub(crate) key: String,
    /// The value without quotes.
    pub(crate) value: String,
    /// The bytes of both.
    pub(crate) span: Range<usize>,
    /// The bytes of the value, without quotes.
    pub(crate) value_span: Range<usize>,
}

impl Record {
    pub(crate) fn get(&self, key: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.key == key)
    }

    /// Whether its value, in small letters, is `value`.
    pub(crate) fn is(&self, key: &str, value: &str) -> bool {
        self.get(key).is_some_and(|item| item.value.eq_ignore_ascii_case(value))
    }

    /// Which file such a line is of.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let first = self.items.first()?;
        let of_node = first.key == "nodename";
        let of_gres = ["count", "file", "type", "multiplefiles", "autodetect"];
        match first.key.as_str() {
            // Other files have a `name = "…"` too.
            "name" if ["gpu", "shard", "mps"].iter().any(|name| self.is("name", name)) => {
                Some(Kind::GresConf)
            }
            "name" if of_gres.iter().any(|key| self.get(key).is_some()) => Some(Kind::GresConf),
            "autodetect" => Some(Kind::GresConf),
            key if SLURM_CONF.contains(&key) => Some(Kind::SlurmConf),
            _ if of_node && ["name", "autodetect"].iter().any(|key| self.get(key).is_some()) => {
                Some(Kind::GresConf)
            }
            _ if of_node && self.items.len() > 1 => Some(Kind::SlurmConf),
            _ => None,
        }
    }

    /// The bytes from its first to its last item.
    pub(crate) fn span(&self) -> Range<usize> {
        let (first, last) = (self.items.first(), self.items.last());
        first.map_or(0, |item| item.span.start)..last.map_or(0, |item| item.span.end)
    }
}

/// All lines that have something to say.
pub(crate) fn records(text: &str) -> Vec<Record> {
    let (mut records, mut record, mut from) = (Vec::new(), Record::default(), 0);
    for line in text.split_inclusive('\n') {
        let end = line.find('#').unwrap_or(line.len());
        let shown = line[..end].trim_end();
        let goes_on = shown.ends_with('\\') && end == line.len();
        let shown = shown.trim_end_matches('\\');
        record.items.extend(items(shown, from));
        if !goes_on && !record.items.is_empty() {
            records.push(std::mem::take(&mut record));
        }
        from += line.len();
    }
    records.extend((!record.items.is_empty()).then_some(record));
    records
}

/// Whether the file has others read in its place (slurm.conf manual, INCLUDE).
pub(crate) fn includes(text: &str) -> bool {
    let word = |line: &str| line.split_whitespace().next().map(str::to_ascii_lowercase);
    text.lines().any(|line| word(line).as_deref() == Some("include"))
}

/// * `from` — where the line begins in the text.
fn items(line: &str, from: usize) -> Vec<Item> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < line.len() {
        at += blanks(&line[at..]);
        let (item, length) = item(&line[at..], from + at);
        found.extend(item);
        at += length.max(1);
    }
    found
}

fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// What a line begins with, and how long that is: blanks may stand on both sides of `=`, and a word without one says nothing.
fn item(line: &str, start: usize) -> (Option<Item>, usize) {
    let word = line.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(line.len());
    let equals = word + blanks(&line[word..]);
    if !line[equals..].starts_with('=') || word == 0 {
        return (None, line[..word].len().max(line.chars().next().map_or(0, char::len_utf8)));
    }
    let key = line[..word].trim_end_matches(['+', '-', '*', '/']).to_ascii_lowercase();
    let mut value = equals + 1;
    // At the end of a line nothing follows.
    value += if line[value..].trim().is_empty() { 0 } else { blanks(&line[value..]) };
    let is_quoted = line[value..].starts_with('"');
    value += usize::from(is_quoted);
    let is_end = |c: char| if is_quoted { c == '"' } else { c.is_whitespace() };
    let end = value + line[value..].find(is_end).unwrap_or(line.len() - value);
    let whole = (end + usize::from(is_quoted)).min(line.len());
    let (span, value_span) = (start..start + whole, start + value..start + end);
    let value = line[value..end].to_owned();
    ((!key.is_empty()).then_some(Item { key, value, span, value_span }), whole)
}

/// The names of a list such as `n[01-03,7],m1`; `None` if it is not one that is understood, or too long.
pub(crate) fn expand(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in split_outside(list) {
        let Some((before, rest)) = part.split_once('[') else {
            names.push(part.to_owned());
            continue;
        };
        let (inner, after) = rest.split_once(']').filter(|(_, after)| !after.contains('['))?;
        for range in inner.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (low.parse::<usize>().ok()?, high.parse::<usize>().ok()?);
            if last < first || last - first >= LIST_MAX || names.len() > LIST_MAX {
                return None;
            }
            let width = low.len().min(8);
            names.extend((first..=last).map(|number| format!("{before}{number:0width$}{after}")));
        }
    }
    (names.len() <= LIST_MAX).then_some(names)
}

/// The parts between commas that stand in no brackets.
fn split_outside(list: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let split = list.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    split.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// A count as Slurm writes it: `4`, `2K`, `1M`.
pub(crate) fn count(text: &str) -> Option<u64> {
    let units = [('K', 1 << 10), ('k', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let unit = units.iter().find_map(|(letter, unit)| Some((text.strip_suffix(*letter)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// What `Gres=` of a node says of a name, such as 16 of `gpu:a100:4,shard:16`; sockets in brackets are passed over.
pub(crate) fn gres_of(value: &str, name: &str) -> Option<u64> {
    let bare = value.split(',').map(|item| item.split('(').next().unwrap_or(item));
    let of_name = bare.filter_map(|item| {
        let mut words = item.trim().split(':');
        (words.next() == Some(name)).then(|| words.next_back().and_then(count).unwrap_or(1))
    });
    of_name.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(count)))
}
