//! Opening files: compression, size, encoding, line ends.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use formats::{Source, openb};

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,2,T4\n";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("a write to memory");
    encoder.finish().expect("a write to memory")
}

fn refusal(name: &str, bytes: Vec<u8>) -> String {
    Source::from_bytes(name, bytes).expect_err("a refusal").to_string()
}

#[test]
fn gzip_is_told_by_its_bytes_not_by_its_name() {
    let packed = Source::from_bytes("nodes.csv", gzip(NODES.as_bytes())).unwrap();
    let plain = Source::from_bytes("nodes.csv.gz", NODES.into()).unwrap();
    assert_eq!(packed.text(), plain.text());
    assert_eq!((plain.extension().as_str(), plain.file_name()), ("csv", "nodes.csv"));
}

#[test]
fn gzip_that_ends_early_or_is_damaged_is_refused() {
    let whole = gzip(NODES.repeat(50).as_bytes());
    for end in [2, 5, 12, whole.len() / 2, whole.len() - 1] {
        let message = refusal("nodes.csv.gz", whole[..end].to_vec());
        assert!(message.contains("gzip"), "{end}: {message}");
        assert!(message.contains("fetch it again"), "{end}: {message}");
    }
    let mut damaged = whole;
    let last = damaged.len() - 6;
    damaged[last] ^= 0xff;
    assert!(refusal("nodes.csv.gz", damaged).contains("is damaged gzip"));
}

#[test]
fn size_counts_unpacked() {
    let bomb = gzip(&vec![b'a'; 1 << 20]);
    assert!(bomb.len() < 5000);
    let message = Source::within("bomb.gz", bomb, 4096).unwrap_err().to_string();
    assert_eq!(message, "bomb.gz: is longer than 4096 bytes; split it or sample it");
    assert!(Source::within("fits", vec![b'a'; 4096], 4096).is_ok());
    assert!(Source::within("plain", vec![b'a'; 4097], 4096).is_err());
}

#[test]
fn what_is_not_utf8_is_refused_with_its_line() {
    let message = refusal("tasks.csv", b"name\npod-0\npod-\xff\n".to_vec());
    assert!(message.starts_with("tasks.csv:3: byte 0xff after \"pod-\" is not UTF-8"), "{message}");
}

#[test]
fn empty_missing_and_unreadable_files_are_refused() {
    assert!(refusal("a.csv", Vec::new()).starts_with("a.csv: is empty"));
    assert!(refusal("a.csv", b" \r\n\n".to_vec()).starts_with("a.csv: is empty"));
    let message = Source::open("/no/such/file.csv".as_ref()).unwrap_err().to_string();
    assert!(message.starts_with("/no/such/file.csv: cannot be read: "), "{message}");
    assert!(Source::open("/".as_ref()).is_err());
}

#[test]
fn byte_order_mark_and_dos_line_ends_change_nothing() {
    let plain = openb::node_rows(&Source::from_bytes("n", NODES.into()).unwrap()).unwrap();
    let dos = format!("\u{feff}{}", NODES.replace('\n', "\r\n"));
    let rows = openb::node_rows(&Source::from_bytes("n", dos.into()).unwrap()).unwrap();
    assert_eq!(rows, plain);
}
