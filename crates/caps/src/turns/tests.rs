//! The board's rules one by one, without a GPU; what is on the page may be nonsense.

use crate::ProcessId;
use crate::given::ComputeCap;
use crate::pace::{Launch, Member};
use crate::sync::Ordering;

use super::*;

const MS: u64 = 1_000;
const START: u64 = 1_000_000_000;

fn process(number: u64) -> ProcessId {
    ProcessId::from_word(number).unwrap()
}

fn sit(board: &Board, tenant: u64, percent: u32) -> Place {
    let terms = Terms::of(Some(&ComputeCap::of(percent * 10)));
    board.join(tenant, terms, process(tenant), START).unwrap()
}

fn with_priority(board: &Board, tenant: u64, priority: i32) -> Place {
    let cap = ComputeCap { priority, ..ComputeCap::of(500) };
    board.join(tenant, Terms::of(Some(&cap)), process(tenant), START).unwrap()
}

#[test]
fn a_free_turn_is_had_at_once_and_handed_to_who_waits() {
    let board = Board::default();
    let (a, b) = (sit(&board, 1, 50), sit(&board, 2, 50));
    assert_eq!(board.ask(a, START), Turn::Yours);
    assert!(board.is_held_by(a.seat) && !board.is_held_by(b.seat));
    assert_eq!(board.ask(b, START), Turn::Wait { until_us: START + POLL_US });
    assert_eq!(board.tick(a, START + 2 * MS, 2 * MS), Hold::Wanted);
    board.ask(b, START + 10 * MS);
    assert_eq!(board.tick(a, START + 10 * MS, 10 * MS), Hold::Close);
    assert!(matches!(board.ask(a, START + 10 * MS), Turn::Wait { .. }), "it is closing");
    board.charge(a, START, START + 11 * MS, 11 * MS);
    assert_eq!(board.pass(a, START + 11 * MS), Passed::On);
    assert_eq!(board.ask(b, START + 11 * MS), Turn::Yours);
    assert_eq!(board.had(a.seat).used_us, 11 * MS);
    assert_eq!(board.had(b.seat).waited_us, 11 * MS);
    assert_eq!(board.pass(a, START + 11 * MS), Passed::Lost);
}

#[test]
fn nobody_else_wants_it_and_the_turn_does_not_end() {
    let board = Board::default();
    let (a, b) = (sit(&board, 1, 10), sit(&board, 2, 90));
    board.ask(a, START);
    for step in 1..1000 {
        assert_eq!(board.tick(a, START + step * MS, MS), Hold::Alone);
    }
    assert_eq!(board.pass(a, START + 1000 * MS), Passed::On);
    assert_eq!(board.ask(b, START + 1000 * MS), Turn::Yours, "it lay free");
}

#[test]
fn a_silent_holder_loses_the_turn() {
    let board = Board::default();
    let (a, b) = (sit(&board, 1, 50), sit(&board, 2, 50));
    board.ask(a, START);
    assert!(matches!(board.ask(b, START + (OVERDUE_MS - 1) * MS), Turn::Wait { .. }));
    assert_eq!(board.ask(b, START + OVERDUE_MS * MS), Turn::Yours);
    assert_eq!(board.tick(a, START + OVERDUE_MS * MS, 0), Hold::Lost);
}

#[test]
fn a_higher_priority_takes_the_turn_and_a_lower_one_its_floor() {
    let board = Board::default();
    let (low, high) = (with_priority(&board, 1, -1), with_priority(&board, 2, 0));
    board.ask(low, START);
    assert_eq!(board.ask(high, START + MS), Turn::Yours);
    assert_eq!(board.tick(low, START + MS, 0), Hold::Lost);
    let mut now = START + MS;
    // 5 % of the time: 1 ms after some 19 ms of waiting, and not before.
    while board.tick(high, now, 0) != Hold::Close {
        assert!(matches!(board.ask(low, now), Turn::Wait { .. }));
        now += MS;
    }
    assert!((18..=21).contains(&((now - START) / MS)), "{}", now - START);
    assert_eq!(board.pass(high, now), Passed::On);
    assert!(board.is_held_by(low.seat));
    assert!(matches!(board.ask(high, now), Turn::Wait { until_us } if until_us <= now + 2 * MS));
    board.charge(low, now, now + MS, MS);
    assert_eq!(board.ask(high, now + MS), Turn::Yours, "the floor is served");
}

