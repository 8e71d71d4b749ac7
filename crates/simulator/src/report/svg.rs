//! A writer of SVG: elements opened and closed in order, every value escaped.

use std::fmt::{Display, Write as _};

use super::names::escaped;

/// Attributes of an element: names are ours, values may be anyone's.
pub type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// An SVG fragment under construction.
#[derive(Default)]
pub struct Svg {
    text: String,
    open: Vec<&'static str>,
}

impl Svg {
    /// Opens an element; everything up to its [`Svg::close`] is inside it.
    pub fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.start(tag, attributes);
        self.text.push('>');
        self.open.push(tag);
    }

    /// Closes the element opened last.
    pub fn close(&mut self) {
        if let Some(tag) = self.open.pop() {
            let _infallible = write!(self.text, "</{tag}>");
        }
    }

    /// Writes an element without contents.
    pub fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.start(tag, attributes);
        self.text.push_str("/>");
    }

    /// Writes an element that holds text only.
    pub fn text(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.open(tag, attributes);
        self.text.push_str(&escaped(text));
        self.close();
    }

    /// Closes what is still open and returns the fragment.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }

    fn start(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        let _infallible = write!(self.text, "<{tag}");
        for (name, value) in attributes {
            let _infallible = write!(self.text, " {name}=\"{}\"", escaped(&value.to_string()));
        }
    }
}

/// A coordinate, written with one decimal at most.
#[derive(Clone, Copy, Debug)]
pub struct At(pub f64);

impl Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        // Adding zero turns -0 into 0.
        write!(f, "{}", tenths + 0.0)
    }
}
