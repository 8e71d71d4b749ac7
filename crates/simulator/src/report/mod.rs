//! Reports of a [`Comparison`](crate::outcome::Comparison): a page, tables, and files for other programs.
//!
//! Each format is one function from the comparison to text; [`write_whole`] puts text on disk, all of it
//! or none. `metrics` says what the figures mean and which way is better, `units` how they read; every
//! format takes both from there. Nothing here computes an outcome.
//!
//! **Invariant:** every name from a trace or a policy passes `names` before a reader sees it.

mod bars;
mod canvas;
mod csv;
pub mod draw;
mod figures;
mod headlines;
mod html;
mod json;
mod labels;
mod metrics;
mod names;
mod palette;
mod plot;
mod scale;
mod series;
mod sparkline;
mod svg;
mod tables;
mod terminal;
mod units;
mod write;

pub use csv::csv;
pub use html::html;
pub use json::{FORMAT, json};
pub use names::{harmless, shown};
pub use terminal::terminal;
pub use write::{WriteError, check_place, write_whole};
