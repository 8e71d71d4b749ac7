//! The model at its edges.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;

fn tenant(kind: &str) -> Tenant<'_> {
    Tenant { kind, ..Tenant::default() }
}

fn seen(kind: &str, others: &[&str], speed: f64) -> Observation {
    let others = others.iter().map(ToString::to_string).collect();
    Observation {
        mode: SharingKind::TimeSlice,
        gpu: "v100".into(),
        kind: kind.into(),
        others,
        slice: None,
        speed,
    }
}

fn speeds(model: &Interference, mode: SharingKind, kinds: &[&str]) -> Vec<f64> {
    let tenants: Vec<_> = kinds.iter().map(|kind| tenant(kind)).collect();
    model.predict(mode, "v100", &tenants).iter().map(|told| told.speed).collect()
}

#[test]
fn alone_is_full_speed_and_nothing_known_is_equal_turns() {
    let model = Interference::default();
    assert_eq!(speeds(&model, SharingKind::TimeSlice, &["a"]), [1.0]);
    let told = model.predict(SharingKind::TimeSlice, "v100", &[tenant(""); 4]);
    assert!(
        told.iter().all(|told| (told.speed - 0.25).abs() < 1e-9 && told.basis == Basis::Nothing)
    );
    assert!(told[0].spread > 0.3, "{}", told[0].spread);
}

#[test]
fn profiles_that_fit_into_the_time_hardly_hurt() {
    let busy = |milli| Tenant {
        profile: Profile { busy_milli: Some(milli), ..Profile::default() },
        ..Tenant::default()
    };
    let told = |a, b| {
        Interference::default().predict(SharingKind::TimeSlice, "v100", &[busy(a), busy(b)])[0]
    };
    assert!(told(250, 250).speed > 0.98 && told(250, 250).basis == Basis::Profile);
    assert!((told(450, 475).speed - 0.88).abs() < 0.02, "Lucid, ASPLOS'23");
    assert!((told(1000, 1000).speed - 0.5).abs() < 1e-9);
}

#[test]
fn one_learns_from_what_is_observed_and_grows_surer() {
    let mut model = Interference::default();
    let before = model.predict(SharingKind::TimeSlice, "v100", &[tenant("a"), tenant("b")])[0];
    (0..20).for_each(|_| model.observe(&seen("a", &["b"], 0.8)));
    let after = model.predict(SharingKind::TimeSlice, "v100", &[tenant("a"), tenant("b")])[0];
    assert!((after.speed - 0.8).abs() < 0.02 && after.basis == Basis::Pair, "{after:?}");
    assert!(after.spread < before.spread / 2.0, "{after:?} {before:?}");
}

#[test]
fn more_tenants_never_run_faster() {
    let model = Interference::shipped().unwrap();
    let kinds = [
        "LM (batch size 5)",
        "A3C",
        "ResNet-50 (batch size 64)",
        "",
        "bert (batch 8)",
        "A3C",
        "new",
        "LM (batch size 80)",
    ];
    for mode in [SharingKind::TimeSlice, SharingKind::Mps, SharingKind::MemoryCapped] {
        let mut last = 1.0;
        for count in 1..=kinds.len() {
            let speed = speeds(&model, mode, &kinds[..count])[0];
            assert!(speed <= last && speed >= SPEED_MIN, "{mode} {count}: {speed} after {last}");
            last = speed;
        }
    }
}

#[test]
fn what_was_measured_of_a_model_counts_for_its_members() {
    let mut model = Interference::shipped().unwrap();
    let pair = [tenant("A3C"), tenant("LM (batch size 5)")];
    let told = |model: &Interference, gpu| model.predict(SharingKind::TimeSlice, gpu, &pair)[0];
    assert_eq!(told(&model, "v100"), told(&model, "v100m16"));
    assert_ne!(told(&model, "v100"), told(&model, "v10"));
    (0..40).for_each(|_| {
        model.observe(&Observation {
            gpu: "v100m16".into(),
            ..seen("A3C", &["LM (batch size 5)"], 0.3)
        })
    });
    assert!(told(&model, "v100").speed < 0.4, "observed on one, known of the other");
}

