//! Slurm's files on one machine, changed for one node: each is replaced whole, and what it was before the
//! change lies beside it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::card::Files;
use super::{LayoutError, edit, lines};
use crate::commands::Slurm;
use crate::facts::Facts;
use crate::site::Site;
use crate::whole;

/// The files' names.
pub(super) const GRES_CONF: &str = "gres.conf";
const SLURM_CONF: &str = "slurm.conf";
/// The `Gres=` of a node that registers itself, for whatever starts its slurmd.
const NODE_GRES: &str = "gres";
/// What `job_submit.lua` knows of the nodes.
const RULES: &str = "hotpot_site.lua";
/// Rights of a file that was not there.
const MODE: u32 = 0o644;
/// Files that include each other go no deeper.
const DEPTH_MAX: u32 = 4;

/// Changes a node's own copies; files that are not there, as on nodes that fetch them from slurmctld, are
/// passed over.
pub(super) fn write_on_node(
    folder: &Path,
    node: &str,
    site: &Site,
    wanted: &Files,
) -> Result<(), LayoutError> {
    if wanted.dynamic {
        let path = folder.join(NODE_GRES);
        let before = fs::read_to_string(&path).ok();
        replace(&path, before.as_deref(), &wanted.gres, wanted.id)?;
    }
    write_gres_conf(folder, node, site.ways.own_gres_conf, wanted)?;
    write_slurm_conf(folder, node, wanted)
}

/// Changes what a folder's gres.conf says of a node; one that does not name it stays.
///
/// * `own` — lines that name no node are this node's.
pub(super) fn write_gres_conf(
    folder: &Path,
    node: &str,
    own: bool,
    wanted: &Files,
) -> Result<(), LayoutError> {
    let path = folder.join(GRES_CONF);
    if let Some(text) = read(&path)? {
        let refused = |why| LayoutError::file(&path.display().to_string(), why);
        let has = edit::devices(&text, node, own).map_err(refused)?;
        if !has.is_empty() {
            let fresh = edit::with_devices(&text, node, &wanted.gres_conf, own).map_err(refused)?;
            replace(&path, Some(&text), &fresh, wanted.id)?;
        }
    }
    Ok(())
}

/// Changes the `Gres=` that slurm.conf, or what it includes, has of a node; files that do not name it stay.
pub(super) fn write_slurm_conf(
    folder: &Path,
    node: &str,
    wanted: &Files,
) -> Result<(), LayoutError> {
    if let Some(path) = naming(&folder.join(SLURM_CONF), node, DEPTH_MAX)? {
        let text = read(&path)?.unwrap_or_default();
        if let Some(fresh) = edit::with_gres(&text, node, &wanted.gres) {
            replace(&path, Some(&text), &fresh, wanted.id)?;
        }
    }
    Ok(())
}

/// Tells the rules for submissions, if they are there, what the nodes have now.
pub(super) fn tell_rules(
    folder: &Path,
    slurm: Slurm,
    site: &Site,
    id: u64,
) -> Result<(), LayoutError> {
    let path = folder.join(RULES);
    let Some(before) = read(&path)? else { return Ok(()) };
    replace(&path, Some(&before), &Facts::ask(slurm)?.lua(site), id)
}

/// The `Gres=` that slurm.conf, or what it includes, has of a node.
///
/// # Errors
/// No line names the node, or it has what stands at `NodeName=DEFAULT`: other GRES would be lost on the way
/// forward, and the way back would leave a `Gres=` that was not there.
pub(super) fn gres_of(folder: &Path, node: &str) -> Result<String, LayoutError> {
    let conf = folder.join(SLURM_CONF);
    let Some(path) = naming(&conf, node, DEPTH_MAX)? else {
        return Err(LayoutError::node(node, format!("{} does not name it", conf.display())));
    };
    let lines = lines::logical(&read(&path)?.unwrap_or_default());
    let line = lines.iter().find(|line| lines::names(line, node));
    let gres = line.and_then(|line| lines::value(line, "Gres"));
    gres.map(str::to_owned).ok_or_else(|| {
        let path = path.display();
        let why = "has no Gres= of its own, NodeName=DEFAULT has it; write it there";
        LayoutError::node(node, format!("its line in {path} {why}"))
    })
}

