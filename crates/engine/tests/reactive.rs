//! Scenarios of the advice for a whole GPU: share it finer, isolate a tenant, and never flap.

#[path = "support/watching.rs"]
mod watching;

use engine::reactive::{Finding, LatencyLimit, Sample, Thresholds, Watch};
use model::{SplitMix, WorkloadId};
use watching::{MINUTE_MS, STEP_MS, advice, found, tenant};

const HOUR_MS: u64 = 60 * MINUTE_MS;

fn watch() -> Watch {
    Watch::new(Thresholds::default())
}

/// A GPU with two tenants that do not ask for anything.
fn busy(at_ms: u64, busy_milli: u32) -> Sample {
    Sample {
        at_ms,
        busy_milli,
        tenants: vec![tenant(1, busy_milli / 2), tenant(2, busy_milli / 2)],
        ..Sample::default()
    }
}

/// A GPU on which a service answers in `p99_us` beside a batch job.
fn served(at_ms: u64, busy_milli: u32, p99_us: u64, target_us: Option<u64>) -> Sample {
    let mut sample = busy(at_ms, busy_milli);
    sample.tenants[0].latency_p99_us = Some(p99_us);
    sample.tenants[0].latency_target_us = target_us;
    sample
}

/// A triangle wave between two loads, in thousandths.
fn wave(at_ms: u64, period_ms: u64, low: u32, high: u32) -> u32 {
    let (phase, half) = (at_ms % period_ms, period_ms / 2);
    let up = if phase < half { phase } else { period_ms - phase };
    low + (u64::from(high - low) * up / half) as u32
}

#[test]
fn a_gpu_that_is_little_used_is_shared_finer_once_a_cool_down() {
    let found = found(&mut watch(), 100 * MINUTE_MS, |at_ms| busy(at_ms, 300));
    assert_eq!(advice(&found), [(10, 'f'), (40, 'f'), (70, 'f'), (100, 'f')]);
    let said = "30 % busy, below 50 % for 10 min, with 2 tenants: it could be shared finer";
    assert_eq!(found[0].1.to_string(), said);
}

#[test]
fn after_an_advice_the_conditions_must_hold_anew() {
    let mut watch = Watch::new(Thresholds { cool_down_ms: 0, ..Thresholds::default() });
    let found = found(&mut watch, 35 * MINUTE_MS, |at_ms| busy(at_ms, 300));
    // The sample that brings the advice belongs to the time before it.
    assert_eq!(
        found.iter().map(|(at_ms, _)| *at_ms).collect::<Vec<_>>(),
        [600_000, 1_210_000, 1_820_000]
    );
}

#[test]
fn a_gpu_that_is_half_used_or_more_is_left_alone() {
    assert_eq!(found(&mut watch(), 5 * HOUR_MS, |at_ms| busy(at_ms, 500)), []);
    assert_eq!(found(&mut watch(), 5 * HOUR_MS, |at_ms| busy(at_ms, 1000)), []);
}

#[test]
fn a_load_that_oscillates_above_the_threshold_or_below_it_for_short_is_left_alone() {
    let above = |at_ms| busy(at_ms, wave(at_ms, 5 * MINUTE_MS, 510, 700));
    assert_eq!(found(&mut watch(), 24 * HOUR_MS, above), []);
    let short = |at_ms| busy(at_ms, wave(at_ms, 12 * MINUTE_MS, 200, 900));
    assert_eq!(found(&mut watch(), 24 * HOUR_MS, short), []);
}

#[test]
fn a_load_that_oscillates_around_the_threshold_has_one_kind_of_advice_and_rarely() {
    for period_ms in [20_000, 70_000, 130_000, 600_000, 1_300_000, 3_600_000] {
        let load = |at_ms| busy(at_ms, wave(at_ms, period_ms, 400, 590));
        let found = advice(&found(&mut watch(), 24 * HOUR_MS, load));
        assert!(found.iter().all(|(_, letter)| *letter == 'f'), "{period_ms}: {found:?}");
        assert!((1..=48).contains(&found.len()), "{period_ms}: {found:?}");
        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 30), "{found:?}");
    }
}

#[test]
fn a_step_of_latency_on_a_full_gpu_isolates_who_suffers() {
    let load = |at_ms: u64| {
        let mut sample = served(at_ms, 960, if at_ms < HOUR_MS { 10_000 } else { 30_000 }, None);
        sample.tenants[1].priority = 5;
        sample.tenants.push(tenant(3, 100));
        sample
    };
    let found = found(&mut watch(), HOUR_MS + 20 * MINUTE_MS, load);
    assert_eq!(advice(&found), [(62, 'i')]);
    let Finding::Isolate { tenant, limit, neighbours, busy_milli, .. } = &found[0].1 else {
        panic!("{found:?}")
    };
    assert_eq!((*tenant, *busy_milli), (WorkloadId(1), 960));
    assert_eq!(neighbours, &[WorkloadId(3), WorkloadId(2)], "lower priority first");
    assert!(matches!(limit, LatencyLimit::Usual(us) if (12_000..20_000).contains(us)), "{limit:?}");
    let said = found[0].1.to_string();
    assert!(said.starts_with("96 % busy for 2 min, and #1 answers in 29."), "{said}");
    assert!(said.ends_with(": isolate it from #3, #2"), "{said}");
}

