//! What a process is told when its work runs late, when it waits for the host, when it was away.

use crate::ProcessId;
use crate::given::ComputeCap;
use crate::turns::{Board, SEAT_STALE_US, Terms};

use super::*;

const MS: u64 = 1_000;
const START: u64 = 1_000_000_000;
const KIND: u64 = 9;
const STREAM: u64 = 64;

fn member(board: &Board, tenant: u64, percent: u32) -> Member {
    let terms = Terms::of(Some(&ComputeCap::of(percent * 10)));
    let process = ProcessId::from_word(tenant).unwrap();
    Member::sit(board, tenant, terms, process, START).unwrap()
}

/// Launches, with a mark behind it if one is due.
fn go(member: &mut Member, board: &Board, now: u64) -> (u64, Option<MarkId>) {
    let Launch::Go { ns, .. } = member.launch(board, KIND, STREAM, || now) else {
        panic!("held back")
    };
    let due = member.launched(STREAM, ns, false, || now);
    let mark = if due.mark { member.work.begin_mark(STREAM, now) } else { None };
    mark.into_iter().for_each(|mark| member.work.recorded(mark, false));
    (ns, mark)
}

fn learn(member: &mut Member, ns: u64) {
    (0..3).for_each(|_| member.sampled(KIND, START, ns));
}

#[test]
fn a_launch_of_unknown_cost_is_waited_for_before_the_next() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    let (ns, mark) = go(&mut member, &board, START);
    assert_eq!(ns, UNKNOWN_NS);
    let Launch::Settle { mark: asked, .. } = member.launch(&board, KIND, STREAM, || START) else {
        panic!("it was let go");
    };
    assert_eq!(Some(asked), mark);
    member.sampled(KIND, START, 5_000);
    assert_eq!(go(&mut member, &board, START).0, 5_000);
}

#[test]
fn the_queue_is_bounded_and_marks_free_it() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 100_000);
    let mut marks = Vec::new();
    for _ in 0..40 {
        marks.extend(go(&mut member, &board, START).1);
    }
    assert_eq!(marks.len(), 4, "one per ms");
    let full = member.launch(&board, KIND, STREAM, || START);
    assert!(matches!(full, Launch::Settle { mark, .. } if mark == marks[0]), "{full:?}");
    member.work.finish(marks[1]);
    assert_eq!(member.work.outstanding_ns(), 2_000_000, "the first was done before the second");
    go(&mut member, &board, START);
}

#[test]
fn a_stream_that_waits_for_the_host_is_left_alone_for_a_while() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 5_000_000);
    let (_, mark) = go(&mut member, &board, START);
    let Launch::Settle { until_us, .. } = member.launch(&board, KIND, STREAM, || START) else {
        panic!("it was let go");
    };
    assert_eq!(until_us, START + LATE_US);
    member.work.late(mark.unwrap(), until_us);
    for _ in 0..1000 {
        assert_eq!(go(&mut member, &board, until_us).1, None);
    }
    assert!(member.work.is_idle(), "nobody waits for it");
    let later = until_us + EXEMPT_US;
    go(&mut member, &board, later);
    assert!(!member.work.is_idle());
}

#[test]
fn a_wait_ends_what_was_launched_before_it_and_no_more() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 10_000);
    go(&mut member, &board, START);
    let before = member.moment();
    go(&mut member, &board, START);
    member.work.synced(Waited::Stream(STREAM), before);
    assert!(!member.work.is_idle(), "the second was launched while the first was waited for");
    member.work.synced(Waited::Stream(STREAM + 8), member.moment());
    assert!(!member.work.is_idle(), "another stream");
    member.work.synced(Waited::All, member.moment());
    assert!(member.work.is_idle());
    // A launch that fails leaves nothing behind.
    let Launch::Go { ns, .. } = member.launch(&board, KIND, STREAM, || START) else { panic!() };
    assert!(!member.work.is_idle(), "it is on its way");
    member.launched(STREAM, ns, true, || START);
    assert!(member.work.is_idle() && member.work.outstanding_ns() == 0);
}

#[test]
fn time_in_which_the_gpu_stood_still_is_not_paid_by_who_is_alone() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 100_000);
    go(&mut member, &board, START);
    // It is noticed only much later that it was done.
    member.work.synced(Waited::All, member.moment());
    let tick = member.tick(&board, START + 20 * MS);
    assert_eq!((tick.again_us, member.paid_us()), (None, 100));
    assert!(!board.is_held_by(member.place().seat), "the turn lies free");
}

