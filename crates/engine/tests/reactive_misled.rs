//! What must not mislead the rules: blips, noise, counters that fail, clocks that go back, restarts,
//! and advice that nobody could follow.

#[path = "support/watching.rs"]
mod watching;

use engine::reactive::{Finding, Sample, TenantSample, Thresholds, Watch};
use model::{SplitMix, WorkloadId};
use watching::{MINUTE_MS, STEP_MS, advice, found, tenant};

const HOUR_MS: u64 = 60 * MINUTE_MS;

fn watch() -> Watch {
    Watch::new(Thresholds::default())
}

/// Any number below `below`, the same for the same time.
fn noise(seed: u64, at_ms: u64, below: u64) -> u64 {
    SplitMix::new(seed * 1_000_003 + at_ms).below(below)
}

/// A GPU on which the tenants 1 and 2 share the time evenly.
fn shared(at_ms: u64, busy_milli: u32) -> Sample {
    let tenants = vec![tenant(1, busy_milli / 2), tenant(2, busy_milli / 2)];
    Sample { at_ms, busy_milli, tenants, ..Sample::default() }
}

/// A full GPU on which tenant 1 answers in `p99_us` and should in 20 ms.
fn served(at_ms: u64, p99_us: u64) -> Sample {
    let mut sample = shared(at_ms, 960);
    (sample.tenants[0].latency_p99_us, sample.tenants[0].latency_target_us) =
        (Some(p99_us), Some(20_000));
    sample
}

/// The same tenants with little to do.
fn idle(at_ms: u64) -> Sample {
    let mut sample = shared(at_ms, 200);
    sample.tenants[0].latency_p99_us = Some(5_000);
    sample.tenants[0].latency_target_us = Some(20_000);
    sample
}

/// Tenant 7 has work and computes next to nothing beside those of `takers_milli`.
fn starving(at_ms: u64, takers_milli: &[u32]) -> Sample {
    let poor = TenantSample { throttled_milli: 950, ..tenant(7, 5) };
    let takers = takers_milli.iter().zip(20..).map(|(busy_milli, id)| tenant(id, *busy_milli));
    let busy_milli = takers_milli.iter().sum::<u32>().min(1000);
    Sample {
        at_ms,
        busy_milli,
        tenants: [poor].into_iter().chain(takers).collect(),
        ..Sample::default()
    }
}

#[test]
fn one_blip_above_a_target_does_not_make_a_tenant_slow_for_good() {
    let load = |at_ms| served(at_ms, if at_ms == HOUR_MS { 60_000 } else { 19_000 });
    assert_eq!(found(&mut watch(), 6 * HOUR_MS, load), []);
}

#[test]
fn one_dip_of_a_load_is_not_long_underuse() {
    let dip = HOUR_MS..HOUR_MS + 2 * MINUTE_MS;
    let load = |at_ms| shared(at_ms, if dip.contains(&at_ms) { 400 } else { 580 });
    assert_eq!(found(&mut watch(), 6 * HOUR_MS, load), []);
}

#[test]
fn one_noisy_sample_of_another_does_not_decide_who_is_isolated() {
    let load = |at_ms| {
        let mut sample = served(at_ms, 22_000);
        sample.tenants[1].latency_target_us = Some(20_000);
        let blip = at_ms == 2 * MINUTE_MS;
        sample.tenants[1].latency_p99_us = Some(if blip { 500_000 } else { 10_000 });
        sample
    };
    let found = found(&mut watch(), 10 * MINUTE_MS, load);
    let [(_, Finding::Isolate { tenant, .. })] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*tenant, WorkloadId(1));
}

#[test]
fn one_answer_in_a_long_silence_is_no_worsening() {
    // Few requests: the latency is known every 110 s, and once it is an outlier.
    let load = |at_ms: u64| {
        let mut sample = served(at_ms, if at_ms == 110_000 * 20 { 200_000 } else { 10_000 });
        if !at_ms.is_multiple_of(110_000) {
            sample.tenants[0].latency_p99_us = None;
        }
        sample
    };
    assert_eq!(found(&mut watch(), 3 * HOUR_MS, load), []);
}

