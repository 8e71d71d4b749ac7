//! Reports of made-up comparisons: whole, escaped, self-contained, and calm about strange figures.
//!
//! The pages are left in the target folder's `tmp/report` to be looked at.

use std::path::{Path, PathBuf};

use simulator::outcome::Comparison;
use simulator::report::{FORMAT, csv, html, json, terminal, write_whole};

#[path = "report/examples.rs"]
mod examples;

use examples::{arrivals, degenerate, hostile, timed};

fn all() -> Vec<Comparison> {
    let mut all = vec![arrivals(), timed(), hostile()];
    all.extend(degenerate());
    all
}

/// Asserts that every element opened is closed, in order.
fn assert_well_formed(page: &str) {
    const VOID: [&str; 3] = ["meta", "!DOCTYPE", "br"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed in order");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
            if name == "script" || name == "style" {
                rest = &rest[rest.find(&format!("</{name}>")).expect("raw text ends")..];
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("the page holds its data");
    let (text, _) = rest.split_once("</script>").expect("the data ends");
    serde_json::from_str(text).expect("the data is JSON")
}

#[test]
fn pages_are_well_formed_and_load_nothing() {
    for comparison in all() {
        let page = html(&comparison);
        assert_well_formed(&page);
        assert!(page.starts_with("<!DOCTYPE html>"));
        for loads in ["http://", "https://", "url(//", "@import", "src=\"", "href="] {
            assert!(!page.contains(loads), "{loads}");
        }
        for number in ["\"NaN", "\"inf", "NaN,", ",NaN", "inf,"] {
            assert!(!page.contains(number), "{number} in a drawing");
        }
    }
}

#[test]
fn names_stay_text() {
    let comparison = hostile();
    let page = html(&comparison);
    assert_eq!(page.matches("<script").count(), 2, "the data and our own script");
    assert!(!page.contains("<img"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert_eq!(data(&page)["trace"], comparison.trace.as_str(), "in the data they are unchanged");
    let text = terminal(&comparison, 80, false);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    assert!(csv(&comparison).contains("\n\"a,b\n\"\"c\"\"\",1000,1,"));
}

#[test]
fn json_is_the_comparison_and_the_page_holds_the_same() {
    for comparison in all() {
        let text = json(&comparison);
        let mut document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(data(&html(&comparison)), document);
        assert!(
            text.starts_with(&format!("{{\n  \"format\": \"{FORMAT}\",")) && text.ends_with("}\n")
        );
        let fields = document.as_object_mut().expect("an object");
        fields.remove("format");
        assert_eq!(
            fields.remove("sizes").expect("names of the sizes").as_array().map(Vec::len),
            Some(6)
        );
        let own = serde_json::to_string(&comparison).expect("encodes");
        let own: serde_json::Value = serde_json::from_str(&own).expect("JSON");
        assert_eq!(document, own);
    }
}

#[test]
fn csv_has_a_row_per_policy_and_sample() {
    assert_eq!(csv(&arrivals()).lines().count(), 1 + 3 * 130);
    assert_eq!(csv(&timed()).lines().count(), 1 + 9 * 2_000);
    assert_eq!(csv(&Comparison::default()).lines().count(), 1);
    for comparison in degenerate() {
        let text = csv(&comparison);
        assert!(text.lines().all(|row| row.matches(',').count() == 8));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}

#[test]
fn colours_have_contrast_in_both_modes() {
    let page = html(&arrivals());
    let (light, dark) = page.split_once("prefers-color-scheme: dark").expect("a dark mode");
    for mode in [light, dark] {
        let paper = luminance(variable(mode, "paper"));
        for (name, least) in
            [("s0", 3.0), ("s1", 3.0), ("s2", 3.0), ("s3", 3.0), ("s4", 3.0), ("s5", 3.0)]
                .into_iter()
                .chain([("s6", 3.0), ("s7", 3.0), ("ink", 7.0), ("quiet", 4.5), ("good", 4.5)])
        {
            let colour = luminance(variable(mode, name));
            let contrast = (colour.max(paper) + 0.05) / (colour.min(paper) + 0.05);
            assert!(contrast >= least, "--{name}: {contrast}");
        }
    }
}

fn variable<'a>(style: &'a str, name: &str) -> &'a str {
    let (_, rest) = style.split_once(&format!("--{name}: #")).expect("a colour");
    &rest[..6]
}

/// Relative luminance as WCAG 2 defines it.
fn luminance(hex: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}

#[test]
fn text_for_terminals_fits_and_has_colour_only_on_demand() {
    for comparison in all() {
        for width in [0, 40, 80, 120, 1_000] {
            let text = terminal(&comparison, width, false);
            assert!(!text.contains('\u{1b}'));
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= width.clamp(40, 160), "{widest} at {width}\n{text}");
        }
    }
    assert!(terminal(&arrivals(), 80, true).contains("\u{1b}[1;32m"));
}

#[test]
fn pages_are_left_to_be_looked_at() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).expect("a folder in target");
    let examples = [("arrivals", arrivals()), ("timed", timed()), ("hostile", hostile())];
    let strange = degenerate().into_iter().map(|comparison| ("strange", comparison));
    for (index, (name, comparison)) in examples.into_iter().chain(strange).enumerate() {
        let path: PathBuf = folder.join(format!("{index}-{name}.html"));
        write_whole(&path, html(&comparison).as_bytes()).expect("the page is written");
        let text = terminal(&comparison, 80, false);
        write_whole(&path.with_extension("txt"), text.as_bytes()).expect("the text is written");
    }
}
