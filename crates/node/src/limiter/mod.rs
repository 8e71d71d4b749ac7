//! The limiter library inside a tenant's processes: where it lies, whether it can be loaded there, and
//! what it is told of its tenant ([`Books`]).
//!
//! It is preloaded, so that it holds every program that is linked dynamically and keeps its environment:
//! a cap of memory and of compute for all processes of a tenant together, cooperative.

mod books;
mod container;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::backend::Enforcement;
use crate::companion;

pub use books::{Books, BooksError, Entry, ledger_of_user};
pub(crate) use books::{forget, sweep, word};
pub use container::InContainer;

/// The library as it is built and installed.
pub const LIBRARY: &str = "libhotpot_limiter.so";
/// Names another library than the one beside the program.
pub const LIBRARY_VARIABLE: &str = "HOTPOT_LIMITER";
/// The variable by which the loader is told of it (ld.so(8)).
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Bytes of an ELF file that say for which machine it is, up to `e_machine` (elf(5)).
const ELF_HEAD: usize = 20;
const WAY_OUT: &str =
    "install it with `cargo xtask install`, or build it with `cargo build -p limiter`";

/// The limiter library, found and fit to be preloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limiter(PathBuf);

impl Limiter {
    /// Finds the library: the one named, else that of `HOTPOT_LIMITER`, else beside this program or where it
    /// is installed (`../lib/hotpot`).
    ///
    /// # Errors
    /// What is missing, and the way out.
    pub fn find(named: Option<&Path>) -> Result<Self, String> {
        let variable = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
        let named = named.map(Path::to_owned).or(variable.map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None => installed()?,
        };
        let path = path.canonicalize();
        let path = path.map_err(|error| format!("the limiter library: {error}; {WAY_OUT}"))?;
        fit(&path)?;
        Ok(Self(path))
    }

    /// Whether caps can be held by it, for whoever only looks.
    ///
    /// * `named` — as for [`Limiter::find`].
    pub fn probe(named: Option<&Path>) -> Enforcement {
        match Self::find(named) {
            Ok(_) => Enforcement::Cooperative,
            Err(why) => Enforcement::Absent(why),
        }
    }

    /// Its file, absolute.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Variables with which a process starts under the caps of a file.
    ///
    /// * `caps` — the file of [`Books`].
    pub fn variables(&self, caps: &Path) -> Vec<(String, String)> {
        vec![
            (caps::LIST_VARIABLE.to_owned(), caps.display().to_string()),
            (PRELOAD_VARIABLE.to_owned(), self.0.display().to_string()),
        ]
    }
}

/// The library that came with this program.
fn installed() -> Result<PathBuf, String> {
    let folder = companion::folder_with(LIBRARY);
    let folder = folder.map_err(|error| format!("the limiter library: {error}; {WAY_OUT}"))?;
    Ok(folder.join(LIBRARY))
}

/// Looks whether the loader would take the file: one that it cannot take is passed over, and the
/// program would run without caps.
fn fit(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let written = path.to_str().ok_or_else(|| format!("{shown}: its name is no UTF-8; move it"))?;
    // It separates the names in its list, and stands for folders in them (ld.so(8)).
    if written.contains([':', '$']) || written.contains(char::is_whitespace) {
        return Err(format!(
            "{shown}: the loader cannot be told of a name with `:`, `$` or blanks; move it"
        ));
    }
    let (found, own) = (elf_head(path), elf_head(Path::new("/proc/self/exe")));
    match (found, own) {
        (Err(error), _) => Err(format!("{shown}: {error}; {WAY_OUT}")),
        (Ok(found), Ok(own)) if !same_machine(&found, &own) => {
            Err(format!("{shown}: no library for this machine; {WAY_OUT}"))
        }
        (Ok(_), _) => loads(path),
    }
}

/// Has the loader take it once: it may need a newer C library than the one here, and a loader that cannot
/// take a preloaded library only says so and goes on without it.
fn loads(path: &Path) -> Result<(), String> {
    let mut program = Command::new("true");
    program.env(PRELOAD_VARIABLE, path).stdin(Stdio::null());
    // Without such a program nothing can be found out here.
    let Ok(done) = program.output() else { return Ok(()) };
    let said = String::from_utf8_lossy(&done.stderr);
    match said.lines().find(|line| !line.trim().is_empty()) {
        None => Ok(()),
        Some(line) => {
            Err(format!("{}: it cannot be loaded here ({line}); {WAY_OUT}", path.display()))
        }
    }
}

fn elf_head(path: &Path) -> std::io::Result<[u8; ELF_HEAD]> {
    let mut head = [0; ELF_HEAD];
    File::open(path)?.read_exact(&mut head)?;
    Ok(head)
}

/// Magic number, class and byte order, and the machine.
fn same_machine(one: &[u8; ELF_HEAD], other: &[u8; ELF_HEAD]) -> bool {
    one[..6] == other[..6] && one[18..] == other[18..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("limiter-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).unwrap();
        place
    }

    /// A library that this program has loaded, other than the C library.
    fn some_library() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            line.split_whitespace().nth(5).filter(|path| path.contains("libgcc_s"))
        });
        path.unwrap().into()
    }

    fn why(named: &Path) -> String {
        match Limiter::probe(Some(named)) {
            Enforcement::Absent(why) => why,
            other @ (Enforcement::Hard | Enforcement::Cooperative | Enforcement::Unknown(_)) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn what_the_loader_would_pass_over_is_not_there() {
        let place = place("fit");
        assert!(why(&place.join("none.so")).contains("cargo build -p limiter"));
        std::fs::write(place.join("text.so"), "no library, but long enough").unwrap();
        assert!(why(&place.join("text.so")).contains("no library for this machine"));
        std::fs::write(place.join("short.so"), "x").unwrap();
        assert!(why(&place.join("short.so")).contains("short.so"));
        // For this machine, but a program.
        std::fs::copy("/proc/self/exe", place.join("program.so")).unwrap();
        assert!(why(&place.join("program.so")).contains("cannot be loaded here"));
        let blank = place.join("a b.so");
        std::fs::copy(some_library(), &blank).unwrap();
        assert!(why(&blank).contains("move it"));
        std::fs::rename(&blank, place.join("fit.so")).unwrap();
        assert_eq!(Limiter::probe(Some(&place.join("fit.so"))), Enforcement::Cooperative);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
