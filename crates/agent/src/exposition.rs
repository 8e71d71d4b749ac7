//! Writes families of metrics as text: Prometheus 0.0.4, or OpenMetrics 1.0 for who asks for it.

use std::fmt::Write;

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0: our own families only, since DCGM's counters do not end in `_total`.
    OpenMetrics,
}

impl Format {
    /// What a scraper gets that sends this `Accept` header.
    pub fn accepted(accept: &str) -> Self {
        let mut kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or("").trim());
        let asked = kinds.any(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
        if asked { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The `Content-Type` of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, until a restart. Our own end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; what it says is in the labels. Ends in `_info`.
    Info,
}

/// A family: what comes before its samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// One line without quotes and backslashes.
    pub(crate) help: &'static str,
}

/// The text as it grows.
#[derive(Debug)]
pub(crate) struct Exposition {
    text: String,
    format: Format,
}

impl Exposition {
    pub(crate) fn new(format: Format) -> Self {
        Self { text: String::with_capacity(32 << 10), format }
    }

    /// Writes a family; nothing at all if no sample has a value.
    pub(crate) fn family<L: AsRef<str>>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = (L, Option<f64>)>,
    ) {
        let mut begun = false;
        for (labels, value) in samples {
            let Some(value) = value else { continue };
            if !begun {
                self.header(family);
                begun = true;
            }
            self.text.push_str(family.name);
            if !labels.as_ref().is_empty() {
                self.text.push('{');
                self.text.push_str(labels.as_ref());
                self.text.push('}');
            }
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, " {value}");
        }
    }

    /// OpenMetrics calls a family by its name without the suffix that its kind demands.
    fn header(&mut self, family: &Family) {
        let (name, kind) = match (self.format, family.kind) {
            (_, Kind::Gauge) => (family.name, "gauge"),
            (Format::Prometheus, Kind::Counter) => (family.name, "counter"),
            (Format::Prometheus, Kind::Info) => (family.name, "gauge"),
            (Format::OpenMetrics, Kind::Counter) => (bare(family.name, "_total"), "counter"),
            (Format::OpenMetrics, Kind::Info) => (bare(family.name, "_info"), "info"),
        };
        let _ = writeln!(self.text, "# HELP {name} {}", family.help);
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        match self.format {
            Format::Prometheus => {}
            Format::OpenMetrics => self.text.push_str("# EOF\n"),
        }
        self.text
    }
}

fn bare<'a>(name: &'a str, suffix: &str) -> &'a str {
    name.strip_suffix(suffix).unwrap_or(name)
}

/// Labels of a sample, as they stand between the braces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(String);

impl Labels {
    /// The same labels and one more. An empty value is the same as no label and is left out.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        self.0.push('"');
        self
    }
}

impl AsRef<str> for Labels {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Family = Family { name: "x_rows_total", kind: Kind::Counter, help: "Rows." };
    const ABOUT: Family = Family { name: "x_info", kind: Kind::Info, help: "About." };
    const HEAT: Family = Family { name: "x_heat", kind: Kind::Gauge, help: "Heat." };

    fn text(format: Format) -> String {
        let mut exposition = Exposition::new(format);
        let labels = Labels::default().with("a", "q\"b\\n\nc").with("none", "").with("d", "e");
        exposition.family(&ROWS, [(labels.as_ref(), Some(2.0)), ("", None)]);
        exposition.family(&ABOUT, [("v=\"1\"", Some(1.0))]);
        exposition.family(&HEAT, [("", None::<f64>)]);
        exposition.family(&HEAT, [("", Some(0.25))]);
        exposition.finish()
    }

    #[test]
    fn prometheus_text() {
        assert_eq!(
            text(Format::Prometheus),
            "# HELP x_rows_total Rows.\n# TYPE x_rows_total counter\n\
             x_rows_total{a=\"q\\\"b\\\\n\\nc\",d=\"e\"} 2\n\
             # HELP x_info About.\n# TYPE x_info gauge\nx_info{v=\"1\"} 1\n\
             # HELP x_heat Heat.\n# TYPE x_heat gauge\nx_heat 0.25\n"
        );
    }

    #[test]
    fn openmetrics_text() {
        assert_eq!(
            text(Format::OpenMetrics),
            "# HELP x_rows Rows.\n# TYPE x_rows counter\n\
             x_rows_total{a=\"q\\\"b\\\\n\\nc\",d=\"e\"} 2\n\
             # HELP x About.\n# TYPE x info\nx_info{v=\"1\"} 1\n\
             # HELP x_heat Heat.\n# TYPE x_heat gauge\nx_heat 0.25\n# EOF\n"
        );
    }

    #[test]
    fn openmetrics_only_for_who_asks() {
        let asked = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted(asked), Format::OpenMetrics);
        for other in ["", "*/*", "text/plain;version=0.0.4", "application/json"] {
            assert_eq!(Format::accepted(other), Format::Prometheus, "{other}");
        }
    }
}
