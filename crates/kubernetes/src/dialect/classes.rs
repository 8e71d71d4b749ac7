//! The names under which our devices can be asked for as a resource: of classes that have one, and of every class (Kubernetes
//! enhancement 5004, "DRA: Handle extended resource requests"). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::DeviceClass;

use super::ask::Ask;
use super::name;
use crate::{names, share};

/// Every class is a resource: its name behind this.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";
/// The resource whose class is meant by all names of NVIDIA's.
pub(super) const CARDS: &str = "nvidia.com/gpu";

/// Our classes, and the resources that they are.
#[derive(Clone, Debug, Default)]
pub struct ClassNames {
    classes: BTreeSet<String>,
    by_resource: BTreeMap<String, String>,
}

impl ClassNames {
    /// Of two classes for one resource the younger counts, of two of an age the first by name (API reference, DeviceClassSpec).
    pub fn of(classes: &[Arc<DeviceClass>]) -> Self {
        let mut ours: Vec<&DeviceClass> = classes
            .iter()
            .map(Arc::as_ref)
            .filter(|class| share::of_class(class).is_some())
            .collect();
        let made = |class: &DeviceClass| class.metadata.creation_timestamp.as_ref().map(|at| at.0);
        ours.sort_by(|one, other| {
            made(one).cmp(&made(other)).then(other.metadata.name.cmp(&one.metadata.name))
        });
        let mut all = Self::default();
        for class in ours {
            let Some(name) = class.metadata.name.clone() else { continue };
            if let Some(resource) = class.spec.extended_resource_name.clone() {
                all.by_resource.insert(resource, name.clone());
            }
            all.classes.insert(name);
        }
        all
    }

    /// The class that a resource is of.
    pub fn class_of(&self, resource: &str) -> Option<&str> {
        let implicit = || resource.strip_prefix(IMPLICIT).and_then(|name| self.classes.get(name));
        self.by_resource.get(resource).or_else(implicit).map(String::as_str)
    }

    /// The class that NVIDIA's names mean; `None` if there is none.
    pub fn of_cards(&self) -> Option<&str> {
        self.class_of(CARDS).or_else(|| self.classes.get(names::CLASS).map(String::as_str))
    }

    /// What a template of claims asks, by its name alone.
    pub fn ask(&self, template: &str) -> Option<Ask> {
        name::read(template, self.classes.iter().map(String::as_str))
    }

    /// The resources that can be asked for, for people.
    pub fn shown(&self) -> String {
        let named = self.by_resource.keys().cloned();
        let implicit = self.classes.iter().map(|class| format!("{IMPLICIT}{class}"));
        named.chain(implicit).collect::<Vec<_>>().join(", ")
    }
}
