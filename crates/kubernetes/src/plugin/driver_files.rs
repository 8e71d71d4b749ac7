//! What a container needs of the driver: its libraries and device files, found below the driver's root.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use node::inventory::{Device, MigDevice};
use node::mig;

use super::cdi::{DeviceNode, Mount};

/// Folders in which distributions and driver containers have libraries.
const FOLDERS: [&str; 7] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib/wsl/lib",
    "lib/x86_64-linux-gnu",
    "lib64",
    "lib",
];
/// Folders in which the loader of glibc looks without being told, by distribution: a container's is not known here.
#[cfg(target_arch = "aarch64")]
const INSIDE: [&str; 2] = ["/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
#[cfg(not(target_arch = "aarch64"))]
const INSIDE: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
/// What CUDA programs load of the driver (driver's README, "Installed Components"), without graphics.
const LIBRARIES: [&str; 13] = [
    "libcuda.so",
    "libcudadebugger.so",
    "libnvidia-ml.so",
    "libnvidia-cfg.so",
    "libnvidia-nvvm.so",
    "libnvidia-nvvm70.so",
    "libnvidia-opencl.so",
    "libnvidia-gpucomp.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-allocator.so",
    "libnvidia-sandboxutils.so",
    "libnvcuvid.so",
    "libnvidia-encode.so",
];
/// Programs that are good to have.
const PROGRAMS: [&str; 1] = ["nvidia-smi"];
const PROGRAM_FOLDERS: [&str; 3] = ["usr/bin", "bin", "usr/local/bin"];
/// Device files that every tenant needs.
const COMMON_NODES: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
/// Where the driver says which device file is an instance's.
const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";
const NODE_FOLDER: &str = "/dev";
/// By which the driver is asked.
const NVML: &str = "libnvidia-ml.so.1";
/// Links that are followed for one path, as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The root below which the driver is installed.
#[derive(Clone, Debug)]
pub struct DriverRoot {
    /// As the machine has it: `/`, or that of a driver container.
    host: PathBuf,
    /// As it is seen from here.
    here: PathBuf,
}

impl DriverRoot {
    /// * `driver_root` — as the machine has it; `host_root` — where the machine's root is seen from here.
    pub fn new(driver_root: &Path, host_root: &Path) -> Self {
        let below = driver_root.strip_prefix("/").unwrap_or(driver_root);
        Self { host: driver_root.to_owned(), here: host_root.join(below) }
    }

    /// The library by which the driver is asked, as it is seen from here; `None` where this program's own loader finds
    /// the driver, and where there is no driver.
    pub fn nvml(&self) -> Option<PathBuf> {
        let is_elsewhere = self.here != Path::new("/");
        let found = is_elsewhere.then(|| self.libraries())?.into_iter().find(|it| it.1 == NVML)?;
        self.followed(&Path::new(found.0).join(NVML))
    }

    /// Libraries and programs, each where a container's loader or shell finds it.
    pub fn mounts(&self) -> Vec<Mount> {
        let mut mounts = Vec::new();
        for (folder, name) in self.libraries() {
            let Some(host) = self.on_host(&Path::new(folder).join(&name)) else { continue };
            let inside = INSIDE.map(|inside| Mount::read(host.clone(), format!("{inside}/{name}")));
            mounts.extend(inside);
        }
        for program in PROGRAMS {
            let found =
                PROGRAM_FOLDERS.iter().find_map(|it| self.on_host(&Path::new(it).join(program)));
            mounts.extend(found.map(|host| Mount::read(host, format!("/usr/bin/{program}"))));
        }
        mounts
    }

    /// Where the machine has a file, links followed: to the machine's root an absolute link of a driver container leads
    /// elsewhere.
    fn on_host(&self, below: &Path) -> Option<String> {
        let found = self.followed(below)?;
        let below = found.strip_prefix(&self.here).ok().filter(|_| found.is_file())?;
        Some(self.host.join(below).display().to_string())
    }

    /// Where a path below the root leads to, as for a program whose root that is; `None` if nothing is there.
    fn followed(&self, below: &Path) -> Option<PathBuf> {
        let (mut at, mut rest, mut links) =
            (self.here.clone(), VecDeque::from(parts(below)), 0..LINKS_MAX);
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                let _root_stays = at != self.here && at.pop();
                continue;
            }
            let next = at.join(&part);
            let Ok(to) = fs::read_link(&next) else {
                at = next;
                continue;
            };
            links.next()?;
            if to.is_absolute() {
                at.clone_from(&self.here);
            }
            parts(&to).into_iter().rev().for_each(|part| rest.push_front(part));
        }
        at.exists().then_some(at)
    }

    /// Names of libraries with the folder of each; those of the first folder that has `libcuda` or `libnvidia-ml`, so
    /// that no releases are mixed.
    fn libraries(&self) -> Vec<(&'static str, String)> {
        for folder in FOLDERS {
            let Some(place) = self.followed(Path::new(folder)) else { continue };
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|name| is_library(name)).collect();
            names.retain(|name| self.followed(&Path::new(folder).join(name)).is_some());
            names.sort();
            let is_driver = |name: &String| {
                name.starts_with("libcuda.so") || name.starts_with("libnvidia-ml.so")
            };
            if names.iter().any(is_driver) {
                return names.into_iter().map(|name| (folder, name)).collect();
            }
        }
        Vec::new()
    }

    /// Device files that every tenant needs, as far as they are there.
    pub fn common_nodes(&self) -> Vec<DeviceNode> {
        COMMON_NODES.iter().filter_map(|name| self.node(name)).collect()
    }

    /// Device files of a card, as far as they are there.
    pub fn card_nodes(&self, device: &Device) -> Vec<DeviceNode> {
        let minor = device.minor.unwrap_or(device.index);
        self.node(&format!("nvidia{minor}")).into_iter().collect()
    }

    /// Device files of an instance beside its card's: who has those may use it.
    ///
    /// * `gpu_instance` — the driver's number of it.
    pub fn instance_nodes(
        &self,
        device: &Device,
        (gpu_instance, instance): (u32, &MigDevice),
    ) -> Vec<DeviceNode> {
        let minor = device.minor.unwrap_or(device.index);
        let numbers = (minor, gpu_instance, instance.compute_instance);
        let files = mig::capability_files(Path::new(CAPABILITIES), Path::new(""), numbers);
        files.into_iter().flatten().filter_map(|name| self.node(&name)).collect()
    }

    fn node(&self, name: &str) -> Option<DeviceNode> {
        let below = Path::new(NODE_FOLDER).join(name);
        let under = |root: &Path| root.join(below.strip_prefix("/").unwrap_or(&below));
        let is_device =
            fs::metadata(under(&self.here)).is_ok_and(|about| about.file_type().is_char_device());
        let host = under(&self.host);
        let host_path = (host != below).then(|| host.display().to_string());
        let path = below.display().to_string();
        is_device.then(|| DeviceNode { path, host_path, more: serde_json::Map::new() })
    }
}

