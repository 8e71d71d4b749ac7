//! The simulated driver's functions, held against the types that NVIDIA's `cudaTypedefs.h` gives for each
//! name and version: how many arguments, how large each is, and what pointers point to.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::types::Types;
use crate::shell;

/// One function as the source of the simulated driver says.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    base: String,
    since: String,
    suffix: &'static str,
    /// `None`: it refuses whatever it is given.
    arguments: Option<Vec<String>>,
}

/// A C file that compiles if all functions are as in the headers, and how many there are.
///
/// * `headers` — folder of NVIDIA's.
pub(super) fn c_file(headers: &Path) -> Result<(String, usize), String> {
    let mut typed = header(&headers.join("cudaTypedefs.h"))?;
    typed.extend(header(&headers.join("cudaProfilerTypedefs.h"))?);
    let folder = shell::root().join("fakes/cuda/src");
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).map_err(|e| format!("{name}: {e}"));
    let mut types = Types::read(&read("layouts.rs")?);
    let mut functions = Vec::new();
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        types.read_other_names(&text);
        functions.extend(exported(&text));
    }
    functions.sort_by(|one, two| {
        (&one.base, &one.since, one.suffix).cmp(&(&two.base, &two.since, two.suffix))
    });
    let mut text = String::from(HEAD);
    for function in &functions {
        let name = format!("PFN_{}_v{}{}", function.base, function.since, function.suffix);
        if name == INLINE {
            continue;
        }
        let Some(theirs) = typed.get(&name) else {
            let _ = writeln!(text, "#error NVIDIA has no {name}");
            continue;
        };
        let Some(arguments) = &function.arguments else { continue };
        if theirs.len() != arguments.len() {
            let _ = writeln!(text, "#error {name} has {} arguments", theirs.len());
        }
        for (ours, theirs) in arguments.iter().zip(theirs) {
            let said = format!("{name}: {theirs} is {}", ours.replace('"', "'"));
            let size = types.shape(ours).map_err(|error| format!("{name}: {error}"))?.size;
            let _ = writeln!(text, "SAME({theirs}, {size}, \"{said}\");");
            let target = ours.strip_prefix("*mut ").or_else(|| ours.strip_prefix("*const "));
            // Bytes stand for what the simulated driver does not look into.
            let seen = target.filter(|target| *target != "u8");
            let target = seen.and_then(|target| types.shape(target).ok());
            if let Some(target) =
                target.filter(|_| theirs.ends_with('*') && !theirs.ends_with("void *"))
            {
                let _ = writeln!(text, "SAME(*({theirs})0, {}, \"{said}\");", target.size);
            }
        }
    }
    Ok((text, functions.len()))
}

/// In NVIDIA's header it is an inline function over the other form, so that no type is given for it.
const INLINE: &str = "PFN_cuGetProcAddress_v12000_ptsz";

/// Functions that were renamed since are typed too.
const HEAD: &str = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaTypedefs.h>\n\
#define SAME(kind, size, what) _Static_assert(sizeof(kind) == size, what)\n";

/// The types of arguments by the name of the function's type, from NVIDIA's table.
fn header(path: &Path) -> Result<BTreeMap<String, Vec<String>>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().filter_map(typed).collect())
}

/// One line of that table.
fn typed(line: &str) -> Option<(String, Vec<String>)> {
    let (_, rest) = line.split_once("(CUDAAPI *")?;
    let (name, rest) = rest.split_once(")(")?;
    let (arguments, _) = rest.rsplit_once(')')?;
    let kind = |argument: &str| {
        let argument = argument.trim();
        let list = if argument.ends_with("[]") { " *" } else { "" };
        let named = argument.trim_end_matches("[]");
        let kind = named.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        format!("{}{list}", kind.trim_end())
    };
    let kinds = arguments.split(',').filter(|argument| !matches!(argument.trim(), "void" | ""));
    Some((name.to_string(), kinds.map(kind).collect()))
}

/// The functions that one source file exports: entries of the macro `exports!`.
fn exported(text: &str) -> Vec<Function> {
    let entries = text.split("\n    \"cu").skip(1);
    entries.filter_map(entry).flatten().collect()
}

/// One entry, from the name after `cu` on, with its twin for the thread's own stream.
fn entry(text: &str) -> Option<Vec<Function>> {
    let (name, rest) = text.split_once("\" ")?;
    let (head, rest) = rest.split_once('(')?;
    let mut words = head.split_whitespace();
    let since = words.next()?;
    let words: Vec<&str> = words.collect();
    if !since.bytes().all(|byte| byte.is_ascii_digit()) || !words.contains(&"fn") {
        return None;
    }
    let arguments = inside(rest);
    let body = rest.get(arguments.len()..)?;
    let kinds = outer_commas(arguments).into_iter().filter_map(|one| one.split_once(':'));
    let arguments: Vec<String> = kinds.map(|(_, kind)| kind.trim().to_string()).collect();
    // What is always refused needs no arguments.
    let refuses = arguments.is_empty() && body.starts_with(") |_| { Err(NOT_SUPPORTED) }");
    let one = |since: &str, suffix| Function {
        base: format!("cu{name}"),
        since: since.to_string(),
        suffix,
        arguments: Some(arguments.clone()).filter(|_| !refuses),
    };
    let twin = words.iter().position(|word| word.starts_with('['));
    let twin = twin.and_then(|at| {
        let suffix = if words.get(at)?.ends_with("_ptds") { "_ptds" } else { "_ptsz" };
        Some(one(words.get(at + 1)?.trim_end_matches(']'), suffix))
    });
    Some(std::iter::once(one(since, "")).chain(twin).collect())
}

/// What stands before the bracket that closes.
fn inside(text: &str) -> &str {
    let mut depth = 1_i32;
    let closes = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    };
    text.split(closes).next().unwrap_or("")
}

/// Parts between commas that are not inside brackets.
fn outer_commas(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let outer = |c: char| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        c == ',' && depth == 0
    };
    text.split(outer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_macro_and_lines_of_the_table_are_read() {
        let text = "exports! { X;\n    \"cuA\" 3020 call [cuA_v2_ptsz 7000] fn cuA_v2(\n        to: u64,\n\
                    from: *const c_void, f: Option<fn(u8, u8)>,\n    ) |call| { call.a() }\n\n\
                    \x20   \"cuB\" 2000 bare fn cuB() |call| {\n    }\n\
                    \x20   \"cuC\" 2000 call\n    fn cuC() |_| { Err(NOT_SUPPORTED) }\n    \"cuD\" {";
        let found = exported(text);
        assert_eq!(found.len(), 4);
        assert_eq!((found[0].since.as_str(), found[0].suffix), ("3020", ""));
        assert_eq!((found[1].since.as_str(), found[1].suffix), ("7000", "_ptsz"));
        let arguments = |at: usize| found[at].arguments.clone();
        assert_eq!(arguments(1).unwrap(), ["u64", "*const c_void", "Option<fn(u8, u8)>"]);
        assert_eq!((arguments(2), arguments(3)), (Some(Vec::new()), None));
        let line = "    typedef CUresult (CUDAAPI *PFN_cuA_v3020)(CUdeviceptr_v2 to, const void *from, int on[]);";
        let (name, kinds) = typed(line).unwrap();
        assert_eq!(name, "PFN_cuA_v3020");
        assert_eq!(kinds, ["CUdeviceptr_v2", "const void *", "int *"]);
    }
}
