//! The simulated driver's structs and result codes, held against NVIDIA's header: the size of each struct,
//! and that each of its parts in the header begins where one of ours does and is as large. Names of
//! parts are not compared, as ours are our own.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::types::{Shape, Types};
use crate::shell;

/// What the assertions lean on.
const HEAD: &str = "#include <stddef.h>\n#include <cuda.h>\n#define MUST(holds, what) _Static_assert(holds, what)\n";

/// A C file that compiles if all is as in the header, and how many assertions it has.
pub(super) fn c_file(headers: &Path) -> Result<(String, usize), String> {
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let source = shell::root().join("fakes/cuda/src");
    let header = without_remarks(&read(&headers.join("cuda.h"))?);
    let types = Types::read(&read(&source.join("layouts.rs"))?);
    let mut text = String::from(HEAD);
    for described in &types.described {
        let shape = types.shape(&described.name)?;
        for c_name in &described.c_names {
            let size = shape.size;
            let _ = writeln!(
                text,
                "MUST(sizeof({c_name}) == {size}, \"{c_name} has not {size} bytes\");"
            );
            // Structs that hold a union by themselves are known by size only.
            for part in parts(&header, c_name).unwrap_or_default() {
                part_lies(&mut text, c_name, &part, &shape);
            }
        }
    }
    for (number, name) in results(&read(&source.join("result.rs"))?) {
        let _ = writeln!(text, "MUST({name} == {number}, \"{name} is not {number}\");");
    }
    let count = text.matches("\nMUST(").count();
    if count < 200 {
        return Err(format!("only {count} layouts and codes were found in {}", source.display()));
    }
    Ok((text, count))
}

/// A part of theirs begins where one of ours does, and is as large or a list's first.
fn part_lies(text: &mut String, c_name: &str, part: &str, shape: &Shape) {
    let lies = |(at, size): &(usize, usize)| {
        format!("(offsetof({c_name}, {part}) == {at} && sizeof((({c_name} *)0)->{part}) == {size})")
    };
    let mut ways: Vec<String> = shape.parts.iter().map(lies).collect();
    ways.dedup();
    // What is reserved has no meaning, so that it may be cut otherwise.
    if !part.starts_with("reserved") {
        let _ = writeln!(text, "MUST({}, \"{c_name}.{part} lies elsewhere\");", ways.join(" || "));
    }
}

/// Names of the parts of a struct of the header; parts of an inner union or struct under its name are not
/// told apart.
fn parts(header: &str, c_name: &str) -> Option<Vec<String>> {
    let own = |name: &str| header.split_once(&format!("}} {name};")).map(|(before, _)| before);
    // Most are typed twice: with a version, and then without.
    let named = header.lines().find_map(|line| {
        let (from, to) =
            line.trim().strip_prefix("typedef ")?.strip_suffix(';')?.rsplit_once(' ')?;
        (to == c_name && !from.contains(' ')).then(|| from.to_string())
    });
    let before = own(c_name).or_else(|| named.as_deref().and_then(own))?;
    let (_, body) = before.rsplit_once("typedef struct ")?;
    let (_, body) = body.split_once('{')?;
    let (mut depth, mut found) = (0, Vec::new());
    for line in body.lines().map(str::trim) {
        let outside = depth == 0;
        depth += line.matches('{').count();
        depth = depth.checked_sub(line.matches('}').count())?;
        let closes = line.starts_with('}') && depth == 0;
        if (outside && depth == 0 || closes) && line.ends_with(';') {
            let name = line.trim_end_matches(';').split('[').next()?.trim_end();
            let name = name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
            found.extend(Some(name.to_string()).filter(|name| !name.is_empty()));
        }
    }
    Some(found)
}

/// A header without `/* … */`.
fn without_remarks(text: &str) -> String {
    let mut pieces = text.split("/*");
    let first = pieces.next().unwrap_or("").to_string();
    pieces.fold(first, |mut kept, piece| {
        kept.push_str(piece.split_once("*/").map_or("", |(_, after)| after));
        kept
    })
}

/// Numbers and names of the result codes in the simulated driver's source.
fn results(text: &str) -> Vec<(u32, String)> {
    let one = |line: &str| {
        let (_, rest) = line.split_once(" = ")?;
        let (number, rest) = rest.split_once(" \"")?;
        let (name, _) = rest.split_once("\";")?;
        let known = name == "CUDA_SUCCESS" || name.starts_with("CUDA_ERROR_");
        Some((number.parse().ok()?, name.to_string())).filter(|_| known)
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_struct_are_found_in_a_header() {
        let header = "typedef struct CUa_st {\n    int kind; /**< What; not who */\n    union {\n        int fd;\n\
                      struct {\n void *handle;\n } win32;\n    } handle;\n    size_t size[3];\n\
                      unsigned char const *at;\n} CUa_v1;\ntypedef CUa_v1 CUa;\n";
        let header = without_remarks(header);
        assert_eq!(parts(&header, "CUa").unwrap(), ["kind", "handle", "size", "at"]);
        assert_eq!(parts(&header, "CUb"), None);
    }

    #[test]
    fn result_codes_are_read() {
        let text = "results! {\n    SUCCESS = 0 \"CUDA_SUCCESS\";\n    OTHER = 7 \"else\";\n}";
        assert_eq!(results(text), [(0, "CUDA_SUCCESS".to_string())]);
    }
}