#[test]
fn without_a_target_slow_is_a_quarter_more_than_usual_and_usual_takes_ten_minutes() {
    let from = |start_ms: u64, p99_us: u64| {
        move |at_ms: u64| {
            let late = (start_ms..start_ms + 5 * MINUTE_MS).contains(&at_ms);
            served(at_ms, 960, if late { p99_us } else { 10_000 }, None)
        }
    };
    assert_eq!(found(&mut watch(), 2 * HOUR_MS, from(HOUR_MS, 11_500)), [], "15 % more");
    assert_eq!(found(&mut watch(), 2 * HOUR_MS, from(3 * MINUTE_MS, 30_000)), [], "too early");
    assert_eq!(advice(&found(&mut watch(), 2 * HOUR_MS, from(HOUR_MS, 30_000))), [(62, 'i')]);
}

#[test]
fn a_target_counts_from_the_first_sample() {
    let load = |at_ms| served(at_ms, 960, 30_000, Some(20_000));
    let found = found(&mut watch(), 10 * MINUTE_MS, load);
    assert_eq!(advice(&found), [(2, 'i')]);
    let said = "96 % busy for 2 min, and #1 answers in 30.0 ms (p99), above its target of 20.0 ms: \
                isolate it from #2";
    assert_eq!(found[0].1.to_string(), said);
}

#[test]
fn slow_answers_alone_and_a_full_gpu_alone_are_no_contention() {
    let full = |at_ms| served(at_ms, 990, 19_000, Some(20_000));
    assert_eq!(found(&mut watch(), HOUR_MS, full), []);
    let slow = |at_ms| served(at_ms, 850, 30_000, Some(20_000));
    assert_eq!(found(&mut watch(), HOUR_MS, slow), []);
    let by_itself = |at_ms| {
        let mut sample = served(at_ms, 990, 30_000, Some(20_000));
        sample.tenants.truncate(1);
        sample
    };
    assert_eq!(found(&mut watch(), HOUR_MS, by_itself), [], "nobody to isolate it from");
}

#[test]
fn a_gpu_with_room_whose_tenant_is_slow_is_not_shared_finer() {
    let load = |at_ms| served(at_ms, 300, 30_000, Some(20_000));
    assert_eq!(found(&mut watch(), 5 * HOUR_MS, load), []);
}

#[test]
fn a_slow_ramp_passes_from_finer_to_nothing_to_isolate() {
    // From idle to full in 10 h; answers worsen from 80 % busy on, to twice the target.
    let load = |at_ms: u64| {
        let busy_milli = (at_ms * 1000 / (10 * HOUR_MS)).min(1000);
        served(
            at_ms,
            busy_milli as u32,
            10_000 + busy_milli.saturating_sub(800) * 150,
            Some(20_000),
        )
    };
    let found = advice(&found(&mut watch(), 11 * HOUR_MS, load));
    let (finer, isolate): (Vec<_>, Vec<_>) = found.iter().partition(|(_, letter)| *letter == 'f');
    assert!(finer.iter().all(|(minute, _)| *minute <= 361), "none from 60 % on: {finer:?}");
    assert!(isolate.iter().all(|(minute, _)| *minute >= 540), "none below 90 %: {isolate:?}");
    assert!(finer.len() >= 10 && !isolate.is_empty(), "{found:?}");
}

