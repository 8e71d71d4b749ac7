//! Every finding that the code can make is in docs/check.md.

use std::fs;
use std::path::Path;

/// Names that stand before a severity in the code of a folder: `("gpus-shared", Refused)`.
fn names(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            names(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let words = text.split('"').skip(1).step_by(2);
        let is_name = |word: &&str| {
            word.contains('-') && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        let before = |word: &str| {
            let marks = ["Refused)", "WaitsForEver)", "NotWhatYouThink)", "Better)"];
            let told = |mark: &&str| text.contains(&format!("(\"{word}\", {mark}"));
            marks.iter().any(told) || text.contains(&format!("(\"{word}\", format!("))
        };
        found.extend(words.filter(is_name).filter(|word| before(word)).map(str::to_owned));
    }
}

#[test]
fn every_finding_is_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    names(&root.join("src"), &mut found);
    found.sort();
    found.dedup();
    assert!(found.len() >= 35, "the names are found: {found:?}");
    let text = fs::read_to_string(root.join("../../docs/check.md")).unwrap();
    for name in found {
        assert!(text.contains(&format!("\n| `{name}` |")), "docs/check.md lacks {name}");
    }
}
