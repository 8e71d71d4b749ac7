//! Findings of single tenants, starvation and memory that runs out, and the laws of all rules.

#[path = "support/cases.rs"]
mod cases;
#[path = "support/watching.rs"]
mod watching;

use std::collections::BTreeMap;

use cases::cases;
use engine::reactive::{Finding, Sample, TenantSample, Thresholds, Watch};
use model::WorkloadId;
use proptest::prelude::*;
use watching::{MINUTE_MS, STEP_MS, advice, found, tenant};

fn watch() -> Watch {
    Watch::new(Thresholds::default())
}

/// A tenant of priority 0 with work and next to no compute beside one of priority 10.
fn starving(at_ms: u64, busy_milli: u32, throttled_milli: u32, taker_milli: u32) -> Sample {
    let poor = TenantSample { throttled_milli, ..tenant(7, busy_milli) };
    let rich = TenantSample { priority: 10, ..tenant(3, taker_milli) };
    Sample { at_ms, busy_milli: 850, tenants: vec![poor, rich], ..Sample::default() }
}

/// A tenant that holds `memory_mib` of 40,000 MiB.
fn holding(at_ms: u64, memory_mib: u64) -> Sample {
    let tenants = vec![TenantSample { memory_mib, ..tenant(4, 700) }];
    Sample { at_ms, busy_milli: 700, tenants, ..Sample::default() }
}

#[test]
fn a_tenant_with_work_and_no_compute_starves_and_the_taker_is_named() {
    let found = found(&mut watch(), 14 * MINUTE_MS, |at_ms| starving(at_ms, 5, 950, 840));
    assert_eq!(found.len(), 1, "told once: {found:?}");
    assert_eq!(found[0].0, 5 * MINUTE_MS);
    let said = "#7 (priority 0) has work and computes 1 % of the time for 5 min, held back for 95 %, \
                while others compute 84 %, most of it #3 (priority 10) with 84 %";
    assert_eq!(found[0].1.to_string(), said);
}

#[test]
fn starvation_that_goes_on_is_told_again_after_ten_minutes() {
    let found = found(&mut watch(), 26 * MINUTE_MS, |at_ms| starving(at_ms, 5, 950, 840));
    let times: Vec<u64> = found.iter().map(|(at_ms, _)| at_ms / MINUTE_MS).collect();
    assert_eq!(times, [5, 15, 25]);
}

#[test]
fn no_work_some_compute_or_nobody_who_takes_it_is_no_starvation() {
    let hour = 60 * MINUTE_MS;
    assert_eq!(found(&mut watch(), hour, |at_ms| starving(at_ms, 0, 50, 840)), [], "no work");
    assert_eq!(found(&mut watch(), hour, |at_ms| starving(at_ms, 60, 950, 840)), [], "6 %");
    assert_eq!(found(&mut watch(), hour, |at_ms| starving(at_ms, 5, 950, 10)), [], "its own cap");
    let alone = |at_ms| {
        let mut sample = starving(at_ms, 5, 950, 840);
        sample.tenants.truncate(1);
        sample
    };
    assert_eq!(found(&mut watch(), hour, alone), []);
}

#[test]
fn a_tenant_that_gets_a_turn_now_and_then_does_not_starve() {
    let load = |at_ms: u64| match at_ms % (4 * MINUTE_MS) {
        0 => starving(at_ms, 900, 50, 50),
        _ => starving(at_ms, 0, 950, 840),
    };
    assert_eq!(found(&mut watch(), 60 * MINUTE_MS, load), []);
}

#[test]
fn starving_is_counted_while_it_is_here_only() {
    // It is seen for a minute, then away for a minute: 5 min of its own take 10.
    let load = |at_ms: u64| {
        let mut sample = starving(at_ms, 5, 950, 840);
        if at_ms / MINUTE_MS % 2 == 1 {
            sample.tenants.remove(0);
        }
        sample
    };
    let found = found(&mut watch(), 12 * MINUTE_MS, load);
    assert_eq!(found.iter().map(|(at_ms, _)| at_ms / MINUTE_MS).collect::<Vec<_>>(), [10]);
}

#[test]
fn memory_that_rises_to_its_cap_is_foretold() {
    // 100 MiB every 10 s from 20,000 on: 85 % of 40,000 at 23:20, the cap at 33:20.
    let found = found(&mut watch(), 40 * MINUTE_MS, |at_ms| holding(at_ms, 20_000 + at_ms / 100));
    assert_eq!(found.len(), 2, "{found:?}");
    let (at_ms, Finding::MemoryRunsOut { in_ms, cap_mib: 40_000, .. }) = &found[0] else {
        panic!("{found:?}")
    };
    assert_eq!((at_ms + in_ms, *at_ms), (2_000_000, 1_400_000));
    let said = "#4 holds 34000 of 40000 MiB and rises by 600 MiB a minute: at its cap in 10 min";
    assert_eq!(found[0].1.to_string(), said);
}