#[test]
fn who_was_away_for_long_finds_another_seat() {
    let board = Board::default();
    let mut first = member(&board, 1, 50);
    let terms = Terms::of(None);
    let later = START + 2 * SEAT_STALE_US;
    for tenant in 2..=crate::turns::SEATS as u64 + 1 {
        board.join(tenant, terms, ProcessId::from_word(tenant).unwrap(), later).unwrap();
    }
    assert!(!board.is_seated(first.place()), "all other seats were taken before");
    // Long after, others have gone.
    let back = later + 2 * SEAT_STALE_US;
    go(&mut first, &board, back);
    assert!(board.is_seated(first.place()) && board.is_held_by(first.place().seat));
}

/// Launches once in a stream, and says in which context that is.
fn launch_in(member: &mut Member, board: &Board, stream: u64, context: u64) {
    let Launch::Go { ns, .. } = member.launch(board, KIND, stream, || START) else {
        panic!("held back")
    };
    let after = member.launched(stream, ns, false, || START);
    assert_eq!(after.homeless, member.work.context(stream).is_none());
    member.work.in_context(stream, context);
}

#[test]
fn the_end_of_a_context_ends_its_own_work_and_no_other() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 10_000);
    launch_in(&mut member, &board, 64, 0x1000);
    launch_in(&mut member, &board, 128, 0x2000);
    member.work.synced(Waited::Context(0x1000), member.moment());
    assert_eq!(member.work.outstanding_ns(), 10_000);
    assert!(!member.work.is_unmarked(64) && member.work.is_unmarked(128));
    launch_in(&mut member, &board, 64, 0x1000);
    member.work.context_gone(0x1000);
    assert!(!member.work.knows(64) && member.work.knows(128) && !member.work.is_idle());
    member.work.context_gone(0x2000);
    assert!(member.work.is_idle());
}

#[test]
fn a_handle_for_streams_of_several_contexts_ends_with_none_of_them() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 10_000);
    launch_in(&mut member, &board, 1, 0x1000);
    launch_in(&mut member, &board, 1, 0x2000);
    member.work.synced(Waited::Context(0x1000), member.moment());
    member.work.synced(Waited::Stream(1), member.moment());
    assert!(!member.work.is_idle(), "half of it is the other context's");
    member.work.context_gone(0x2000);
    assert_eq!(member.work.context(1), None, "nobody goes into a context that is gone");
    let mark = member.work.begin_mark(1, START).unwrap();
    member.work.finish(mark);
    assert!(member.work.is_idle());
}

#[test]
fn work_of_a_stream_that_is_gone_goes_on_and_its_handle_is_free() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 300_000);
    go(&mut member, &board, START);
    let mark = member.work.begin_mark(STREAM, START).unwrap();
    go(&mut member, &board, START);
    member.work.forget(STREAM, START);
    assert!(!member.work.knows(STREAM) && member.work.unmarked().is_none());
    // A new stream by the same handle does not end the work of the old one.
    go(&mut member, &board, START);
    let new = member.work.begin_mark(STREAM, START).unwrap();
    member.work.finish(new);
    assert_eq!(member.work.outstanding_ns(), 600_000);
    member.work.finish(mark);
    // What could not be marked is done when it should be.
    member.work.presume_done(START + 599);
    assert!(!member.work.is_idle());
    member.work.presume_done(START + 600);
    assert!(member.work.is_idle() && member.work.outstanding_ns() == 0);
}

#[test]
fn work_without_an_event_bounds_the_queue_until_it_should_be_done() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    learn(&mut member, 5_000_000);
    go(&mut member, &board, START);
    // The mark of `go` stands behind it; another stream's cannot be marked.
    let Launch::Settle { mark, .. } = member.launch(&board, KIND, 128, || START) else { panic!() };
    member.work.finish(mark);
    launch_in(&mut member, &board, 128, 0x1000);
    member.work.presume(128, START);
    let full = member.launch(&board, KIND, STREAM, || START);
    let Launch::Settle { mark, until_us } = full else { panic!("{full:?}") };
    assert!(member.work.is_presumed(mark));
    assert_eq!(until_us, START + 5_000);
    member.work.late(mark, until_us);
    assert!(member.work.is_idle() && !member.work.is_exempt(128, until_us), "nobody was late");
}

#[test]
fn a_tenant_that_finds_no_seat_any_more_goes_on_elsewhere() {
    let board = Board::default();
    let mut member = member(&board, 1, 50);
    let later = START + 2 * SEAT_STALE_US;
    for tenant in 2..=crate::turns::SEATS as u64 + 1 {
        let terms = Terms::of(None);
        board.join(tenant, terms, ProcessId::from_word(tenant).unwrap(), later).unwrap();
    }
    assert_eq!(member.launch(&board, KIND, STREAM, || later), Launch::Unseated);
    assert_eq!(member.tick(&board, later), Tick::default());
    let own = Board::default();
    let strict = Terms { strict: true, ..Terms::of(Some(&ComputeCap::of(500))) };
    member.move_to(&own, strict, later);
    go(&mut member, &own, later);
    assert!(own.is_held_by(member.place().seat));
}
