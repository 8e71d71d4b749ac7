//! Every interleaving of two tenants at one board: `RUSTFLAGS="--cfg loom" cargo test -p caps --lib turns`.

use loom::sync::Arc;
use loom::thread;

use crate::ProcessId;
use crate::given::ComputeCap;
use crate::sync::{AtomicU64, Ordering};

use super::*;

const NOW: u64 = 1_000_000_000;
const MINUTE: u64 = 60_000_000;

fn two() -> (Arc<Board>, Place, Place) {
    let board = Board::default();
    let terms = Terms::of(Some(&ComputeCap::of(500)));
    let sit = |tenant| board.join(tenant, terms, ProcessId::from_word(tenant).unwrap(), NOW);
    let (a, b) = (sit(1).unwrap(), sit(2).unwrap());
    (Arc::new(board), a, b)
}

/// Both ask, work and hand on: never do both have the turn, and who was told to wait has it in the end.
#[test]
fn one_has_the_turn_at_a_time_and_no_wake_is_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (board, a, b) = two();
        let inside = Arc::new(AtomicU64::new(0));
        let (board2, inside2) = (Arc::clone(&board), Arc::clone(&inside));
        let once = |board: &Board, place: Place, inside: &AtomicU64| {
            let had = board.ask(place, NOW) == Turn::Yours;
            if had {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "both have the turn");
                inside.fetch_sub(1, Ordering::SeqCst);
                board.pass(place, NOW);
            }
            had
        };
        let other = thread::spawn(move || once(&board2, b, &inside2));
        let first = once(&board, a, &inside);
        let second = other.join().unwrap();
        assert!(first || second, "nobody had it");
        // Who was told to wait has been given the turn, or finds it free: at its next ask it is in.
        for (had, place) in [(first, a), (second, b)] {
            if !had {
                assert_eq!(board.ask(place, NOW), Turn::Yours, "a wake was lost");
                board.pass(place, NOW);
            }
        }
    });
}

/// A holder that beats while somebody finds it silent keeps the turn or loses it, and knows which.
#[test]
fn a_turn_is_not_taken_from_a_holder_that_thinks_it_has_it() {
    loom::model(|| {
        let (board, a, b) = two();
        assert_eq!(board.ask(a, NOW), Turn::Yours);
        let later = NOW + OVERDUE_MS * 1000;
        let board2 = Arc::clone(&board);
        let taker = thread::spawn(move || board2.ask(b, later) == Turn::Yours);
        let holds = board.tick(a, later, 0) != Hold::Lost;
        let taken = taker.join().unwrap();
        if holds && taken {
            // It was taken after the beat: then the beat was too late to be seen.
            assert_eq!(board.tick(a, later, 0), Hold::Lost);
        }
        assert_ne!(board.number(a.seat).is_some(), board.number(b.seat).is_some());
    });
}

/// Two processes of one tenant sit down at once, at times at which different seats are free to them: they
/// end in one seat, and neither row is wiped.
#[test]
fn a_tenant_whose_processes_come_at_once_has_one_seat() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let board = Board::default();
        let terms = Terms::of(Some(&ComputeCap::of(500)));
        let process = |word| ProcessId::from_word(word).unwrap();
        board.join(8, terms, process(8), NOW).unwrap();
        board.join(9, terms, process(9), NOW - 2 * MINUTE).unwrap();
        let board = Arc::new(board);
        let board2 = Arc::clone(&board);
        // Only the second seat is stale for the first process; both are for the second one.
        let sit = move |board: &Board, word, now_us| {
            let place = board.join(7, terms, process(word), now_us).unwrap();
            if board.is_seated(place) { Some(place) } else { None }
        };
        let other = thread::spawn(move || sit(&board2, 12, NOW + SEAT_STALE_US + 1));
        let now_us = NOW + SEAT_STALE_US;
        let (first, second) = (sit(&board, 11, now_us), other.join().unwrap());
        let seats = |board: &Board| {
            let mine = |seat: &&super::seat::Seat| seat.owner.load(Ordering::SeqCst) == 7;
            board.all().iter().filter(mine).count()
        };
        assert_eq!(seats(&board), 1, "{first:?} {second:?}");
        // Who has lost its seat sits down again, as it does before it begins anew.
        let settle = |place: Option<Place>, word| {
            let place = place.filter(|place| board.is_seated(*place));
            place.unwrap_or_else(|| board.join(7, terms, process(word), now_us).unwrap())
        };
        let (first, second) = (settle(first, 11), settle(second, 12));
        assert_eq!(first.seat, second.seat);
        assert_eq!(seats(&board), 1);
        let rows = board.seat(first.seat).unwrap().processes().map(|(id, _)| id);
        assert!(rows.contains(&11) && rows.contains(&12), "{rows:?}");
        assert_ne!(first.row, second.row);
    });
}
