//! One GET over plain HTTP with an end to its patience. As HTTP/1.0, so that no answer comes in chunks.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Bytes of an answer that are read: a node of 16 GPUs with 7 instances each has some 800 kB.
const ANSWER_MAX: usize = 8 << 20;

/// Fetches a text.
///
/// * `within` — for all of it but the look-up of the host's name.
///
/// # Errors
/// Why there is none, in a few words.
pub(super) fn get(url: &str, token: Option<&str>, within: Duration) -> Result<String, String> {
    let (authority, path) = parts(url)?;
    let end = Instant::now() + within;
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\n{}\r\n", shown.unwrap_or_default());
    let answer = exchange(&authority, &request, end).map_err(|error| in_words(&error, within))?;
    body(&answer)
}

fn in_words(error: &io::Error, within: Duration) -> String {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return format!("no answer within {} s", within.as_secs_f64());
    }
    if kind == io::ErrorKind::ConnectionRefused {
        return "connection refused".into();
    }
    error.to_string()
}

/// Host with port, and path, of a URL.
fn parts(url: &str) -> Result<(String, &str), String> {
    let fit = url.bytes().all(|byte| byte.is_ascii_graphic());
    let rest = url.strip_prefix("http://").filter(|_| fit).ok_or("no URL of http")?;
    let at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let has_port = authority.rsplit(']').next().is_some_and(|last| last.contains(':'));
    let port = if has_port { "" } else { ":80" };
    Ok((format!("{authority}{port}"), if path.is_empty() { "/metrics" } else { path }))
}

fn exchange(authority: &str, request: &str, end: Instant) -> io::Result<Vec<u8>> {
    let mut last = io::Error::other("the host has no address");
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(end)?) {
            Ok(stream) => return ask(stream, request, end),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(mut stream: TcpStream, request: &str, end: Instant) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(left(end)?))?;
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        // Again each time: who sends a byte now and then gets no longer.
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut piece)? {
            0 => return Ok(answer),
            read => answer.extend_from_slice(&piece[..read]),
        }
        if answer.len() > ANSWER_MAX {
            return Err(io::Error::other("the answer has no end"));
        }
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn body(answer: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("what answers speaks no HTTP")?;
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some("401") => Err("it wants a token, or another one".into()),
        Some(code) if code.parse::<u16>().is_ok() => Err(format!("it answers with status {code}")),
        Some(_) | None => Err("what answers speaks no HTTP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Answers one request with pieces, a pause after each; what was asked comes back.
    fn server(
        pieces: &'static [&'static str],
        pause: Duration,
    ) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let serves = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut piece) = (String::new(), [0; 1024]);
            while !asked.ends_with("\r\n\r\n") {
                let read = stream.read(&mut piece).unwrap();
                asked.push_str(std::str::from_utf8(&piece[..read]).unwrap());
            }
            for piece in pieces {
                // The other side may have lost its patience.
                let _ = stream.write_all(piece.as_bytes());
                thread::sleep(pause);
            }
            asked
        });
        (url, serves)
    }

    #[test]
    fn a_text_comes_for_the_token() {
        let pieces = &["HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhot", "pot_up 1\n"];
        let (url, serves) = server(pieces, Duration::from_millis(20));
        let text = get(&url, Some("s3cret"), Duration::from_secs(5)).unwrap();
        assert_eq!(text, "hotpot_up 1\n");
        let asked = serves.join().unwrap();
        assert!(asked.starts_with("GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:"), "{asked}");
        assert!(asked.contains("\r\nAuthorization: Bearer s3cret\r\n\r\n"), "{asked}");
    }

    #[test]
    fn patience_ends_even_with_who_trickles() {
        let pieces = &["HTTP/1.0 200 OK\r\n\r\n", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let (url, serves) = server(pieces, Duration::from_millis(60));
        let begun = Instant::now();
        let why = get(&url, None, Duration::from_millis(150)).unwrap_err();
        assert_eq!(why, "no answer within 0.15 s");
        assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
        serves.join().unwrap();
    }

    #[test]
    fn refusals_are_told_in_words() {
        let why = |pieces| {
            let (url, serves) = server(pieces, Duration::ZERO);
            let why = get(&url, None, Duration::from_secs(5)).unwrap_err();
            serves.join().unwrap();
            why
        };
        assert!(why(&["HTTP/1.1 401 Unauthorized\r\n\r\n"]).contains("token"));
        assert!(why(&["HTTP/1.1 404 Not Found\r\n\r\n"]).contains("404"));
        assert!(why(&["SSH-2.0-OpenSSH_9.2\r\n"]).contains("no HTTP"));
        assert!(get("http://a b/", None, Duration::from_secs(1)).is_err());
    }

    #[test]
    fn urls_have_parts() {
        let of = |url| parts(url).unwrap();
        assert_eq!(of("http://n1:9400/metrics"), ("n1:9400".into(), "/metrics"));
        assert_eq!(of("http://n1"), ("n1:80".into(), "/metrics"));
        assert_eq!(of("http://[::1]/x"), ("[::1]:80".into(), "/x"));
        assert_eq!(of("http://[::1]:9/x"), ("[::1]:9".into(), "/x"));
    }
}