/// The lines of a folder's gres.conf about a node's GPUs and shards; empty if there are none.
pub(super) fn devices_of(folder: &Path, node: &str) -> Result<String, LayoutError> {
    let path = folder.join(GRES_CONF);
    let found = edit::devices(&read(&path)?.unwrap_or_default(), node, false);
    found.map_err(|why| LayoutError::file(&path.display().to_string(), why))
}

/// The `Gres=` with which a node registers itself.
pub(super) fn own_gres(folder: &Path) -> Result<Option<String>, LayoutError> {
    Ok(read(&folder.join(NODE_GRES))?.map(|text| text.trim().to_owned()))
}

/// The file that has a node's line: this one, or one that it includes.
fn naming(path: &Path, node: &str, depth: u32) -> Result<Option<PathBuf>, LayoutError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let lines = lines::logical(&text);
    if lines.iter().any(|line| lines::names(line, node)) {
        return Ok(Some(path.to_owned()));
    }
    if depth == 0 {
        return Ok(None);
    }
    for line in &lines {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|word| word.eq_ignore_ascii_case("include"))
            && let Some(name) = words.next()
        {
            let included = path.parent().unwrap_or(Path::new("/")).join(name);
            if let Some(found) = naming(&included, node, depth - 1)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Option<String>, LayoutError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LayoutError::file(&path.display().to_string(), error)),
    }
}

/// Writes a file anew that nobody sees half written, with its mode and owner, and keeps what it was before
/// this change of layout as `NAME.before-layout-ID`.
fn replace(path: &Path, before: Option<&str>, text: &str, id: u64) -> Result<(), LayoutError> {
    if before == Some(text) {
        return Ok(());
    }
    // A link stays one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let done = || -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kept = path.with_file_name(format!("{name}.before-layout-{id}"));
        if let Some(before) = before.filter(|_| !kept.exists()) {
            whole::write_like(&kept, before, &path, MODE)?;
        }
        whole::write_like(&path, text, &path, MODE)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    done().map_err(|error| LayoutError::file(&path.display().to_string(), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn files_are_changed_where_they_name_the_node_and_kept_beside() {
        let folder = std::env::temp_dir().join(format!("hotpot-layout-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("more")).unwrap();
        let (main, nodes) = (folder.join("slurm.conf"), folder.join("more/nodes.conf"));
        fs::write(&main, "ClusterName=x\ninclude more/nodes.conf\n").unwrap();
        fs::write(&nodes, "NodeName=n[1-2] Gres=gpu:a:2\n").unwrap();
        fs::set_permissions(&nodes, fs::Permissions::from_mode(0o660)).unwrap();
        fs::write(folder.join("gres.conf"), "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]\n")
            .unwrap();
        let mut wanted = Files {
            id: 3,
            gres_conf: "NodeName=n2 Name=gpu Type=b File=/dev/nvidia0\n".into(),
            gres: "gpu:b:1".into(),
            dynamic: false,
        };
        let write = |wanted: &Files| {
            write_gres_conf(&folder, "n2", false, wanted).unwrap();
            write_slurm_conf(&folder, "n2", wanted).unwrap();
        };
        write(&wanted);
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("slurm.conf"), "ClusterName=x\ninclude more/nodes.conf\n");
        assert_eq!(read("more/nodes.conf"), "NodeName=n2 Gres=gpu:b:1\nNodeName=n1 Gres=gpu:a:2\n");
        assert_eq!(fs::metadata(&nodes).unwrap().mode() & 0o777, 0o660, "whatever the umask");
        assert_eq!(read("gres.conf").lines().count(), 2);
        wanted.gres = "gpu:b:2".into();
        write(&wanted);
        let kept = read("more/nodes.conf.before-layout-3");
        assert_eq!(kept, "NodeName=n[1-2] Gres=gpu:a:2\n", "the first is kept");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_gres_that_is_not_the_nodes_own_is_refused() {
        let folder = std::env::temp_dir().join(format!("hotpot-gres-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let text = "NodeName=DEFAULT Gres=gpu:a:4,fpga:1\nNodeName=n1 CPUs=4\n\
            NodeName=n2 Gres=gpu:a:2\n";
        fs::write(folder.join("slurm.conf"), text).unwrap();
        assert_eq!(gres_of(&folder, "n2").unwrap(), "gpu:a:2");
        let refused = |node| gres_of(&folder, node).unwrap_err().to_string();
        assert!(refused("n1").contains("no Gres= of its own"), "{}", refused("n1"));
        assert!(refused("n3").ends_with("slurm.conf does not name it"), "{}", refused("n3"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
