//! Opening a file: plain or gzip, of bounded size, UTF-8.
//!
//! Compression is told by its first bytes, not by the name. A byte order mark is dropped; line ends
//! are left as they are, the readers take both kinds.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::error::{Complaint, ReadError, quote};

/// Most bytes that a file may have, unpacked: 256 MiB, twenty times all traces at hand together.
pub const SIZE_MAX_BYTES: u64 = 256 << 20;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The text of one file, and the name by which errors call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Reads a file, unpacking gzip.
    ///
    /// # Errors
    /// A file that cannot be opened, is empty, longer than [`SIZE_MAX_BYTES`], cut-off gzip, or not
    /// UTF-8.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let refuse = |error: io::Error| {
            let what = format!("cannot be read: {error}");
            ReadError::of_file(&name, Complaint::new(what, way_in(&name, error.kind())))
        };
        let file = File::open(path).map_err(refuse)?;
        let mut bytes = Vec::new();
        file.take(SIZE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(refuse)?;
        Self::from_bytes(&name, bytes)
    }

    /// Takes the bytes of a file, unpacking gzip.
    ///
    /// * `name` — how errors call it; its extension tells TOML from YAML where that matters.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, ReadError> {
        Self::within(name, bytes, SIZE_MAX_BYTES)
    }

    /// As [`Source::from_bytes`], with a size limit in bytes of its own.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn within(name: &str, bytes: Vec<u8>, size_max: u64) -> Result<Self, ReadError> {
        let bytes =
            if bytes.starts_with(&GZIP_MAGIC) { unpack(name, &bytes, size_max)? } else { bytes };
        if bytes.len() as u64 > size_max {
            let what = format!("is longer than {size_max} bytes");
            return Err(ReadError::of_file(name, Complaint::new(what, "split it or sample it")));
        }
        let text = String::from_utf8(bytes).map_err(|error| not_utf8(name, &error))?;
        let text = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => rest.to_string(),
            None => text,
        };
        if text.trim().is_empty() {
            let complaint = Complaint::new("is empty", "check the path, or write the file anew");
            return Err(ReadError::of_file(name, complaint));
        }
        Ok(Self { name: name.to_string(), text })
    }

    /// The name by which errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text, without byte order mark.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file's own name, without folders and without `.gz`.
    pub fn file_name(&self) -> &str {
        let last = self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name);
        last.strip_suffix(".gz").unwrap_or(last)
    }

    /// Lower-case extension, `.gz` aside; empty without one.
    pub fn extension(&self) -> String {
        let parts = self.file_name().rsplit_once('.');
        parts.map_or(String::new(), |(_, extension)| extension.to_ascii_lowercase())
    }

    /// A line by its one-based number; empty past the end.
    pub(crate) fn line(&self, line: usize) -> &str {
        self.text.lines().nth(line.saturating_sub(1)).unwrap_or("")
    }

    /// An error about the whole file.
    pub(crate) fn error(&self, what: impl Into<String>, way_out: impl Into<String>) -> ReadError {
        ReadError::of_file(&self.name, Complaint::new(what, way_out))
    }

    /// An error about a value in a one-based line.
    pub(crate) fn complain(&self, line: usize, field: &str, complaint: Complaint) -> ReadError {
        ReadError::of_file(&self.name, complaint).at_line(line).in_field(field)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "ErrorKind is open: most kinds say it all")]
fn way_in(name: &str, kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound if name == "-" => "for standard input write /dev/stdin",
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::IsADirectory => "it is a folder: name a file in it",
        io::ErrorKind::NotADirectory => "a part of the path is a file: check the path",
        io::ErrorKind::PermissionDenied => "ask for the right to read it",
        _ => "check the path and the permissions",
    }
}

fn unpack(name: &str, bytes: &[u8], size_max: u64) -> Result<Vec<u8>, ReadError> {
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes).take(size_max + 1);
    decoder.read_to_end(&mut unpacked).map_err(|error| {
        let cut_off = error.kind() == io::ErrorKind::UnexpectedEof;
        let what = match cut_off {
            true => "is gzip that was cut off".to_string(),
            false => format!("is damaged gzip ({error})"),
        };
        let way_out = "fetch it again, and test it with `gzip -t`";
        ReadError::of_file(name, Complaint::new(what, way_out))
    })?;
    Ok(unpacked)
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> ReadError {
    let valid = error.utf8_error().valid_up_to();
    let before = &error.as_bytes()[..valid];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let end = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let bad = error.as_bytes().get(valid).copied().unwrap_or_default();
    let shown = quote(&String::from_utf8_lossy(end));
    let what = format!("byte 0x{bad:02x} after {shown} is not UTF-8");
    let way_out = "convert it, for example with `iconv -t UTF-8`";
    ReadError::of_file(name, Complaint::new(what, way_out)).at_line(line)
}
