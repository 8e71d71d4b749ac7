//! The parts of which other reports are drawn, so that all pages of hotpot look and read alike.
//!
//! SVG with every value escaped, scales with round ticks, colours of the style sheet, names made fit to show, figures as
//! they read. A page that puts [`STYLE`] into its `style` element has the colours in a light and in a dark room.

pub use super::names::{shortened, shown};
pub use super::palette::colour;
pub use super::scale::{Scale, Ticks, ticks};
pub use super::svg::{At, Attributes, Svg};
pub use super::units::{ABSENT, grouped, span};

/// The style sheet of all pages.
pub const STYLE: &str = include_str!("../../templates/report.css");
