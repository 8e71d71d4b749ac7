//! The books stay right: under their cap, after deaths, whatever order things happen in.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn page() -> Box<LedgerPage> {
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

fn everybody(_: ProcessId) -> bool {
    true
}

#[test]
fn what_goes_over_the_cap_is_refused_with_the_figures() {
    let page = page();
    let slot = page.join_as(process(1), everybody).unwrap();
    let reserve = |bytes| page.reserve_as(slot, Kind::Plain, bytes, Some(100), everybody);
    assert_eq!(reserve(60), Ok(()));
    assert_eq!(reserve(41), Err(OverCap { asked: 41, held: 60, cap: 100 }));
    assert_eq!(reserve(u64::MAX), Err(OverCap { asked: u64::MAX, held: 60, cap: 100 }));
    assert_eq!(reserve(40), Ok(()));
    page.release(slot, Kind::Plain, 1000);
    assert_eq!((page.total(), page.holds(slot, Kind::Plain)), (0, 0), "never below nothing");
}

#[test]
fn the_dead_make_room_when_room_is_needed() {
    let page = page();
    let first = page.join_as(process(1), everybody).unwrap();
    let second = page.join_as(process(2), everybody).unwrap();
    page.reserve_as(first, Kind::Array, 80, Some(100), everybody).unwrap();
    let only_second = |id: ProcessId| id == process(2);
    page.reserve_as(second, Kind::Pool, 90, Some(100), only_second).unwrap();
    assert_eq!(page.total(), 90);
    assert_eq!(page.holds(first, Kind::Array), 0, "its row is another's");
}

#[test]
fn a_process_that_has_become_another_program_holds_nothing() {
    let page = page();
    let slot = page.join_as(process(1), everybody).unwrap();
    page.reserve_as(slot, Kind::Context, 30, None, everybody).unwrap();
    let again = page.join_as(process(1), everybody).unwrap();
    assert_eq!((again, page.total()), (slot, 0));
}

#[test]
fn a_full_table_takes_in_the_living_over_the_dead() {
    let page = page();
    for number in 0..PROCESSES_MAX as u64 {
        page.join_as(process(number), everybody).unwrap();
    }
    let late = process(PROCESSES_MAX as u64);
    assert!(matches!(page.join_as(late, everybody), Err(LedgerError::Crowded)));
    assert!(page.join_as(late, |id| id != process(5)).is_ok());
}

#[test]
fn a_lock_of_the_dead_is_broken_and_the_sum_made_anew() {
    let page = page();
    let slot = page.join_as(process(1), everybody).unwrap();
    page.reserve_as(slot, Kind::Plain, 30, None, everybody).unwrap();
    // Died after its row was changed and before the sum was.
    page.lock.store(process(9).word(), Ordering::SeqCst);
    page.members[slot.row].held[Kind::Plain as usize].store(50, Ordering::SeqCst);
    let living = |id: ProcessId| id != process(9);
    page.reserve_as(slot, Kind::Plain, 1, Some(51), living).unwrap();
    assert_eq!(page.total(), 51);
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
    assert_eq!(Account::of(&page).held_bytes(), 0, "no such process lives");
    page.sum_up();
    assert_eq!(page.total(), u64::MAX);
    let slot = page.join_as(process(1), |id| id == process(1)).unwrap();
    assert_eq!(page.reserve_as(slot, Kind::Plain, 10, Some(10), everybody), Ok(()));
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
        let mut slots: BTreeMap<ProcessId, Slot> = BTreeMap::new();
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
                    let slot = *slots.entry(own).or_insert_with(|| page.join_as(own, alive).unwrap());
                    let held: u64 = books.values().sum();
                    let done = page.reserve_as(slot, Kind::ALL[kind], bytes, Some(cap), alive);
                    prop_assert_eq!(done.is_ok(), held + bytes <= cap);
                    if done.is_ok() {
                        *books.entry((who, kind)).or_default() += bytes;
                    }
                }
                Event::Release(who, kind, bytes) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join_as(own, alive).unwrap());
                    page.release(slot, Kind::ALL[kind], bytes);
                    let held = books.entry((who, kind)).or_default();
                    *held = held.saturating_sub(bytes);
                }
                Event::Settle(who, kind, reserved, actual) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join_as(own, alive).unwrap());
                    page.settle(slot, Kind::ALL[kind], reserved, actual);
                    let held = books.entry((who, kind)).or_default();
                    *held = if actual > reserved { *held + actual - reserved } else { held.saturating_sub(reserved - actual) };
                }
                Event::Leave(who) => {
                    let own = name(who, &generation);
                    let slot = *slots.entry(own).or_insert_with(|| page.join_as(own, alive).unwrap());
                    page.leave(slot);
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
            {
                let _inside = page.enter(process(77), |_| true);
                page.sweep(process(77), |id| !lives.contains(&id));
            }
            prop_assert_eq!(page.total(), books.values().sum::<u64>());
        }
    }
}

#[test]
fn shared_memory_counts_once_for_as_long_as_somebody_has_it() {
    let page = page();
    // Real processes: whether they live is asked.
    let mut others: Vec<_> =
        (0..2).map(|_| std::process::Command::new("sleep").arg("60").spawn().unwrap()).collect();
    let ids: Vec<ProcessId> =
        others.iter().map(|child| ProcessId::living(child.id()).unwrap()).collect();
    let [exporter, opener, third] = [ids[0], ids[1], ProcessId::own()];
    let exporter = page.join(exporter).unwrap();
    page.reserve(exporter, Kind::Plain, 60, Some(100)).unwrap();
    page.export(exporter, 7, 60);
    let [opener, third] = [opener, third].map(|id| page.join(id).unwrap());
    assert!(page.open(opener, 7) && page.open(third, 7) && !page.open(third, 8));
    assert_eq!(page.total(), 60);
    // Freed where it was made, open elsewhere.
    page.release(exporter, Kind::Plain, 60);
    page.close(exporter, 7);
    assert_eq!((page.total(), page.holds(opener, Kind::Imported)), (60, 60));
    // The one who pays now dies.
    others[1].kill().unwrap();
    others[1].wait().unwrap();
    assert_eq!(page.reap(ProcessId::own()), 60);
    assert_eq!(page.holds(third, Kind::Imported), 60);
    page.close(third, 7);
    assert_eq!(page.total(), 0);
    assert!(page.exports.iter().all(|row| row.key.load(Ordering::Relaxed) == 0));
    others[0].kill().unwrap();
    others[0].wait().unwrap();
}