#[test]
fn memory_that_is_full_and_steady_jumps_or_comes_back_is_no_risk() {
    let hour = 60 * MINUTE_MS;
    assert_eq!(found(&mut watch(), hour, |at_ms| holding(at_ms, 39_900)), [], "a full cache");
    let jump = |at_ms| holding(at_ms, if at_ms < hour / 2 { 10_000 } else { 39_000 });
    assert_eq!(found(&mut watch(), hour, jump), []);
    let saw = |at_ms: u64| holding(at_ms, 35_000 + at_ms % 110_000 / 30);
    assert_eq!(found(&mut watch(), hour, saw), [], "given back within the window");
    let far = |at_ms| holding(at_ms, 1_000 + at_ms / 20);
    assert_eq!(found(&mut watch(), 9 * MINUTE_MS, far), [], "fast, but 70 % of the cap at most");
    let slow = |at_ms| holding(at_ms, 36_000 + at_ms / 20_000);
    assert_eq!(found(&mut watch(), hour, slow), [], "3 MiB a minute reach the cap in a day");
}

#[test]
fn memory_without_a_known_cap_is_not_warned_of() {
    let load = |at_ms| {
        let mut sample = holding(at_ms, at_ms);
        sample.tenants[0].memory_cap_mib = 0;
        sample
    };
    assert_eq!(found(&mut watch(), 60 * MINUTE_MS, load), []);
}

#[test]
fn a_gap_voids_the_trend() {
    // A minute and a half seen, 130 s not, and so on: never a full window.
    let load = |at_ms: u64| holding(at_ms + at_ms / 90_000 * 130_000, 38_000 + at_ms / 200);
    assert_eq!(found(&mut watch(), 6 * MINUTE_MS, load), []);
}

#[test]
fn a_tenant_that_was_away_for_long_begins_anew() {
    let load = |at_ms: u64| {
        let mut sample = starving(at_ms, 5, 950, 840);
        if (4 * MINUTE_MS..7 * MINUTE_MS).contains(&at_ms) {
            sample.tenants.remove(0);
        }
        sample
    };
    let found = found(&mut watch(), 13 * MINUTE_MS, load);
    assert_eq!(found.iter().map(|(at_ms, _)| at_ms / MINUTE_MS).collect::<Vec<_>>(), [12]);
}

#[test]
fn of_a_workload_listed_twice_the_first_entry_counts() {
    let load = |at_ms| {
        let mut sample = starving(at_ms, 5, 950, 840);
        sample.tenants.push(tenant(7, 1000));
        sample
    };
    assert_eq!(found(&mut watch(), 6 * MINUTE_MS, load).len(), 1);
}

#[test]
fn short_jobs_that_come_and_go_do_not_hide_that_a_gpu_is_underused() {
    let load = |at_ms: u64| Sample {
        at_ms,
        busy_milli: 300,
        tenants: vec![tenant(100 + at_ms / 30_000, 300)],
        ..Sample::default()
    };
    assert_eq!(advice(&found(&mut watch(), 15 * MINUTE_MS, load)), [(10, 'f')]);
}

fn any_tenant() -> impl Strategy<Value = TenantSample> {
    let milli = || prop_oneof![Just(0u32), 0u32..1100, Just(u32::MAX)];
    let amount = || prop_oneof![0u64..50_000, Just(u64::MAX)];
    (0u64..6, -1i32..2, milli(), milli(), amount(), amount(), any::<Option<u64>>(), amount())
        .prop_map(
            |(number, priority, busy, throttled_milli, memory_mib, memory_cap_mib, p99, target)| {
                TenantSample {
                    priority,
                    throttled_milli,
                    memory_mib,
                    memory_cap_mib,
                    latency_p99_us: p99,
                    latency_target_us: (target % 2 == 0).then_some(target),
                    exclusive: memory_mib % 16 == 0,
                    ..tenant(number, busy)
                }
            },
        )
}

/// Samples that keep a state for a while, so that dwell times are reached, and steps of all sizes.
fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
    let state = (0u32..1100, prop::collection::vec(any_tenant(), 0..4), 1usize..80);
    let step = prop_oneof![4 => Just(STEP_MS), 1 => 0u64..400_000];
    prop::collection::vec((state, step), 1..20).prop_map(|states| {
        let (mut at_ms, mut samples) = (0u64, Vec::new());
        for ((busy_milli, tenants, times), step_ms) in states {
            for _ in 0..times {
                at_ms += step_ms;
                samples.push(Sample {
                    at_ms,
                    busy_milli,
                    tenants: tenants.clone(),
                    ..Sample::default()
                });
            }
        }
        samples
    })
}