#[test]
fn the_same_tenants_run_alike() {
    let model = Interference::shipped().unwrap();
    let told = speeds(&model, SharingKind::Mps, &["bert (batch 8)"; 3]);
    assert!(told[0] < 1.0 && told.iter().all(|speed| speed.to_bits() == told[0].to_bits()));
}

/// Speed of the first of equal clients under MPS.
fn client(model: &Interference, gpu: &str, kind: &str, count: usize) -> f64 {
    let tenants = alloc::vec![tenant(kind); count];
    model.predict(SharingKind::Mps, gpu, &tenants)[0].speed
}

#[test]
fn clients_never_seen_are_told_by_their_batch_size_and_their_part_of_the_gpu() {
    let model = Interference::shipped().unwrap();
    let whole = |kind| client(&model, "a100-80gb", kind, 2);
    assert!(whole("new (batch 1)") > 0.9 && whole("new (batch size 128)") < 0.55);
    let same = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(same(whole("new (batch 8)"), whole("other (batch size 8)")));
    assert!(client(&model, "a100-80gb/1", "new (batch 4)", 2) < whole("new (batch 4)") - 0.1);
    let unnamed = whole("new");
    assert!(unnamed < whole("new (batch 1)") && unnamed > whole("new (batch size 128)"));
    assert!(same(unnamed, whole("new (batch 0)")));
    let turns = |kind| speeds(&model, SharingKind::TimeSlice, &[kind; 2]);
    assert_eq!(turns("new (batch 1)"), turns("new (batch 128)"));
}

#[test]
fn a_batch_size_says_nothing_to_a_model_that_was_shown_none() {
    for model in [Interference::default(), Interference::fit(&[seen("a", &["b"], 0.7)])] {
        assert!((client(&model, "v100", "new (batch 1)", 4) - 0.25).abs() < 1e-9);
    }
}

#[test]
fn what_is_observed_outweighs_the_batch_size() {
    let mut model = Interference::shipped().unwrap();
    let of = |speed| Observation {
        mode: SharingKind::Mps,
        ..seen("llm (batch 1)", &["llm (batch 1)", "bert (batch 8)"], speed)
    };
    (0..30).for_each(|_| model.observe(&of(0.4)));
    let kinds = ["llm (batch 1)", "llm (batch 1)", "bert (batch 8)"];
    let told = speeds(&model, SharingKind::Mps, &kinds)[0];
    assert!((told - 0.4).abs() < 0.03, "{told}");
}

/// Median and p90 of absolute errors.
fn ranks(mut errors: Vec<f64>) -> [f64; 2] {
    errors.sort_by(f64::total_cmp);
    [500, 900].map(|milli| errors[errors.len() * milli / 1000])
}

#[test]
fn a_model_held_out_under_mps_is_told_better_than_by_equal_parts_or_by_the_mean() {
    let all = shipped::read(shipped::TABLE).unwrap();
    let all: Vec<_> = all.into_iter().filter(|seen| seen.mode == SharingKind::Mps).collect();
    let (mut ours, mut equal, mut by_mean) = (Vec::new(), Vec::new(), Vec::new());
    let families: alloc::collections::BTreeSet<&str> =
        all.iter().map(|seen| terms::family(&seen.kind)).collect();
    for out in families {
        let (tested, shown): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|seen| terms::family(&seen.kind) == out);
        let mean = shown.iter().map(|seen| seen.speed).sum::<f64>() / shown.len() as f64;
        let model = Interference::fit(&shown);
        for seen in tested {
            let count = seen.others.len() + 1;
            ours.push((client(&model, &seen.gpu, &seen.kind, count) - seen.speed).abs());
            equal.push((1.0 / count as f64 - seen.speed).abs());
            by_mean.push((mean - seen.speed).abs());
        }
    }
    let (ours, equal, by_mean) = (ranks(ours), ranks(equal), ranks(by_mean));
    assert!((0..2).all(|at| ours[at] < 0.85 * equal[at].min(by_mean[at])), "{ours:?}");
}

