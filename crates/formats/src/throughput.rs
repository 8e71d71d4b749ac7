//! Throughput tables of the Gavel project: how many steps a second a job makes alone.
//!
//! The JSON is nested `gpu → "('job', workers)" → "null" → steps/s`; the entries of two jobs on one
//! GPU, which stand beside `"null"`, are not read here.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::ReadError;
use crate::near::near;
use crate::text::Source;

/// Steps per second by job and number of workers, on one GPU model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throughputs {
    alone: BTreeMap<String, BTreeMap<u32, f64>>,
}

impl Throughputs {
    /// Reads the part of a table that is about one GPU model.
    ///
    /// * `gpu` — the model as the table spells it, such as `v100`.
    ///
    /// # Errors
    /// Text that is not JSON, a GPU model that is not in the table, a table without any usable entry.
    pub fn read(source: &Source, gpu: &str) -> Result<Self, ReadError> {
        let root: BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>> =
            serde_json::from_str(source.text()).map_err(|error| {
                let what = format!("is not a throughput table ({error})");
                let way_out = "give gavel_simulation_throughputs.json";
                source.error(what, way_out).at_line(error.line())
            })?;
        let Some(jobs) = root.get(gpu) else {
            let close = near(gpu, root.keys().map(String::as_str));
            let known: Vec<_> = root.keys().map(String::as_str).collect();
            let names = if close.is_empty() { known } else { close };
            let what = format!("has no GPU model {gpu:?}");
            return Err(source.error(what, format!("give one of {}", names.join(", "))));
        };
        let mut table = Self::default();
        for (key, rates) in jobs {
            let rate = rates.get("null").and_then(Value::as_f64);
            let usable = rate.filter(|rate| rate.is_finite() && *rate > 0.0);
            if let (Some((job, workers)), Some(rate)) = (job_and_workers(key), usable) {
                table.alone.entry(job.to_string()).or_default().insert(workers, rate);
            }
        }
        match table.alone.is_empty() {
            true => Err(source.error(format!("says nothing usable about {gpu}"), "check the file")),
            false => Ok(table),
        }
    }

    /// Steps per second of a job with `workers` workers; `None` for a job that is not in the table.
    ///
    /// A number of workers that is not in the table is reckoned from the largest smaller one, in
    /// proportion: the tables end at 8 workers and list some jobs with 1 only.
    pub fn steps_per_s(&self, job: &str, workers: u32) -> Option<f64> {
        let by_workers = self.alone.get(job)?;
        let (listed, rate) = by_workers.range(..=workers).next_back()?;
        Some(rate * f64::from(workers) / f64::from(*listed))
    }

    /// The jobs that the table knows, by name.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.alone.keys().map(String::as_str)
    }
}

/// Splits `('ResNet-18 (batch size 16)', 1)`; zero workers count as no key.
fn job_and_workers(key: &str) -> Option<(&str, u32)> {
    let (job, workers) = key.strip_prefix("('")?.strip_suffix(')')?.rsplit_once("', ")?;
    let workers: u32 = workers.trim().parse().ok()?;
    (workers > 0).then_some((job, workers))
}
