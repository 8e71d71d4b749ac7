//! The ports of clusters on one host: a block each.

use std::net::TcpListener;

use lab_base::{Claim, LabError};

/// Most nodes of one kind.
pub(crate) const NODES_MAX: u32 = 100;
/// Ports begin here; below the kernel's range for outgoing connections (from 32768), which may take any.
const FIRST: u16 = 20_000;
/// Ports of one cluster: its nodes and four more.
const BLOCK: u16 = 128;
const BLOCKS: u16 = 96;

/// The TCP ports of one cluster.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    _claim: Claim,
}

impl Ports {
    /// Finds a block of ports of which nobody listens on any.
    pub(crate) fn find(nodes: u32) -> Result<Self, LabError> {
        let needed = 4 + u16::try_from(nodes).unwrap_or(BLOCK);
        // Processes that look at the same time begin at different blocks.
        let begin = std::process::id() % u32::from(BLOCKS);
        let begin = u16::try_from(begin).unwrap_or_default();
        for block in (0..BLOCKS).map(|step| (begin + step) % BLOCKS) {
            let first = FIRST + block * BLOCK;
            let Some(claim) = Claim::take(&format!("ports-{first}")) else { continue };
            let mut ports = first..first + needed;
            if ports.all(|port| TcpListener::bind(("0.0.0.0", port)).is_ok()) {
                return Ok(Self { first, _claim: claim });
            }
        }
        Err(LabError::Options("no free ports: other labs have them all".into()))
    }

    /// slurmctld's.
    pub(crate) fn slurmctld(&self) -> u16 {
        self.first
    }

    /// slurmdbd's.
    pub(crate) fn slurmdbd(&self) -> u16 {
        self.first + 1
    }

    /// slurmrestd's.
    pub(crate) fn slurmrestd(&self) -> u16 {
        self.first + 2
    }

    /// That of every dynamic node, each at its own address.
    pub(crate) fn dynamic(&self) -> u16 {
        self.first + 3
    }

    /// That of the node with an index, counted from 0.
    pub(crate) fn node(&self, index: usize) -> u16 {
        self.first + 4 + u16::try_from(index).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_get_ports_of_their_own_and_a_port_in_use_is_passed_over() {
        let one = Ports::find(2).unwrap();
        let two = Ports::find(2).unwrap();
        assert!(one.first.abs_diff(two.first) >= BLOCK);
        let taken = one.first;
        drop(one);
        let _listener = TcpListener::bind(("127.0.0.1", taken + 5)).unwrap();
        assert_ne!(Ports::find(2).unwrap().first, taken);
    }
}
