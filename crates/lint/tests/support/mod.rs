//! Files as text, and what is found in them and mended.
#![allow(dead_code, reason = "each test file uses a part of it")]

use lint::{Card, Input, Kind};

pub(crate) fn input(kind: Kind, text: &str) -> Input {
    Input::new("file", text.as_bytes().to_vec(), Some(kind)).expect("a file that can be checked")
}

fn card(card: &str) -> Option<Card> {
    (!card.is_empty()).then(|| Card::parse(card).expect("a card"))
}

/// What is found, as `line name`.
pub(crate) fn found(kind: Kind, text: &str, of_card: &str) -> Vec<String> {
    found_of(&[input(kind, text)], of_card).swap_remove(0)
}

/// The same of several files that know of each other.
pub(crate) fn found_of(inputs: &[Input], of_card: &str) -> Vec<Vec<String>> {
    let found = lint::check(inputs, card(of_card).as_ref()).expect("an answer");
    let named = inputs.iter().zip(found).map(|(input, found)| {
        let line = |finding: &lint::Finding| {
            let place = lint::place(input.text(), &finding.span);
            format!("{} {}", place.line, finding.name)
        };
        found.iter().map(line).collect()
    });
    named.collect()
}

/// The mended text, and the names of what is left.
pub(crate) fn mended(kind: Kind, text: &str, of_card: &str) -> (String, Vec<&'static str>) {
    let mended = lint::mend(&[input(kind, text)], 0, card(of_card).as_ref()).expect("an answer");
    let left = mended.left.iter().map(|finding| finding.name).collect();
    (mended.input.text().to_owned(), left)
}

/// Says that a file has these findings, and becomes another one without any.
pub(crate) fn assert_mended(kind: Kind, text: &str, names: &[&str], clean: &str) {
    assert_eq!(found(kind, text, ""), names, "of\n{text}");
    assert_eq!(mended(kind, text, ""), (clean.to_owned(), Vec::new()), "of\n{text}");
    assert_eq!(found(kind, clean, ""), Vec::<String>::new(), "of\n{clean}");
}

/// Says that a file has these findings, which a person has to decide.
pub(crate) fn assert_left(kind: Kind, text: &str, of_card: &str, names: &[&str]) {
    assert_eq!(found(kind, text, of_card), names, "of\n{text}");
    assert_eq!(mended(kind, text, of_card).0, text, "nothing of it is mended");
}

pub(crate) fn assert_clean(kind: Kind, text: &str, of_card: &str) {
    assert_left(kind, text, of_card, &[]);
}
