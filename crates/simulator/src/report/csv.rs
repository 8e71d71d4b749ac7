//! The samples as CSV (RFC 4180 quoting, `\n` between rows).

use std::fmt::{Display, Write as _};

use crate::outcome::{Comparison, Sample};

const HEADER: &str =
    "policy,at_ms,arrived_pct,allocated_pct,fragmented_pct,busy_pct,waiting,running,rejected";

/// Returns one row per policy and sample, in the order of the runs, under a header.
///
/// Times are in ms, shares in percent of the fleet's GPUs at full precision; a figure that is not a
/// number is an empty field.
pub fn csv(comparison: &Comparison) -> String {
    let mut out = String::from(HEADER);
    out.push('\n');
    for run in &comparison.runs {
        let policy = quoted(&run.policy);
        for sample in &run.samples {
            push_row(&mut out, &policy, sample);
        }
    }
    out
}

fn push_row(out: &mut String, policy: &str, sample: &Sample) {
    let Sample { at_ms, waiting, running, rejected, .. } = sample;
    let [arrived, allocated, fragmented, busy] =
        [sample.arrived_pct, sample.allocated_pct, sample.fragmented_pct, sample.busy_pct]
            .map(Number);
    let _infallible = writeln!(
        out,
        "{policy},{at_ms},{arrived},{allocated},{fragmented},{busy},{waiting},{running},{rejected}"
    );
}

struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_finite() { write!(f, "{}", self.0) } else { Ok(()) }
    }
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
