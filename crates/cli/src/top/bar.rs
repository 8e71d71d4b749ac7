//! A pot as a row of cells. Readable without colour: `▌` begins a part, its name follows, `▒` is
//! memory in use (names lie on it), blank is held and unused, `·` is free.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::pot::{Class, Part, Pot};

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    shown: char,
    style: Style,
}

/// The pot in `width` cells, its two rims included.
pub(super) fn bar(pot: &Pot, width: usize) -> Line<'static> {
    let inner = width.saturating_sub(2);
    let mut cells = vec![Cell { shown: '·', style: Style::new().fg(Color::DarkGray) }; inner];
    for part in &pot.parts {
        draw(&mut cells, part);
    }
    let mut spans = vec![Span::raw("▕")];
    for run in cells.chunk_by(|one, other| one.style == other.style) {
        let text: String = run.iter().map(|cell| cell.shown).collect();
        spans.push(Span::styled(text, run[0].style));
    }
    spans.push(Span::raw("▏"));
    Line::from(spans)
}

fn draw(cells: &mut [Cell], part: &Part) {
    let (from, to) = reach(cells.len(), part);
    let width = to - from;
    let used = match (part.used_bytes, part.room_bytes) {
        (Some(used), Some(room)) if room > 0 => scaled(used as f64 / room as f64, width),
        _ => 0,
    };
    let colour = colour(part.class);
    let name = name(part, width.saturating_sub(1));
    for (at, cell) in cells[from..to].iter_mut().enumerate() {
        let letter = at.checked_sub(1).and_then(|at| name.get(at)).copied();
        cell.shown = match letter {
            _ if at == 0 => '▌',
            Some(letter) => letter,
            None if at < used => '▒',
            None => ' ',
        };
        cell.style = Style::new().fg(colour);
        if letter.is_some() && at < used {
            cell.style = cell.style.add_modifier(Modifier::REVERSED);
        }
    }
}

/// First cell and the one after the last; a part that is there has at least one cell.
fn reach(cells: usize, part: &Part) -> (usize, usize) {
    if cells == 0 {
        return (0, 0);
    }
    let from = scaled(part.from, cells).min(cells - 1);
    (from, scaled(part.to, cells).clamp(from + 1, cells))
}

fn scaled(ratio: f64, cells: usize) -> usize {
    ((ratio.clamp(0.0, 1.0) * cells as f64).round() as usize).min(cells)
}

/// The name in at most `room` cells, one letter each: with the profile, or without, or only its
/// last word (the task of a run) or its job's number, or what fits of that.
fn name(part: &Part, room: usize) -> Vec<char> {
    let profile = part.profile.as_deref().unwrap_or_default();
    let both = [part.label.as_str(), profile].join(" ");
    let full = if part.label.is_empty() { profile } else { part.label.as_str() };
    let last = match &part.job {
        Some(job) => job.id.as_str(),
        None => full.rsplit(['/', ' ']).next().unwrap_or(full),
    };
    let fits = |text: &&str| text.chars().count() <= room;
    let text = [both.trim(), full, last].into_iter().find(fits).unwrap_or(last);
    let narrow = |letter: char| Span::raw(letter.to_string()).width() == 1;
    let mut letters: Vec<char> =
        text.chars().map(|letter| if narrow(letter) { letter } else { '?' }).collect();
    if letters.len() > room {
        letters.truncate(room);
        if let Some(last) = letters.last_mut() {
            *last = '…';
        }
    }
    letters
}

/// The colour of a class of tenants.
pub(super) fn colour(class: Class) -> Color {
    match class {
        Class::Empty => Color::DarkGray,
        Class::Task => Color::Green,
        Class::Slurm => Color::Cyan,
        Class::Pod => Color::Magenta,
        Class::User => Color::Yellow,
        Class::Other => Color::White,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_machine::{part, pot};
    use super::*;

    fn text(parts: Vec<Part>, width: usize) -> String {
        bar(&pot(parts), width).to_string()
    }

    #[test]
    fn parts_are_to_scale_and_what_is_free_shows() {
        let parts = vec![part("a", 0.0, 0.25, 0.5), part("b", 0.5, 1.0, 1.0)];
        assert_eq!(text(parts, 22), "▕▌a▒  ·····▌b▒▒▒▒▒▒▒▒▏");
        assert_eq!(text(Vec::new(), 6), "▕····▏");
    }

    #[test]
    fn long_names_are_cut_and_wide_letters_take_one_cell() {
        let named = |name: &str, width| text(vec![part(name, 0.0, 0.5, 0.0)], width);
        assert_eq!(named("embed/17", 22), "▕▌embed/17 ··········▏");
        assert_eq!(named("embed/17", 18), "▕▌17     ········▏");
        assert_eq!(named("embed/passages", 18), "▕▌passag…········▏");
        assert_eq!(text(vec![part("锅", 0.0, 0.5, 0.0)], 10), "▕▌?  ····▏");
    }

    #[test]
    fn no_width_breaks_it_and_no_part_vanishes() {
        let parts: Vec<Part> = (0..30)
            .map(|at| part("t", f64::from(at) / 1e4, f64::from(at + 1) / 1e4, 1.0))
            .collect();
        for width in 0..90 {
            let bar = text(parts.clone(), width);
            assert_eq!(bar.chars().count(), width.max(2), "{bar}");
            assert!(width < 3 || bar.contains('▌'));
        }
        assert!(text(vec![part("end", 1.0, 1.0, 1.0)], 10).contains('▌'));
    }
}
