//! Whatever lies in a ledger's file, every operation ends and none panics: tenants write there.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::os::unix::fs::FileExt;

use model::SplitMix;

use super::books::Seat;
use super::tests::{ledger, page};
use super::*;

/// Numbers that are the same in each run.
struct Numbers(SplitMix);

impl Numbers {
    fn of(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// A word as it should not be, or could be.
    fn word(&mut self) -> u64 {
        let any = self.0.next_bits();
        let words = [0, 1, 7, u64::MAX, u64::MAX - 1, 1 << 63, any, any >> 40];
        words[self.0.position(words.len())]
    }

    fn kind(&mut self) -> Kind {
        Kind::ALL[self.0.position(KINDS)]
    }
}

/// Every other process lives.
fn even(id: ProcessId) -> bool {
    id.word().is_multiple_of(2)
}

fn spoil(page: &LedgerPage, numbers: &mut Numbers) {
    let member = &page.members[numbers.below(6) as usize];
    let export = &page.exports[numbers.below(6) as usize];
    let kind = numbers.kind() as usize;
    for word in [
        &page.total,
        &page.peak,
        &page.over_cap.count,
        &page.card_full.count,
        &page.launches,
        &page.gpu_us,
        &page.throttled,
        &member.owner,
        &member.held[kind],
        &export.key,
        &export.bytes,
        &export.owner,
        &export.paid,
    ] {
        if numbers.below(3) == 0 {
            word.store(numbers.word(), Ordering::SeqCst);
        }
    }
    // A holder that lives is waited for, which takes time.
    if numbers.below(20) == 0 {
        page.lock.store(numbers.0.next_bits() | 1, Ordering::SeqCst);
    }
}

/// One operation of any sort.
fn operate(page: &LedgerPage, seat: Seat, numbers: &mut Numbers) {
    let (kind, bytes, key) = (numbers.kind(), numbers.word(), numbers.word() | 1);
    match numbers.below(9) {
        0 => drop(page.reserve(seat, kind, bytes, numbers.word(), &even)),
        1 => page.add(seat, kind, bytes, &even),
        2 => page.release(seat, kind, bytes, &even),
        3 => drop(page.reap(seat.own, &even)),
        4 => page.export(seat, key, bytes, &even),
        5 => drop(page.open_export(seat, key, &even)),
        6 => page.close_export(seat, key, &even),
        7 => drop(page.exported(seat.own, key, &even)),
        _ => page.leave(seat, &even),
    }
    let _sum = Account::of(page, 0, &|row| row % 2 == 0).held_bytes();
}

#[test]
fn any_words_are_a_ledger() {
    let own = ProcessId::from_word(2).unwrap();
    for seed in 0..40 {
        let page = page();
        let mut numbers = Numbers::of(seed);
        for _ in 0..100 {
            spoil(&page, &mut numbers);
            let seat = page.join(own, numbers.word(), &even);
            spoil(&page, &mut numbers);
            let other = Seat { row: numbers.word() as usize, own };
            operate(&page, seat.unwrap_or(other), &mut numbers);
        }
        // Once nobody writes nonsense any more and all others are gone, the books can be kept.
        let only_own = |id| id == own;
        let seat = page.join(own, 0, &only_own).unwrap();
        assert_eq!(page.reap(own, &only_own), 0, "seed {seed}");
        assert_eq!(page.reserve(seat, Kind::Plain, 10, 10, &only_own), Ok(()), "seed {seed}");
    }
}

/// So it is when a process has become another program while a thread of it was inside.
#[test]
fn a_lock_that_nobody_of_this_process_holds_comes_free() {
    let page = page();
    let own = ProcessId::own();
    page.lock.store(own.word(), Ordering::SeqCst);
    assert!(page.join(own, 0, &|_| true).is_some());
    assert_eq!(page.lock.load(Ordering::SeqCst), 0);
}

#[test]
fn any_bytes_in_the_file_are_a_ledger() {
    let (ledger, path) = ledger("file");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let words = size_of::<LedgerPage>() as u64 / 8;
    let own = ProcessId::own();
    let mut slot = ledger.join(own).unwrap();
    let mut numbers = Numbers::of(1);
    for _ in 0..1500 {
        for _ in 0..numbers.below(8) {
            // Behind the layout's number and the lock; mostly where the rows in use are.
            let limit = if numbers.below(2) == 0 { 60 } else { words - 1 };
            let at = 64 + 8 + numbers.below(limit) * 8;
            file.write_all_at(&numbers.word().to_ne_bytes(), at).unwrap();
        }
        let (kind, bytes, key) = (numbers.kind(), numbers.word(), numbers.word() | 1);
        match numbers.below(12) {
            0 => slot = ledger.join(own).unwrap_or(slot),
            1 => drop(ledger.reserve(slot, kind, bytes, Some(numbers.word()))),
            2 => ledger.add(slot, kind, bytes),
            3 => ledger.release(slot, kind, bytes),
            4 => ledger.settle(slot, kind, bytes, numbers.word()),
            5 => drop(ledger.holds(slot, kind)),
            6 => drop(ledger.reap(own)),
            7 => ledger.count(bytes, numbers.word(), (numbers.word(), numbers.word())),
            8 => ledger.export(slot, key, bytes),
            9 => drop(ledger.open_export(slot, key)),
            10 => ledger.close_export(slot, key),
            _ => ledger.card_full(bytes, numbers.word()),
        }
        Account::read(&path).unwrap().held_bytes();
    }
    std::fs::remove_file(&path).unwrap();
}
