//! The bearer token that a scraper must show.

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Shortest and longest token, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

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
        let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Open { path: path.to_path_buf(), mode });
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
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
        assert!(refusal(Path::new("/nonexistent/token")).contains("/nonexistent/token"));
    }
}
