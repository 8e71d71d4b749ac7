//! Quotas beside what is held now over all sharing modes. Slurm counts whole GPUs and shards apart: a limit
//! on one does not see the other.

use std::collections::BTreeMap;

use formats::sacct::Tres;
use serde::Serialize;

use super::held::Equivalents;
use crate::commands::{Slurm, SlurmError};
use crate::config::Config;
use crate::queue_view::{JobView, QueueView};

/// Columns of `sacctmgr show assoc`.
const ASSOC: &str = "format=Cluster,Account,ParentName,User,Partition,GrpTRES,MaxTRES";
/// Columns of `sacctmgr show qos`.
const QOS: &str = "format=Name,GrpTRES,MaxTRESPU,MaxTRESPA";

/// A limit, and what is held under it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Quota {
    /// Whose, such as `account lab` or `each user of QOS normal`.
    pub of: String,
    /// The limit as Slurm writes it.
    pub limit: String,
    /// Whole GPUs and instances that it allows together; `None` for no limit.
    pub gpus: Option<u64>,
    /// Shards that it allows.
    pub shards: Option<u64>,
    /// Billing that it allows.
    pub billing: Option<u64>,
    /// Held now, in GPU equivalents over all sharing modes; of a limit for each user, by who holds most.
    pub held_gpus: f64,
    /// What of it are shares, which a limit on GPUs does not see.
    pub held_shared_gpus: f64,
    /// Billing of what is held now.
    pub held_billing: u64,
}

/// Asks accounting for limits that touch GPUs, and counts what is held.
///
/// # Errors
/// Slurm does not answer.
pub fn quotas(slurm: Slurm, view: &QueueView) -> Result<Vec<Quota>, SlurmError> {
    let show = |what: &str, columns: &str| {
        slurm.call("sacctmgr", &["--noheader", "--parsable2", "show", what, columns])
    };
    let config = Config::ask(slurm)?;
    let cluster = config.get("ClusterName").unwrap_or_default();
    let mut found = of_associations(&show("assoc", ASSOC)?, cluster, view);
    found.extend(of_qos(&show("qos", QOS)?, view));
    Ok(found)
}

/// Limits of accounts and users, from what sacctmgr printed of all clusters.
fn of_associations(text: &str, cluster: &str, view: &QueueView) -> Vec<Quota> {
    let lines = text.lines().map(columns);
    let is_ours = |line: &[&str; 7]| line[0].eq_ignore_ascii_case(cluster);
    let lines: Vec<[&str; 7]> = lines.filter(is_ours).collect();
    // Lines of users name no parent.
    let parents = lines.iter().filter(|[_, _, parent, ..]| !parent.is_empty());
    let parents: BTreeMap<&str, &str> =
        parents.map(|[_, account, parent, ..]| (*account, *parent)).collect();
    let mut found = Vec::new();
    for [_, account, _, user, partition, all, each] in lines {
        let mut whose = match user {
            "" => format!("account {account}"),
            user => format!("user {user} in account {account}"),
        };
        if !partition.is_empty() {
            whose = format!("{whose}, partition {partition}");
        }
        let is_theirs = |job: &&JobView| match user {
            "" => is_under(&job.account, account, &parents),
            user => {
                let is_in = partition.is_empty() || job.partitions.iter().any(|it| it == partition);
                job.account == account && job.user == user && is_in
            }
        };
        let jobs: Vec<&JobView> = running(view).filter(is_theirs).collect();
        found.extend(quota(whose.clone(), all, &jobs, view));
        found.extend(quota(format!("each job of {whose}"), each, &[], view));
    }
    found
}

/// Whether an account is another, or a part of it: what an account's group may hold is for all below it (sacctmgr
/// manual, `GrpTRES`).
fn is_under(account: &str, other: &str, parents: &BTreeMap<&str, &str>) -> bool {
    let above = |account: &&str| parents.get(account).copied();
    // No more steps than there are accounts, whatever the lines say.
    let line = std::iter::successors(Some(account), above).take(parents.len() + 1);
    { line }.any(|account| account == other)
}

/// Limits of qualities of service.
fn of_qos(text: &str, view: &QueueView) -> Vec<Quota> {
    let mut found = Vec::new();
    for line in text.lines() {
        let [name, all, per_user, per_account] = columns(line);
        let jobs: Vec<&JobView> = running(view).filter(|job| job.qos == name).collect();
        found.extend(quota(format!("QOS {name}"), all, &jobs, view));
        let most = most(&jobs, view, |job| &job.user);
        found.extend(quota(format!("each user of QOS {name}"), per_user, &most, view));
        let most = self::most(&jobs, view, |job| &job.account);
        found.extend(quota(format!("each account of QOS {name}"), per_account, &most, view));
    }
    found
}

fn columns<const N: usize>(line: &str) -> [&str; N] {
    let mut values = line.split('|');
    std::array::from_fn(|_| values.next().unwrap_or_default())
}

fn running(view: &QueueView) -> impl Iterator<Item = &JobView> {
    view.jobs.iter().filter(|job| job.job.is_on_nodes())
}

/// The jobs of whoever holds most.
fn most<'a>(
    jobs: &[&'a JobView],
    view: &QueueView,
    whose: impl Fn(&JobView) -> &String,
) -> Vec<&'a JobView> {
    let of = |name: &String| {
        let theirs = jobs.iter().copied().filter(|job| whose(job) == name);
        theirs.collect::<Vec<_>>()
    };
    let all = jobs.iter().map(|job| of(whose(job)));
    all.max_by(|one, other| held(one, view).sum().total_cmp(&held(other, view).sum()))
        .unwrap_or_default()
}

