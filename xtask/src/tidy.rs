//! The rules of the house that the compiler does not hold: arrows between crates, purity, headers,
//! sizes, names, and that ARCHITECTURE.md knows every room.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Verdict, shell};

/// Which crates of the workspace a crate may name, tests aside.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("engine", &["model"]),
    ("formats", &["model"]),
    ("lint", &["model", "formats"]),
    ("simulator", &["model", "engine"]),
    ("advice", &["model", "engine", "simulator"]),
    ("caps", &[]),
    ("limiter", &["caps"]),
    ("node", &["model", "caps"]),
    ("agent", &["model", "node"]),
    ("local", &["model", "engine", "formats", "node"]),
    ("spank", &[]),
    ("slurm", &["model", "formats", "node", "local"]),
    ("kubernetes", &["model", "engine", "node", "agent"]),
    (
        "cli",
        &[
            "model",
            "engine",
            "formats",
            "lint",
            "simulator",
            "advice",
            "node",
            "agent",
            "local",
            "slurm",
            "kubernetes",
            "fake-machine",
        ],
    ),
    ("fake-machine", &["model"]),
    ("fake-gpu", &["fake-machine"]),
    ("fake-nvml", &["fake-machine", "fake-gpu"]),
    ("fake-cuda", &["fake-machine", "fake-gpu"]),
    ("fake-tools", &["fake-machine"]),
    ("lab-base", &["fake-machine"]),
    ("slurm-lab", &["fake-machine", "lab-base"]),
    ("kubernetes-lab", &["fake-machine", "lab-base"]),
    (
        "xtask",
        &[
            "model",
            "engine",
            "formats",
            "simulator",
            "advice",
            "fake-machine",
            "fake-gpu",
            "caps",
            "slurm-lab",
            "kubernetes-lab",
        ],
    ),
];

/// Crates without I/O, and the third-party crates that they may use (without `std`).
const PURE: &[(&str, &[&str])] = &[("model", &["serde", "thiserror"]), ("engine", &["libm"])];

/// Lines of a source file; tests count.
const LINES_MAX: usize = 400;

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "manager"];

pub(crate) fn run() -> Verdict {
    let complaints = check(&shell::root());
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    match complaints.len() {
        0 => {
            println!("tidy: the house is in order");
            Ok(())
        }
        count => Err(format!("tidy: {count} complaints")),
    }
}

/// Everything that is out of order under `root`.
fn check(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    for folder in crate_folders(root) {
        let name = package(&folder);
        if !architecture.contains(&format!("`{}`", relative(root, &folder))) {
            complaints.push(format!(
                "{name}: ARCHITECTURE.md does not mention `{}`",
                relative(root, &folder)
            ));
        }
        arrows(&folder, &name, &mut complaints);
        purity(&folder, &name, &mut complaints);
        for file in rust_files(&folder) {
            source(root, &file, &mut complaints);
            if name == "engine" && file.starts_with(folder.join("src")) {
                known_module(&file, &architecture, &mut complaints);
            }
        }
    }
    complaints
}

fn crate_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("xtask")];
    folders.extend(entries(&root.join("crates")));
    folders.extend(entries(&root.join("fakes")));
    folders.extend(entries(&root.join("labs")));
    folders.retain(|folder| folder.join("Cargo.toml").exists());
    folders
}

/// The name in a crate's manifest; its folder's, if that has none.
fn package(folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let named = manifest.get("package").and_then(|package| package.get("name"));
    let of_folder = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
    named.and_then(toml::Value::as_str).map(str::to_string).or_else(of_folder).unwrap_or_default()
}

/// Compares a manifest with the table of arrows.
fn arrows(folder: &Path, name: &str, complaints: &mut Vec<String>) {
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        complaints.push(format!("{name}: no arrows are known for this crate; add it to ARROWS"));
        return;
    };
    for dependency in dependencies(folder) {
        let ours = ARROWS.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency.as_str()) {
            complaints.push(format!("{name}: must not depend on {dependency}"));
        }
    }
}

/// A pure crate is `no_std`, has no unsafe code, and uses nothing but what is listed.
fn purity(folder: &Path, name: &str, complaints: &mut Vec<String>) {
    let Some((_, allowed)) = PURE.iter().find(|(pure, _)| *pure == name) else { return };
    let head = fs::read_to_string(folder.join("src/lib.rs")).unwrap_or_default();
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        if !head.contains(attribute) {
            complaints.push(format!("{name}: src/lib.rs lacks {attribute}"));
        }
    }
    for dependency in dependencies(folder) {
        let ours = ARROWS.iter().any(|(known, _)| *known == dependency);
        if !ours && !allowed.contains(&dependency.as_str()) {
            complaints.push(format!("{name}: a pure crate must not use {dependency}"));
        }
    }
    for file in rust_files(&folder.join("src")) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let outside = ["std::", "extern crate std"];
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            if outside.iter().any(|word| line.contains(word)) {
                complaints.push(format!(
                    "{}: a pure crate reaches for std: {}",
                    file.display(),
                    line.trim()
                ));
            }
        }
    }
}

