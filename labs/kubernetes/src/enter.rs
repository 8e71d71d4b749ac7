//! Getting into a cluster that runs, from its folder alone.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use lab_base::process::Process;
use lab_base::{LabError, Place};

use crate::programs::Programs;
use crate::{keys, namespaces};

/// A program in a cluster's network as an administrator or, with the name of a node, on that node.
///
/// # Errors
/// No cluster is up there, or there is no such node.
pub fn inside(
    folder: &Path,
    node: Option<&str>,
    program: impl AsRef<OsStr>,
) -> Result<Command, LabError> {
    let place = Place::find(folder)?;
    let record = place.path(&format!("run/{}.process", node.unwrap_or("first")));
    let process = Process::read(&record).filter(|process| process.is_alive());
    let process = process.ok_or_else(|| {
        let why = node.map_or("no lab is up there".to_owned(), |node| {
            format!("no lab with a node {node} is up there")
        });
        LabError::Folder { folder: folder.into(), why }
    })?;
    let mut command = match node {
        Some(_) => namespaces::in_all(process, program),
        None => namespaces::in_network(process, program),
    };
    command.envs(environment(&place, &Programs::get()?));
    Ok(command)
}

/// A program of Kubernetes' without any cluster, such as helm to look at a chart; built if it is missing.
///
/// # Errors
/// It cannot be built.
pub fn program(name: &str) -> Result<Command, LabError> {
    Ok(Command::new(Programs::get()?.path(name)))
}

/// The variables by which programs in the cluster's network find it and Kubernetes' programs.
pub(crate) fn environment(place: &Place, programs: &Programs) -> Vec<(String, String)> {
    let config = place.path(&keys::kubeconfig("admin")).display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.folder().display());
    vec![("KUBECONFIG".into(), config), ("PATH".into(), path)]
}
