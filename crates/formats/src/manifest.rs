//! The parts of a Kubernetes manifest that have nothing to do with GPUs: documents, words, variables.

use crate::error::ReadError;
use crate::keys::{Field, Keys};
use crate::launching::is_name;
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
