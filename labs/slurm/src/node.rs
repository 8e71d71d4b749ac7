//! What a node has of its own: device files, a simulated GPU machine, and the environment in which programs
//! see it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fake_machine::{MACHINE_VARIABLE, layout};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use lab_base::{LabError, Place, at};

use crate::on_nodes::NODE_VARIABLE;
use crate::options::Options;

/// For local use (Linux' list of devices): no driver has it, so to open such a file gives ENXIO, or EPERM
/// where a cgroup forbids it. It must not be that of a device that jobs need.
const MAJOR: u64 = 120;
/// Device files of one node.
const MINORS: u64 = 256;

/// A node's folder in a cluster's, as written in files.
pub(crate) fn folder(node: &str) -> String {
    format!("machines/{node}")
}

/// Makes all that a node has.
///
/// * `index` — of the node, counted from 0.
pub(crate) fn make(
    place: &Place,
    options: &Options,
    node: &str,
    index: usize,
) -> Result<(), LabError> {
    let machine = place.folder(&folder(node))?;
    simulated(&machine, options)?;
    devices(&place.folder(&format!("machines/{node}/dev"))?, options, index as u64)?;
    place.folder(&format!("spool/{node}"))?;
    let text: String = variables(&machine.display().to_string())
        .iter()
        .map(|(name, value)| format!("export {name}=\"{value}\"\n"))
        .collect();
    place.write(&format!("machines/{node}/env"), &text, false)
}

/// A simulated machine with the driver's libraries and programs beside it.
fn simulated(machine: &Path, options: &Options) -> Result<(), LabError> {
    lab_base::machine::make(machine, &options.specs()?)?;
    fs::create_dir(machine.join("state")).map_err(at(machine))?;
    // As /run/lock is: users lock GPUs against each other.
    let (locks, open) = (machine.join("locks"), PermissionsExt::from_mode(0o1777));
    fs::create_dir(&locks).and_then(|()| fs::set_permissions(&locks, open)).map_err(at(&locks))
}

fn devices(folder: &Path, options: &Options, index: u64) -> Result<(), LabError> {
    let mut names: Vec<String> = (0..options.gpus).map(|gpu| format!("nvidia{gpu}")).collect();
    names.extend(named(options.gres_conf.as_deref().unwrap_or_default()));
    for (name, minor) in names.iter().zip(index * MINORS..) {
        let path = folder.join(name);
        if !path.exists() {
            let mode = Mode::from_bits_truncate(0o666);
            mknod(&path, SFlag::S_IFCHR, mode, makedev(MAJOR, minor))
                .map_err(|error| at(&path)(error.into()))?;
            // The umask does not count.
            let open = PermissionsExt::from_mode(0o666);
            fs::set_permissions(&path, open).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// The device files that a `gres.conf` names one by one.
fn named(text: &str) -> impl Iterator<Item = String> {
    let after = text.split("@DEV@/").skip(1);
    let names = after.filter_map(|rest| rest.split([',', ' ', '\t', '\n']).next());
    names.filter(|name| !name.is_empty() && !name.contains('[')).map(str::to_string)
}

/// The variables by which programs see a node's GPUs, with values as a shell's double quotes expand them.
///
/// * `machine` — the node's folder, which may be a shell's expression.
fn variables(machine: &str) -> Vec<(&'static str, String)> {
    vec![
        (NODE_VARIABLE, machine.to_string()),
        (MACHINE_VARIABLE, format!("{machine}/machine")),
        ("HOTPOT_NVML", layout::nvml(Path::new(machine)).display().to_string()),
        ("HOTPOT_LOCK_DIR", format!("{machine}/locks")),
        ("HOTPOT_STATE_DIR", format!("{machine}/state")),
        ("LD_LIBRARY_PATH", format!("{machine}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}")),
        ("PATH", format!("{machine}/bin:$PATH")),
    ]
}

/// The TaskProlog: a program that tells Slurm the variables of the node on which a task runs.
pub(crate) fn task_prolog(place: &Place) -> String {
    let machine = format!("{}/machines/$SLURMD_NODENAME", place.root().display());
    let mut text = "#!/bin/sh\n".to_string();
    for (name, value) in variables(&machine) {
        text.push_str(&format!("echo \"export {name}={value}\"\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_files_are_made_that_a_file_names() {
        let text = "Name=gpu Type=1g.10gb MultipleFiles=@DEV@/nvidia0,@DEV@/cap1\n\
                    Name=gpu File=@DEV@/nvidia[1-2]\nName=gpu File=@DEV@/nvidia3";
        assert_eq!(named(text).collect::<Vec<_>>(), ["nvidia0", "cap1", "nvidia3"]);
    }
}
