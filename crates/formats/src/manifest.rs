//! The parts of a Kubernetes manifest that have nothing to do with GPUs: documents, words, variables.

use crate::error::{Complaint, ReadError, quote};
use crate::keys::{Field, Keys};
use crate::launching::is_name;
use crate::quantity::MEMORY_MAX_MIB;
use crate::text::Source;
use crate::tree::Entry;

/// The documents of a file. Each keeps its lines where they are in the file, so that errors name the
/// right ones.
pub(crate) fn documents(source: &Source) -> Result<Vec<Source>, ReadError> {
    let mut documents: Vec<String> = vec![String::new()];
    for (at, line) in source.text().lines().enumerate() {
        if line.trim_end() == "---" {
            documents.push("\n".repeat(at + 1));
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    let is_empty =
        |text: &String| text.lines().all(|line| line.trim().is_empty() || line.starts_with('#'));
    let full = documents.into_iter().filter(|text| !is_empty(text));
    full.map(|text| Source::from_bytes(source.name(), text.into_bytes())).collect()
}

/// The keys of a document.
pub(crate) fn root<'a>(source: &'a Source, tree: &'a Entry) -> Result<Keys<'a>, ReadError> {
    Keys::of_any_file(source, tree)
}

/// Bytes with a suffix of powers of 1024 (`2Gi`) or of 1000 (`500M`), rounded up to MiB (Kubernetes
/// API reference, Quantity).
pub(crate) fn memory_mib(text: &str) -> Result<u64, Complaint> {
    const UNITS: [(&str, u64); 9] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("", 1),
    ];
    let unit = UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    let bytes = unit.and_then(|(number, unit)| decimal_bytes(number, unit));
    let mib = bytes.map(|bytes| bytes.div_ceil(1 << 20)).filter(|mib| *mib <= MEMORY_MAX_MIB);
    mib.ok_or_else(|| {
        let what = format!("{} is no amount of memory", quote(text));
        Complaint::new(what, "give one such as 2Gi or 512M")
    })
}

/// A number with at most three decimals times a unit.
fn decimal_bytes(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let milli: u64 = format!("{part:0<3}").parse().ok()?;
    let bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    bytes.checked_add(u64::try_from(u128::from(milli) * u128::from(unit) / 1000).ok()?)
}

/// The keys of a part of a manifest that are not among those known, as `part.key`.
pub(crate) fn others(part: &str, keys: &Keys<'_>, known: &[&str]) -> Vec<String> {
    let others = keys.iter().filter(|field| !known.contains(&field.name()));
    others.map(|field| format!("{part}.{}", field.name())).collect()
}

/// A list of words.
pub(crate) fn words(field: &Field<'_>) -> Result<Vec<String>, ReadError> {
    field.items()?.iter().map(|item| item.read(|text| Ok(text.to_string()))).collect()
}

/// The variables with a value of their own; one from elsewhere is refused.
pub(crate) fn env(container: &Keys<'_>) -> Result<Vec<(String, String)>, ReadError> {
    if let Some(field) = container.get("envFrom") {
        return Err(field.error("needs a cluster", "give the values under env"));
    }
    let mut env = Vec::new();
    for item in container.items("env")? {
        let keys = item.any_keys()?;
        let name = keys.need("name", "a name")?;
        if !is_name(name.text()?) {
            return Err(name.error("cannot name a variable", "use letters, digits and _"));
        }
        if let Some(field) = keys.get("valueFrom") {
            return Err(field.error("needs a cluster", "give the value itself"));
        }
        let value = keys.read("value", |text| Ok(text.to_string()))?.unwrap_or_default();
        env.push((name.text()?.to_string(), value));
    }
    Ok(env)
}

/// Replaces `$(NAME)` by the variable's value and leaves unknown names as they stand, as the kubelet
/// does; `$$(NAME)` is `$(NAME)` itself.
pub(crate) fn expand(words: &[String], env: &[(String, String)]) -> Vec<String> {
    words.iter().map(|word| expand_one(word, env)).collect()
}

fn expand_one(word: &str, env: &[(String, String)]) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
            continue;
        }
        let named = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        let value = named.and_then(|(name, after)| {
            let (_, value) = env.iter().find(|(known, _)| known == name)?;
            Some((value, after))
        });
        match value {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push('$');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}
