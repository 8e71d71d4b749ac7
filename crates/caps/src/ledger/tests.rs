//! The books stay right: under their cap, after deaths, whatever order things happen in.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::books::{NotBooked, Seat};
use super::*;

/// A page on which nothing has happened.
pub(super) fn page() -> Box<LedgerPage> {
    let path = std::env::temp_dir().join(format!(
        "ledger-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let _ = std::fs::remove_file(&path);
    Ledger::make(&path, 0o600).unwrap();
    let page = crate::shared::copy::<LedgerPage>(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    page
}

/// Processes that exist only in the books.
fn process(number: u64) -> ProcessId {
    ProcessId::from_word(number + 1).unwrap()
}

fn total(page: &LedgerPage) -> u64 {
    page.total.load(Ordering::SeqCst)
}

fn holds(page: &LedgerPage, seat: Seat, kind: Kind) -> u64 {
    page.member(seat).map_or(0, |member| member.held[kind as usize].load(Ordering::SeqCst))
}

fn everybody(_: ProcessId) -> bool {
    true
}

#[test]
fn what_goes_over_the_cap_is_refused_with_the_figures() {
    let page = page();
    let slot = page.join(process(1), 1, &everybody).unwrap();
    let reserve = |bytes| page.reserve(slot, Kind::Plain, bytes, 100, &everybody);
    let over = |asked| Err(NotBooked::Over(OverCap { asked, held: 60, cap: 100 }));
    assert_eq!(reserve(60), Ok(()));
    assert_eq!(reserve(41), over(41));
    assert_eq!(reserve(u64::MAX), over(u64::MAX));
    assert_eq!(reserve(40), Ok(()));
    page.release(slot, Kind::Plain, 1000, &everybody);
    assert_eq!((total(&page), holds(&page, slot, Kind::Plain)), (0, 0), "never below nothing");
}

#[test]
fn the_dead_make_room_when_room_is_needed() {
    let page = page();
    let first = page.join(process(1), 1, &everybody).unwrap();
    let second = page.join(process(2), 1, &everybody).unwrap();
    page.reserve(first, Kind::Array, 80, 100, &everybody).unwrap();
    let only_second = |id: ProcessId| id == process(2);
    page.reserve(second, Kind::Pool, 90, 100, &only_second).unwrap();
    assert_eq!(total(&page), 90);
    assert_eq!(holds(&page, first, Kind::Array), 0, "its row is another's");
}

#[test]
fn processes_one_after_the_other_do_not_add_up_to_a_peak() {
    let page = page();
    for number in 1..=4 {
        let living = |who: ProcessId| who == process(number);
        let slot = page.join(process(number), 1, &living).unwrap();
        assert_eq!(page.reserve(slot, Kind::Context, 45, 1000, &living), Ok(()));
        assert_eq!(page.reserve(slot, Kind::Plain, 50, 1000, &living), Ok(()));
    }
    assert_eq!((total(&page), page.peak.load(Ordering::SeqCst)), (95, 95));
}

#[test]
fn a_process_that_has_become_another_program_holds_nothing() {
    let page = page();
    let slot = page.join(process(1), 1, &everybody).unwrap();
    page.reserve(slot, Kind::Context, 30, u64::MAX, &everybody).unwrap();
    let again = page.join(process(1), 1, &everybody).unwrap();
    assert_eq!((again, total(&page)), (slot, 0));
}

#[test]
fn a_full_table_takes_in_the_living_over_the_dead() {
    let page = page();
    for number in 0..PROCESSES_MAX as u64 {
        page.join(process(number), 1, &everybody).unwrap();
    }
    let late = process(PROCESSES_MAX as u64);
    assert_eq!(page.join(late, 1, &everybody), None);
    assert!(page.join(late, 1, &|id| id != process(5)).is_some());
}

#[test]
fn a_lock_of_the_dead_is_broken_and_the_sum_made_anew() {
    let page = page();
    let slot = page.join(process(1), 1, &everybody).unwrap();
    page.reserve(slot, Kind::Plain, 30, u64::MAX, &everybody).unwrap();
    // Died after its row was changed and before the sum was.
    page.lock.store(process(9).word(), Ordering::SeqCst);
    page.members[slot.row].held[Kind::Plain as usize].store(50, Ordering::SeqCst);
    let living = |id: ProcessId| id != process(9);
    page.reserve(slot, Kind::Plain, 1, 51, &living).unwrap();
    assert_eq!(total(&page), 51);
    assert_eq!(page.lock.load(Ordering::SeqCst), 0);
}

#[test]
fn garbage_in_a_page_is_read_and_does_no_harm() {
    let page = page();
    let nobody = ProcessId::own().word() ^ 1 << 40;
    for member in &page.members {
        member.owner.store(nobody, Ordering::SeqCst);
        for held in &member.held {
            held.store(u64::MAX, Ordering::SeqCst);
        }
    }
    assert_eq!(Account::of(&page, 0, &|_| false).held_bytes(), 0, "no such process lives");
    page.sum_up();
    assert_eq!(total(&page), u64::MAX);
    let slot = page.join(process(1), 1, &|id| id == process(1)).unwrap();
    assert_eq!(page.reserve(slot, Kind::Plain, 10, 10, &everybody), Ok(()));
}

/// What may happen to the books.
#[derive(Clone, Debug)]
enum Event {
    Reserve(u64, usize, u64),
    Release(u64, usize, u64),
    Settle(u64, usize, u64, u64),
    Leave(u64),
    Die(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let who = 0..5_u64;
    let kind = 0..KINDS;
    prop_oneof![
        6 => (who.clone(), kind.clone(), 0..60_u64).prop_map(|(w, k, b)| Event::Reserve(w, k, b)),
        4 => (who.clone(), kind.clone(), 0..60_u64).prop_map(|(w, k, b)| Event::Release(w, k, b)),
        2 => (who.clone(), kind, 0..60_u64, 0..60_u64).prop_map(|(w, k, a, b)| Event::Settle(w, k, a, b)),
        1 => who.clone().prop_map(Event::Leave),
        1 => who.prop_map(Event::Die),
    ]
}

proptest! {
    /// Against books kept in a map: equal after each step, never above the cap but for what is settled.
    #[test]
    fn the_ledger_says_what_a_map_says(events in prop::collection::vec(event(), 1..60)) {
        let page = page();
        let mut books: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        let mut slots: BTreeMap<ProcessId, Seat> = BTreeMap::new();
        let mut generation = [0_u64; 5];
        let mut dead: Vec<ProcessId> = Vec::new();
        let name = |who: u64, generation: &[u64; 5]| process(who + 100 * generation[who as usize]);
        for event in events {
            let cap = 200;
            let lives = dead.clone();
            let alive = |id: ProcessId| !lives.contains(&id);
            match event {
                Event::Reserve(who, kind, bytes) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join(own, 1, &alive).unwrap());
                    let held: u64 = books.values().sum();
                    let done = page.reserve(slot, Kind::ALL[kind], bytes, cap, &alive);
                    prop_assert_eq!(done.is_ok(), held + bytes <= cap);
                    if done.is_ok() {
                        *books.entry((who, kind)).or_default() += bytes;
                    }
                }
                Event::Release(who, kind, bytes) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join(own, 1, &alive).unwrap());
                    page.release(slot, Kind::ALL[kind], bytes, &alive);
                    let held = books.entry((who, kind)).or_default();
                    *held = held.saturating_sub(bytes);
                }
                Event::Settle(who, kind, reserved, actual) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join(own, 1, &alive).unwrap());
                    if actual > reserved {
                        page.add(slot, Kind::ALL[kind], actual - reserved, &alive);
                    } else {
                        page.release(slot, Kind::ALL[kind], reserved - actual, &alive);
                    }
                    let held = books.entry((who, kind)).or_default();
                    *held = if actual > reserved { *held + actual - reserved } else { held.saturating_sub(reserved - actual) };
                }
                Event::Leave(who) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join(own, 1, &alive).unwrap());
                    page.leave(slot, &alive);
                    slots.remove(&own);
                    books.retain(|(holder, _), _| *holder != who);
                }
                Event::Die(who) => {
                    dead.push(name(who, &generation));
                    generation[who as usize] += 1;
                    books.retain(|(holder, _), _| *holder != who);
                }
            }
            let lives = dead.clone();
            page.reap(process(77), &|id| !lives.contains(&id));
            prop_assert_eq!(total(&page), books.values().sum::<u64>());
        }
    }
}

