//! What a pod's containers ask by resource names, with the meanings that these have with HAMi and with NVIDIA's device plugin. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::ask::{Ask, Each, MEMORY_MAX_MIB, Profile};
use super::classes::{CARDS, ClassNames};
use super::name;
use crate::{names, quantity};

/// MiB of each card.
const MEMORY: &str = "nvidia.com/gpumem";
/// Percent of each card's compute.
const CORES: &str = "nvidia.com/gpucores";
/// MIG instances of the profile behind it.
const MIG: &str = "nvidia.com/mig-";
/// What begins so is one of ours, of NVIDIA's plugin or of HAMi.
const FAMILIES: [&str; 4] = [CARDS, MIG, "nvidia.com/priority", "hotpot.dev/"];

/// A container that asks for devices by resource names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which one it is.
    pub place: Place,
    /// What it asks.
    pub ask: Ask,
    /// By these names.
    pub resources: Vec<String>,
}

/// Where a container stands in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One of `initContainers`, by its index.
    First {
        /// The index.
        at: usize,
        /// Whether it runs on beside the others.
        beside: bool,
    },
    /// One of `containers`, by its index.
    Container(usize),
}

/// What all containers ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// Those that ask for devices.
    pub found: Vec<Found>,
    /// What will be done, but hardly as it was meant.
    pub warnings: Vec<String>,
}

/// Reads what a pod's containers ask.
///
/// # Errors
/// What cannot be granted, with the way out.
pub fn read(spec: &PodSpec, classes: &ClassNames) -> Result<Asking, String> {
    let mut asking = Asking::default();
    let mut first: Option<(&str, Ask)> = None;
    for (place, container) in containers(spec) {
        let asked = asked(container, classes);
        if asked.is_empty() {
            continue;
        }
        let named = |why| format!("container {}: {why}", container.name);
        let ask = of_container(&asked, classes).map_err(named)?;
        let Some(ask) = ask else { continue };
        match &first {
            Some((other, like)) if !like.is_like(&ask) => {
                return Err(format!(
                    "containers {other} and {} ask for different things ({like}; {ask}); hotpot gives all cards of a pod alike: ask the \
                     same in each, or make two pods of it",
                    container.name
                ));
            }
            Some(_) => {}
            None => first = Some((&container.name, ask.clone())),
        }
        asking.warnings.extend(doubts(container, &ask));
        let resources = asked.keys().map(|name| (*name).to_owned()).collect();
        asking.found.push(Found { place, ask, resources });
    }
    Ok(asking)
}

/// All containers of a pod with their places.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = (Place, &Container)> {
    let beside = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let first = spec.init_containers.iter().flatten().enumerate();
    let first = first.map(move |(at, it)| (Place::First { at, beside: beside(it) }, it));
    first.chain(spec.containers.iter().enumerate().map(|(at, it)| (Place::Container(at), it)))
}

/// The resources of a container that are ours to translate or to refuse, with what its limits or else its requests say.
pub fn asked<'a>(
    container: &'a Container,
    classes: &ClassNames,
) -> BTreeMap<&'a str, (&'a Quantity, Option<&'a Quantity>)> {
    let resources = container.resources.as_ref();
    let limits = resources.iter().flat_map(|all| all.limits.iter().flatten());
    let requests = resources.iter().flat_map(|all| all.requests.iter().flatten());
    let ours = |name: &str| {
        classes.class_of(name).is_some()
            || (classes.of_cards().is_some() && FAMILIES.iter().any(|it| name.starts_with(it)))
    };
    let mut asked: BTreeMap<&str, (&Quantity, Option<&Quantity>)> = BTreeMap::new();
    for (name, amount) in limits.filter(|(name, _)| ours(name)) {
        asked.insert(name, (amount, None));
    }
    for (name, amount) in requests.filter(|(name, _)| ours(name)) {
        asked.entry(name).and_modify(|known| known.1 = Some(amount)).or_insert((amount, None));
    }
    asked
}

/// What one container asks; nothing if it asks for none.
fn of_container(
    asked: &BTreeMap<&str, (&Quantity, Option<&Quantity>)>,
    classes: &ClassNames,
) -> Result<Option<Ask>, String> {
    let mut amounts = BTreeMap::new();
    for (name, (amount, other)) in asked {
        let number = whole(name, amount)?;
        if other.is_some_and(|other| quantity::whole(other) != Some(number)) {
            return Err(format!("{name}: limit and request must be the same"));
        }
        amounts.insert(*name, number);
    }
    let mut asks = Vec::new();
    for (name, number) in amounts.iter().filter(|(_, number)| **number > 0) {
        asks.extend(of_resource(name, *number, classes)?);
    }
    asks.extend(of_cards(&amounts, classes)?);
    let mut asks = asks.into_iter();
    let Some(ask) = asks.next() else { return Ok(None) };
    if let Some(other) = asks.next() {
        return Err(format!(
            "it asks for two kinds of devices ({ask}; {other}); hotpot gives all cards of a pod alike: make two pods of it"
        ));
    }
    if classes.ask(&name::of(&ask)).as_ref() != Some(&ask) {
        return Err(format!("{ask} cannot be told from another class's; rename the class"));
    }
    Ok(Some(ask))
}

