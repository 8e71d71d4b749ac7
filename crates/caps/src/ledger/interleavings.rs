//! Every interleaving of two processes on one ledger, deaths in the middle included.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Real};

use loom::thread;

use super::books::Seat;
use super::*;
use crate::sync::Ordering;

fn process(number: u64) -> ProcessId {
    ProcessId::from_word(number).unwrap()
}

#[test]
fn two_cannot_both_have_what_one_can() {
    loom::model(|| {
        let page = Arc::new(LedgerPage::empty());
        let ask = |number| {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                let seat = page.join(process(number), 1, &|_| true).unwrap();
                page.reserve(seat, Kind::Plain, 60, 100, &|_| true).is_ok()
            })
        };
        let (one, other) = (ask(1), ask(2));
        let granted = [one.join().unwrap(), other.join().unwrap()];
        assert_eq!(granted.iter().filter(|granted| **granted).count(), 1);
        assert_eq!(page.total.load(Ordering::Relaxed), 60);
    });
}

#[test]
fn whoever_dies_inside_leaves_nothing_behind() {
    loom::model(|| {
        let page = Arc::new(LedgerPage::empty());
        let dead = Arc::new(AtomicBool::new(false));
        let victim = {
            let (page, dead) = (Arc::clone(&page), Arc::clone(&dead));
            thread::spawn(move || {
                let seat: Seat = page.join(process(1), 1, &|_| true).unwrap();
                let inside = page.enter(process(1), &|_| true);
                let held = &page.member(seat).unwrap().held[Kind::Plain as usize];
                held.store(70, Ordering::Relaxed);
                // Killed: the sum is not changed, the lock not given back.
                std::mem::forget(inside);
                dead.store(true, Real::SeqCst);
            })
        };
        let alive = |id: ProcessId| id != process(1) || !dead.load(Real::SeqCst);
        let seat = page.join(process(2), 1, &alive).unwrap();
        page.reserve(seat, Kind::Plain, 40, u64::MAX, &alive).unwrap();
        victim.join().unwrap();
        page.reserve(seat, Kind::Plain, 60, 100, &alive).unwrap();
        assert_eq!(page.total.load(Ordering::Relaxed), 100);
    });
}