#[test]
fn a_pause_earns_nothing_and_debts_stay() {
    let board = Board::default();
    let (a, b) = (sit(&board, 1, 50), sit(&board, 2, 50));
    // Alone for 10 s.
    board.ask(a, START);
    for second in 0..10 {
        let from = START + second * 1_000_000;
        board.charge(a, from, from + 1_000_000, 1_000_000);
    }
    let now = START + 10_000_000;
    board.tick(a, now, 0);
    board.ask(b, now);
    let views = board.views(now);
    let of = |place: Place| views.get(place.seat).unwrap().virtual_us;
    assert_eq!(of(a), of(b), "the newcomer begins beside the other");
    board.tick(a, now + 98 * MS, 0);
    board.ask(b, now + 99 * MS);
    board.charge(a, now, now + 100 * MS, 100 * MS);
    assert_eq!(board.pass(a, now + 100 * MS), Passed::On);
    // A stays away for a moment; B has the GPU to itself meanwhile.
    board.charge(b, now + 100 * MS, now + 150 * MS, 50 * MS);
    let back = now + 150 * MS;
    board.ask(a, back);
    let views = board.views(back);
    let ahead = views.get(a.seat).unwrap().virtual_us - views.get(b.seat).unwrap().virtual_us;
    assert!((190 * MS..=200 * MS).contains(&ahead), "A is still {ahead} ahead");
}

#[test]
fn surplus_is_divided_by_weight_and_uncapped_tenants_get_the_rest() {
    let mut views = Views::new();
    let mut add = |seat: usize,
                   share_milli: Option<u16>,
                   weight: u16,
                   wants: bool,
                   strict: bool| {
        let terms = Terms { share_milli, weight, priority: 0, floor_milli: 0, strict };
        let (eligible, holds) = (true, false);
        let (want_us, virtual_us, owed_us) = (0, 0, 0);
        views.push(SeatView { seat, terms, wants, eligible, holds, want_us, virtual_us, owed_us });
    };
    add(0, Some(200), 3, true, false);
    add(1, Some(200), 1, true, false);
    add(2, Some(100), 1, true, true);
    add(3, Some(300), 9, false, false);
    let part = |seat| effective_milli(&views, seat);
    assert_eq!((part(0), part(1), part(2)), (200 + 375, 200 + 125, 100));
    // 200 of 1000 are left for who has no cap.
    let terms = Terms::of(None);
    let view = *views.get(0).unwrap();
    views.push(SeatView { seat: 4, terms, ..view });
    assert_eq!(effective_milli(&views, 4), 200 + 300 * 200 / 204);
}

#[test]
fn seats_are_found_again_and_those_of_the_gone_are_given_on() {
    let board = Board::default();
    let first = sit(&board, 1, 50);
    assert_eq!(sit(&board, 1, 40), first);
    let terms = Terms::of(None);
    for tenant in 2..=SEATS as u64 {
        assert!(board.join(tenant, terms, process(tenant), START).is_some());
    }
    assert_eq!(board.join(1000, terms, process(1), START + SEAT_STALE_US), None);
    // The first one holds the turn, so that it is not its seat that is taken.
    board.ask(first, START + SEAT_STALE_US);
    let taken = board.join(1000, terms, process(1), START + 3 * SEAT_STALE_US).unwrap();
    assert_ne!(taken.seat, first.seat);
}

