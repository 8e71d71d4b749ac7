//! What the viewer has chosen: order, the selected GPU, its page, help, pause; and what keys do to it.

use std::cmp::Reverse;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::pot::Pot;

/// Order of the GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The driver's, or by node.
    #[default]
    Index,
    /// Busiest first.
    Busy,
    /// Most free memory first.
    Free,
}

impl Sort {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Busy => "busiest first",
            Self::Free => "most free first",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Index => Self::Busy,
            Self::Busy => Self::Free,
            Self::Free => Self::Index,
        }
    }
}

/// Whether to go on after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    Quit,
}

/// The viewer's choices.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) sort: Sort,
    /// Key of the selected GPU, so that it stays selected when the order changes.
    pub(super) selected: String,
    /// The page of the selected GPU is open.
    pub(super) details: bool,
    /// First line of that page that shows.
    pub(super) scroll: u16,
    pub(super) help: bool,
    pub(super) paused: bool,
    /// What goes wrong with measuring.
    pub(super) trouble: Option<String>,
}

impl View {
    /// The pots in the chosen order.
    pub(super) fn ordered<'a>(&self, pots: &'a [Pot]) -> Vec<&'a Pot> {
        let mut ordered: Vec<&Pot> = pots.iter().collect();
        let milli = |ratio: Option<f64>| ratio.map(|ratio| (ratio * 1000.0) as u64);
        match self.sort {
            Sort::Index => {}
            Sort::Busy => ordered.sort_by_key(|pot| Reverse(milli(pot.busy_ratio))),
            Sort::Free => ordered.sort_by_key(|pot| Reverse(pot.free_bytes())),
        }
        ordered
    }

    /// Position of the selected GPU in the chosen order; the first where it is not there any more.
    pub(super) fn position(&self, ordered: &[&Pot]) -> usize {
        ordered.iter().position(|pot| pot.key() == self.selected).unwrap_or(0)
    }

    /// Does what a key asks for.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other keys mean nothing here")]
    pub(super) fn key(&mut self, key: KeyEvent, pots: &[Pot]) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Go;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Next::Quit,
            // The first press of anything closes the help.
            _ if self.help => self.help = false,
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc if self.details => self.details = false,
            KeyCode::Esc => return Next::Quit,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Enter => {
                self.details = !self.details && !pots.is_empty();
                self.scroll = 0;
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(pots, -1),
            KeyCode::Down | KeyCode::Char('j') => self.step(pots, 1),
            KeyCode::PageUp => self.step(pots, -8),
            KeyCode::PageDown => self.step(pots, 8),
            KeyCode::Home | KeyCode::Char('g') => self.step(pots, isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.step(pots, isize::MAX / 2),
            _ => {}
        }
        Next::Go
    }

    /// Moves the selection, or the page of details.
    fn step(&mut self, pots: &[Pot], by: isize) {
        if self.details {
            // Drawing holds it at the page's end.
            let by = i32::try_from(by).unwrap_or(if by < 0 { -0xffff } else { 0xffff });
            let scroll = i32::from(self.scroll).saturating_add(by).clamp(0, 0xffff);
            self.scroll = u16::try_from(scroll).unwrap_or(u16::MAX);
            return;
        }
        let ordered = self.ordered(pots);
        let at = self.position(&ordered).saturating_add_signed(by);
        if let Some(pot) = ordered.get(at.min(ordered.len().saturating_sub(1))) {
            self.selected = pot.key();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_machine::machine;
    use super::*;

    fn press(view: &mut View, keys: &str) -> Next {
        let pots = machine();
        let codes = keys.chars().map(|key| match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        });
        codes.map(|code| view.key(KeyEvent::from(code), &pots)).last().unwrap_or(Next::Go)
    }

    fn selected(view: &View) -> u32 {
        let pots = machine();
        let ordered = view.ordered(&pots);
        ordered[view.position(&ordered)].index
    }

    #[test]
    fn the_selection_moves_within_bounds_and_stays_through_sorting() {
        let mut view = View::default();
        press(&mut view, "k");
        assert_eq!(selected(&view), 0);
        press(&mut view, "jj");
        assert_eq!(selected(&view), 2);
        press(&mut view, "s");
        assert_eq!((selected(&view), view.sort), (2, Sort::Busy));
        press(&mut view, "Gj");
        let last = view.ordered(&machine()).last().map(|pot| pot.index);
        assert_eq!(Some(selected(&view)), last);
        press(&mut view, "gss");
        assert_eq!(view.sort, Sort::Index);
    }

    #[test]
    fn orders_put_the_busiest_and_the_freest_first() {
        let pots = machine();
        let first = |sort| View { sort, ..View::default() }.ordered(&pots)[0].clone();
        assert!(pots.iter().all(|pot| pot.busy_ratio <= first(Sort::Busy).busy_ratio));
        assert_eq!(first(Sort::Free).memory_used_bytes, Some(0));
    }

    #[test]
    fn keys_open_close_pause_and_quit() {
        let mut view = View::default();
        press(&mut view, "\njj");
        assert!(view.details && view.scroll == 2);
        assert_eq!(press(&mut view, "\u{1b}"), Next::Go);
        assert!(!view.details);
        assert_eq!(press(&mut view, "\u{1b}"), Next::Quit);
        press(&mut view, "?");
        assert!(view.help);
        assert_eq!(press(&mut view, "q"), Next::Go, "it closes the help first");
        press(&mut view, "p");
        assert!(view.paused && !view.help);
        assert_eq!(press(&mut view, "q"), Next::Quit);
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(View::default().key(stop, &[]), Next::Quit);
        assert_eq!(View::default().key(KeyEvent::from(KeyCode::Enter), &[]), Next::Go);
    }
}
