//! Names come from the kubelet, and only where a share is one container's.

use model::Share;
use node::backend::Enforcement;
use node::grant::Grant;

use super::super::checkpoint::{Hold, Prepared};
use super::super::proto::pod_resources::{
    CdiDevice, ClaimResource, ContainerResources, DynamicResource,
};
use super::*;

const ONE: &str = "0d7b1c5a-1f0e-4c52-a4b2-0f3d6f9f1a01";
const OTHER: &str = "0d7b1c5a-1f0e-4c52-a4b2-0f3d6f9f1a02";

fn container(name: &str, driver: &str, device: &str) -> ContainerResources {
    let claim_resources = vec![ClaimResource {
        cdi_devices: vec![CdiDevice { name: device.to_owned() }],
        driver_name: driver.to_owned(),
    }];
    let resource = DynamicResource {
        claim_name: "c".into(),
        claim_namespace: "elsewhere".into(),
        claim_resources,
    };
    ContainerResources { name: name.to_owned(), dynamic_resources: vec![resource] }
}

fn pod(name: &str, containers: Vec<ContainerResources>) -> PodResources {
    PodResources { name: name.to_owned(), namespace: "team".into(), containers }
}

fn claims() -> Claims {
    let grant = Grant {
        gpu: "GPU-1".into(),
        share: Share::MemoryCapped { memory_mib: 2048, compute_milli: 250 },
        device: "GPU-1".into(),
        env: Vec::new(),
        cgroup: None,
        ledger: Some("/l".into()),
        hold: 7,
        memory: Enforcement::Cooperative,
        compute: Enforcement::Cooperative,
    };
    let watches = Hold { of: vec![1], grant: None };
    let holds = vec![Hold { of: vec![0], grant: Some(grant) }, watches];
    let claim =
        |name: &str| Prepared { name: name.into(), given: Vec::new(), holds: holds.clone() };
    [(ONE.to_owned(), claim("team/one")), (OTHER.to_owned(), claim("team/other"))].into()
}

fn names(pods: &[PodResources]) -> Vec<[String; 4]> {
    let found = occupants(&claims(), &users(pods)).into_iter();
    found.map(|one| [one.pod.namespace, one.pod.claim, one.pod.pod, one.pod.container]).collect()
}

#[test]
fn a_share_is_its_containers_by_the_names_that_we_gave_its_devices() {
    let ours = |container_name: &str, uid: &str| {
        container(container_name, names::DRIVER, &cdi::id(uid, 0))
    };
    let pods = [
        pod("a", vec![ours("main", ONE), ours("side", OTHER)]),
        pod("b", vec![container("main", "gpu.example.org", &cdi::id(OTHER, 0))]),
        pod("c", vec![container("main", names::DRIVER, &format!("example.org/gpu={OTHER}-0"))]),
    ];
    assert_eq!(names(&pods), [["team", "one", "a", "main"], ["team", "other", "a", "side"]]);
    let seat = &occupants(&claims(), &users(&pods))[0];
    assert_eq!((seat.share.memory_mib, seat.share.compute_milli), (2048, 250));
}

#[test]
fn of_several_that_have_a_claim_none_is_named() {
    let ours = |container_name: &str| container(container_name, names::DRIVER, &cdi::id(ONE, 0));
    let two = [pod("a", vec![ours("main"), ours("side")])];
    assert_eq!(names(&two)[0], ["team", "one", "a", ""]);
    let pods = [pod("a", vec![ours("main")]), pod("b", vec![ours("main")])];
    assert_eq!(names(&pods)[0], ["team", "one", "", ""]);
    assert_eq!(names(&[])[0], ["team", "one", "", ""]);
}
