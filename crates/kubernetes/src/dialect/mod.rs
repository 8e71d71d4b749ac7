//! Resource names by which people ask for GPUs already, put into the terms of claims. Pure.
//!
//! `ask` is what is asked of each card, `name` is that as the name of a template of claims, `classes` are the names under which our
//! devices go, `resources` reads a pod's containers, `pod` changes the pod.

pub mod ask;
pub mod classes;
pub mod name;
pub mod pod;
pub mod resources;

#[cfg(test)]
mod tests;