#[test]
fn whoever_was_observed_longest_ago_is_forgotten() {
    let mut model = Interference::default();
    model.observe(&seen("first", &["first"], 0.9));
    for at in 0..KINDS_MAX {
        let name = alloc::format!("kind-{at}");
        model.observe(&seen(&name, &[&name], 0.6));
    }
    let basis = |kind| {
        model.predict(SharingKind::TimeSlice, "v100", &[tenant(kind), tenant(kind)])[0].basis
    };
    assert_eq!(basis("first"), Basis::Nothing);
    assert_eq!(basis(&alloc::format!("kind-{}", KINDS_MAX - 1)), Basis::Pair);
}

#[test]
fn the_same_observations_give_the_same_model() {
    let learn = || {
        let mut model = Interference::shipped().unwrap();
        (0..50).for_each(|at| {
            model.observe(&seen("a", &["b", "LM (batch size 5)"], 0.3 + 0.01 * f64::from(at)))
        });
        model
    };
    assert_eq!(learn(), learn());
}

#[test]
fn an_instance_that_has_what_is_needed_does_not_hurt() {
    let model = Interference::shipped().unwrap();
    let slice = Some(InstanceShare { compute_milli: 285, memory_milli: 250 });
    let on = |kind, sm_milli| {
        let profile = Profile { sm_milli, ..Profile::default() };
        let tenant = Tenant { kind, profile, slice, ..Tenant::default() };
        model.predict(SharingKind::Mig, "a100-80gb", &[tenant])[0]
    };
    assert!(on("", Some(250)).speed > 0.99 && on("", Some(250)).basis == Basis::Profile);
    assert!((on("never seen", Some(570)).speed - 0.5).abs() < 0.01);
    assert!(on("", None).speed < 0.6, "nothing known: as those that were measured");
    assert!(on("resnet50 (batch 128)", Some(250)).speed < 1.0);
}

#[test]
fn whoever_is_waited_for_loses_the_time_of_others() {
    let told = |is_waited_for| {
        let busy = |busy_milli| Profile { busy_milli: Some(busy_milli), ..Profile::default() };
        let one = Tenant { profile: busy(70), is_waited_for, ..Tenant::default() };
        let other = Tenant { profile: busy(500), ..Tenant::default() };
        Interference::default().predict(SharingKind::MemoryCapped, "t4", &[one, other])[0].speed
    };
    assert!((told(true) - 1.0 / 1.5).abs() < 1e-9);
    assert!(told(false) > 0.97, "it catches up while the other is idle");
}

#[test]
fn many_light_tenants_hurt_by_what_they_take_together() {
    let light = Tenant {
        profile: Profile { busy_milli: Some(20), ..Profile::default() },
        ..Tenant::default()
    };
    let told = |count: usize| {
        let all = alloc::vec![light; count];
        Interference::default().predict(SharingKind::MemoryCapped, "t4", &all)[0].speed
    };
    assert!(told(10) > 0.99 && told(40) > 0.9, "{} {}", told(10), told(40));
    assert!((told(100) - 0.5).abs() < 0.01, "twice as much is asked as there is");
}

#[test]
fn a_cap_below_what_it_takes_slows_even_one_alone() {
    let profile = Profile { busy_milli: Some(800), ..Profile::default() };
    let capped = Tenant { profile, cap_milli: 400, ..Tenant::default() };
    let told = Interference::default().predict(SharingKind::MemoryCapped, "t4", &[capped]);
    assert!((told[0].speed - 0.5).abs() < 1e-9);
}
