//! The whole screen: head, GPUs or the page of one of them, keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::bar::colour;
use super::pot::{Class, Pot};
use super::rows::Columns;
use super::view::View;
use super::{Picture, details};

/// Lines of one GPU in the table, without the empty one that follows where there is room.
const LINES: usize = 2;

const HELP: [&str; 14] = [
    "↑ ↓ or k j   select a GPU, scroll its page",
    "Enter        open or close its page",
    "s            sort: index, busiest, most free",
    "p or space   pause",
    "q, Ctrl-C    quit",
    "",
    "The bar is the GPU's memory, to scale:",
    "▌name▒▒▒     a tenant or MIG instance",
    "▒            memory in use",
    "blank        held by an instance, not in use",
    "·            free",
    "",
    "isolation    hard: driver or hardware hold it",
    "             cooperative: a tenant can get around it",
];

pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture, view: &View) {
    let areas =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
    let [head, body, foot] = frame.area().layout(&areas);
    let ordered = view.ordered(&picture.pots);
    frame.render_widget(head_line(picture, view), head);
    match ordered.get(view.position(&ordered)) {
        None => frame.render_widget(Line::raw(" no GPU on this machine"), body),
        Some(pot) if view.details => page(frame, pot, view, body),
        Some(_) => table(frame, &ordered, view, body),
    }
    frame.render_widget(foot_line(view, foot.width), foot);
    if view.help {
        help(frame);
    }
}

/// What the machine is, in a word.
pub(super) fn summary(picture: &Picture) -> String {
    let count = picture.pots.len();
    let plural = if count == 1 { "" } else { "s" };
    let tenants = picture.pots.iter().flat_map(|pot| &pot.parts);
    let tenants = tenants.filter(|part| part.class != Class::Empty).count();
    let simulated = if picture.simulated { " · SIMULATED" } else { "" };
    let driver = &picture.driver.driver;
    format!("{count} GPU{plural} · {tenants} shares in use · driver {driver}{simulated}")
}

fn head_line(picture: &Picture, view: &View) -> Line<'static> {
    let mut line = Line::from(vec![
        Span::styled(" hotpot top ", Style::new().add_modifier(Modifier::REVERSED)),
        Span::raw(format!(" {}", summary(picture))),
    ]);
    if view.paused {
        line.push_span(Span::styled("  PAUSED", Style::new().fg(Color::Yellow)));
    }
    line
}

fn table(frame: &mut Frame<'_>, ordered: &[&Pot], view: &View, area: Rect) {
    let all: Vec<Pot> = ordered.iter().map(|pot| (*pot).clone()).collect();
    let columns = Columns::fitting(usize::from(area.width), &all);
    let at = view.position(ordered);
    // As many GPUs as fit below the head, the selected one among them.
    let room = usize::from(area.height).saturating_sub(1);
    let airy = ordered.len() * (LINES + 1) <= room;
    let fit = (room / LINES).max(1);
    let first = (at + 1).saturating_sub(fit);
    let mut lines = vec![columns.head()];
    for (place, pot) in ordered.iter().enumerate().skip(first).take(fit) {
        lines.extend(columns.rows(pot, place == at));
        if airy {
            lines.push(Line::default());
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn page(frame: &mut Frame<'_>, pot: &Pot, view: &View, area: Rect) {
    let title = format!(" GPU {} · {} ", pot.index, pot.model);
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    let lines = details::lines(pot, usize::from(inner.width));
    let last = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(inner.height);
    let page = Paragraph::new(lines).scroll((view.scroll.min(last), 0)).block(block);
    frame.render_widget(page, area);
}

fn foot_line(view: &View, width: u16) -> Line<'static> {
    if let Some(trouble) = &view.trouble {
        return Line::styled(format!(" {trouble}"), Style::new().fg(Color::Red));
    }
    let enter = if view.details { "close" } else { "details" };
    let keys = [
        ("q", "quit"),
        ("↑↓", if view.details { "scroll" } else { "select" }),
        ("⏎", enter),
        ("?", "help"),
        ("p", if view.paused { "go on" } else { "pause" }),
        ("s", "sort"),
    ];
    let mut line = Line::default();
    for (key, what) in keys {
        line.push_span(Span::styled(format!(" {key}"), Style::new().add_modifier(Modifier::BOLD)));
        line.push_span(Span::raw(format!(" {what} ")));
    }
    line.push_span(Span::raw(format!("({})", view.sort.as_str())));
    let legend = legend();
    if let Some(gap) = usize::from(width).checked_sub(line.width() + legend.width() + 1) {
        line.push_span(Span::raw(" ".repeat(gap)));
        line.extend(legend);
    }
    line
}

/// What the colours mean.
fn legend() -> Line<'static> {
    let classes = [
        (Class::Task, " ▌task"),
        (Class::Slurm, " ▌slurm"),
        (Class::Pod, " ▌pod"),
        (Class::User, " ▌user"),
    ];
    let spans = classes.map(|(class, name)| Span::styled(name, Style::new().fg(colour(class))));
    Line::from_iter(spans)
}

fn help(frame: &mut Frame<'_>) {
    let wide = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let (width, height) = (wide as u16 + 4, HELP.len() as u16 + 4);
    let screen = frame.area();
    let area = Rect {
        x: screen.width.saturating_sub(width) / 2,
        y: screen.height.saturating_sub(height) / 2,
        width: width.min(screen.width),
        height: height.min(screen.height),
    };
    let mut lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(format!(" {line}"))).collect();
    lines.extend([Line::default(), legend()]);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys; any of them closes this ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
