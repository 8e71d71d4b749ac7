//! What claims ask, and what is said of what cannot be granted.

use serde_json::{Value, json};

use super::*;

fn classes() -> Classes {
    let class = |name: &str, parameters: Value| {
        let spec =
            json!({"config": [{"opaque": {"driver": names::DRIVER, "parameters": parameters}}]});
        let class = json!({"metadata": {"name": name}, "spec": spec});
        Arc::new(serde_json::from_value(class).unwrap())
    };
    let foreign = json!({"metadata": {"name": "nic"}, "spec": {}});
    Classes::of(&[
        class("gpu", json!(GpuShare::new())),
        class(
            "small",
            json!({"apiVersion": "hotpot.dev/v1", "kind": "GpuShare", "memoryMiB": 4096, "models": ["a100"]}),
        ),
        Arc::new(serde_json::from_value(foreign).unwrap()),
    ])
}

/// What a claim of one request asks, with a configuration for it.
fn asked(exactly: Value, config: Value) -> Result<Asked, String> {
    let given = (!config.is_null()).then_some(config);
    let config: Vec<Value> = given
        .into_iter()
        .map(|given| json!({"opaque": {"driver": names::DRIVER, "parameters": given}}))
        .collect();
    let claim = json!({"metadata": {}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}], "config": config}}});
    classes().asked(&serde_json::from_value(claim).unwrap()).map(|mut all| all.remove(0))
}

fn share(more: Value) -> Value {
    let mut share = json!(GpuShare::new());
    share.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    share
}

#[test]
fn amounts_come_from_the_request_then_the_claim_then_the_class() {
    let of = |exactly, config| asked(exactly, config).unwrap().each.each;
    let part = |compute_milli, memory_mib| GpuAsk::Fraction { compute_milli, memory_mib };
    assert_eq!(of(json!({"deviceClassName": "gpu"}), Value::Null), GpuAsk::Whole);
    let amounts = json!({"requests": {"memory": "10Gi", "compute": "300m"}});
    assert_eq!(
        of(json!({"deviceClassName": "gpu", "capacity": amounts}), Value::Null),
        part(300, 10_240)
    );
    assert_eq!(of(json!({"deviceClassName": "small"}), Value::Null), part(0, 4096));
    assert_eq!(
        of(json!({"deviceClassName": "small"}), share(json!({"memoryMiB": 2048}))),
        part(0, 2048)
    );
    let more = json!({"requests": {"memory": "1Gi"}});
    assert_eq!(
        of(
            json!({"deviceClassName": "small", "capacity": more}),
            share(json!({"memoryMiB": 2048}))
        ),
        part(0, 1024)
    );
    let profile = of(json!({"deviceClassName": "gpu"}), share(json!({"profile": "1g.10gb"})));
    assert_eq!(profile, GpuAsk::Profile("1g.10gb".into()));
    let two = asked(
        json!({"deviceClassName": "small", "count": 2}),
        share(json!({"sharing": "memory-capped", "class": "service"})),
    )
    .unwrap();
    assert_eq!(
        (two.each.count, two.class, two.each.modes),
        (2, Some(Class::Service), ModeSet::of(&[SharingKind::MemoryCapped]))
    );
    assert_eq!(two.each.accepts, [ModelSet::parse("a100")]);
    let held = asked(json!({"deviceClassName": "small"}), Value::Null).unwrap().each.modes;
    assert!(!held.contains(SharingKind::TimeSlice) && held.contains(SharingKind::Mps));
    let whole = asked(json!({"deviceClassName": "gpu"}), Value::Null).unwrap().each.modes;
    assert_eq!(whole, ModeSet::ALL);
}

#[test]
fn what_cannot_be_granted_is_said() {
    said([
        (json!({"deviceClassName": "nic"}), Value::Null, "is not one of hotpot's"),
        (json!({"deviceClassName": "gpu", "allocationMode": "All"}), Value::Null, "give a count"),
        (json!({"deviceClassName": "gpu", "count": 33}), Value::Null, "1 to 32"),
        (json!({"deviceClassName": "gpu", "adminAccess": true}), Value::Null, "stock allocator"),
        (
            json!({"deviceClassName": "gpu", "capacity": {"requests": {"compute": "2"}}}),
            Value::Null,
            "at most 1",
        ),
        (
            json!({"deviceClassName": "gpu", "capacity": {"requests": {"memory": "-1"}}}),
            Value::Null,
            "no amount",
        ),
        (
            json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}]}),
            Value::Null,
            "selectors",
        ),
        (
            json!({"deviceClassName": "gpu", "capacity": {"requests": {"memory": "0"}}}),
            Value::Null,
            "more than 0",
        ),
        (
            json!({"deviceClassName": "gpu", "capacity": {"requests": {"mem": "10Gi"}}}),
            Value::Null,
            "`mem` is no capacity",
        ),
        (json!({"deviceClassName": "gpu"}), share(json!({"computeMilli": 0})), "how much"),
        (json!({"deviceClassName": "gpu"}), share(json!({"sharing": "memory-capped"})), "how much"),
        (
            json!({"deviceClassName": "small"}),
            share(json!({"profile": "1g.10gb"})),
            "leave out memory",
        ),
        (
            json!({"deviceClassName": "small", "count": 2}),
            share(json!({"sharing": "mps"})),
            "one card",
        ),
        (
            json!({"deviceClassName": "gpu"}),
            share(json!({"sharing": "magic"})),
            "there are exclusive, time-slice, mps",
        ),
        (
            json!({"deviceClassName": "gpu"}),
            share(json!({"apiVersion": "hotpot.dev/v2"})),
            "knows hotpot.dev/v1 GpuShare, and not hotpot.dev/v2",
        ),
        (
            json!({"deviceClassName": "gpu", "capacity": {"requests": {"memory": "10"}}}),
            Value::Null,
            "10 bytes are less than 1Mi",
        ),
    ]);
}

#[test]
fn what_is_said_wrongly_is_said() {
    said([
        (json!({"deviceClassName": "gpu"}), share(json!({"epoch": 3})), "not for claims to say"),
        (json!({"deviceClassName": "gpu"}), share(json!({"memory": 3})), "unknown field"),
    ]);
}

/// What is said of each ask, in part.
fn said<const N: usize>(cases: [(Value, Value, &str); N]) {
    for (exactly, config, part) in cases {
        let said = asked(exactly, config).unwrap_err();
        assert!(said.contains(part), "{said}");
    }
}
