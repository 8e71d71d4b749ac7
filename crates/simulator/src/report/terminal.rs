//! The comparison as text for a terminal: figures side by side, allocation as sparklines.

use crate::outcome::{Comparison, Outcome};

use super::html::facts;
use super::metrics::{self, Cell, Metric};
use super::names::{shortened, shown};
use super::series::{self, Axis, value_at};
use super::sparkline::sparkline;
use super::tables;
use super::units::{Unit, span, usable};

/// Narrower or wider terminals are written to as if they had these widths.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=160;
/// Width of the figures' names.
const NAME: usize = 23;
/// Widths of a policy's column, the mark of the best and the space before it counted.
const COLUMN_MIN: usize = 13;
const COLUMN_MAX: usize = 40;

/// How a piece of text is set off, if colour is asked for.
#[derive(Clone, Copy)]
enum Style {
    Heading,
    Best,
    Quiet,
}

/// A text under construction.
struct Page<'a> {
    comparison: &'a Comparison,
    width: usize,
    colour: bool,
    text: String,
}

/// Returns the figures of each run side by side, allocation over the interesting end of the run, and the
/// rejected share by size, in lines of at most `width` characters (40 to 160).
///
/// `*` marks the best of a row; escape sequences are written only if `colour` is set. Policies that do
/// not fit side by side follow in further tables.
pub fn terminal(comparison: &Comparison, width: usize, colour: bool) -> String {
    let width = width.clamp(*WIDTHS.start(), *WIDTHS.end());
    let mut page = Page { comparison, width, colour, text: String::new() };
    page.heading();
    if comparison.runs.is_empty() {
        page.line("no runs");
        return page.text;
    }
    page.tables();
    page.allocation();
    page.text
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn styled(&self, text: &str, style: Style) -> String {
        let code = match style {
            Style::Heading => "1",
            Style::Best => "1;32",
            Style::Quiet => "2",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn heading(&mut self) {
        let trace = shortened(&shown(&self.comparison.trace), self.width);
        let (trace, facts) = (self.styled(&trace, Style::Heading), facts(self.comparison));
        self.line(&trace);
        self.line(&facts);
        if !self.comparison.protocol.is_empty() {
            for line in wrapped(&shown(&self.comparison.protocol), self.width) {
                self.line(&line);
            }
        }
        self.line("");
    }

    /// Writes the tables, as many policies side by side as fit.
    fn tables(&mut self) {
        let names: Vec<String> =
            self.comparison.runs.iter().map(|run| shown(&run.policy)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let (abreast, column) = columns(names.len(), longest, self.width - NAME);
        let rows = self.rows();
        for start in (0..names.len()).step_by(abreast) {
            let end = (start + abreast).min(names.len());
            self.header(&names[start..end], column);
            for (name, cells) in &rows {
                match cells {
                    Some(cells) => self.row(name, &cells[start..end], column),
                    None => self.line(name),
                }
            }
            self.line("");
        }
        let mut cells = rows.iter().flat_map(|(_, cells)| cells).flatten();
        if cells.any(|cell| cell.best) {
            self.line("* best of its row");
            self.line("");
        }
    }

    /// Returns the rows: a name with cells, or a heading without.
    fn rows(&self) -> Vec<(String, Option<Vec<Cell>>)> {
        let runs = &self.comparison.runs;
        let fits = |metric: &&Metric| self.comparison.timed || !metric.timed_only;
        let mut rows: Vec<_> = metrics::shown(runs)
            .into_iter()
            .filter(fits)
            .map(|metric| (metric.name.to_owned(), Some(metric.cells(runs))))
            .collect();
        let rejected = self.rejected_by_size();
        if !rejected.is_empty() {
            let waits = runs.iter().any(|run| run.totals.waiting > 0);
            let heading = if waits { "Rejected or waiting" } else { "Rejected of arrived" };
            rows.push((heading.to_owned(), None));
            rows.extend(rejected);
        }
        rows
    }

    fn rejected_by_size(&self) -> Vec<(String, Option<Vec<Cell>>)> {
        let mut counts = self.comparison.runs.iter().flat_map(|run| run.totals.by_size);
        if counts.all(|count| count.rejected == 0) {
            return Vec::new();
        }
        let shares = tables::shares_by_size(self.comparison);
        shares.into_iter().map(|row| (format!("  {}", row.name), Some(row.cells))).collect()
    }

    fn header(&mut self, names: &[String], column: usize) {
        let mut line = " ".repeat(NAME);
        for name in names {
            let name = shortened(name, column - 2);
            let padding = " ".repeat(column - 1 - name.chars().count());
            line.push_str(&padding);
            line.push_str(&self.styled(&name, Style::Heading));
            line.push(' ');
        }
        self.line(&line);
    }

    fn row(&mut self, name: &str, cells: &[Cell], column: usize) {
        let mut line = format!("{name:NAME$}");
        for cell in cells {
            let mark = if cell.best { "*" } else { " " };
            let figure = shortened(&cell.text, column - 1);
            let padding = column - 1 - figure.chars().count();
            line.push_str(&" ".repeat(padding));
            let text = format!("{figure}{mark}");
            line.push_str(&if cell.best { self.styled(&text, Style::Best) } else { text });
        }
        self.line(&line);
    }

    /// Writes one sparkline of allocation per run, all on one scale, from where the runs part.
    fn allocation(&mut self) {
        let axis = Axis::of(self.comparison);
        let Some((lo, hi)) = axis.domain(self.comparison) else {
            return;
        };
        let from = series::parting(self.comparison).unwrap_or(lo);
        let blocks = self.width - NAME - 10;
        let lines: Vec<Vec<Option<f64>>> = self
            .comparison
            .runs
            .iter()
            .map(|run| resampled(run, axis, (from, hi), blocks))
            .collect();
        let drawn = lines.iter().flatten().flatten().copied();
        let Some((least, most)) = drawn.map(|y| (y, y)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        else {
            return;
        };
        let title =
            format!("Allocated, ▁ {least:.0} % to █ {most:.0} %, over {}", range(axis, (from, hi)));
        for line in wrapped(&title, self.width) {
            self.line(&line);
        }
        for (run, values) in self.comparison.runs.iter().zip(&lines) {
            self.spark_row(run, values, (least, most));
        }
    }

    fn spark_row(&mut self, run: &Outcome, values: &[Option<f64>], (least, most): (f64, f64)) {
        let name = shortened(&shown(&run.policy), NAME - 3);
        let blocks = sparkline(values, least, most);
        // As in the table; the last sample of a run without times is a mean over some arrivals.
        let last = if run.samples.is_empty() { f64::NAN } else { run.totals.allocated_pct };
        let last = self.styled(&format!("{:>9}", Unit::Percent.show(last)), Style::Quiet);
        let line = format!("  {name:name_width$}{blocks} {last}", name_width = NAME - 2);
        self.line(&line);
    }
}

/// Returns how many of `count` columns stand side by side in `room`, in as few tables as can be, and
/// the width of each, for names of at most `longest` characters.
fn columns(count: usize, longest: usize, room: usize) -> (usize, usize) {
    let most = (room / COLUMN_MIN).max(1);
    let tables = count.div_ceil(most);
    let abreast = count.div_ceil(tables.max(1)).max(1);
    let column = (longest + 3).clamp(COLUMN_MIN, COLUMN_MAX);
    (abreast, column.min(room / abreast))
}

fn resampled(run: &Outcome, axis: Axis, (from, to): (f64, f64), blocks: usize) -> Vec<Option<f64>> {
    let end =
        run.samples.iter().map(|sample| axis.x(sample)).filter(|x| usable(*x)).fold(from, f64::max);
    let step = (to - from) / blocks as f64;
    (1..=blocks)
        .map(|block| from + step * block as f64)
        .map(|x| if x - step <= end { value_at(run, axis, &series::ALLOCATED, x) } else { None })
        .collect()
}

fn range(axis: Axis, (from, to): (f64, f64)) -> String {
    match axis {
        Axis::Demand => format!("arrived demand from {from:.0} to {to:.0} %"),
        Axis::Time { .. } => format!("the run’s {}", span(to - from)),
    }
}

/// Returns the text in lines of at most `width` characters, broken at blanks where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let line = lines.last_mut().expect("there is a line from the start");
            let used = line.chars().count();
            let room = width.saturating_sub(used + usize::from(used > 0));
            if word.len() <= room || (used == 0 && word.len() > width) {
                let rest = word.split_off(word.len().min(room));
                line.push_str(if used > 0 { " " } else { "" });
                line.extend(word);
                word = rest;
            }
            if !word.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}
