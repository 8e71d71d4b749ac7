//! How wide text comes out at the size of plots, so that names stay within what they are written on.
//!
//! Pages use whatever sans serif font a reader has. Widths here are those of a broad one (DejaVu Sans) at 11 units; others are narrower.

use simulator::report::draw::shortened;

/// Bold text is wider by about this.
const BOLD: f64 = 1.15;

/// Width of a text, in user units.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(character).sum()
}

/// The same in bold.
pub(super) fn width_bold(text: &str) -> f64 {
    width(text) * BOLD
}

/// The text, its middle left out as far as it must be to fit into `room` user units; empty if less than three characters would stay.
pub(super) fn fitted(text: &str, room: f64) -> String {
    let count = text.chars().count();
    let cut = (1..=count).rev().map(|left| shortened(text, left)).find(|cut| width(cut) <= room);
    cut.filter(|cut| cut.chars().count() >= count.min(3)).unwrap_or_default()
}

fn character(one: char) -> f64 {
    match one {
        'f' | 'i' | 'j' | 'l' | 't' | 'I' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | ' ' => 4.3,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 11.0,
        'A'..='Z' | '<' | '>' | '=' | '+' | '×' => 9.2,
        one if one >= '\u{1100}' => 12.0,
        _ => 7.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_and_what_does_not_is_cut_to_the_room() {
        assert_eq!(fitted("1g.10gb", 48.0), "1g.10gb");
        for name in ["mmmmmmmmmmmm", "训练任务训练任务", "small-instances", "W"] {
            let cut = fitted(name, 50.0);
            assert!(!cut.is_empty() && width(&cut) <= 50.0, "{name}: {cut}");
        }
        assert_eq!(fitted("vision", 15.0), "", "two characters say nothing");
        assert_eq!(fitted("", 50.0), "");
    }
}
