//! The built library itself: how large it is, what it needs to be loaded.

use std::path::Path;
use std::process::Command;

use crate::{Verdict, shell};

/// Bytes of the library without debug information, at most.
const BYTES_MAX: u64 = 1 << 20;
/// What it may need: the C library with its loader and, before 2.34, its parts, and the compiler's runtime.
const MAY_NEED: [&str; 6] = [
    "libc.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "libgcc_s.so.1",
];
/// The oldest C library that containers are expected to bring: Debian 10, RHEL 8.
pub(super) const FLOOR: (u32, u32) = (2, 28);

/// Size and needs of a library as it is built here.
pub(super) fn check(library: &Path, missed: &mut Vec<String>) -> Verdict {
    let bytes = stripped_bytes(library)?;
    let needed = needed(library)?;
    let (major, minor) = newest(library)?;
    println!(
        "{}: {} KiB stripped, needs {}, symbols up to GLIBC_{major}.{minor}",
        library.display(),
        bytes >> 10,
        needed.join(", ")
    );
    if bytes > BYTES_MAX {
        missed.push(format!("the library has {} KiB", bytes >> 10));
    }
    let foreign: Vec<&String> =
        needed.iter().filter(|name| !MAY_NEED.contains(&name.as_str())).collect();
    if !foreign.is_empty() {
        missed.push(format!("the library needs {foreign:?}"));
    }
    Ok(())
}

/// The same of one built for old systems: nothing newer than [`FLOOR`].
pub(super) fn old_systems(library: &Path, missed: &mut Vec<String>) -> Verdict {
    check(library, missed)?;
    let found = newest(library)?;
    if found > FLOOR {
        missed.push(format!("the library for old systems needs GLIBC_{}.{}", found.0, found.1));
    }
    println!();
    Ok(())
}

fn stripped_bytes(library: &Path) -> Result<u64, String> {
    let copy = library.with_extension("stripped");
    let mut strip = Command::new("strip");
    shell::output(strip.arg("--strip-unneeded").arg("-o").arg(&copy).arg(library))?;
    let about = std::fs::metadata(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    let _ = std::fs::remove_file(&copy);
    Ok(about.len())
}

fn needed(library: &Path) -> Result<Vec<String>, String> {
    let text = shell::output(Command::new("readelf").arg("-d").arg(library))?;
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    let name = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_string());
    Ok(lines.filter_map(name).collect())
}

/// The newest version of the C library that a symbol asks for.
fn newest(library: &Path) -> Result<(u32, u32), String> {
    let text = shell::output(Command::new("readelf").args(["-V", "-W"]).arg(library))?;
    Ok(versions(&text).max().unwrap_or((0, 0)))
}

/// All versions `GLIBC_x.y` in what `readelf` says.
fn versions(text: &str) -> impl Iterator<Item = (u32, u32)> {
    text.split("GLIBC_").skip(1).filter_map(|rest| {
        let word = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut numbers = word.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_by_number() {
        let text = "  0x0010:   Name: GLIBC_2.9  Flags: none\n  Name: GLIBC_2.14  Version: 5\n\
                    Name: GLIBC_2.3.4 Flags: none\nName: GCC_3.0";
        assert_eq!(versions(text).max(), Some((2, 14)));
        assert_eq!(versions(text).count(), 3);
    }
}
