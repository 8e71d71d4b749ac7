//! How the kubelet learns of the plugin: the least of HTTP/2 and gRPC that its two calls need, by hand.
//!
//! By hand, because the kubelet (1.36: `pluginmanager/operationexecutor`) names the socket's path as `:authority` at this
//! socket alone, and the HTTP/2 library refuses whatever is no host's name (hyperium/h2, pull request 487). Headers
//! are not read: both calls are answered by the same message, as the answer to the second has no fields and a reader
//! passes over those that it does not know; and only the second has a message that is not empty.

use std::io;

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::proto::registration::{PluginInfo, RegistrationStatus};

/// What a client begins with, and frames' numbers (RFC 9113, 3.4 and 6).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const HEAD: usize = 9;
/// Longest frame without another agreement.
const FRAME_MAX: usize = 16 << 10;
/// Frames of one connection: the kubelet makes a new one for each of its few calls.
const FRAMES_MAX: usize = 1000;
/// gRPC's head of a message: a byte for compression, four for its length.
const MESSAGE_HEAD: usize = 5;
/// `:status 200`, and `content-type` with its value, in the form without tables (RFC 7541, 6.1 and 6.2.2).
const ANSWER: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status 0`.
const DONE: &[u8] = b"\x00\x0bgrpc-status\x010";

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Serves one connection until the other side ends it.
///
/// * `info` — what the plugin is; `noted` — is told what the kubelet says of it.
///
/// # Errors
/// What the other side speaks is not this, or the socket fails.
pub(super) async fn greet(
    mut wire: impl AsyncRead + AsyncWrite + Unpin,
    info: &PluginInfo,
    noted: impl Fn(RegistrationStatus),
) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    wire.read_exact(&mut preface).await?;
    if preface != PREFACE {
        return Err(odd("it speaks no HTTP/2"));
    }
    write(&mut wire, (SETTINGS, 0, 0), &[]).await?;
    let mut said: Vec<u8> = Vec::new();
    for _ in 0..FRAMES_MAX {
        let Some(Frame { kind, flags, stream, payload }) = next(&mut wire).await? else { break };
        match kind {
            SETTINGS if flags & ACK == 0 => write(&mut wire, (SETTINGS, ACK, 0), &[]).await?,
            PING if flags & ACK == 0 => write(&mut wire, (PING, ACK, 0), &payload).await?,
            DATA => said.extend(unpadded(flags, &payload)?),
            RESET => said.clear(),
            GO_AWAY => break,
            _ => {}
        }
        if said.len() > FRAME_MAX {
            return Err(odd("its message is too long"));
        }
        if [DATA, HEADERS].contains(&kind) && flags & END_STREAM != 0 {
            if let Some(message) = said.get(MESSAGE_HEAD..).filter(|message| !message.is_empty()) {
                noted(RegistrationStatus::decode(message).map_err(io::Error::other)?);
            }
            said.clear();
            answer(&mut wire, stream, info).await?;
        }
    }
    Ok(())
}

async fn answer(
    wire: &mut (impl AsyncWrite + Unpin),
    stream: u32,
    info: &PluginInfo,
) -> io::Result<()> {
    let message = info.encode_to_vec();
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let data = [&[0][..], &length.to_be_bytes(), &message].concat();
    write(wire, (HEADERS, END_HEADERS, stream), ANSWER).await?;
    write(wire, (DATA, 0, stream), &data).await?;
    write(wire, (HEADERS, END_HEADERS | END_STREAM, stream), DONE).await
}

/// The next frame; `None` at the end.
async fn next(wire: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD];
    match wire.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let [a, b, c, kind, flags, stream @ ..] = head;
    let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).map_err(io::Error::other)?;
    if length > FRAME_MAX {
        return Err(odd("its frame is too long"));
    }
    let mut payload = vec![0; length];
    wire.read_exact(&mut payload).await?;
    Ok(Some(Frame { kind, flags, stream: u32::from_be_bytes(stream) & (u32::MAX >> 1), payload }))
}

fn unpadded(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let [padding, rest @ ..] = payload else { return Err(odd("its frame is cut off")) };
    let end = rest.len().checked_sub(usize::from(*padding));
    end.and_then(|end| rest.get(..end)).ok_or_else(|| odd("its frame is all padding"))
}

async fn write(
    wire: &mut (impl AsyncWrite + Unpin),
    (kind, flags, stream): (u8, u8, u32),
    payload: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    wire.write_all(&[&head, payload].concat()).await
}

fn odd(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn spoken(bytes: &[u8]) -> io::Result<Vec<RegistrationStatus>> {
        let (mut kubelet, plugin) = tokio::io::duplex(1 << 16);
        kubelet.write_all(bytes).await.unwrap();
        kubelet.shutdown().await.unwrap();
        let noted = std::cell::RefCell::new(Vec::new());
        let info = PluginInfo { name: "n".into(), ..PluginInfo::default() };
        greet(plugin, &info, |status| noted.borrow_mut().push(status)).await?;
        Ok(noted.into_inner())
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn whatever_is_said_ends_in_an_answer_or_an_error() {
        let status = RegistrationStatus { plugin_registered: false, error: "no".into() };
        let message = status.encode_to_vec();
        let data = [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()][..], &message].concat();
        let headers = frame(HEADERS, END_HEADERS, b"\xff\xff no headers at all");
        let whole = [PREFACE, &headers, &frame(DATA, END_STREAM, &data)].concat();
        let expected = [status];
        assert_eq!(spoken(&whole).await.unwrap(), expected);
        let padded = [&[2][..], &data, &[0, 0]].concat();
        let padded = [PREFACE, &headers, &frame(DATA, END_STREAM | PADDED, &padded)].concat();
        assert_eq!(spoken(&padded).await.unwrap(), expected);
        for cut in 0..whole.len() {
            let _ended = spoken(&whole[..cut]).await;
        }
        for (bytes, part) in [
            (b"GET / HTTP/1.1\r\nHost: plugin\r\n\r\n".to_vec(), "no HTTP/2"),
            ([PREFACE, &[255, 255, 255, 0, 0, 0, 0, 0, 1]].concat(), "too long"),
            ([PREFACE, &frame(DATA, PADDED, &[9, 1])].concat(), "padding"),
            ([PREFACE, &frame(DATA, PADDED, &[])].concat(), "cut off"),
            ([PREFACE, &frame(DATA, END_STREAM, b"\0\0\0\0\x02\xff\xff")].concat(), "decode"),
        ] {
            let error = spoken(&bytes).await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
