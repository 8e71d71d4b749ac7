//! The whole text of one scrape.

use crate::dcgm::{self, MetricNames};
use crate::exposition::{Exposition, Format};
use crate::observation::Observation;
use crate::own;

/// What a scraper reads: of an observation, or that there is none.
pub fn render(
    seen: Option<&Observation>,
    names: MetricNames,
    format: Format,
    host: &str,
) -> String {
    let mut text = Exposition::new(format);
    match seen {
        None => own::down(&mut text),
        Some(seen) => {
            own::write(&mut text, seen);
            match format {
                Format::Prometheus => dcgm::write(&mut text, seen, names, host),
                Format::OpenMetrics => {}
            }
        }
    }
    text.finish()
}