fn dependencies(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let of = |section: &str| match manifest.get(section) {
        Some(toml::Value::Table(table)) => table.keys().cloned().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    [of("dependencies"), of("build-dependencies")].concat()
}

/// Header, size and name of one source file.
fn source(root: &Path, file: &Path, complaints: &mut Vec<String>) {
    let place = relative(root, file);
    let text = fs::read_to_string(file).unwrap_or_default();
    if !text.starts_with("//! ") {
        complaints.push(format!("{place}: does not open with what it is for (`//! …`)"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        complaints.push(format!("{place}: {lines} lines, more than {LINES_MAX}"));
    }
    let stem =
        file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if EMPTY_NAMES.contains(&stem.as_str()) {
        complaints.push(format!("{place}: the name says nothing"));
    }
}

fn known_module(file: &Path, architecture: &str, complaints: &mut Vec<String>) {
    let stem =
        file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if stem != "lib" && stem != "mod" && !architecture.contains(&format!("`{stem}`")) {
        complaints.push(format!("engine: ARCHITECTURE.md does not mention the module `{stem}`"));
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in entries(folder) {
        if entry.is_dir() {
            files.extend(rust_files(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files
}

/// What lies in a folder, in order of name; nothing if it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A house in order: two crates, one file each.
    fn house(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("tidy-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("ARCHITECTURE.md", "`crates/model` holds nouns, `crates/engine` decides: `order`.");
        put("crates/model/Cargo.toml", "[dependencies]\nserde = \"1\"\n");
        put("crates/model/src/lib.rs", "//! Nouns.\n#![no_std]\n#![forbid(unsafe_code)]\n");
        put("crates/engine/Cargo.toml", "[dependencies]\nmodel = { path = \"../model\" }\n");
        put("crates/engine/src/lib.rs", "//! Verbs.\n#![no_std]\n#![forbid(unsafe_code)]\n");
        put("crates/engine/src/order.rs", "//! Who is next.\n");
        root
    }

    /// Plants a fault in a house and returns what tidy says of it.
    fn planted(name: &str, path: &str, text: &str) -> String {
        let root = house(name);
        assert_eq!(check(&root), Vec::<String>::new(), "the house is in order before");
        fs::write(root.join(path), text).unwrap();
        let complaints = check(&root).join("\n");
        fs::remove_dir_all(&root).unwrap();
        complaints
    }

    #[test]
    fn an_arrow_against_the_flow_is_found() {
        let manifest = "[dependencies]\nengine = { path = \"../engine\" }\n";
        let said = planted("arrow", "crates/model/Cargo.toml", manifest);
        assert_eq!(said, "model: must not depend on engine");
    }

    #[test]
    fn a_clock_in_the_engine_is_found() {
        let code = "//! Who is next.\nfn now() { std::time::Instant::now(); }\n";
        let said = planted("clock", "crates/engine/src/order.rs", code);
        assert!(said.contains("reaches for std"), "{said}");
    }

    #[test]
    fn std_in_a_pure_crate_is_found() {
        let said =
            planted("std", "crates/engine/src/lib.rs", "//! Verbs.\n#![forbid(unsafe_code)]\n");
        assert_eq!(said, "engine: src/lib.rs lacks #![no_std]");
    }

    #[test]
    fn a_heavy_dependency_of_a_pure_crate_is_found() {
        let manifest = "[dependencies]\nmodel = { path = \"../model\" }\ntokio = \"1\"\n";
        let said = planted("heavy", "crates/engine/Cargo.toml", manifest);
        assert_eq!(said, "engine: a pure crate must not use tokio");
    }

    #[test]
    fn a_file_without_header_a_long_file_and_an_unknown_module_are_found() {
        let said = planted("header", "crates/engine/src/order.rs", "fn next() {}\n");
        assert!(said.contains("does not open with what it is for"), "{said}");
        let long = format!("//! Long.\n{}", "//\n".repeat(LINES_MAX));
        let said = planted("long", "crates/engine/src/order.rs", &long);
        assert!(said.contains("401 lines, more than 400"), "{said}");
        let said = planted("room", "crates/engine/src/utils.rs", "//! Things.\n");
        assert!(said.contains("the name says nothing"), "{said}");
        assert!(said.contains("does not mention the module `utils`"), "{said}");
    }
}