/// Thresholds with short times, so that much is found, and others in any order.
fn any_thresholds() -> impl Strategy<Value = Thresholds> {
    let time = || 0u64..200_000;
    (time(), time(), time(), time(), 0u32..1100, 0u32..1100).prop_map(
        |(cool_down_ms, again_ms, dwell_ms, smooth_ms, begins, ends)| Thresholds {
            cool_down_ms,
            again_ms,
            smooth_ms,
            underused_for_ms: dwell_ms,
            contended_for_ms: dwell_ms,
            starved_for_ms: dwell_ms,
            underused_milli: begins,
            underused_ends_milli: ends,
            contended_milli: ends,
            contended_ends_milli: begins,
            ..Thresholds::default()
        },
    )
}

proptest! {
    #![proptest_config(cases(500))]

    /// At most one advice in a cool-down and one finding of a kind and tenant in its time, and the
    /// same samples give the same findings.
    #[test]
    fn nothing_is_said_twice_in_its_time(samples in any_samples(), limits in any_thresholds()) {
        let mut watches = [Watch::new(limits.clone()), Watch::new(limits.clone())];
        let mut told: BTreeMap<(u8, WorkloadId), u64> = BTreeMap::new();
        for sample in &samples {
            let findings = watches[0].observe(sample);
            prop_assert_eq!(&findings, &watches[1].observe(sample));
            for finding in findings {
                let (kind, wait_ms) = match finding {
                    Finding::ShareFiner { .. } | Finding::Isolate { .. } =>
                        ((0, WorkloadId(0)), limits.cool_down_ms),
                    Finding::Starved { tenant, .. } => ((1, tenant), limits.again_ms),
                    Finding::MemoryRunsOut { tenant, .. } => ((2, tenant), limits.again_ms),
                };
                if let Some(then_ms) = told.insert(kind, sample.at_ms) {
                    prop_assert!(sample.at_ms > then_ms, "two in one sample: {}", finding);
                    prop_assert!(sample.at_ms - then_ms >= wait_ms, "too soon: {}", finding);
                }
            }
        }
    }

    /// Advice to share finer comes in calm only, with no finding of trouble, and where nobody must be
    /// alone; a restart does not cut the calm short.
    #[test]
    fn more_tenants_are_advised_in_calm_only(
        samples in any_samples(),
        limits in any_thresholds(),
        calm_ms in 0u64..2_000_000,
    ) {
        let limits = Thresholds { calm_ms, ..limits };
        let (mut watch, mut isolated_ms) = (Watch::new(limits.clone()), None::<u64>);
        for (number, sample) in samples.iter().enumerate() {
            if number % 50 == 49 {
                watch = Watch::resume(limits.clone(), watch.waits());
            }
            let findings = watch.observe(sample);
            let finer = findings.iter().any(|one| matches!(one, Finding::ShareFiner { .. }));
            prop_assert!(!finer || findings.len() == 1, "{findings:?}");
            let first_of = |one: &TenantSample| sample.tenants.iter().find(|two| two.workload == one.workload);
            let alone = sample.tenants.iter().any(|one| first_of(one).is_some_and(|one| one.exclusive));
            prop_assert!(!finer || !alone);
            prop_assert!(!finer || isolated_ms.is_none_or(|then_ms| sample.at_ms - then_ms >= calm_ms));
            if findings.iter().any(|one| matches!(one, Finding::Isolate { .. })) {
                isolated_ms = Some(sample.at_ms);
            }
        }
    }

    /// Whatever the clock does, nothing panics.
    #[test]
    fn any_clock_is_borne(
        samples in any_samples(),
        limits in any_thresholds(),
        clock in prop::collection::vec(any::<u64>(), 1..9),
    ) {
        let mut watch = Watch::new(limits);
        for (number, sample) in samples.iter().enumerate() {
            let shift_ms = clock[number / 40 % clock.len()];
            watch.observe(&Sample { at_ms: sample.at_ms.wrapping_add(shift_ms), ..sample.clone() });
        }
    }

    /// What is said names tenants that are there, and amounts that are true of the thresholds.
    #[test]
    fn what_is_said_holds(samples in any_samples(), limits in any_thresholds()) {
        let mut watch = Watch::new(limits.clone());
        for sample in &samples {
            let here = |one: WorkloadId| sample.tenants.iter().any(|tenant| tenant.workload == one);
            for finding in watch.observe(sample) {
                prop_assert!(match &finding {
                    Finding::ShareFiner { busy_milli, tenants, for_ms, .. } =>
                        *busy_milli < limits.underused_ends_milli.min(limits.underused_milli)
                            && *tenants > 0
                            && *for_ms >= limits.underused_for_ms,
                    Finding::Isolate { busy_milli, tenant, neighbours, .. } =>
                        *busy_milli >= limits.contended_ends_milli.max(limits.contended_milli)
                            && here(*tenant)
                            && !neighbours.is_empty()
                            && !neighbours.contains(tenant)
                            && neighbours.iter().all(|other| here(*other)),
                    Finding::Starved { tenant, taker, .. } =>
                        tenant != taker && here(*tenant) && here(*taker),
                    Finding::MemoryRunsOut { tenant, in_ms, .. } =>
                        here(*tenant) && *in_ms <= limits.runs_out_ms,
                }, "{}", finding);
            }
        }
    }
}
