//! What containers ask, and what becomes of their pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::{Value, json};

use super::classes::ClassNames;
use super::{name, pod, resources};
use crate::names;
use crate::share::GpuShare;

fn class(name: &str, more: Value) -> Arc<DeviceClass> {
    let opaque = json!({"driver": names::DRIVER, "parameters": GpuShare::new()});
    let mut spec = json!({"config": [{"opaque": opaque}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let class = json!({"metadata": {"name": name}, "spec": spec});
    Arc::new(serde_json::from_value(class).unwrap())
}

fn classes() -> ClassNames {
    ClassNames::of(&[
        class(names::CLASS, json!({})),
        class("small", json!({"extendedResourceName": "hotpot.dev/small"})),
        class("nic", json!({"config": [], "extendedResourceName": "example.com/nic"})),
    ])
}

/// A container with limits.
fn container(name: &str, limits: &Value) -> Value {
    json!({"name": name, "image": "i", "resources": {"limits": limits}})
}

/// The names of the templates that a pod's containers are given, in their order, or why none is.
fn read(spec: Value) -> Result<Vec<String>, String> {
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    let asking = resources::read(&spec, &classes())?;
    Ok(asking.found.iter().map(|found| name::of(&found.ask)).collect())
}

fn one(limits: Value) -> Result<String, String> {
    let mut all = read(json!({"containers": [container("c", &limits)]}))?;
    assert!(all.len() < 2);
    Ok(all.pop().unwrap_or_default())
}

#[test]
fn resource_names_ask_what_they_ask_elsewhere() {
    for (limits, template) in [
        (json!({"cpu": "1"}), ""),
        (json!({"example.com/nic": "1"}), ""),
        (json!({"nvidia.com/gpu": "0"}), ""),
        (json!({"nvidia.com/gpu": "2"}), "hotpot-2xcard"),
        (json!({"nvidia.com/gpu": "2k", "cpu": "1"}), "!2000 cards"),
        (json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10240"}), "hotpot-1x10240mib"),
        (
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10240", "nvidia.com/gpucores": "30"}),
            "hotpot-1x10240mib-300m",
        ),
        (json!({"nvidia.com/gpumem": "3k"}), "hotpot-1x3000mib"),
        (json!({"nvidia.com/gpucores": "100"}), "hotpot-1x1000m"),
        (json!({"nvidia.com/gpu": "2", "nvidia.com/gpucores": "0"}), "hotpot-2xcard"),
        (json!({"nvidia.com/mig-1g.10gb": "3"}), "hotpot-3xmig-1g-10gb"),
        (json!({"nvidia.com/mig-1g.10gb.me": "1"}), "hotpot-1xmig-1g-10gb-me"),
        (json!({"hotpot.dev/small": "2"}), "hotpot-small-9df478fe-2xcard"),
        (json!({"deviceclass.resource.kubernetes.io/small": "2"}), "hotpot-small-9df478fe-2xcard"),
        (json!({"deviceclass.resource.kubernetes.io/gpu.hotpot.dev": "1"}), "hotpot-1xcard"),
        (json!({"deviceclass.resource.kubernetes.io/nic": "1"}), ""),
        (json!({"nvidia.com/gpumem": "-1"}), "!`-1` is no amount"),
        (json!({"nvidia.com/gpu": "500m"}), "!whole number"),
        (json!({"nvidia.com/gpumem": "10Gi"}), "!10 GiB are 10240"),
        (json!({"nvidia.com/gpucores": "101"}), "!at most 100"),
        (json!({"nvidia.com/gpu": "0", "nvidia.com/gpumem": "5"}), "!ask 1"),
        (json!({"nvidia.com/gpumem-percentage": "50"}), "!nvidia.com/gpumem, as cards differ"),
        (json!({"nvidia.com/gpu": "1", "nvidia.com/priority": "1"}), "!priorityClassName"),
        (json!({"nvidia.com/gpu.shared": "1"}), "!a part of a card"),
        (json!({"nvidia.com/gpu.shared": "1"}), "!hotpot.dev/webhook: ignore"),
        (json!({"nvidia.com/mig-big": "1"}), "!no MIG profile"),
        (json!({"hotpot.dev/large": "1"}), "!hotpot.dev/small, deviceclass"),
        (json!({"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}), "!two kinds"),
        (json!({"hotpot.dev/small": "1", "nvidia.com/gpumem": "5"}), "!two kinds"),
    ] {
        let read = one(limits.clone());
        match template.strip_prefix('!') {
            None => assert_eq!(read.as_deref(), Ok(template), "{limits}"),
            Some(part) => {
                let why = read.expect_err(&limits.to_string());
                assert!(why.starts_with("container c: ") && why.contains(part), "{why}");
            }
        }
    }
}

#[test]
fn a_request_counts_where_there_is_no_limit_and_else_must_be_the_same() {
    let of = |resources: Value| {
        read(json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}))
    };
    let asks = |amount: &str| json!({"nvidia.com/gpu": amount});
    assert_eq!(of(json!({"requests": asks("2")})).unwrap(), ["hotpot-2xcard"]);
    assert_eq!(of(json!({"requests": asks("2"), "limits": asks("2")})).unwrap(), ["hotpot-2xcard"]);
    let why = of(json!({"requests": asks("1"), "limits": asks("2")})).unwrap_err();
    assert!(why.contains("must be the same"), "{why}");
}

#[test]
fn containers_of_one_pod_ask_the_same_of_each_card() {
    let of = |limits: [Value; 2]| {
        read(json!({"containers": [container("a", &limits[0]), container("b", &limits[1])]}))
    };
    let cards = |count: &str| json!({"nvidia.com/gpu": count});
    assert_eq!(of([cards("1"), cards("2")]).unwrap(), ["hotpot-1xcard", "hotpot-2xcard"]);
    let why = of([cards("1"), json!({"nvidia.com/gpumem": "5"})]).unwrap_err();
    assert!(why.starts_with("containers a and b ask for different things"), "{why}");
    assert!(why.contains("5 MiB") && why.contains("two pods"), "{why}");
}

#[test]
fn nothing_is_ours_where_our_class_is_not() {
    let spec = json!({"containers": [container("c", &json!({"nvidia.com/gpu": "1", "nvidia.com/priority": "1"}))]});
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    let none = ClassNames::of(&[class("nic", json!({"config": []}))]);
    assert_eq!(resources::read(&spec, &none), Ok(resources::Asking::default()));
}

#[test]
fn nvidias_names_mean_the_class_that_is_called_so() {
    let own = class("whole", json!({"extendedResourceName": "nvidia.com/gpu"}));
    let names = ClassNames::of(&[class(names::CLASS, json!({})), own]);
    assert_eq!(names.of_cards(), Some("whole"));
    assert_eq!(names.class_of("nvidia.com/gpu"), Some("whole"));
}

#[test]
fn what_is_odd_is_let_in_with_a_warning() {
    let odd = json!({
        "name": "c", "resources": {"limits": {"nvidia.com/gpucores": "10"}},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], "securityContext": {"privileged": true},
    });
    let spec: PodSpec = serde_json::from_value(json!({"containers": [odd]})).unwrap();
    let warnings = resources::read(&spec, &classes()).unwrap().warnings;
    for part in ["in proportion", "NVIDIA_VISIBLE_DEVICES", "privileged"] {
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{part}: {warnings:?}");
    }
}

/// A pod as it is after translation.
fn translated(spec: Value) -> Value {
    let read: PodSpec = serde_json::from_value(spec.clone()).unwrap();
    let found = resources::read(&read, &classes()).unwrap().found;
    let mut all = json!({"spec": spec});
    pod::translate(&mut all, &found);
    pod::gate(&mut all);
    pod::gate(&mut all);
    all["spec"].take()
}

#[test]
fn claims_stand_in_the_place_of_resources_and_all_else_stays() {
    let limits = json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "5", "cpu": "2"});
    let mut asks = container("c", &limits);
    asks["resources"]["requests"] = json!({"nvidia.com/gpu": "1"});
    asks["fieldOfTomorrow"] = json!(true);
    let other = json!({"name": "other", "image": "i"});
    let spec = translated(json!({"containers": [other, asks], "restartPolicy": "Never"}));
    let expected = json!({
        "containers": [
            {"name": "other", "image": "i"},
            {
                "name": "c", "image": "i", "fieldOfTomorrow": true,
                "resources": {"limits": {"cpu": "2"}, "claims": [{"name": "hotpot"}]},
            },
        ],
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "hotpot", "resourceClaimTemplateName": "hotpot-1x5mib"}],
        "schedulingGates": [{"name": "hotpot.dev/placement"}],
    });
    assert_eq!(spec, expected);
}