#[test]
fn noise_around_the_thresholds_brings_no_wrong_advice() {
    for seed in 0..20 {
        let noise = |at_ms: u64, from: u64, to: u64| {
            from + SplitMix::new(seed * 1_000_003 + at_ms).below(to - from)
        };
        // 550 on average, as noisy as can be; the mean stays above 50 %.
        let level = |at_ms| busy(at_ms, noise(at_ms, 400, 900) as u32);
        assert_eq!(found(&mut watch(), 12 * HOUR_MS, level), [], "seed {seed}");
        // Full, and answers that differ by a fifth from one sample to the next.
        let full = |at_ms| served(at_ms, noise(at_ms, 850, 1000) as u32, noise(at_ms, 9, 12), None);
        assert_eq!(found(&mut watch(), 12 * HOUR_MS, full), [], "seed {seed}");
        let low = |at_ms| busy(at_ms, noise(at_ms, 0, 900) as u32);
        let found = advice(&found(&mut watch(), 12 * HOUR_MS, low));
        assert!((5..=24).contains(&found.len()), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_load_that_comes_and_goes_by_the_hour_is_divided_for_its_peaks() {
    // An hour empty, an hour full and slow, and so on.
    let load = |at_ms: u64| match at_ms / HOUR_MS % 2 {
        0 => served(at_ms, 200, 5_000, Some(20_000)),
        _ => served(at_ms, 1000, 50_000, Some(20_000)),
    };
    let found = advice(&found(&mut watch(), 48 * HOUR_MS, load));
    assert_eq!(found[..3], [(10, 'f'), (40, 'f'), (70, 'i')], "the first turn is taken at once");
    assert!(found[3..].iter().all(|(_, letter)| *letter == 'i'), "{found:?}");
    assert!(found.len() > 24, "each peak is told: {found:?}");
}

#[test]
fn by_day_and_night_advice_changes_once_each() {
    // Twelve hours full and slow, twelve nearly idle.
    let load = |at_ms: u64| match at_ms / (12 * HOUR_MS) % 2 {
        0 => served(at_ms, 1000, 50_000, Some(20_000)),
        _ => served(at_ms, 200, 5_000, Some(20_000)),
    };
    let found = advice(&found(&mut watch(), 96 * HOUR_MS - 1, load));
    let turns = found.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert_eq!(turns, 7, "four days and four nights: {found:?}");
    let first = found.iter().find(|(_, letter)| *letter == 'f').unwrap();
    assert!((16 * 60 - 1..=16 * 60).contains(&first.0), "after a calm of four hours: {first:?}");
}

#[test]
fn a_gpu_without_tenants_says_nothing_neither_way() {
    let empty = |at_ms| Sample { at_ms, ..Sample::default() };
    assert_eq!(found(&mut watch(), 5 * HOUR_MS, empty), []);
    // Every other minute nobody is there: only time with tenants counts, 10 min of it.
    let half = |at_ms: u64| {
        if (at_ms / MINUTE_MS).is_multiple_of(2) { busy(at_ms, 300) } else { empty(at_ms) }
    };
    assert_eq!(advice(&found(&mut watch(), 35 * MINUTE_MS, half)), [(20, 'f')]);
    // Nine minutes with tenants, three without: nobody knows who comes now.
    let long = |at_ms| match at_ms / MINUTE_MS {
        9..12 => empty(at_ms),
        _ => busy(at_ms, 300),
    };
    assert_eq!(advice(&found(&mut watch(), 25 * MINUTE_MS, long)), [(22, 'f')]);
}

#[test]
fn late_and_double_samples_change_nothing() {
    let mut watches = [watch(), watch()];
    let (mut plain, mut disturbed) = (Vec::new(), Vec::new());
    for at_ms in (0..3 * HOUR_MS).step_by(STEP_MS as usize) {
        plain.extend(watches[0].observe(&busy(at_ms, 300)));
        disturbed.extend(watches[1].observe(&busy(at_ms, 300)));
        disturbed.extend(watches[1].observe(&busy(at_ms, 1000)));
        disturbed.extend(watches[1].observe(&busy(at_ms.saturating_sub(25_000), 1000)));
    }
    assert_eq!(plain.len(), 6);
    assert_eq!(plain, disturbed);
}

#[test]
fn missing_samples_are_bridged_and_a_long_gap_voids_what_was_before() {
    let seen = |holes: fn(u64) -> bool| {
        let (mut watch, mut all) = (watch(), Vec::new());
        for at_ms in (0..=20 * MINUTE_MS).step_by(STEP_MS as usize) {
            if !holes(at_ms) {
                all.extend(watch.observe(&busy(at_ms, 300)).into_iter().map(|f| (at_ms, f)));
            }
        }
        advice(&all)
    };
    assert_eq!(seen(|at_ms| at_ms % 120_000 != 0), [(10, 'f')], "every two minutes");
    let gap = |at_ms| (5 * MINUTE_MS..5 * MINUTE_MS + 130_000).contains(&at_ms);
    assert_eq!(seen(gap), [(17, 'f')], "10 min from 7:10 on");
}

#[test]
fn the_cool_down_outlasts_a_gap() {
    let mut watch = watch();
    assert_eq!(advice(&found(&mut watch, 10 * MINUTE_MS, |at_ms| busy(at_ms, 300))), [(10, 'f')]);
    let later = |at_ms| busy(14 * MINUTE_MS + at_ms, 300);
    let found = advice(&found(&mut watch, 40 * MINUTE_MS, later));
    assert_eq!(found, [(26, 'f')], "30 min after the first");
}

#[test]
fn a_counter_that_jumps_once_changes_nothing() {
    let load = |at_ms| match at_ms {
        300_000 => served(at_ms, u32::MAX, u64::MAX, None),
        _ => served(at_ms, 300, 10_000, None),
    };
    let spiked = found(&mut watch(), 12 * MINUTE_MS, load);
    assert!(advice(&spiked).iter().all(|(_, letter)| *letter == 'f'), "{spiked:?}");
    let full = |at_ms| match at_ms {
        HOUR_MS => served(at_ms, 1000, 60_000, None),
        _ => served(at_ms, 950, 10_000, None),
    };
    assert_eq!(found(&mut watch(), 2 * HOUR_MS, full), [], "one slow sample is no worsening");
}
