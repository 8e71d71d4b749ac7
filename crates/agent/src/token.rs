//! The bearer token that a scraper must show.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Shortest and longest token, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

/// Bytes read of the file: more than any token and some blank lines.
const BYTES_MAX: u64 = 4096;

/// The file with the token is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("token file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others than its owner may read it.
    #[error("token file {0}: others may read it (mode {mode:03o}); run: chmod 600 {0}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Whoever owns it can read and change it.
    #[error(
        "token file {}: belongs to user {owner}, who could read and change it; let it belong to the \
         user that the agent runs as, or to root", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// It holds no token.
    #[error(
        "token file {}: holds no token; one line of {} to {} printable characters without blanks is \
         wanted, such as: openssl rand -hex 32", path.display(), LENGTHS.start(), LENGTHS.end()
    )]
    Unfit {
        /// The file.
        path: PathBuf,
    },
}

/// A secret that is compared without telling how much of a guess is right.
#[derive(Clone)]
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads the file's one line.
    pub(crate) fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |error| TokenError::Unreadable { path: path.to_path_buf(), error };
        // Does not wait for a writer, should it be a pipe.
        let waits_not = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let opened = OpenOptions::new().read(true).custom_flags(waits_not).open(path);
        let file = opened.map_err(unreadable)?;
        // Of the file that is open, whatever becomes of its name meanwhile.
        let facts = file.metadata().map_err(unreadable)?;
        let (mode, owner) = (facts.mode() & 0o777, facts.uid());
        if mode & 0o077 != 0 {
            return Err(TokenError::Open { path: path.to_path_buf(), mode });
        }
        if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
            return Err(TokenError::Foreign { path: path.to_path_buf(), owner });
        }
        Self::of(file, path)
    }

    /// Reads the one that is to be shown. Who else may read the file is not asked: in a pod a Secret's files are root's, and open to its
    /// only user.
    pub(crate) fn to_show(path: &Path) -> Result<String, TokenError> {
        let unreadable = |error| TokenError::Unreadable { path: path.to_path_buf(), error };
        let token = Self::of(std::fs::File::open(path).map_err(unreadable)?, path)?;
        Ok(String::from_utf8_lossy(&token.0).into_owned())
    }

    fn of(file: std::fs::File, path: &Path) -> Result<Self, TokenError> {
        let unreadable = |error| TokenError::Unreadable { path: path.to_path_buf(), error };
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        let token = text.trim_end();
        if !LENGTHS.contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Unfit { path: path.to_path_buf() });
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    /// Whether an `Authorization` header shows this token. Takes the same time for each guess of one
    /// length.
    pub(crate) fn is_shown_by(&self, header: &[u8]) -> bool {
        let Some((scheme, guess)) = header.split_at_checked(7) else { return false };
        if !scheme.eq_ignore_ascii_case(b"bearer ") || guess.len() != self.0.len() {
            return false;
        }
        let pairs = guess.iter().zip(&self.0);
        let differences = pairs.fold(0, |so_far, (guess, byte)| black_box(so_far | (guess ^ byte)));
        differences == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn file(name: &str, text: &str, mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("token-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn only_the_token_opens() {
        let token = Token::read(&file("good", "0123456789abcdef\n", 0o600)).unwrap();
        assert!(token.is_shown_by(b"Bearer 0123456789abcdef"));
        assert!(token.is_shown_by(b"bearer 0123456789abcdef"));
        for other in [
            &b""[..],
            b"Bearer",
            b"Bearer ",
            b"Bearer 0123456789abcdeF",
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef0",
            b"Basic  0123456789abcdef",
        ] {
            assert!(!token.is_shown_by(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn files_that_others_read_or_without_a_token_are_refused() {
        let refusal = |path: &Path| Token::read(path).err().unwrap().to_string();
        assert!(refusal(&file("open", "0123456789abcdef", 0o644)).contains("chmod 600"));
        assert!(refusal(&file("short", "secret\n", 0o600)).contains("openssl rand"));
        assert!(refusal(&file("blank", "0123456789 abcdef\n", 0o600)).contains("openssl rand"));
        assert!(refusal(&file("long", &"x".repeat(5000), 0o600)).contains("openssl rand"));
        assert!(refusal(Path::new("/nonexistent/token")).contains("/nonexistent/token"));
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let path = file("foreign", "0123456789abcdef", 0o600);
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let said = Token::read(&path).err().unwrap().to_string();
            assert!(said.contains("belongs to user 65534"), "{said}");
        } else {
            // A file of root's is good, but cannot be made here.
            assert!(Token::read(&path).is_ok());
        }
    }

    #[test]
    fn a_pipe_is_no_token_and_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("token-{}-pipe", std::process::id()));
        let _ = fs::remove_file(&path);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(Token::read(&path).is_err());
    }
}