#[test]
fn each_container_has_a_claim_of_its_own_but_for_init_containers_that_end_first() {
    let asks = |name: &str, count: &str| container(name, &json!({"nvidia.com/gpu": count}));
    let mut sidecar = asks("sidecar", "1");
    sidecar["restartPolicy"] = json!("Always");
    let spec = translated(json!({
        "initContainers": [asks("fetch", "1"), sidecar, asks("wide", "4")],
        "containers": [asks("a", "1"), asks("b", "2")],
        "resourceClaims": [{"name": "hotpot-2", "resourceClaimName": "mine"}],
        "schedulingGates": [{"name": "other"}],
    }));
    let claim = |of: &Value| of["resources"]["claims"][0]["name"].as_str().unwrap().to_owned();
    let all = |list: &str| spec[list].as_array().unwrap().iter().map(claim).collect::<Vec<_>>();
    assert_eq!(all("containers"), ["hotpot-3", "hotpot-4"]);
    assert_eq!(all("initContainers"), ["hotpot-1", "hotpot-1", "hotpot-5"]);
    let templates: Vec<_> = spec["resourceClaims"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|claim| claim["resourceClaimTemplateName"].as_str())
        .collect();
    assert_eq!(templates, ["hotpot-1xcard", "hotpot-1xcard", "hotpot-2xcard", "hotpot-4xcard"]);
    assert_eq!(spec["schedulingGates"].as_array().unwrap().len(), 2);
}
