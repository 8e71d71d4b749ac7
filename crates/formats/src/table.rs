//! CSV files with a header: columns are found by name, never by position.

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::error::{Complaint, ReadError, quote};
use crate::near::nearest;
use crate::text::Source;
use crate::{WORKLOADS_MAX, quantity};

/// A CSV file of which the header has been understood.
pub(crate) struct Table<'a> {
    source: &'a Source,
    reader: csv::Reader<&'a [u8]>,
    header: Vec<String>,
    record: StringRecord,
    rows: usize,
}

/// One row.
pub(crate) struct Row<'a> {
    source: &'a Source,
    header: &'a [String],
    record: &'a StringRecord,
    line: usize,
    /// Zero-based number of the row, the header not counted.
    pub(crate) number: usize,
}

/// The column names of a CSV file; empty if the first line is not CSV.
pub(crate) fn header(source: &Source) -> Vec<String> {
    let mut reader = reader(source);
    let headers = reader.headers();
    headers.map_or(Vec::new(), |names| names.iter().map(str::to_string).collect())
}

fn reader(source: &Source) -> csv::Reader<&[u8]> {
    // Rows of another length are found by `next`, which can say more about them.
    ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(source.text().as_bytes())
}

impl<'a> Table<'a> {
    /// Reads the header.
    pub(crate) fn open(
        source: &'a Source,
        required: &[&'static str],
        optional: &[&'static str],
    ) -> Result<Self, ReadError> {
        let header = header(source);
        let known: Vec<_> = required.iter().chain(optional).copied().collect();
        for (at, name) in header.iter().enumerate() {
            let complaint = if !known.contains(&name.as_str()) {
                unknown_column(name, &known)
            } else if header[..at].contains(name) {
                Complaint::new("the column is there twice", "remove one of the two")
            } else {
                continue;
            };
            return Err(source.complain(1, name, complaint));
        }
        if let Some(name) = required.iter().find(|name| !header.iter().any(|have| have == *name)) {
            let way_out = format!("name it in the first line; needed: {}", required.join(", "));
            return Err(source.complain(1, name, Complaint::new("the column is missing", way_out)));
        }
        let record = StringRecord::new();
        Ok(Self { source, reader: reader(source), header, record, rows: 0 })
    }

    /// The next row; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>, ReadError> {
        let more = self.reader.read_record(&mut self.record).map_err(|error| {
            self.source.error(format!("is not CSV ({error})"), "check its quotes")
        })?;
        if !more {
            return self.end();
        }
        let line = line_of(self.source, &self.record);
        if self.rows == WORKLOADS_MAX {
            let what = format!("has more than {WORKLOADS_MAX} rows");
            return Err(self.source.error(what, "split it or sample it").at_line(line));
        }
        let row = Row {
            source: self.source,
            header: &self.header,
            record: &self.record,
            line,
            number: self.rows,
        };
        self.rows += 1;
        if row.record.len() == row.header.len() {
            return Ok(Some(row));
        }
        let what = format!("{} fields, {} column names", row.record.len(), row.header.len());
        let way_out = "give every row one value per column, and close every quote";
        let error = row.source.error(what, way_out);
        Err(error.at_line(row.line))
    }

    fn end<'b>(&self) -> Result<Option<Row<'b>>, ReadError> {
        if self.rows > 0 {
            return Ok(None);
        }
        Err(self.source.error("has a header and no rows", "check that it was written to the end"))
    }
}

/// The one-based line at which a record begins. The reader counts from where the last record ended,
/// which may lie before a line end or before blank lines.
fn line_of(source: &Source, record: &StringRecord) -> usize {
    let Some(position) = record.position() else {
        return 1;
    };
    let offset = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let rest = source.text().as_bytes().get(offset..).unwrap_or_default();
    let skipped = rest.iter().take_while(|byte| [b'\r', b'\n'].contains(byte));
    let ends = skipped.filter(|byte| **byte == b'\n').count();
    usize::try_from(position.line()).unwrap_or(usize::MAX).saturating_add(ends)
}

fn unknown_column(name: &str, known: &[&str]) -> Complaint {
    let list = known.join(", ");
    match nearest(name, known) {
        Some(meant) => {
            Complaint::new("not a known column", format!("did you mean {meant}? known: {list}"))
        }
        None => Complaint::new("not a known column", format!("remove it; known: {list}")),
    }
}

impl Row<'_> {
    /// The value of a column; empty where the file has no such column.
    pub(crate) fn text(&self, column: &str) -> &str {
        let at = self.header.iter().position(|name| name == column);
        at.and_then(|at| self.record.get(at)).unwrap_or("")
    }

    /// An error about a column of this row.
    pub(crate) fn error(
        &self,
        column: &str,
        what: impl Into<String>,
        way_out: impl Into<String>,
    ) -> ReadError {
        self.source.complain(self.line, column, Complaint::new(what, way_out))
    }

    /// A value that must not be empty.
    pub(crate) fn name(&self, column: &str) -> Result<&str, ReadError> {
        match self.text(column) {
            "" => Err(self.error(column, "no value", "give a name")),
            name => Ok(name),
        }
    }

    /// A whole number from 0 to `most`.
    pub(crate) fn amount(&self, column: &str, most: u64) -> Result<u64, ReadError> {
        let text = self.text(column);
        let (what, way_out) = match text.parse::<u64>() {
            Ok(amount) if amount <= most => return Ok(amount),
            Err(_) if text.is_empty() => ("no value".to_string(), "give 0 or more".to_string()),
            // Digits alone that are no u64 are too many of them.
            Err(_) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                (format!("{} is not a count", quote(text)), "give 0 or more".to_string())
            }
            Ok(_) | Err(_) => {
                (format!("{} is absurdly large", quote(text)), format!("give at most {most}"))
            }
        };
        Err(self.error(column, what, way_out))
    }

    /// Seconds as ms; `None` if the value is empty or the file has no such column.
    pub(crate) fn seconds_ms(&self, column: &str) -> Result<Option<u64>, ReadError> {
        match self.text(column) {
            "" => Ok(None),
            text => match quantity::seconds_ms(text) {
                Ok(ms) => Ok(Some(ms)),
                Err(complaint) => Err(self.source.complain(self.line, column, complaint)),
            },
        }
    }

    /// Seconds as ms, of a column that must have a value.
    pub(crate) fn need_seconds_ms(&self, column: &str) -> Result<u64, ReadError> {
        let found = self.seconds_ms(column)?;
        found.ok_or_else(|| self.error(column, "no value", "give seconds, 0 or more"))
    }
}
