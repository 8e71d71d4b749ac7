//! A driver that is older than its programs: a copy of the library in which functions are not there.

use std::fs;
use std::path::Path;

use crate::store::StoreError;

/// Copies a library without some of its symbols, so that looking one up fails.
///
/// The name in the table of names is overwritten in place; the dynamic linker compares names, so the
/// old one is found no more. Folder and name of `to` decide how programs find it.
///
/// # Errors
/// A file cannot be read or written, or a symbol is not in the library.
pub fn without_symbols(from: &Path, to: &Path, symbols: &[&str]) -> Result<(), StoreError> {
    let failed = |path: &Path, action, reason: &dyn std::fmt::Display| StoreError {
        path: path.to_path_buf(),
        action,
        reason: reason.to_string(),
    };
    let mut bytes = fs::read(from).map_err(|error| failed(from, "read it", &error))?;
    for symbol in symbols {
        let name: Vec<u8> = [b"\0", symbol.as_bytes(), b"\0"].concat();
        let places: Vec<usize> = (0..bytes.len().saturating_sub(name.len()))
            .filter(|at| bytes.get(*at..at + name.len()) == Some(name.as_slice()))
            .collect();
        if places.is_empty() {
            return Err(failed(from, "find the symbol", symbol));
        }
        for at in places {
            if let Some(first) = bytes.get_mut(at + 1) {
                *first = b'-';
            }
        }
    }
    fs::write(to, bytes).map_err(|error| failed(to, "write it", &error))
}