fn quota(of: String, limit: &str, jobs: &[&JobView], view: &QueueView) -> Option<Quota> {
    let words = |name: &str| {
        let mut words = limit.split(',').filter_map(|word| word.split_once('='));
        words.find(|(word, _)| *word == name).and_then(|(_, value)| value.parse().ok())
    };
    let (gpus, shards, billing) = (words("gres/gpu"), words("gres/shard"), words("billing"));
    if !Tres::parse(limit).has_gpus() && [gpus, shards, billing].iter().all(Option::is_none) {
        return None;
    }
    let held = held(jobs, view);
    Some(Quota {
        of,
        limit: limit.to_owned(),
        gpus,
        shards,
        billing,
        held_gpus: held.sum(),
        held_shared_gpus: held.shared,
        held_billing: jobs.iter().map(|job| job.tres.billing).fold(0, u64::saturating_add),
    })
}

/// What jobs hold now, by the devices that they have.
#[expect(clippy::cast_precision_loss, reason = "counts of GPUs are small")]
fn held(jobs: &[&JobView], view: &QueueView) -> Equivalents {
    let mut sum = Equivalents::default();
    let booked = jobs.iter().flat_map(|job| &job.job.booked);
    for (node, booked) in booked.flat_map(|(node, all)| all.iter().map(move |one| (node, one))) {
        let devices = view.node(node).map_or(&[][..], |node| &node.devices);
        for (index, amount) in &booked.of_device {
            let Some(device) = devices.get(*index as usize) else { continue };
            match booked.name.as_str() {
                "shard" => sum.shared += *amount as f64 / device.shards.max(1) as f64,
                "mps" => sum.shared += *amount as f64 / device.mps.max(1) as f64,
                "gpu" if device.compute_milli < 1000 => {
                    sum.mig += f64::from(device.compute_milli) / 1000.0;
                }
                "gpu" => sum.whole += 1.0,
                // Devices of another kind.
                _ => {}
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_view::Told;

    #[test]
    fn limits_stand_beside_what_is_held_over_all_modes() {
        let told = Told {
            nodes: "NodeName=n1 State=MIXED Gres=gpu:a100:2,gpu:1g.10gb:7,shard:a100:400",
            jobs: "JobId=1\nUserId=ann(1)\nPriority=1 Account=lab QOS=normal\nJobState=RUNNING\nRequeue=1 \
                   BatchFlag=1\nNodeList=n1\nNumNodes=1\nTRES=billing=7\nSocks/Node=*\nNodes=n1 CPU_IDs=0 Mem=1 GRES=shard:50(IDX:1)\n\
                   JobId=2\nUserId=bob(2)\nPriority=1 Account=lab QOS=normal\nJobState=RUNNING\nRequeue=1 \
                   BatchFlag=1\nNodeList=n1\nNumNodes=1\nTRES=billing=1\nSocks/Node=*\nNodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:0)",
            ..Told::default()
        };
        let view = QueueView::of(&told, 0, 256);
        let assoc = "c|root||||||\nc|lab|root|||billing=100,gres/gpu=4|\nc|lab||ann|||gres/shard=300\n\
                     other|lab|root|||gres/gpu=1|\n";
        let mut found = of_associations(assoc, "c", &view);
        found.extend(of_qos("normal||gres/gpu=3|\nlow|||\n", &view));
        let told: Vec<_> = found
            .iter()
            .map(|quota| (quota.of.as_str(), quota.held_gpus, quota.held_billing))
            .collect();
        let expected = [
            ("account lab", 1.25, 8),
            ("each job of user ann in account lab", 0.0, 0),
            ("each user of QOS normal", 1.0, 1),
        ];
        assert_eq!(told, expected);
        assert_eq!((found[0].gpus, found[0].billing, found[0].shards), (Some(4), Some(100), None));
        assert_eq!((found[0].held_shared_gpus, found[1].shards), (0.25, Some(300)));
    }

    #[test]
    fn an_account_has_what_those_below_it_hold() {
        let job = |id: u32, account: &str, partition: &str, device: u32| {
            format!(
                "JobId={id}\nUserId=ann(1)\nPriority=1 Account={account} QOS=normal\nJobState=RUNNING\nRequeue=1 \
                 BatchFlag=1\nPartition={partition}\nNodeList=n1\nSocks/Node=*\nNodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:{device}),nic:1(IDX:3)\n"
            )
        };
        let jobs = job(1, "vision", "a", 0) + &job(2, "text", "a", 1) + &job(3, "text", "b", 2);
        let nodes = "NodeName=n1 State=MIXED Gres=gpu:a100:4,nic:4";
        let view = QueueView::of(&Told { nodes, jobs: &jobs, ..Told::default() }, 0, 256);
        let limit = "gres/gpu=4|";
        let lines = [
            "root|||",
            "lab|root||",
            "vision|lab||",
            "text|lab||",
            "text||ann|b",
            "text||ann|",
            "other|root||",
            "one|two||",
            "two|one||",
        ];
        let assoc: String = lines.iter().map(|line| format!("c|{line}|{limit}\n")).collect();
        let found = of_associations(&assoc, "C", &view);
        let told: Vec<_> = found.iter().map(|it| (it.of.as_str(), it.held_gpus)).collect();
        let expected = [
            ("account root", 3.0),
            ("account lab", 3.0),
            ("account vision", 1.0),
            ("account text", 2.0),
            ("user ann in account text, partition b", 1.0),
            ("user ann in account text", 2.0),
            ("account other", 0.0),
            ("account one", 0.0),
            ("account two", 0.0),
        ];
        assert_eq!(told, expected);
    }
}
