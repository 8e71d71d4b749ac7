//! What of the limiter's a tenant must find that has a file system of its own, and is any user there.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use caps::{Caps, LIST_VARIABLE};

use super::{BooksError, PRELOAD_VARIABLE};
use crate::grant::Grant;

/// Rights of books that whoever finds them in a container may write to. On the machine itself the folders on the
/// way keep others out.
const BOOKS_MODE: u32 = 0o666;

/// The limiter's files of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InContainer {
    /// The library, to be loaded into every process.
    pub library: PathBuf,
    /// The tenant's caps, to be found at [`InContainer::CAPS`] and not to be written.
    pub caps: PathBuf,
    /// Its books and the boards of its GPUs, to be found where they are, and to be written.
    pub books: Vec<PathBuf>,
}

impl InContainer {
    /// Where the library looks for the caps before it looks at any variable.
    pub const CAPS: &str = caps::FIXED;

    /// The files of a tenant by one of its grants; `None` if the limiter holds nothing of it. The books are opened to
    /// every user: which ones a container has, its image says.
    ///
    /// # Errors
    /// The caps cannot be read, or the books not be opened.
    pub fn of(grant: &Grant) -> Result<Option<Self>, BooksError> {
        let variable = |name: &str| {
            let found = grant.env.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| PathBuf::from(value))
        };
        let (Some(library), Some(caps)) = (variable(PRELOAD_VARIABLE), variable(LIST_VARIABLE))
        else {
            return Ok(None);
        };
        let books = books_of(&caps)?;
        for path in &books {
            fs::set_permissions(path, Permissions::from_mode(BOOKS_MODE))
                .map_err(|source| BooksError::File { path: path.clone(), source })?;
        }
        Ok(Some(Self { library, caps, books }))
    }

    /// Whether a variable of a grant is not for a container: the files lie where no variable leads away from.
    pub fn replaces(variable: &str) -> bool {
        [PRELOAD_VARIABLE, LIST_VARIABLE].contains(&variable)
    }
}

fn books_of(caps: &Path) -> Result<Vec<PathBuf>, BooksError> {
    let file = |source| BooksError::File { path: caps.to_owned(), source };
    let text = fs::read_to_string(caps).map_err(file)?;
    let read = Caps::parse(&text);
    let read = read.map_err(|error| file(io::Error::other(error.to_string())))?;
    let of_gpus =
        read.gpus.into_iter().flat_map(|gpu| std::iter::once(gpu.ledger).chain(gpu.board));
    let books: BTreeSet<PathBuf> = of_gpus.collect();
    Ok(books.into_iter().collect())
}
