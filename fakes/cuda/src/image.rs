//! What is read of a module's image: how long it is and, if it is PTX, which kernels and variables it
//! has. Comments in it say how long a kernel takes:
//!
//! * `// hotpot-kernel NAME block_ns=N`: each wave of blocks takes N ns, one block to a multiprocessor;
//! * `// hotpot-kernel NAME first_parameter_ns`: the first parameter, 8 bytes, is the whole time in ns.

use std::ffi::c_void;

use crate::mapping;

/// How long a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Each wave of blocks takes that many ns.
    Block(u64),
    /// The first parameter is the whole time in ns.
    FirstParameter,
}

/// What a wave of blocks takes if nothing says otherwise, in ns.
const BLOCK_NS: u64 = 10_000;

/// A kernel of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) timing: Timing,
    /// Offsets and sizes of the parameters in bytes; `None` if they are not known.
    pub(crate) parameters: Option<Vec<(usize, usize)>>,
}

/// What an image has.
#[derive(Clone)]
pub(crate) struct Image {
    /// Bytes.
    pub(crate) size: u64,
    /// `None` in machine code, which has any kernel that is asked for.
    pub(crate) entries: Option<Vec<Entry>>,
    /// Names and sizes of variables, of PTX.
    pub(crate) variables: Vec<(String, u64)>,
}

impl Entry {
    /// A kernel of which only the name is known.
    pub(crate) fn unknown(name: &str) -> Self {
        Self { name: name.to_string(), timing: Timing::Block(BLOCK_NS), parameters: None }
    }
}

const ELF: &[u8] = b"\x7fELF";
const FAT_BINARY: &[u8] = &0xba55_ed50_u32.to_le_bytes();
const FAT_WRAPPER: &[u8] = &0x4662_43b1_u32.to_le_bytes();

impl Image {
    /// The image at a client's address, which a header or a final zero bounds.
    pub(crate) fn at(image: *const c_void) -> Self {
        let address = image.expose_provenance() as u64;
        let head = mapping::bytes(address, 4);
        if head == FAT_WRAPPER {
            let inner = word(mapping::bytes(address + 8, 8), 0);
            return Self::at(std::ptr::with_exposed_provenance(inner as usize));
        }
        if head == FAT_BINARY {
            let size = word(mapping::bytes(address + 8, 8), 0);
            return Self::machine_code(size + 16);
        }
        if head == ELF {
            let header = mapping::bytes(address, 64);
            let half = |at: usize| word(header, at) & 0xffff;
            return Self::machine_code(word(header, 40) + half(58) * half(60));
        }
        // SAFETY: an image that is none of the above is text with a final zero.
        let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
        Self::ptx(&text.to_string_lossy())
    }

    /// An image read from a file.
    pub(crate) fn of_file(mut bytes: Vec<u8>) -> Self {
        bytes.extend([0; 64]);
        Self::at(bytes.as_ptr().cast())
    }

    fn machine_code(size: u64) -> Self {
        Self { size, entries: None, variables: Vec::new() }
    }

    fn ptx(text: &str) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for part in text.split(".entry").skip(1) {
            let name: String = part.trim_start().chars().take_while(|c| is_name(*c)).collect();
            let parameters = Some(parameters(part));
            entries.push(Entry {
                parameters,
                timing: timing(text, &name),
                ..Entry::unknown(&name)
            });
        }
        let variables = text.lines().filter_map(variable).collect();
        Self { size: text.len() as u64, entries: Some(entries), variables }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).unwrap_or_default();
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn timing(text: &str, name: &str) -> Timing {
    let comments = text.lines().filter_map(|line| line.trim().strip_prefix("// hotpot-kernel "));
    let said = comments.filter_map(|said| said.trim().split_once(' '));
    let how = said.filter(|(of, _)| *of == name).map(|(_, how)| how.trim()).next_back();
    let block_ns = |how: &str| how.strip_prefix("block_ns=")?.parse().ok();
    match how {
        Some("first_parameter_ns") => Timing::FirstParameter,
        other => Timing::Block(other.and_then(block_ns).unwrap_or(BLOCK_NS)),
    }
}

/// Bytes of a PTX type such as `u64` or `b8`.
fn type_bytes(name: &str) -> usize {
    let bits: usize = name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(64);
    (bits / 8).max(1)
}

/// The number in the brackets behind a name; 1 without.
fn times(name: &str) -> usize {
    let inside = name.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.and_then(|(number, _)| number.trim().parse().ok()).unwrap_or(1)
}

/// Offsets and sizes from the list of parameters behind a kernel's name.
fn parameters(part: &str) -> Vec<(usize, usize)> {
    let Some((_, list)) = part.split_once('{').map_or(part, |(head, _)| head).split_once('(')
    else {
        return Vec::new();
    };
    let list = list.split(')').next().unwrap_or("");
    let mut at: usize = 0;
    let mut found = Vec::new();
    for parameter in list.split(',').filter(|text| text.contains(".param")) {
        let words: Vec<&str> = parameter.split_whitespace().collect();
        let after = |word: &str| {
            let at = words.iter().position(|other| *other == word)?;
            words.get(at + 1)?.parse::<usize>().ok()
        };
        let mut types = words.iter().filter_map(|word| word.strip_prefix('.'));
        let kind = types.rfind(|word| word.ends_with(|c: char| c.is_ascii_digit()));
        let element = kind.map_or(8, type_bytes);
        let size = element * times(parameter);
        at = at.next_multiple_of(after(".align").unwrap_or(element).max(1));
        found.push((at, size));
        at += size;
    }
    found
}

/// Name and size of a variable that a line of PTX declares.
fn variable(line: &str) -> Option<(String, u64)> {
    let words: Vec<&str> = line.trim().trim_end_matches(';').split_whitespace().collect();
    words.iter().position(|word| matches!(*word, ".global" | ".const"))?;
    let kind = words.iter().rposition(|word| word.starts_with('.'))?;
    let declared = words.get(kind + 1)?;
    let name: String = declared.chars().take_while(|c| is_name(*c)).collect();
    let element = type_bytes(words.get(kind)?.trim_start_matches('.'));
    (!name.is_empty()).then(|| (name, (element * times(declared)) as u64))
}