/// The names of which a path consists, `..` among them.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect()
}

/// `libcuda.so`, `libcuda.so.1` and `libcuda.so.580.95.05`, but not `libcuda.so.bak`.
fn is_library(name: &str) -> bool {
    LIBRARIES.iter().any(|library| {
        let version = name.strip_prefix(library);
        version.is_some_and(|version| {
            version.is_empty()
                || version.starts_with('.')
                    && version[1..]
                        .split('.')
                        .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_name_and_version() {
        for name in ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.580.95.05"] {
            assert!(is_library(name), "{name}");
        }
        for name in
            ["libcuda.so.bak", "libcuda.so.", "libcudart.so.12", "libcuda.so1", "libGL.so.1"]
        {
            assert!(!is_library(name), "{name}");
        }
    }

    #[test]
    fn links_lead_where_they_lead_on_the_machine_and_not_where_they_would_here() {
        let root = std::env::temp_dir().join(format!("hotpot-driver-links-{}", std::process::id()));
        let _left_over = fs::remove_dir_all(&root);
        let link = |at: &str, to: &str| std::os::unix::fs::symlink(to, root.join(at)).unwrap();
        for folder in ["usr/lib64", "etc/alternatives", "opt/nvidia"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("opt/nvidia/libnvidia-ml.so.580"), "").unwrap();
        // As Debian has it.
        link("usr/lib64/libnvidia-ml.so.1", "/etc/alternatives/libnvidia-ml.so.1");
        link("etc/alternatives/libnvidia-ml.so.1", "/../opt/nvidia/libnvidia-ml.so.580");
        link("usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1");
        link("usr/lib64/libcuda.so", "../../../../nowhere");
        let driver = DriverRoot::new(Path::new("/"), &root);
        let real = root.join("opt/nvidia/libnvidia-ml.so.580");
        assert_eq!(driver.nvml(), Some(real));
        let hosts: Vec<String> = driver.mounts().into_iter().map(|one| one.host_path).collect();
        assert_eq!(hosts, ["/opt/nvidia/libnvidia-ml.so.580"; INSIDE.len()]);
        fs::remove_dir_all(&root).unwrap();
        let own = DriverRoot::new(Path::new("/"), Path::new("/"));
        assert_eq!(own.nvml(), None, "the loader finds it");
    }

    #[test]
    fn one_folder_is_taken_and_device_files_that_are_none_are_left_out() {
        let root = std::env::temp_dir().join(format!("hotpot-driver-root-{}", std::process::id()));
        let _left_over = fs::remove_dir_all(&root);
        for (folder, names) in [
            ("drivers/usr/lib64", vec!["libcuda.so.1", "libc.so.6", "libnvidia-ml.so.1"]),
            ("drivers/lib", vec!["libcuda.so.1"]),
            ("drivers/usr/bin", vec!["nvidia-smi"]),
            ("drivers/dev", vec!["nvidia0", "nvidiactl"]),
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
            names.iter().for_each(|name| fs::write(root.join(folder).join(name), "").unwrap());
        }
        let driver = DriverRoot::new(Path::new("/drivers"), &root);
        let mounts = driver.mounts();
        let pairs: Vec<(&str, &str)> = mounts
            .iter()
            .map(|one| (one.host_path.as_str(), one.container_path.as_str()))
            .collect();
        assert_eq!(pairs.len(), 2 * INSIDE.len() + 1, "{pairs:?}");
        assert!(pairs.contains(&("/drivers/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.1")));
        assert!(pairs.contains(&("/drivers/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi")));
        assert_eq!(driver.common_nodes(), [], "files that are no devices");
        fs::remove_dir_all(&root).unwrap();
        let machine = DriverRoot::new(Path::new("/"), Path::new("/"));
        let null = machine.node("null").expect("every machine has it");
        assert_eq!((null.path.as_str(), null.host_path), ("/dev/null", None));
    }
}
