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
fn profiles_that_fit_into_the_time_do_not_hurt() {
    let busy = |milli| Tenant {
        profile: Profile { busy_milli: Some(milli), ..Profile::default() },
        ..Tenant::default()
    };
    let told = |a, b| {
        Interference::default().predict(SharingKind::TimeSlice, "v100", &[busy(a), busy(b)])[0]
    };
    assert!(told(400, 500).speed > 0.97 && told(400, 500).basis == Basis::Profile);
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
fn the_same_tenants_run_alike() {
    let model = Interference::shipped().unwrap();
    let told = speeds(&model, SharingKind::Mps, &["bert (batch 8)"; 3]);
    assert!(told[0] < 1.0 && told.iter().all(|speed| speed.to_bits() == told[0].to_bits()));
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