/// What a resource asks that says all by itself.
fn of_resource(name: &str, number: u64, classes: &ClassNames) -> Result<Option<Ask>, String> {
    if [CARDS, MEMORY, CORES].contains(&name) {
        return Ok(None);
    }
    if let Some(class) = classes.class_of(name) {
        return Ask::new(class, number, Each::Card)
            .map_err(|why| format!("{name}: {why}"))
            .map(Some);
    }
    if let (Some(profile), Some(class)) = (name.strip_prefix(MIG), classes.of_cards()) {
        let profile = Profile::of_resource(profile).ok_or_else(|| {
            format!("{name}: that is no MIG profile; they are written as {MIG}1g.10gb")
        })?;
        let ask = Ask::new(class, number, Each::Instance(profile));
        return ask.map_err(|why| format!("{name}: {why}")).map(Some);
    }
    Err(format!("{name}: hotpot does not know it; {}", way_out(name, classes)))
}

/// What `nvidia.com/gpu` and its companions ask together.
fn of_cards(amounts: &BTreeMap<&str, u64>, classes: &ClassNames) -> Result<Option<Ask>, String> {
    let amount = |name: &str| amounts.get(name).copied();
    // None of a card is what is not said, as with HAMi.
    let part = |name: &str| amount(name).filter(|number| *number > 0);
    let (memory_mib, percent) = (part(MEMORY), part(CORES));
    let is_part = memory_mib.is_some() || percent.is_some();
    let Some(class) = classes.of_cards() else { return Ok(None) };
    let count = match amount(CARDS) {
        Some(0) if is_part => {
            return Err(format!("{CARDS}: 0 cards are asked, and a part of each; ask 1"));
        }
        Some(0) => return Ok(None),
        Some(count) => count,
        None if is_part => 1,
        None => return Ok(None),
    };
    if let Some(mib) = memory_mib.filter(|mib| *mib > MEMORY_MAX_MIB) {
        return Err(format!(
            "{MEMORY}: it counts MiB of each card, so {mib} is more than any card has; 10 GiB are 10240"
        ));
    }
    if let Some(percent) = percent.filter(|percent| *percent > 100) {
        return Err(format!(
            "{CORES}: {percent} % of a card's compute are asked; ask at most 100, and more cards by {CARDS}"
        ));
    }
    let compute_milli = percent.map(|percent| percent * 10);
    let each = if is_part { Each::Part { memory_mib, compute_milli } } else { Each::Card };
    Ask::new(class, count, each).map_err(|why| format!("{CARDS}: {why}")).map(Some)
}

/// A number of things: no part of one, and not below 0.
fn whole(name: &str, amount: &Quantity) -> Result<u64, String> {
    let milli = quantity::milli(amount).filter(|milli| milli.is_multiple_of(1000));
    milli
        .map(|milli| milli / 1000)
        .ok_or_else(|| format!("{name}: `{}` is no amount; write a whole number from 0", amount.0))
}

/// What to write instead of a name that we do not carry.
fn way_out(name: &str, classes: &ClassNames) -> String {
    let instead = match name {
        "nvidia.com/gpumem-percentage" => {
            format!("ask MiB of each card by {MEMORY}, as cards differ in size")
        }
        "nvidia.com/priority" => {
            "set the pod's priorityClassName, or the priority in a GpuShare of a claim".to_owned()
        }
        "nvidia.com/gpu.shared" => {
            format!("ask a part of a card by {CARDS} with {MEMORY} or {CORES}")
        }
        _ if name.starts_with("hotpot.dev/") => {
            format!("resources of its classes are: {}", classes.shown())
        }
        _ => format!("it knows {CARDS}, {MEMORY}, {CORES} and {MIG}PROFILE"),
    };
    let (label, ignore) = (names::WEBHOOK_LABEL, names::IGNORE);
    format!("{instead}; if it is another's, give the pod the label {label}: {ignore}")
}

/// What is odd about a container that is given devices.
fn doubts(container: &Container, ask: &Ask) -> Vec<String> {
    let mut doubts = Vec::new();
    let name = &container.name;
    if matches!(ask.each(), Each::Part { memory_mib: None, .. }) {
        doubts.push(format!(
            "container {name} asks {CORES} without {MEMORY}: each card's memory is given in proportion to its compute"
        ));
    }
    let sets = |variable: &str| container.env.iter().flatten().any(|one| one.name == variable);
    for variable in ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"] {
        if sets(variable) {
            doubts.push(format!(
                "container {name} sets {variable}: leave it to hotpot, which says what a container sees"
            ));
        }
    }
    let security = container.security_context.as_ref();
    if security.is_some_and(|security| security.privileged == Some(true)) {
        doubts.push(format!("container {name} is privileged: it can reach all GPUs of its node, whatever it is given"));
    }
    doubts
}

/// Whether a pod's label says that we are to leave it as it is.
pub fn is_ignored(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|all| all.get(names::WEBHOOK_LABEL)).is_some_and(|it| it == names::IGNORE)
}
