//! Claims as allocators write them.

use serde_json::{Value, json};

use super::*;

fn claim(results: Value, config: Value) -> ResourceClaim {
    let devices = json!({"results": results, "config": config});
    let claim = json!({
        "metadata": {"namespace": "team", "name": "c", "uid": "u-1"},
        "spec": {},
        "status": {"allocation": {"devices": devices}},
    });
    serde_json::from_value(claim).unwrap()
}

fn result(request: &str) -> Value {
    json!({
        "request": request, "driver": names::DRIVER, "pool": "n1", "device": "gpu-1", "shareID": "s-1",
        "consumedCapacity": {"memory": "2Gi", "compute": "250m"},
    })
}

fn config(source: &str, requests: &[&str], parameters: Value) -> Value {
    json!({"source": source, "requests": requests, "opaque": {"driver": names::DRIVER, "parameters": parameters}})
}

fn share(memory_mib: u64) -> Value {
    json!({"apiVersion": "hotpot.dev/v1", "kind": "GpuShare", "sharing": "memory-capped", "memoryMiB": memory_mib})
}

#[test]
fn what_is_booked_and_what_the_controller_says_are_read() {
    let other = json!({"request": "nic", "driver": "net.example.com", "pool": "p", "device": "d"});
    let claim = claim(
        json!([result("gpu/large"), other]),
        json!([config("FromClass", &["gpu"], share(1024))]),
    );
    let [given] = &given(&claim, "u-1", "n1").unwrap()[..] else { panic!("ours alone") };
    assert_eq!((given.request.as_str(), given.share_id.as_deref()), ("gpu", Some("s-1")));
    assert_eq!(
        (given.memory_bytes, given.compute_milli, given.booked),
        (Some(2 << 30), Some(250), true)
    );
    assert_eq!(given.share.as_ref().unwrap().memory_mib, Some(1024));
}

#[test]
fn what_a_user_asks_for_is_no_answer_and_the_controllers_word_is_the_last() {
    let configs = json!([
        config("FromClass", &[], share(1)),
        config("FromClass", &["gpu"], share(2)),
        config("FromClass", &["other"], share(3)),
        config("FromClaim", &["gpu"], share(4)),
    ]);
    let claim_of = |configs| claim(json!([result("gpu")]), configs);
    let found = given(&claim_of(configs), "u-1", "n1").unwrap();
    assert_eq!(found[0].share.as_ref().unwrap().memory_mib, Some(2));
    let users = json!([config("FromClaim", &[], share(4))]);
    assert_eq!(given(&claim_of(users), "u-1", "n1").unwrap()[0].share, None);
}

#[test]
fn what_cannot_be_right_is_said() {
    let good = claim(json!([result("gpu")]), json!([]));
    let said = |claim: &ResourceClaim, uid, node| given(claim, uid, node).unwrap_err().to_string();
    assert!(said(&good, "u-2", "n1").contains("team/c is u-1, not u-2"));
    assert!(said(&good, "u-1", "n2").contains("is of node n1, and this is n2"));
    let none: ResourceClaim =
        serde_json::from_value(json!({"metadata": {"uid": "u-1"}, "spec": {}})).unwrap();
    assert!(said(&none, "u-1", "n1").contains("no allocation"));
    let mut odd = result("gpu");
    odd["consumedCapacity"]["memory"] = json!("-1");
    assert!(said(&claim(json!([odd]), json!([])), "u-1", "n1").contains("`-1` is no amount"));
    for (parameters, part) in [
        (json!({"apiVersion": "hotpot.dev/v1", "kind": "GpuShare", "memory": 1}), "memory"),
        (
            json!({"apiVersion": "hotpot.dev/v9", "kind": "GpuShare"}),
            "hotpot.dev/v9 GpuShare is not known",
        ),
        (json!("text"), "GpuShare"),
    ] {
        let claim = claim(json!([result("gpu")]), json!([config("FromClass", &[], parameters)]));
        let error = said(&claim, "u-1", "n1");
        assert!(error.contains(part) && error.contains("request gpu"), "{error}");
    }
}
