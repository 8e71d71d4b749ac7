//! What a tenant has booked on one GPU, as its limiter wrote it down: memory by what it is held for, GPU
//! time, launches that were held back, and allocations that were refused.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::amounts;

/// A tenant's account on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Processes that have memory booked and live.
    pub processes: usize,
    /// Device memory held now, in bytes, by what it is held for ([`caps::Kind`]); all kinds are there.
    pub memory_bytes: BTreeMap<String, u64>,
    /// The most that was held at once.
    pub peak_bytes: u64,
    /// The last allocation that went over the cap.
    pub over_cap: Refusal,
    /// The last allocation that the driver refused though the cap had room.
    pub card_full: Refusal,
    /// What only grows.
    pub counts: Counts,
}

/// What only grows as long as a tenant is there, and can be summed over tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Kernels and graphs launched.
    pub launches: u64,
    /// GPU time had, in µs; see [`Counts::measured_us`].
    pub gpu_us: u64,
    /// Launches held back.
    pub throttled: u64,
    /// For how long, in µs.
    pub throttled_us: u64,
    /// Allocations that the cap refused.
    pub refused_by_cap: u64,
    /// Allocations that the driver refused though the cap had room.
    pub refused_by_card: u64,
}

/// An allocation that was refused; all 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Bytes asked for.
    pub asked_bytes: u64,
    /// Bytes that the tenant held then.
    pub held_bytes: u64,
    /// The cap, or what the card had left, in bytes.
    pub limit_bytes: u64,
    /// The process, by the number that it has for itself.
    pub pid: u32,
}

impl Account {
    /// Reads a ledger's file without mapping it: its tenant may do to it what it likes.
    ///
    /// # Errors
    /// The system's; `InvalidData` for a file that is no ledger.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        caps::Account::read(path).map(|account| Self::of(&account))
    }

    /// The account as it is kept in the books.
    pub fn of(account: &caps::Account) -> Self {
        let by_kind = caps::Kind::ALL.iter().zip(account.by_kind());
        Self {
            processes: account.processes.len(),
            memory_bytes: by_kind.map(|(kind, bytes)| (kind.as_str().to_owned(), bytes)).collect(),
            peak_bytes: account.peak_bytes,
            over_cap: Refusal::of(&account.over_cap),
            card_full: Refusal::of(&account.card_full),
            counts: Counts {
                launches: account.launches,
                gpu_us: account.gpu_us,
                throttled: account.throttled,
                throttled_us: account.throttled_us,
                refused_by_cap: account.over_cap.count,
                refused_by_card: account.card_full.count,
            },
        }
    }

    /// Device memory held now, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.memory_bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// What was refused, in sentences for people; none if nothing was.
    ///
    /// * `gpu` — position of the GPU in the driver's order.
    pub fn refusals(&self, gpu: u32) -> Vec<String> {
        let Counts { refused_by_cap, refused_by_card, .. } = self.counts;
        let by_cap = || {
            let (last, many) = (self.over_cap, allocations(refused_by_cap));
            let [asked, held, cap] = last.amounts();
            let who = last.pid;
            format!(
                "the memory cap of this task ({cap}) refused {many}; the last asked for {asked} while {held} \
                 were held (process {who})"
            )
        };
        let by_card = || {
            let (last, many) = (self.card_full, allocations(refused_by_card));
            let [asked, held, left] = last.amounts();
            let who = last.pid;
            format!(
                "the card itself was full: the cap of this task had room, and the driver refused {many}; \
                 the last asked for {asked} while {held} were held (process {who}), with {left} free"
            )
        };
        let told = [(refused_by_cap > 0).then(by_cap), (refused_by_card > 0).then(by_card)];
        told.into_iter().flatten().map(|text| format!("GPU {gpu}: {text}")).collect()
    }
}

impl Counts {
    /// GPU time had, in µs; `None` if it was not measured: so it is where no tenant of the GPU has a cap of
    /// time, and none takes turns.
    pub fn measured_us(&self) -> Option<u64> {
        (self.gpu_us > 0 || self.launches == 0).then_some(self.gpu_us)
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            launches: self.launches.saturating_add(other.launches),
            gpu_us: self.gpu_us.saturating_add(other.gpu_us),
            throttled: self.throttled.saturating_add(other.throttled),
            throttled_us: self.throttled_us.saturating_add(other.throttled_us),
            refused_by_cap: self.refused_by_cap.saturating_add(other.refused_by_cap),
            refused_by_card: self.refused_by_card.saturating_add(other.refused_by_card),
        }
    }

    /// Allocations refused, by whomever.
    pub fn refused(&self) -> u64 {
        self.refused_by_cap.saturating_add(self.refused_by_card)
    }
}

impl Refusal {
    fn of(refused: &caps::Refused) -> Self {
        let caps::Refused { count: _, asked, held, limit, pid } = *refused;
        Self { asked_bytes: asked, held_bytes: held, limit_bytes: limit, pid }
    }

    /// What was asked for, what was held and the limit, in words that tell them apart.
    fn amounts(&self) -> [String; 3] {
        amounts::apart([self.asked_bytes, self.held_bytes, self.limit_bytes])
    }
}

fn allocations(count: u64) -> String {
    if count == 1 { "1 allocation".to_owned() } else { format!("{count} allocations") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn refused(count: u64, asked: u64, held: u64, limit: u64) -> caps::Refused {
        caps::Refused { count, asked, held, limit, pid: 4711 }
    }

    #[test]
    fn refusals_are_told_with_their_amounts() {
        let over_cap = refused(3, 3 * GIB, GIB + GIB / 5, 2 * GIB);
        let account = Account::of(&caps::Account { over_cap, ..caps::Account::default() });
        let expected = "GPU 0: the memory cap of this task (2 GiB) refused 3 allocations; the last asked \
                        for 3 GiB while 1.2 GiB were held (process 4711)";
        assert_eq!(account.refusals(0), [expected]);
        let card_full = refused(1, 512 * MIB, 1000, 100 * KIB);
        let account = Account::of(&caps::Account { card_full, ..caps::Account::default() });
        let expected = "GPU 2: the card itself was full: the cap of this task had room, and the driver \
                        refused 1 allocation; the last asked for 512 MiB while 1000 bytes were held \
                        (process 4711), with 0.1 MiB free";
        assert_eq!(account.refusals(2), [expected]);
        assert!(Account::default().refusals(0).is_empty());
    }

    #[test]
    fn every_kind_of_memory_is_there_and_summed() {
        let id = caps::ProcessId::own();
        let bytes = std::array::from_fn(|kind| kind as u64);
        let processes = vec![caps::ProcessUse { id, bytes }, caps::ProcessUse { id, bytes }];
        let account = Account::of(&caps::Account { processes, ..caps::Account::default() });
        assert_eq!((account.processes, account.memory_bytes.len()), (2, caps::KINDS));
        assert_eq!((account.memory_bytes["plain"], account.held_bytes()), (4, 72));
        let text = serde_json::to_string(&account).unwrap();
        assert_eq!(serde_json::from_str::<Account>(&text).unwrap(), account);
    }
}