#[test]
fn a_target_of_nothing_is_none() {
    let load = |at_ms| {
        let mut sample = served(at_ms, 10_000);
        sample.tenants[0].latency_target_us = Some(0);
        sample
    };
    assert_eq!(found(&mut watch(), 2 * HOUR_MS, load), []);
}

#[test]
fn outliers_of_latency_are_hardly_ever_taken_for_a_worsening() {
    // One sample in twenty is three times the usual; 20 days.
    let days = (0..20).map(|seed| {
        let load = |at_ms| {
            let late = noise(seed, at_ms, 20) == 0;
            let mut sample = served(at_ms, if late { 30_000 } else { 10_000 });
            sample.tenants[0].latency_target_us = None;
            sample
        };
        found(&mut watch(), 24 * HOUR_MS, load).len()
    });
    let told: usize = days.sum();
    assert!(told <= 3, "{told}");
}

#[test]
fn nobody_is_isolated_from_neighbours_that_do_nothing() {
    let load = |at_ms| {
        let mut sample = served(at_ms, 50_000);
        (sample.tenants[0].busy_milli, sample.tenants[1].busy_milli) = (960, 0);
        sample
    };
    assert_eq!(found(&mut watch(), 2 * HOUR_MS, load), []);
    let beside = |at_ms| {
        let mut sample = load(at_ms);
        sample.tenants.push(tenant(3, 300));
        sample
    };
    let found = found(&mut watch(), 10 * MINUTE_MS, beside);
    let [(_, Finding::Isolate { neighbours, .. })] = &found[..] else { panic!("{found:?}") };
    assert_eq!(neighbours, &[WorkloadId(3)], "not from who is idle");
}

