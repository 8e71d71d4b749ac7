//! What a pod asks of GPUs: its claims' requests as a demand of the engine. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use model::{Class, GpuAsk, GpuDemand, Isolation, ModeSet, ModelSet, SharingKind};
use serde::Deserialize;

use crate::quantity::MIB;
use crate::share::{self, GpuShare};
use crate::{names, quantity};

/// Devices of one request (API reference, ResourceClaim: 32 results a claim).
const COUNT_MAX: i64 = 32;

/// Our classes of devices: those with a configuration for our driver, which only administrators can write.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes(BTreeMap<String, GpuShare>);

/// What a request of ours asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The request's name.
    pub(super) request: String,
    /// How many devices, what of each, and in which ways.
    pub(super) each: GpuDemand,
    /// What kind of work it is for.
    pub(super) class: Option<Class>,
    /// Whose turn comes first.
    pub(super) priority: Option<i32>,
}

impl Classes {
    /// Reads classes; a configuration of ours that cannot be read counts as one that says nothing.
    pub(super) fn of(classes: &[Arc<DeviceClass>]) -> Self {
        let one = |class: &Arc<DeviceClass>| {
            let mut configs =
                class.spec.config.iter().flatten().filter_map(|config| config.opaque.as_ref());
            let ours = configs.rfind(|opaque| opaque.driver == names::DRIVER)?;
            let share =
                GpuShare::deserialize(&ours.parameters.0).unwrap_or_else(|_| GpuShare::new());
            Some((class.metadata.name.clone()?, share))
        };
        Self(classes.iter().filter_map(one).collect())
    }

    /// Whether any request of a claim is of one of them.
    pub(super) fn concern(&self, spec: &ResourceClaimSpec) -> bool {
        requests(spec)
            .any(|request| class_of(request).is_some_and(|name| self.0.contains_key(name)))
    }

    /// What a claim asks, request by request.
    ///
    /// # Errors
    /// What we cannot grant, in words for whoever wrote it.
    pub(super) fn asked(&self, claim: &ResourceClaim) -> Result<Vec<Asked>, String> {
        let devices = claim.spec.devices.as_ref();
        if devices
            .is_some_and(|devices| devices.constraints.as_ref().is_some_and(|all| !all.is_empty()))
        {
            return Err("constraints between devices are not supported for hotpot's devices".into());
        }
        requests(&claim.spec).map(|request| self.one(claim, request)).collect()
    }

    fn one(&self, claim: &ResourceClaim, request: &DeviceRequest) -> Result<Asked, String> {
        let name = &request.name;
        let exact = request.exactly.as_ref();
        let exact = exact.ok_or_else(|| format!("request {name}: firstAvailable is not supported; name models in GpuShare, in order of preference"))?;
        let of_class = self.0.get(&exact.device_class_name);
        let of_class = of_class.ok_or_else(|| {
            format!(
                "request {name}: class {} is not one of hotpot's; put it into a claim of its own",
                exact.device_class_name
            )
        })?;
        if exact.selectors.as_ref().is_some_and(|all| !all.is_empty()) {
            return Err(format!(
                "request {name}: selectors are not evaluated for hotpot's devices; name models in GpuShare"
            ));
        }
        let own = own_share(claim, name)?;
        let share = merged(of_class, &own);
        let each = each(&share, exact).map_err(|why| format!("request {name}: {why}"))?;
        let class = share.class.as_deref().map(|word| {
            Class::parse(word).ok_or_else(|| format!("request {name}: `{word}` is no class"))
        });
        Ok(Asked {
            request: name.clone(),
            each,
            class: class.transpose()?,
            priority: share.priority,
        })
    }
}

fn requests(spec: &ResourceClaimSpec) -> impl Iterator<Item = &DeviceRequest> {
    spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten())
}

fn class_of(request: &DeviceRequest) -> Option<&str> {
    let first =
        || request.first_available.as_ref()?.first().map(|one| one.device_class_name.as_str());
    request.exactly.as_ref().map(|exact| exact.device_class_name.as_str()).or_else(first)
}

/// What the claim's author says of the request's share.
fn own_share(claim: &ResourceClaim, request: &str) -> Result<GpuShare, String> {
    let configs = claim.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
    let configs = configs.map(|config| (&config.requests, &config.opaque));
    let Some(opaque) = share::configured(request, configs) else { return Ok(GpuShare::new()) };
    let share = GpuShare::deserialize(&opaque.parameters.0);
    let share = share.map_err(|error| format!("request {request}: GpuShare: {error}"))?;
    if share.start.is_some() {
        return Err(format!(
            "request {request}: GpuShare: where an instance starts is not for claims to say"
        ));
    }
    Ok(share)
}