#[test]
fn processes_of_one_tenant_do_not_pay_twice_and_wait_for_each_other() {
    let board = Board::default();
    let one = sit(&board, 1, 50);
    let terms = Terms::of(Some(&ComputeCap::of(500)));
    let two = board.join(1, terms, ProcessId::own(), START).unwrap();
    assert_eq!((one.seat, one.row == two.row), (two.seat, false));
    board.ask(one, START);
    assert_eq!(board.ask(two, START), Turn::Yours);
    board.charge(one, START, START + 10 * MS, 10 * MS);
    board.charge(two, START, START + 12 * MS, 12 * MS);
    assert_eq!(board.had(one.seat).used_us, 12 * MS);
    board.set_busy(two, true, START + MS);
    assert!(board.others_busy(one, START + 2 * MS) && !board.others_busy(two, START + 2 * MS));
    assert!(!board.others_busy(one, START + 500 * MS), "it has died, it seems");
}

/// One step of a process that wants to launch on a GPU where another tenant is; whether it could.
fn tries(member: &mut Member, board: &Board, now: u64) -> bool {
    let can = matches!(member.launch(board, 7, 0, || now), Launch::Go { .. });
    member.tick(board, now);
    can
}

/// Two GPUs, two tenants: each has work on one that only ends when it has launched on the other, where
/// it has to wait. The bounds undo the knot.
#[test]
fn a_circle_of_waiting_comes_free() {
    let boards = [Board::default(), Board::default()];
    let terms = Terms::of(Some(&ComputeCap::of(500)));
    let sits = |tenant| {
        [0, 1].map(|gpu: usize| {
            Member::sit(&boards[gpu], tenant, terms, process(tenant), START).unwrap()
        })
    };
    let (mut a, mut b) = (sits(1), sits(2));
    assert!(tries(&mut a[0], &boards[0], START) && tries(&mut b[1], &boards[1], START));
    let (mut now, mut free) = (START, 0);
    while free == 0 {
        now += MS;
        // Nobody's work ends before its tenant has been let in on both.
        free += usize::from(tries(&mut a[1], &boards[1], now));
        free += usize::from(tries(&mut b[0], &boards[0], now));
        a[0].tick(&boards[0], now);
        b[1].tick(&boards[1], now);
        assert!(now < START + 10_000 * MS, "for ever");
    }
    let took = (now - START) / MS;
    assert!(took <= (QUANTUM_US + DRAIN_MAX_US) / MS + 10, "{took} ms");
}

#[test]
fn any_bytes_are_a_board() {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        match word % 5 {
            0 => 0,
            1 => u64::MAX,
            2 => START,
            _ => word,
        }
    };
    for _ in 0..200 {
        let board = Board::default();
        let (a, b) = (sit(&board, 1, 50), with_priority(&board, 2, 1));
        let terms = Terms::of(Some(&ComputeCap::of(500)));
        let mut member = Member::sit(&board, 1, terms, process(1), START).unwrap();
        for step in 0..50 {
            let seat = board.seat(step % SEATS).unwrap();
            for field in [
                &board.turn,
                &board.since_us,
                &board.virtual_us[step % 8],
                &seat.owner,
                &seat.terms,
                &seat.beat_us,
                &seat.want_us,
                &seat.asked_us,
                &seat.used_us,
                &seat.virtual_us,
                &seat.paid_until_us,
                &seat.due_us,
                &seat.floor_us,
                &seat.lag_us,
                &seat.waited_us,
                &seat.processes[0].busy_us,
                &seat.processes[0].id,
            ] {
                if random() % 3 == 0 {
                    field.store(random(), Ordering::Relaxed);
                }
            }
            let now = if random() % 2 == 0 { START + step as u64 } else { random() >> 12 };
            board.ask(b, now);
            member.launch(&board, random(), random(), || now);
            member.launched(0, 5, random() % 2 == 0, || now);
            member.tick(&board, now);
            board.tick(b, now, random() >> 12);
            board.charge(b, now, random() >> 12, random());
            board.pass(b, now);
            board.room_us(a, now, 4_000);
            board.join(random(), Terms::unpack(random()), process(9), now);
        }
        // Whatever it was, it goes on: time passes, and the turn can be had.
        let mut now = START * 2;
        while board.ask(b, now) != Turn::Yours {
            now += MS;
            assert!(now < START * 2 + 4_000_000_000, "no turn for an hour");
        }
    }
}