#[test]
fn many_small_takers_starve_a_tenant_too() {
    let found = found(&mut watch(), 6 * MINUTE_MS, |at_ms| starving(at_ms, &[40; 20]));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn who_is_held_back_on_a_gpu_with_room_is_not_starved_by_others() {
    let load = |at_ms| starving(at_ms, &[80, 60]);
    let found = found(&mut watch(), HOUR_MS, load);
    assert!(found.iter().all(|(_, finding)| finding.is_advice()), "{found:?}");
}

#[test]
fn memory_that_wobbles_just_below_its_cap_is_no_risk() {
    let days = (0..20).map(|seed| {
        let load = |at_ms| {
            let memory_mib = 39_985 + noise(seed, at_ms, 8);
            let tenants = vec![TenantSample { memory_mib, ..tenant(4, 700) }];
            Sample { at_ms, busy_milli: 700, tenants, ..Sample::default() }
        };
        found(&mut watch(), 24 * HOUR_MS, load).len()
    });
    let told: usize = days.sum();
    assert!(told == 0, "{told}");
}

#[test]
fn a_slow_leak_just_below_its_cap_is_a_risk() {
    let load = |at_ms| {
        let tenants = vec![TenantSample { memory_mib: 39_900 + at_ms / 30_000, ..tenant(4, 700) }];
        Sample { at_ms, busy_milli: 700, tenants, ..Sample::default() }
    };
    let found = found(&mut watch(), 50 * MINUTE_MS, load);
    let said = found.last().map(|(_, finding)| finding.to_string()).unwrap_or_default();
    assert!(said.contains("rises by 2 MiB a minute: at its cap in"), "{said}");
}

#[test]
fn a_gpu_is_as_busy_as_its_busiest_tenant() {
    let load = |at_ms| Sample { busy_milli: 0, ..shared(at_ms, 1800) };
    assert_eq!(found(&mut watch(), HOUR_MS, load), []);
}

#[test]
fn a_clock_that_goes_back_does_not_silence_for_good() {
    let mut watch = watch();
    watch.observe(&shared(u64::MAX, 300));
    assert_eq!(advice(&found(&mut watch, 30 * MINUTE_MS, |at_ms| shared(at_ms, 300))), [(10, 'f')]);
}

#[test]
fn a_late_sample_does_not_set_the_clock_back() {
    let mut watch = watch();
    let mut seen = Vec::new();
    for at_ms in (0..=10 * MINUTE_MS).step_by(STEP_MS as usize) {
        seen.extend(watch.observe(&shared(at_ms, 300)));
        seen.extend(watch.observe(&shared(at_ms.saturating_sub(2 * MINUTE_MS), 300)));
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[test]
fn what_was_advised_outlasts_a_restart_and_a_clock_set_back() {
    let isolate = |watch: &mut Watch, from_ms: u64| {
        advice(&found(watch, 40 * MINUTE_MS, |at_ms| served(from_ms + at_ms, 50_000)))
    };
    let mut first = watch();
    assert_eq!(isolate(&mut first, 0), [(2, 'i'), (32, 'i')]);
    let mut second = Watch::resume(Thresholds::default(), first.waits());
    let quiet = |at_ms| shared(41 * MINUTE_MS + at_ms, 300);
    let finer = advice(&found(&mut second, 5 * HOUR_MS, quiet));
    assert_eq!(finer.first(), Some(&(239, 'f')), "four hours after contention was last seen");
    // A clock that begins at 0 again: the waits begin with it.
    let mut third = Watch::resume(Thresholds::default(), first.waits());
    assert_eq!(isolate(&mut third, 0), [(30, 'i')]);
    // The same watch, its clock set back every 20 min.
    let mut fourth = watch();
    let times: usize = (0..9)
        .map(|_| found(&mut fourth, 20 * MINUTE_MS, |at_ms| served(at_ms, 50_000)).len())
        .sum();
    assert_eq!(times, 1, "a cool-down never passes");
}

#[test]
fn a_gpu_that_nobody_else_could_use_is_not_to_be_shared_finer() {
    let own = |at_ms| {
        let mut sample = shared(at_ms, 300);
        sample.tenants[1].exclusive = true;
        sample
    };
    assert_eq!(found(&mut watch(), 3 * HOUR_MS, own), [], "asked for one of its own");
    let holding = |held_mib: u64, memory_total_mib: u64| {
        move |at_ms| {
            let mut sample = Sample { memory_total_mib, ..shared(at_ms, 300) };
            (sample.tenants[0].memory_mib, sample.tenants[0].memory_cap_mib) = (held_mib, 80_000);
            sample
        }
    };
    assert_eq!(found(&mut watch(), 3 * HOUR_MS, holding(72_000, 80_000)), [], "no memory left");
    assert_eq!(
        found(&mut watch(), 3 * HOUR_MS, holding(u64::MAX, 80_000)),
        [],
        "more than there is"
    );
    assert_eq!(found(&mut watch(), 3 * HOUR_MS, holding(60_000, 80_000)).len(), 6);
    assert_eq!(found(&mut watch(), 3 * HOUR_MS, holding(60_000, 0)).len(), 6, "not known");
}

#[test]
fn more_tenants_are_not_advised_where_one_is_in_trouble() {
    // A leak that comes back whenever it is at the cap.
    let leak = |at_ms: u64| {
        let mut sample = shared(at_ms, 300);
        sample.tenants[0].memory_mib = 34_000 + at_ms / 100 % 6_000;
        sample
    };
    let leaking = found(&mut watch(), 3 * HOUR_MS, leak);
    assert!(!leaking.is_empty() && advice(&leaking).is_empty(), "{leaking:?}");
}

#[test]
fn a_load_that_swings_at_any_period_turns_advice_twice_in_four_hours_at_most() {
    for period_ms in [20_000, 70_000, 250_000, 20 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS, 11 * HOUR_MS] {
        let load = |at_ms: u64| match at_ms % period_ms * 2 / period_ms {
            0 => idle(at_ms),
            _ => served(at_ms, 50_000),
        };
        let found = advice(&found(&mut watch(), 72 * HOUR_MS, load));
        for turn in found.windows(2) {
            let least_min = if turn[0].1 == 'i' && turn[1].1 == 'f' { 238 } else { 30 };
            assert!(turn[1].0 - turn[0].0 >= least_min, "{period_ms}: {turn:?}");
        }
    }
}
