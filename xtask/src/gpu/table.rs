//! Tables that are printed for people and written as markdown alike.

use std::fmt::Write;

/// Rows under a title.
pub(crate) struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(title: &str, head: &[&str]) -> Self {
        let head = head.iter().map(ToString::to_string).collect();
        Self { title: title.to_string(), head, rows: Vec::new() }
    }

    /// Adds a row; what it lacks stays empty.
    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// As markdown whose columns line up in a terminal too: the first to the left, figures to the right.
    pub(crate) fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let wide = |at: usize| all().map(|row| row[at].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..self.head.len()).map(wide).collect();
        let mut text = format!("### {}\n\n", self.title);
        for (number, row) in all().enumerate() {
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match at {
                    0 => write!(text, "| {cell:<width$} "),
                    _ => write!(text, "| {cell:>width$} "),
                };
            }
            text.push_str("|\n");
            if number == 0 {
                for (at, width) in widths.iter().enumerate() {
                    let line = "-".repeat(if at == 0 { *width } else { width - 1 });
                    let _ = write!(text, "| {line}{} ", if at == 0 { "" } else { ":" });
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// Bytes as whole MiB.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{}", bytes >> 20)
}

/// The value at a part of sorted values, in thousandths; 0 of none.
pub(crate) fn rank(sorted: &[u64], milli: usize) -> u64 {
    let at = (sorted.len() * milli / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

/// The middle one of some figures; 0 of none.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_are_markdown() {
        let mut table = Table::new("Shares", &["who", "%"]);
        table.row(vec!["one".into(), "30.5".into()]);
        table.row(vec!["another".into()]);
        let wanted = "### Shares\n\n| who     |    % |\n| ------- | ---: |\n| one     | 30.5 |\n\
                      | another |      |\n";
        assert_eq!(table.text(), wanted);
    }

    #[test]
    fn ranks_of_few_values_stay_inside() {
        assert_eq!((rank(&[], 500), rank(&[7], 990), rank(&[1, 2, 3, 4], 500)), (0, 7, 3));
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
    }
}
