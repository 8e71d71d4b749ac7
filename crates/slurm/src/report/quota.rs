//! Quotas beside what is held now over all sharing modes. Slurm counts whole GPUs and shards apart: a limit
//! on one does not see the other.

use formats::sacct::Tres;
use serde::Serialize;

use super::held::Equivalents;
use crate::commands::{Slurm, SlurmError};
use crate::queue_view::{JobView, QueueView};

/// Columns of `sacctmgr show assoc`.
const ASSOC: &str = "format=Account,User,GrpTRES,MaxTRES";
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
    Ok(of(&show("assoc", ASSOC)?, &show("qos", QOS)?, view))
}

/// As [`quotas`], of what sacctmgr printed.
pub(super) fn of(assoc: &str, qos: &str, view: &QueueView) -> Vec<Quota> {
    let mut found = Vec::new();
    for line in assoc.lines() {
        let [account, user, all, each] = columns(line);
        let whose = match user {
            "" => format!("account {account}"),
            user => format!("user {user} in account {account}"),
        };
        let is_theirs =
            |job: &&JobView| job.account == account && (user.is_empty() || job.user == user);
        let jobs: Vec<&JobView> = running(view).filter(is_theirs).collect();
        found.extend(quota(whose.clone(), all, &jobs, view));
        found.extend(quota(format!("each job of {whose}"), each, &[], view));
    }
    for line in qos.lines() {
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

fn columns(line: &str) -> [&str; 4] {
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
        held_billing: jobs.iter().map(|job| job.tres.billing).sum(),
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
                _ if device.compute_milli < 1000 => {
                    sum.mig += f64::from(device.compute_milli) / 1000.0;
                }
                _ => sum.whole += 1.0,
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
            jobs: "JobId=1 UserId=ann(1) Account=lab QOS=normal JobState=RUNNING BatchFlag=1 NodeList=n1 \
                   TRES=billing=7 Nodes=n1 CPU_IDs=0 Mem=1 GRES=shard:50(IDX:1)\n\
                   JobId=2 UserId=bob(2) Account=lab QOS=normal JobState=RUNNING BatchFlag=1 NodeList=n1 \
                   TRES=billing=1 Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:0)",
            ..Told::default()
        };
        let view = QueueView::of(&told, 0, 256);
        let assoc = "root|||\nlab||billing=100,gres/gpu=4|\nlab|ann||gres/shard=300\n";
        let found = of(assoc, "normal||gres/gpu=3|\nlow|||\n", &view);
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
}
