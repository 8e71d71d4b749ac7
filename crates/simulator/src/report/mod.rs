//! Reports of a comparison.
