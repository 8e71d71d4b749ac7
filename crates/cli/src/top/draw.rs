//! The whole screen: head, GPUs or the page of one of them, keys.

use node::inventory::DriverFacts;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::bar::colour;
use super::pot::{Class, Pot};
use super::rows::Columns;
use super::view::{Sort, View};
use super::{Picture, Shown, details, groups};

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
        None => frame.render_widget(Line::raw(nothing(picture)), body),
        Some(pot) if view.details => page(frame, pot, view, body),
        Some(_) => table(frame, picture, &ordered, view, body),
    }
    frame.render_widget(foot_line(picture, view, &ordered, foot.width), foot);
    if view.help {
        help(frame);
    }
}

/// What the machine or the cluster is, in a word.
pub(super) fn summary(picture: &Picture) -> String {
    let count = picture.pots.len();
    let tenants = picture.pots.iter().flat_map(|pot| &pot.parts);
    let tenants = tenants.filter(|part| part.class != Class::Empty).count();
    match &picture.of {
        Shown::Cluster(cluster) => cluster.summary(count, tenants),
        Shown::Machine(DriverFacts { driver, .. }) => {
            let plural = if count == 1 { "" } else { "s" };
            let simulated = if picture.simulated { " · SIMULATED" } else { "" };
            format!("{count} GPU{plural} · {tenants} shares in use · driver {driver}{simulated}")
        }
    }
}

fn nothing(picture: &Picture) -> &'static str {
    match picture.of {
        Shown::Machine(_) => " no GPU on this machine",
        Shown::Cluster(_) => " no node has a GPU that Slurm knows of (Gres= in slurm.conf)",
    }
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

fn table(frame: &mut Frame<'_>, picture: &Picture, ordered: &[&Pot], view: &View, area: Rect) {
    let grouped = view.sort == Sort::Index;
    let columns = Columns::fitting(usize::from(area.width), ordered, !grouped);
    let at = view.position(ordered);
    let node = |before: Option<usize>, place: usize| {
        let before = before.map(|before| ordered[before]);
        picture.node_before(before, ordered[place]).filter(|_| grouped)
    };
    let begins = |place: usize| node(place.checked_sub(1), place).is_some();
    let heights: Vec<usize> =
        (0..ordered.len()).map(|place| LINES + usize::from(begins(place))).collect();
    // As many GPUs as fit below the head, the selected one among them.
    let room = usize::from(area.height).saturating_sub(1);
    let airy = heights.iter().sum::<usize>() + ordered.len() <= room;
    let first = first_shown(&heights, at, room);
    let mut lines = vec![columns.head()];
    for (place, pot) in ordered.iter().enumerate().skip(first) {
        // Above the first that shows its node stands in any case.
        let before = place.checked_sub(1).filter(|_| place > first);
        let above = node(before, place).map(groups::line);
        if place > at && lines.len() + LINES + usize::from(above.is_some()) > room + 1 {
            break;
        }
        lines.extend(above);
        lines.extend(columns.rows(pot, place == at));
        if airy {
            lines.push(Line::default());
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The first GPU that shows, so that the one at `at` does too.
///
/// * `heights` — lines of each GPU, with that of its node where one begins.
fn first_shown(heights: &[usize], at: usize, room: usize) -> usize {
    let grouped = usize::from(heights.first().is_some_and(|first| *first > LINES));
    let mut first = at;
    let mut below = 0;
    while first > 0 {
        below += heights[first];
        // What stands there now would be the first, with its node above it.
        if LINES + grouped + below > room {
            break;
        }
        first -= 1;
    }
    first
}

fn page(frame: &mut Frame<'_>, pot: &Pot, view: &View, area: Rect) {
    let title = format!(" GPU {} · {} ", pot.place(), pot.model);
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    let lines = details::lines(pot, usize::from(inner.width));
    let last = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(inner.height);
    let page = Paragraph::new(lines).scroll((view.scroll.min(last), 0)).block(block);
    frame.render_widget(page, area);
}

fn foot_line(picture: &Picture, view: &View, ordered: &[&Pot], width: u16) -> Line<'static> {
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
    let place = (view.position(ordered) + 1).min(ordered.len());
    let sort = match picture.of {
        Shown::Cluster(_) if view.sort == Sort::Index => "by node",
        Shown::Machine(_) | Shown::Cluster(_) => view.sort.as_str(),
    };
    line.push_span(Span::raw(format!("({sort}) {place}/{}", ordered.len())));
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
