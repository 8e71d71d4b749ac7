//! Rates, sums, and what is not known.

use super::*;

fn pod(name: &str) -> Pod {
    ("team".to_owned(), name.to_owned())
}

fn share(gpu_seconds: f64, cap: Option<f64>) -> ShareReading {
    ShareReading {
        memory_used_bytes: Some(1024.0),
        compute_cap_ratio: cap,
        gpu_seconds: Some(gpu_seconds),
        throttled_seconds: Some(gpu_seconds * 2.0),
        busy_ratio: None,
    }
}

fn reading(name: &str, shares: &[(&str, ShareReading)]) -> Reading {
    let shares = shares.iter().map(|(card, one)| (((*card).to_owned(), "c".to_owned()), *one));
    [(pod(name), shares.collect())].into()
}

fn value(book: &Book, metric: Metric, name: &str, now_ms: i64) -> Option<u64> {
    book.figure(metric, &pod(name), now_ms).map(|figure| figure.value)
}

#[test]
fn busy_is_by_the_pods_own_caps_over_the_time_between_two_rounds() {
    let mut book = Book::default();
    book.take(reading("a", &[("g0", share(10.0, Some(0.3)))]), 100_000);
    assert_eq!(value(&book, Metric::Busy, "a", 100_000), None, "there is no rate yet");
    assert_eq!(value(&book, Metric::Memory, "a", 100_000), Some(1024));
    book.take(reading("a", &[("g0", share(11.5, Some(0.3)))]), 110_000);
    // 1.5 s in 10 s are 150 thousandths of the card, half of 300.
    let busy = book.figure(Metric::Busy, &pod("a"), 110_000);
    assert_eq!(busy, Some(Figure { value: 500, at_ms: 110_000, window_ms: 10_000 }));
    assert_eq!(value(&book, Metric::Throttled, "a", 110_000), Some(300));
    book.take(reading("a", &[("g0", share(1.0, Some(0.3)))]), 120_000);
    assert_eq!(value(&book, Metric::Busy, "a", 120_000), None, "the count began anew");
}

#[test]
fn shares_of_a_pod_are_summed_and_one_that_is_not_known_leaves_the_sum_unknown() {
    let mut book = Book::default();
    let two = |first, second| [("g0", share(first, Some(0.5))), ("g1", share(second, None))];
    book.take(reading("a", &two(0.0, 0.0)), 0);
    book.take(reading("a", &two(5.0, 10.0)), 10_000);
    // All of the second card, and all that it may have of the first.
    assert_eq!(value(&book, Metric::Busy, "a", 10_000), Some(1000));
    assert_eq!(value(&book, Metric::Memory, "a", 10_000), Some(2048));
    let lacks = ShareReading { memory_used_bytes: None, ..ShareReading::default() };
    book.take(reading("a", &[("g0", share(6.0, None)), ("g1", lacks)]), 20_000);
    assert_eq!(value(&book, Metric::Busy, "a", 20_000), None);
    assert_eq!(value(&book, Metric::Memory, "a", 20_000), None);
}

#[test]
fn a_whole_device_is_as_busy_as_it_is_told() {
    let mut book = Book::default();
    let alone = ShareReading { busy_ratio: Some(0.57), ..ShareReading::default() };
    book.take(reading("a", &[("g0", alone)]), 0);
    assert_eq!(value(&book, Metric::Busy, "a", 1), Some(570));
    assert_eq!(value(&book, Metric::Throttled, "a", 1), None);
}

#[test]
fn what_is_old_is_neither_told_nor_counted_from() {
    let mut book = Book::default();
    book.take(reading("a", &[("g0", share(1.0, None))]), 0);
    assert_eq!(value(&book, Metric::Memory, "a", OLD_MS), Some(1024));
    assert_eq!(value(&book, Metric::Memory, "a", OLD_MS + 1), None);
    book.take(reading("a", &[("g0", share(2.0, None))]), OLD_MS + 1);
    assert_eq!(value(&book, Metric::Busy, "a", OLD_MS + 1), None);
    book.forget(3 * OLD_MS);
    assert!(book.0.is_empty());
}