/// The class's, where the claim says nothing.
fn merged(class: &GpuShare, own: &GpuShare) -> GpuShare {
    let (class, own) = (class.clone(), own.clone());
    GpuShare {
        sharing: own.sharing.or(class.sharing),
        memory_mib: own.memory_mib.or(class.memory_mib),
        compute_milli: own.compute_milli.or(class.compute_milli),
        profile: own.profile.or(class.profile),
        class: own.class.or(class.class),
        models: if own.models.is_empty() { class.models } else { own.models },
        priority: own.priority.or(class.priority),
        ..GpuShare::new()
    }
}

fn each(share: &GpuShare, exact: &ExactDeviceRequest) -> Result<GpuDemand, String> {
    if exact.allocation_mode.as_deref().is_some_and(|mode| mode != "ExactCount") {
        return Err("allocationMode All is not supported; give a count".into());
    }
    if exact.admin_access == Some(true) {
        return Err(
            "adminAccess is for the stock allocator; use a class without hotpot's configuration"
                .into(),
        );
    }
    let count = exact.count.unwrap_or(1);
    let count = u32::try_from(count).ok().filter(|_| (1..=COUNT_MAX).contains(&count));
    let count = count.ok_or_else(|| format!("count must be 1 to {COUNT_MAX}"))?;
    let capacity = |name: &str, read: fn(&_) -> Option<u64>| {
        let asked =
            exact.capacity.as_ref().and_then(|capacity| capacity.requests.as_ref()?.get(name));
        asked
            .map(|amount| {
                read(amount).ok_or_else(|| format!("{name}: `{}` is no amount", amount.0))
            })
            .transpose()
    };
    let memory_mib = capacity(names::MEMORY, quantity::whole)?
        .map(|bytes| bytes.div_ceil(MIB))
        .or(share.memory_mib);
    let compute = capacity(names::COMPUTE, quantity::milli)?.or(share.compute_milli.map(u64::from));
    let compute = compute
        .map(|milli| {
            u32::try_from(milli)
                .ok()
                .filter(|milli| *milli <= 1000)
                .ok_or("compute of a card is at most 1")
        })
        .transpose()?;
    let sharing = share
        .sharing
        .as_deref()
        .map(|word| {
            SharingKind::parse(word).ok_or_else(|| format!("`{word}` is no way of sharing"))
        })
        .transpose()?;
    let part = memory_mib.is_some() || compute.is_some();
    let each = match (&share.profile, sharing) {
        (Some(profile), _) => GpuAsk::Profile(profile.clone()),
        (None, Some(SharingKind::Exclusive)) => GpuAsk::Whole,
        (None, None) if !part => GpuAsk::Whole,
        (None, _) => GpuAsk::Fraction {
            compute_milli: compute.unwrap_or(0),
            memory_mib: memory_mib.unwrap_or(0),
        },
    };
    let modes = sharing.map_or(ModeSet::ALL, |kind| ModeSet::of(&[kind]));
    let accepts = share.models.iter().map(|name| ModelSet::parse(name)).collect();
    Ok(GpuDemand { count, each, accepts, isolation: Isolation::default(), modes })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn classes() -> Classes {
        let class = |name: &str, parameters: Value| {
            let spec = json!({"config": [{"opaque": {"driver": names::DRIVER, "parameters": parameters}}]});
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
            share(json!({"sharing": "mps", "class": "service"})),
        )
        .unwrap();
        assert_eq!(
            (two.each.count, two.class, two.each.modes),
            (2, Some(Class::Service), ModeSet::of(&[SharingKind::Mps]))
        );
        assert_eq!(two.each.accepts, [ModelSet::parse("a100")]);
    }

    #[test]
    fn what_cannot_be_granted_is_said() {
        for (exactly, config, part) in [
            (json!({"deviceClassName": "nic"}), Value::Null, "is not one of hotpot's"),
            (
                json!({"deviceClassName": "gpu", "allocationMode": "All"}),
                Value::Null,
                "give a count",
            ),
            (json!({"deviceClassName": "gpu", "count": 33}), Value::Null, "1 to 32"),
            (
                json!({"deviceClassName": "gpu", "adminAccess": true}),
                Value::Null,
                "stock allocator",
            ),
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
            (json!({"deviceClassName": "gpu"}), share(json!({"sharing": "magic"})), "`magic`"),
            (
                json!({"deviceClassName": "gpu"}),
                share(json!({"start": 3})),
                "not for claims to say",
            ),
            (json!({"deviceClassName": "gpu"}), share(json!({"memory": 3})), "unknown field"),
        ] {
            let said = asked(exactly, config).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
