//! Names that one process has. In a program of its own: what another test starts would have the name for a moment too, between
//! its fork and its start.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use lab_base::Claim;

#[test]
fn a_name_is_taken_once_until_it_is_dropped() {
    let name = format!("test-{}", std::process::id());
    let first = Claim::take(&name).expect("nobody has it");
    assert!(Claim::take(&name).is_none());
    assert!(Claim::wait(&name, Duration::ZERO).is_err());
    drop(first);
    assert!(Claim::take(&name).is_some());
}
