//! The fake driver's functions as C prototypes, read from its source, so that a compiler can hold them
//! against the real header: a second declaration with other types is an error in C.

use std::fs;

use crate::shell;

/// A C file that declares every function of the fake driver again, after the header.
pub(crate) fn c_file() -> Result<(String, usize), String> {
    let folder = shell::root().join("fakes/nvml/src");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut prototypes = Vec::new();
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        prototypes.extend(functions(&text));
    }
    prototypes.sort();
    let head = "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <nvml.h>\n";
    Ok((format!("{head}{}\n", prototypes.join("\n")), prototypes.len()))
}

/// The prototypes of the functions of one source file.
fn functions(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn nvml") {
        let rest = text.get(at + 3..).unwrap_or("");
        let Some((name, rest)) = rest.split_once('(') else { continue };
        let Some((arguments, after)) = rest.split_once(')') else { continue };
        let after = after.trim_start();
        // Those of the macros, and those that stand alone.
        let exported =
            after.starts_with('|') || after.starts_with("is ") || after.starts_with("->");
        if exported {
            found.push(prototype(name, arguments, after));
        }
    }
    found
}

fn prototype(name: &str, arguments: &str, after: &str) -> String {
    let types = arguments.split(',').filter_map(|argument| argument.split_once(':'));
    let types: Vec<String> = types.map(|(_, kind)| c_type(kind.trim())).collect();
    let arguments = if types.is_empty() { "void".to_string() } else { types.join(", ") };
    let text = after.starts_with("-> *const c_char");
    let result = if text { "const char *" } else { "nvmlReturn_t" };
    format!("{result} {name}({arguments});")
}

fn c_type(kind: &str) -> String {
    if let Some(target) = kind.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = kind.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    let name = match kind {
        "c_char" => "char",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_ulong" => "unsigned long",
        "u64" => "unsigned long long",
        named => named,
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_become_prototypes() {
        let text = "nvml! {\n    fn nvmlA(\n        device: nvmlDevice_t, to: *mut c_uint,\n    ) |call| {\n\
                    also! { fn nvmlB(text: *const c_char, since: u64) is nvmlA; }\n\
                    extern \"C\" fn nvmlC() -> nvmlReturn_t {\nlet x = fn_nvmlD();";
        assert_eq!(
            functions(text),
            [
                "nvmlReturn_t nvmlA(nvmlDevice_t, unsigned int *);",
                "nvmlReturn_t nvmlB(const char *, unsigned long long);",
                "nvmlReturn_t nvmlC(void);",
            ]
        );
    }
}
