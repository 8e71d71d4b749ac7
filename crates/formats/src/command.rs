//! How an entry of a workload file wants its tasks started.

use std::path::PathBuf;

use crate::dependency::{self, Dependency};
use crate::error::ReadError;
use crate::job::{Launch, Program};
use crate::keys::{Field, Keys};
use crate::launching::is_name;

/// The shell that a command in one string is given to.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// The launch of an entry; without a command it cannot be run.
pub(crate) fn launch(keys: &Keys<'_>) -> Result<Launch, ReadError> {
    let text = |name: &str| {
        let text = keys.get(name).map(|field| field.text()).transpose()?;
        Ok::<_, ReadError>(text.map(str::to_string))
    };
    Ok(Launch {
        program: program(&keys.need("command", "command = \"…\" to run it")?)?,
        directory: text("directory")?.map(PathBuf::from),
        output: text("output")?,
        error: text("error")?,
        env: env(keys)?,
        ..Launch::default()
    })
}

/// What must have happened before: a list of conditions such as `afterok:prepare`, or of the names
/// of jobs that must have ended well.
pub(crate) fn after(keys: &Keys<'_>) -> Result<Vec<Dependency>, ReadError> {
    let mut found = Vec::new();
    for item in keys.items("after")? {
        let text = item.text()?;
        let condition = match text.contains(':') || text == "singleton" {
            true => text.to_string(),
            false => format!("afterok:{text}"),
        };
        found.extend(item.read(|_| dependency::parse(&condition))?);
    }
    Ok(found)
}

/// One string for the shell, or the program and its arguments in a list.
fn program(field: &Field<'_>) -> Result<Program, ReadError> {
    if !field.is_list() {
        let shell = SHELL.map(str::to_string);
        return Ok(Program::Command([&shell[..], &[field.text()?.to_string()]].concat()));
    }
    let words: Result<Vec<String>, ReadError> =
        field.items()?.iter().map(|item| item.read(|text| Ok(text.to_string()))).collect();
    let words = words?;
    match words.first().is_none_or(String::is_empty) {
        true => Err(field.error("names no program", "give [\"program\", \"argument\", …]")),
        false => Ok(Program::Command(words)),
    }
}

fn env(keys: &Keys<'_>) -> Result<Vec<(String, String)>, ReadError> {
    let Some(field) = keys.get("env") else { return Ok(Vec::new()) };
    let mut env = Vec::new();
    for entry in field.any_keys()?.iter() {
        if !is_name(entry.name()) {
            return Err(entry.error("cannot name a variable", "use letters, digits and _"));
        }
        env.push((entry.name().to_string(), entry.read(|text| Ok(text.to_string()))?));
    }
    Ok(env)
}
