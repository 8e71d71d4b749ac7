//! What the daemons read: `slurm.conf`, `slurmdbd.conf`, `cgroup.conf`, `gres.conf`.
//!
//! The keys are those of Slurm's manual pages; the remarks say what was found out with Slurm 22.05.

use std::fmt::Write;
use std::path::PathBuf;

use lab_base::Place;

use crate::options::Options;
use crate::ports::Ports;

/// The configuration that commands and daemons read.
pub(crate) fn path(place: &Place) -> PathBuf {
    place.path("etc/slurm.conf")
}

/// Jobs open only the devices and take only the memory that they were given.
pub(crate) const CGROUP: &str = "\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainDevices=yes
ConstrainRAMSpace=yes
ConstrainCores=no
";

/// `slurm.conf`.
///
/// * `host` — this host's name, as slurmctld and slurmd find it out for themselves.
pub(crate) fn slurm(options: &Options, place: &Place, ports: &Ports, host: &str) -> String {
    let parts = [
        daemons(options, place, ports, host),
        containment(options).to_string(),
        scheduling(options),
        if options.accounting { accounting(options, place, ports) } else { String::new() },
        nodes(options, ports, host),
        partitions(options),
        options.slurm_conf.clone(),
    ];
    parts.join("\n") + "\n"
}

fn daemons(options: &Options, place: &Place, ports: &Ports, host: &str) -> String {
    let dir = place.root().display();
    let jwt = jwt(options, place);
    // cred_expire: a requeued job may start again after these seconds, not after 120.
    // NO_CONF_HASH: dynamic nodes have a file of their own.
    format!(
        "\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={}
SlurmdPort={}
SlurmUser=root
SlurmdUser=root
MailProg=/bin/true
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge.sock,cred_expire=10
CredType=cred/munge
{jwt}StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/slurmd.%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
DebugFlags=NO_CONF_HASH
ReturnToService=2
SlurmdTimeout=60
TaskProlog={dir}/bin/task-prolog
PrologFlags=Alloc
",
        ports.slurmctld(),
        ports.dynamic(),
    )
}

fn containment(options: &Options) -> &'static str {
    if options.cgroup {
        "\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
"
    } else {
        "\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
"
    }
}

fn scheduling(options: &Options) -> String {
    // config_overrides: the nodes claim more CPUs and memory than the host has. The main scheduler wakes
    // once a second whatever SchedulerParameters say.
    let preemption = if options.preempt {
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE"
    } else {
        "PreemptType=preempt/none\nPreemptMode=OFF"
    };
    format!(
        "\
JobAcctGatherFrequency=task=5
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
KillWait=2
MinJobAge=300
MaxArraySize=10001
MaxJobCount=100000
JobRequeue=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=16
GresTypes={}
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,bf_continue,default_queue_depth=1000
PriorityType=priority/multifactor
{preemption}
",
        options.gres_names().join(","),
    )
}

fn accounting(options: &Options, place: &Place, ports: &Ports) -> String {
    let mut tres = String::new();
    for name in options.gres_names() {
        let _ = write!(tres, "{}gres/{name}", if tres.is_empty() { "" } else { "," });
    }
    // With slurmdbd, AccountingStoragePass is no password: it names munged's socket.
    format!(
        "\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={}
AccountingStoragePass={}/run/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES={tres},gres/gpu:{}
",
        ports.slurmdbd(),
        place.root().display(),
        options.gres_type,
    )
}

fn nodes(options: &Options, ports: &Ports, host: &str) -> String {
    let mut text = String::new();
    if options.dynamic > 0 {
        text.push_str("MaxNodeCount=256\nTreeWidth=65533\n");
    }
    let has = node_has(options, &options.node_gres());
    for (index, node) in options.static_nodes().iter().enumerate() {
        let port = ports.node(index);
        let _ = writeln!(
            text,
            "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {has} State=UNKNOWN"
        );
    }
    text
}

/// What a node offers, as `slurm.conf` and `slurmd --conf` write it.
pub(crate) fn node_has(options: &Options, gres: &str) -> String {
    let gres = if gres.is_empty() { String::new() } else { format!(" Gres={gres}") };
    format!("CPUs={} RealMemory={}{gres}", options.cpus, options.memory_mib)
}

fn partitions(options: &Options) -> String {
    let (batch, online) = match options.preempt {
        true => (" PreemptMode=REQUEUE", " PreemptMode=OFF"),
        false => ("", ""),
    };
    let all = "Nodes=ALL MaxTime=INFINITE State=UP";
    format!(
        "\
PartitionName=batch {all} Default=YES PriorityTier=1{batch}
PartitionName=online {all} PriorityTier=10{online}
"
    )
}

/// How slurmctld and slurmdbd know who comes by REST.
fn jwt(options: &Options, place: &Place) -> String {
    if !options.rest {
        return String::new();
    }
    let dir = place.root().display();
    format!("AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={dir}/etc/jwt.key\n")
}

/// `slurmdbd.conf`.
pub(crate) fn slurmdbd(options: &Options, place: &Place, ports: &Ports) -> String {
    let dir = place.root().display();
    let jwt = jwt(options, place);
    format!(
        "\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge.sock
{jwt}StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
PidFile={dir}/run/slurmdbd.pid
LogFile={dir}/log/slurmdbd.log
DebugLevel=info
",
        ports.slurmdbd()
    )
}

/// A node's lines of `gres.conf`.
///
/// * `devices` — the folder of its device files.
pub(crate) fn gres(options: &Options, node: &str, devices: &str) -> String {
    if let Some(text) = &options.gres_conf {
        return text.replace("@NODE@", node).replace("@DEV@", devices) + "\n";
    }
    let mut text = String::new();
    for index in 0..options.gpus {
        let kind = &options.gres_type;
        let _ = writeln!(text, "NodeName={node} Name=gpu Type={kind} File={devices}/nvidia{index}");
    }
    if options.gpus > 0 && options.shards > 0 {
        let count = options.gpus * options.shards;
        let _ = writeln!(text, "NodeName={node} Name=shard Count={count}");
    }
    text
}
