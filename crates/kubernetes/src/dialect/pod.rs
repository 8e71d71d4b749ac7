//! Changes a pod as it was sent: claims in the place of resources, and our gate. What we do not know of it stays as it is. Pure.

use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::name;
use super::resources::{Found, Place};
use crate::names;

/// The first name of a claim that is made for resources.
const CLAIM: &str = "hotpot";

/// Puts claims of templates in the place of resources.
///
/// An init container that ends before others start shares a claim that asks the same, as it does with resources; all others have
/// one each.
pub fn translate(pod: &mut Value, found: &[Found]) {
    let mut given: Vec<(&Ask, String)> = Vec::new();
    let is_over_first = |one: &&Found| matches!(one.place, Place::First { beside: false, .. });
    let stays = found.iter().filter(|one| !is_over_first(one));
    let several = found.len() > 1;
    for one in stays.chain(found.iter().filter(is_over_first)) {
        let known = given.iter().find(|(ask, _)| is_over_first(&one) && *ask == &one.ask);
        let claim = known.map(|(_, claim)| claim.clone()).unwrap_or_else(|| {
            let claim = free_name(pod, several);
            let template = name::of(&one.ask);
            push(
                &mut pod["spec"],
                "resourceClaims",
                json!({"name": claim, "resourceClaimTemplateName": template}),
            );
            claim
        });
        given.push((&one.ask, claim.clone()));
        of_container(container(pod, one.place), &one.resources, &claim);
    }
}

/// Puts our gate before a pod, unless it is there.
pub fn gate(pod: &mut Value) {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let is_there = gates.is_some_and(|all| all.iter().any(|gate| gate["name"] == names::GATE));
    if !is_there {
        push(&mut pod["spec"], "schedulingGates", json!({"name": names::GATE}));
    }
}

fn container(pod: &mut Value, place: Place) -> &mut Value {
    let spec = &mut pod["spec"];
    match place {
        Place::First { at, .. } => &mut spec["initContainers"][at],
        Place::Container(at) => &mut spec["containers"][at],
    }
}

fn of_container(container: &mut Value, resources: &[String], claim: &str) {
    let all = &mut container["resources"];
    for kind in ["limits", "requests"] {
        if let Some(amounts) = all.get_mut(kind).and_then(Value::as_object_mut) {
            amounts.retain(|name, _| !resources.contains(name));
        }
    }
    if let Some(all) = all.as_object_mut() {
        all.retain(|_, amounts| !amounts.as_object().is_some_and(Map::is_empty));
    }
    push(all, "claims", json!({"name": claim}));
}

/// A name that no claim of the pod has.
fn free_name(pod: &Value, several: bool) -> String {
    let claims = pod["spec"]["resourceClaims"].as_array();
    let is_free = |name: &String| {
        !claims.is_some_and(|claims| claims.iter().any(|claim| claim["name"] == **name))
    };
    let alone = (!several).then(|| CLAIM.to_owned());
    let mut names = alone.into_iter().chain((1..).map(|number: u32| format!("{CLAIM}-{number}")));
    names.find(is_free).unwrap_or_default()
}

/// Adds to a list, which is made if there is none.
fn push(of: &mut Value, list: &str, one: Value) {
    if !of[list].is_array() {
        of[list] = json!([]);
    }
    if let Some(list) = of[list].as_array_mut() {
        list.push(one);
    }
}
