//! Laws of the ledger: whatever happens to pilots, each task ends once.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use slurm::array::event::{Ending, Event, PilotId, Why};
use slurm::array::ledger::{Ledger, Open, Standing, TRIES_MAX};

const INDICES: [u32; 6] = [0, 1, 2, 3, 7, 9];

fn pilot(element: u32, start: u32) -> PilotId {
    PilotId { array: 5, element, start }
}

fn any_event() -> impl Strategy<Value = Event> {
    let task = || (0..10u32, 0..4u32, 0..3u32, 0..2u32);
    let why = prop_oneof![Just(Why::Stopped), Just(Why::Gone), Just(Why::Again)];
    let how = prop_oneof![Just(Ending::Exit(0)), Just(Ending::Exit(1)), Just(Ending::Lost)];
    prop_oneof![
        3 => task().prop_map(move |(index, attempt, one, two)| {
            Event::Claim { index, attempt, by: pilot(one, two), at_ms: 1 }
        }),
        3 => (task(), how).prop_map(move |((index, attempt, one, two), how)| {
            Event::End { index, attempt, by: pilot(one, two), at_ms: 2, how }
        }),
        2 => (task(), why).prop_map(|((index, attempt, ..), why)| {
            Event::Back { index, attempt, at_ms: 3, why }
        }),
    ]
}

/// What each ledger must be, whatever was folded into it.
fn is_sound(ledger: &Ledger) {
    let count = |wanted: fn(&Standing) -> bool| {
        ledger.tasks().values().filter(|task| wanted(&task.standing)).count()
    };
    assert_eq!(ledger.waiting(), count(|standing| *standing == Standing::Waiting));
    let claimed = count(|standing| matches!(standing, Standing::Claimed { .. }));
    assert_eq!(ledger.open().count(), claimed);
    assert!(ledger.open().all(|open| ledger.holds(open)));
    if let Some((index, attempt)) = ledger.next() {
        let task = &ledger.tasks()[&index];
        assert_eq!((&task.standing, task.attempts + 1), (&Standing::Waiting, attempt));
    }
}

proptest! {
    #[test]
    fn any_events_leave_a_sound_ledger(events in prop::collection::vec(any_event(), 0..200)) {
        let mut ledger = Ledger::new(&INDICES);
        for event in events {
            let before = ledger.clone();
            let fitted = ledger.fold(&event);
            is_sound(&ledger);
            prop_assert!(fitted || ledger == before, "{event} changed something");
            let ended = |ledger: &Ledger| {
                let over = |standing: &Standing| matches!(standing, Standing::Ended { .. });
                ledger.tasks().values().filter(|task| over(&task.standing)).count()
            };
            let again = matches!(event, Event::Back { why: Why::Again, .. });
            prop_assert!(again || ended(&ledger) >= ended(&before), "{event} undid an end");
        }
    }

    /// Pilots take tasks, die, come back and judge each other; what they do is what `pilot` does.
    #[test]
    fn each_task_ends_once_whoever_dies(steps in prop::collection::vec((0..4u32, 0..10u8), 0..300)) {
        let mut ledger = Ledger::new(&INDICES);
        let mut starts = [0; 4];
        let mut held: [Option<Open>; 4] = [None; 4];
        let mut ends = std::collections::BTreeMap::new();
        for (element, step) in steps {
            let me = pilot(element, starts[element as usize]);
            let mine = &mut held[element as usize];
            match (step, *mine) {
                // It is killed; Slurm starts it again, or another one finds out.
                (0, _) => {
                    *mine = None;
                    starts[element as usize] += 1;
                    for event in ledger.take_back(|id| id == me, TRIES_MAX, 0) {
                        prop_assert!(ledger.fold(&event));
                    }
                }
                // It is thought to be dead, and goes on.
                (1, Some(_)) => for event in ledger.take_back(|id| id == me, TRIES_MAX, 0) {
                    prop_assert!(ledger.fold(&event));
                },
                (_, Some(open)) => {
                    *mine = None;
                    if ledger.holds(open) {
                        let Open { index, attempt, by } = open;
                        let how = Ending::Exit(0);
                        let end = Event::End { index, attempt, by, at_ms: 1, how };
                        prop_assert!(ledger.fold(&end));
                        prop_assert_eq!(ends.insert(index, attempt), None);
                    }
                }
                (_, None) => if let Some((index, attempt)) = ledger.next() {
                    let claim = Event::Claim { index, attempt, by: me, at_ms: 0 };
                    prop_assert!(ledger.fold(&claim));
                    prop_assert!(!ends.contains_key(&index), "{} had ended", index);
                    *mine = Some(Open { index, attempt, by: me });
                },
            }
            is_sound(&ledger);
        }
        prop_assert!(ledger.tasks().values().all(|task| task.losses < TRIES_MAX));
    }
}

#[test]
fn a_task_is_lost_after_the_last_try_and_may_be_tried_once_more() {
    let mut ledger = Ledger::new(&[4]);
    for attempt in 1..=TRIES_MAX {
        let by = pilot(0, attempt);
        assert!(ledger.fold(&Event::Claim { index: 4, attempt, by, at_ms: 0 }));
        let events = ledger.take_back(|_| true, TRIES_MAX, 9);
        assert_eq!(events.len(), 1);
        assert!(ledger.fold(&events[0]));
    }
    assert!(ledger.is_over());
    assert!(matches!(&ledger.tasks()[&4].standing, Standing::Ended { how: Ending::Lost, .. }));
    for event in ledger.again(1) {
        assert!(ledger.fold(&event));
    }
    assert_eq!(ledger.next(), Some((4, TRIES_MAX + 1)));
    assert_eq!(ledger.tasks()[&4].losses, 0);
}

#[test]
fn a_task_that_must_not_be_repeated_is_lost_at_once() {
    let mut ledger = Ledger::new(&[4]);
    ledger.fold(&Event::Claim { index: 4, attempt: 1, by: pilot(0, 0), at_ms: 0 });
    let events = ledger.take_back(|_| true, 1, 9);
    assert!(matches!(events.as_slice(), [Event::End { how: Ending::Lost, .. }]), "{events:?}");
}