/// A ledger in a file, and its path.
pub(super) fn ledger(name: &str) -> (Ledger, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("ledger-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    (Ledger::make(&path, 0o600).unwrap(), path)
}

#[test]
fn shared_memory_counts_once_for_as_long_as_somebody_has_it() {
    let page = page();
    let dead = std::cell::RefCell::new(Vec::new());
    let alive = |id: ProcessId| !dead.borrow().contains(&id);
    let [exporter, opener, third] =
        [1, 2, 3].map(|number| page.join(process(number), 1, &alive).unwrap());
    page.reserve(exporter, Kind::Plain, 60, 100, &alive).unwrap();
    page.export(exporter, 7, 60, &alive);
    assert!(page.open_export(opener, 7, &alive) && page.open_export(third, 7, &alive));
    assert!(!page.open_export(third, 8, &alive));
    assert_eq!(total(&page), 60);
    // Freed where it was made, open elsewhere.
    page.close_export(exporter, 7, &alive);
    page.release(exporter, Kind::Plain, 60, &alive);
    assert_eq!((total(&page), holds(&page, opener, Kind::Imported)), (60, 60));
    // The one who pays now dies.
    dead.borrow_mut().push(process(2));
    assert_eq!(page.reap(process(9), &alive), 60);
    assert_eq!(holds(&page, third, Kind::Imported), 60);
    page.close_export(third, 7, &alive);
    assert_eq!(total(&page), 0);
    assert!(page.exports.iter().all(|row| row.key.load(Ordering::Relaxed) == 0));
}

#[test]
fn a_process_whose_row_was_lost_takes_another_with_what_it_holds() {
    let (ledger, path) = ledger("lost");
    let slot = ledger.join(ProcessId::own()).unwrap();
    ledger.reserve(slot, Kind::Plain, 60, Some(100)).unwrap();
    let gone = ProcessId::own().word() ^ 1 << 40;
    ledger.page.members[0].owner.store(gone, Ordering::SeqCst);
    ledger.page.members[0].space.store(ProcessId::space_here(), Ordering::SeqCst);
    assert_eq!(ledger.reserve(slot, Kind::Plain, 50, Some(100)).unwrap_err().held, 60);
    ledger.release(slot, Kind::Plain, 60);
    ledger.reserve(slot, Kind::Plain, 50, Some(100)).unwrap();
    assert_eq!(Account::read(&path).unwrap().held_bytes(), 50);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn who_cannot_be_seen_is_known_by_the_lock_of_its_row() {
    let (ledger, path) = ledger("hidden");
    let own = ProcessId::own();
    // As of another namespace.
    let other = Ledger::open(&path).unwrap();
    let hidden = other.join(own).unwrap();
    other.add(hidden, Kind::Plain, 60);
    let space = ProcessId::space_here() + 1;
    let hide = || other.page.members[0].space.store(space, Ordering::SeqCst);
    hide();
    let me = process(own.word() ^ 1 << 41);
    assert_eq!(ledger.reap(me), 60, "its row is locked");
    assert_eq!(Account::read(&path).unwrap().held_bytes(), 60);
    // Programs that close all files lose the lock; then it is taken again.
    drop(other);
    assert_eq!(Account::read(&path).unwrap().held_bytes(), 0);
    assert_eq!(ledger.reap(me), 0, "nobody holds the lock any more");
    std::fs::remove_file(path).unwrap();
}
