//! CPU and memory of nodes and pods, as the stock scheduler counts them. Pure.

use k8s_openapi::api::core::v1::{Container, Node, Pod, ResourceRequirements};

use super::fleet::Host;
use crate::quantity::{self, MIB};

/// What a node has for pods.
pub(super) fn allocatable(node: &Node) -> Host {
    let all = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = |name: &str| all.and_then(|all| all.get(name));
    Host {
        cpu_milli: amount("cpu").and_then(quantity::milli).unwrap_or_default(),
        memory_mib: amount("memory").and_then(quantity::whole).unwrap_or_default() / MIB,
    }
}

/// What a pod asks: of its containers together or of an initial one alone, whichever is more, with those that stay beside and the overhead of
/// its runtime (Kubernetes documentation, "Sidecar Containers", resource sharing).
pub(super) fn asked(pod: &Pod) -> Host {
    let Some(spec) = &pod.spec else { return Host::default() };
    let mut beside = Host::default();
    let mut first = Host::default();
    for container in spec.init_containers.iter().flatten() {
        let own = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            beside = plus(beside, own);
            first = most(first, beside);
        } else {
            first = most(first, plus(beside, own));
        }
    }
    let together = spec.containers.iter().map(of_container).fold(beside, plus);
    let of_pod = spec.resources.as_ref().map(of_requirements).unwrap_or_default();
    let overhead = spec.overhead.as_ref();
    let overhead = Host {
        cpu_milli: overhead
            .and_then(|all| all.get("cpu"))
            .and_then(quantity::milli)
            .unwrap_or_default(),
        memory_mib: overhead
            .and_then(|all| all.get("memory"))
            .and_then(quantity::whole)
            .unwrap_or_default()
            .div_ceil(MIB),
    };
    plus(most(most(together, first), of_pod), overhead)
}

fn of_container(container: &Container) -> Host {
    container.resources.as_ref().map(of_requirements).unwrap_or_default()
}

fn of_requirements(resources: &ResourceRequirements) -> Host {
    let amount = |name: &str| resources.requests.as_ref().and_then(|all| all.get(name));
    Host {
        cpu_milli: amount("cpu").and_then(quantity::milli).unwrap_or_default(),
        memory_mib: amount("memory").and_then(quantity::whole).unwrap_or_default().div_ceil(MIB),
    }
}

fn plus(one: Host, other: Host) -> Host {
    Host {
        cpu_milli: one.cpu_milli.saturating_add(other.cpu_milli),
        memory_mib: one.memory_mib.saturating_add(other.memory_mib),
    }
}

fn most(one: Host, other: Host) -> Host {
    Host {
        cpu_milli: one.cpu_milli.max(other.cpu_milli),
        memory_mib: one.memory_mib.max(other.memory_mib),
    }
}

/// What is left.
pub(super) fn less(all: Host, taken: Host) -> Host {
    Host {
        cpu_milli: all.cpu_milli.saturating_sub(taken.cpu_milli),
        memory_mib: all.memory_mib.saturating_sub(taken.memory_mib),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asks(spec: Value) -> (u64, u64) {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let host = asked(&pod);
        (host.cpu_milli, host.memory_mib)
    }

    #[test]
    fn a_pod_asks_for_the_most_that_it_ever_needs() {
        let of = |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let beside = |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        assert_eq!(
            asks(json!({"containers": [of("500m", "1Gi"), of("1", "512Mi")]})),
            (1500, 1536)
        );
        let first = json!({"initContainers": [of("4", "64Mi")], "containers": [of("1", "1Gi")]});
        assert_eq!(asks(first), (4000, 1024));
        let sidecar =
            json!({"initContainers": [beside("1"), of("2", "0")], "containers": [of("1", "1Gi")]});
        assert_eq!(asks(sidecar), (3000, 1024), "2 beside 1 at first, then 1 beside 1");
        let overhead =
            json!({"containers": [of("1", "1Gi")], "overhead": {"cpu": "250m", "memory": "100Mi"}});
        assert_eq!(asks(overhead), (1250, 1124));
        assert_eq!(asks(json!({"containers": [{"name": "c"}]})), (0, 0));
    }
}
