//! What changes of layout need of a cluster: how nodes are reached and daemons restarted, and device files for
//! MIG instances with what the driver tells of them.

use std::fs;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use lab_base::{LabError, at};

use crate::cluster::Cluster;
use crate::options::Options;

/// hotpot's own file beside slurm.conf.
const SITE: &str = "hotpot.conf";
/// GPU instances that a card numbers, from 0 (NVML header: up to 14 of one kind, numbered from 1 on).
const INSTANCES: u32 = 15;
/// See `node`: a number for local use.
const MAJOR: u64 = 120;
/// Device memory of an A100 with 80 GB.
const MEMORY_MIB: u32 = 81_920;

impl Options {
    /// The same cluster with what `hotpot slurm layout` needs. [`Cluster::name_instances`] must follow once it is
    /// up.
    ///
    /// * `folder` — where the cluster will be.
    /// * `built` — the folder of `hotpot`.
    #[must_use]
    pub fn with_layouts(mut self, folder: &Path, built: &Path) -> Self {
        let (dir, built) = (folder.display(), built.display());
        let machines = format!("{dir}/machines/%n");
        let daemon = format!("{dir}/etc/hotpot-daemon");
        let lines = format!(
            "CardTypes={}:{}\nDevices={machines}/dev\nCapabilities={machines}/capabilities\n\
             Remote={dir}/etc/hotpot-remote {{node}}\nHotpot={built}/hotpot\n\
             StopSlurmd={daemon} stop slurmd.{{node}}\nStartSlurmd={daemon} start slurmd.{{node}}\n\
             StopSlurmctld={daemon} stop slurmctld\nStartSlurmctld={daemon} start slurmctld\n",
            self.gpu, self.gres_type,
        );
        match self.files.iter_mut().find(|(name, _)| name == SITE) {
            Some((_, text)) => text.push_str(&lines),
            None => {
                let shards = self.shards.max(1);
                let shards = format!("ShardMiB={}\n", MEMORY_MIB / shards);
                self.files.push((SITE.into(), shards + &lines));
            }
        }
        self.files.push(("hotpot-remote".into(), REMOTE.replace("@DIR@", &dir.to_string())));
        self.files.push(("hotpot-daemon".into(), DAEMON.replace("@DIR@", &dir.to_string())));
        self
    }
}

/// Runs a command as a node would: its GPUs, its configuration.
const REMOTE: &str = "\
#!/bin/sh
node=$1
shift
. @DIR@/machines/$node/env
SLURM_CONF=@DIR@/etc/slurm.conf
[ -d @DIR@/etc/$node ] && SLURM_CONF=@DIR@/etc/$node/slurm.conf
export SLURM_CONF
exec \"$@\"
";

/// Stops or starts a daemon of the cluster, and keeps the lab's record of it. Both are fine if it is so already.
const DAEMON: &str = "\
#!/bin/bash
record=@DIR@/run/$2.process
exec 9>@DIR@/run/$2.turn
flock 9
alive() {
    read -r pid started 2>/dev/null <$record || return 1
    stat=$(cat /proc/$pid/stat 2>/dev/null) || return 1
    set -- ${stat##*) }
    [ ${20} = $started ] && [ $1 != Z ] && [ $1 != X ]
}
if [ $1 = stop ]; then
    alive && kill $pid
    for try in $(seq 1500); do alive || exit 0; sleep 0.02; done
    exit 1
fi
alive && exit 0
case $2 in
    slurmctld) line=\"slurmctld -D\" ;;
    slurmd.*) line=\"slurmd -D -N ${2#slurmd.}\" ;;
esac
[ -x @DIR@/bin/slurmd-${2#slurmd.} ] && line=@DIR@/bin/slurmd-${2#slurmd.}
cd @DIR@
env -i PATH=\"$PATH\" SLURM_CONF=@DIR@/etc/slurm.conf setsid $line </dev/null >>log/$2.out 2>&1 9>&- &
stat=$(cat /proc/$!/stat) || exit 1
set -- \"$!\" ${stat##*) }
echo \"$1 ${21}\" >$record
";

impl Cluster {
    /// Makes the device files of all instances that a node's cards may have, and what the driver tells of them.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn name_instances(&self, node: &str, cards: u32) -> Result<(), LabError> {
        let machine = self.machine(node);
        let folder = machine.join("dev/nvidia-caps");
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let mut minor = 0;
        let mut device = |access: &Path| {
            minor += 1;
            fs::write(access, format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\n"))
                .map_err(at(access))?;
            let path = folder.join(format!("nvidia-cap{minor}"));
            let mode = Mode::from_bits_truncate(0o666);
            mknod(&path, SFlag::S_IFCHR, mode, makedev(MAJOR, minor))
                .map_err(|error| at(&path)(error.into()))
        };
        for card in 0..cards {
            for instance in 0..INSTANCES {
                let told = format!("capabilities/gpu{card}/mig/gi{instance}/ci0");
                let inside = machine.join(told);
                fs::create_dir_all(&inside).map_err(at(&inside))?;
                device(&inside.with_file_name("access"))?;
                device(&inside.join("access"))?;
            }
        }
        Ok(())
    }
}
