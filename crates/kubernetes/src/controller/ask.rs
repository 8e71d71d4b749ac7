//! What a pod asks of GPUs: its claims' requests as a demand of the engine. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use model::{Class, GpuAsk, GpuDemand, Isolation, ModeSet, ModelSet, SharingKind};
use serde::Deserialize;

use crate::quantity::MIB;
use crate::share::{self, COUNT_MAX, GpuShare};
use crate::{names, quantity};

/// Our classes of devices: those with a configuration for our driver, which only administrators can write.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    /// What each says, or why that cannot be read: nobody is given more than was meant by a slip.
    ours: BTreeMap<String, Result<GpuShare, String>>,
    /// Of all classes, whosever they are.
    names: BTreeSet<String>,
}

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
    /// Reads classes.
    pub(super) fn of(classes: &[Arc<DeviceClass>]) -> Self {
        let ours = |class: &Arc<DeviceClass>| {
            let ours = share::of_class(class)?;
            let share = GpuShare::deserialize(&ours.parameters.0);
            Some((class.metadata.name.clone()?, share.map_err(|error| error.to_string())))
        };
        let names = classes.iter().filter_map(|class| class.metadata.name.clone());
        Self { ours: classes.iter().filter_map(ours).collect(), names: names.collect() }
    }

    /// A class that a claim names and that is not there.
    pub(super) fn missing<'a>(&self, spec: &'a ResourceClaimSpec) -> Option<&'a str> {
        requests(spec).filter_map(class_of).find(|name| !self.names.contains(*name))
    }

    /// Whether any request of a claim is of one of them.
    pub(super) fn concern(&self, spec: &ResourceClaimSpec) -> bool {
        requests(spec)
            .any(|request| class_of(request).is_some_and(|name| self.ours.contains_key(name)))
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
        let of_class = self.ours.get(&exact.device_class_name);
        let of_class = of_class.ok_or_else(|| {
            format!(
                "request {name}: class {} is not one of hotpot's; put it into a claim of its own",
                exact.device_class_name
            )
        })?;
        let of_class = of_class.as_ref().map_err(|why| {
            format!("request {name}: GpuShare of class {}: {why}", exact.device_class_name)
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
            Class::parse(word).ok_or_else(|| {
                let known = Class::ALL.map(Class::as_str).join(", ");
                format!("request {name}: `{word}` is no class; there are {known}")
            })
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
    let wanted = GpuShare::new();
    if (&share.api_version, &share.kind) != (&wanted.api_version, &wanted.kind) {
        return Err(format!(
            "request {request}: hotpot knows {} {}, and not {} {}",
            wanted.api_version, wanted.kind, share.api_version, share.kind
        ));
    }
    if share.epoch.is_some() {
        return Err(format!("request {request}: GpuShare: epoch is not for claims to say"));
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
        // Nobody puts himself before others further than the class lets him.
        priority: match own.priority {
            Some(own) => Some(own.min(class.priority.unwrap_or(0))),
            None => class.priority,
        },
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
    let amounts = Amounts::of(share, exact)?;
    let word = share.sharing.as_deref();
    let sharing = word.map(|word| {
        SharingKind::parse(word).ok_or_else(|| {
            let known = SharingKind::ALL.map(SharingKind::as_str).join(", ");
            format!("`{word}` is no way of sharing; there are {known}")
        })
    });
    let sharing = sharing.transpose()?;
    amounts.go_with(share, sharing)?;
    if sharing == Some(SharingKind::Mps) && count > 1 {
        return Err("MPS is for one card of a pod; ask for 1, or for another way of sharing".into());
    }
    let each = match (&share.profile, sharing) {
        (Some(profile), _) => GpuAsk::Profile(profile.clone()),
        (None, Some(SharingKind::Exclusive)) => GpuAsk::Whole,
        (None, None) if !amounts.are_said() => GpuAsk::Whole,
        (None, _) => GpuAsk::Fraction {
            compute_milli: amounts.compute_milli.unwrap_or(0),
            memory_mib: amounts.memory_mib.unwrap_or(0),
        },
    };
    let modes = sharing.map_or_else(|| unsaid(amounts), |kind| ModeSet::of(&[kind]));
    let accepts = share.models.iter().map(|name| ModelSet::parse(name)).collect();
    Ok(GpuDemand { count, each, accepts, isolation: Isolation::default(), modes })
}

/// Ways of sharing that will do where none is said: an amount is to be held, which nobody does on a card that takes plain turns.
fn unsaid(amounts: Amounts) -> ModeSet {
    let holds = |kind: &SharingKind| !amounts.are_said() || *kind != SharingKind::TimeSlice;
    let kinds: Vec<SharingKind> = SharingKind::ALL.into_iter().filter(holds).collect();
    ModeSet::of(&kinds)
}

/// What is asked of each card, as far as it is said.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    memory_mib: Option<u64>,
    compute_milli: Option<u32>,
}

impl Amounts {
    /// The request's or else the configuration's.
    fn of(share: &GpuShare, exact: &ExactDeviceRequest) -> Result<Self, String> {
        let named = exact.capacity.iter().flat_map(|all| all.requests.iter().flatten());
        let mut names = named.map(|(name, _)| name.as_str());
        if let Some(other) = names.find(|name| ![names::MEMORY, names::COMPUTE].contains(name)) {
            return Err(format!("`{other}` is no capacity of a card; name memory or compute"));
        }
        let capacity = |name: &str, read: fn(&_) -> Option<u64>| {
            let asked =
                exact.capacity.as_ref().and_then(|capacity| capacity.requests.as_ref()?.get(name));
            let amount = asked.map(|amount| {
                read(amount).ok_or_else(|| format!("{name}: `{}` is no amount", amount.0))
            });
            amount.transpose()
        };
        let bytes = capacity(names::MEMORY, quantity::whole)?;
        if let Some(bytes) = bytes.filter(|bytes| (1..MIB).contains(bytes)) {
            return Err(format!("memory: {bytes} bytes are less than 1Mi; write 10Gi for 10 GiB"));
        }
        let memory_mib = bytes.map(|bytes| bytes.div_ceil(MIB)).or(share.memory_mib);
        let milli =
            capacity(names::COMPUTE, quantity::milli)?.or(share.compute_milli.map(u64::from));
        let milli = milli.map(|milli| u32::try_from(milli).ok().filter(|milli| *milli <= 1000));
        let compute_milli =
            milli.map(|milli| milli.ok_or("compute of a card is at most 1")).transpose()?;
        Ok(Self { memory_mib, compute_milli })
    }

    fn are_said(self) -> bool {
        self.memory_mib.is_some() || self.compute_milli.is_some()
    }

    /// Nobody is given a share of nothing: it would be held to nothing.
    fn go_with(self, share: &GpuShare, sharing: Option<SharingKind>) -> Result<(), String> {
        if self.memory_mib == Some(0) {
            return Err("memory must be more than 0".into());
        }
        if share.profile.is_some() && self.are_said() {
            let why = "a MIG profile says its amounts itself; leave out memory and compute";
            return Err(why.into());
        }
        let is_empty = self.memory_mib.is_none() && self.compute_milli.unwrap_or_default() == 0;
        let takes_turns = sharing == Some(SharingKind::TimeSlice);
        if is_empty && !takes_turns && (self.are_said() || sharing.is_some_and(is_shared)) {
            return Err("say how much of a card: memory, compute or both".into());
        }
        Ok(())
    }
}

/// Whether several tenants share a card so, none of them by hardware.
fn is_shared(kind: SharingKind) -> bool {
    !matches!(kind, SharingKind::Exclusive | SharingKind::Mig)
}

#[cfg(test)]
mod tests;
