//! Slurm's reasons in plain words (squeue manual, "Job reason codes"; spellings as 22.05 prints them).

/// Reasons that are a word.
const WORDS: [(&str, &str); 30] = [
    ("None", "the scheduler has not looked at it yet"),
    ("Priority", "others in its partition go first, by priority, then by age"),
    ("Resources", "it is next, and not enough is free"),
    ("Dependency", "it waits for another job"),
    (
        "DependencyNeverSatisfied",
        "the job it waits for ended otherwise than it must: it never starts",
    ),
    ("JobHeldUser", "its user holds it; `scontrol release` lets it go"),
    ("JobHeldAdmin", "an administrator holds it"),
    ("BeginTime", "its start time is not yet there; a job that was sent back waits a while too"),
    ("JobArrayTaskLimit", "as many tasks of its array run as the array allows at once (%N)"),
    ("PartitionDown", "its partition is down"),
    ("PartitionInactive", "its partition takes no jobs"),
    ("PartitionTimeLimit", "its time limit is above that of its partition: it never starts so"),
    ("PartitionNodeLimit", "it asks more nodes than its partition allows: it never starts so"),
    ("PartitionConfig", "its partition does not allow what it asks"),
    ("AssociationJobLimit", "its user or account has as many jobs as allowed"),
    ("AssociationResourceLimit", "its user or account holds as much as allowed"),
    ("AssociationTimeLimit", "its user or account has used its time"),
    ("QOSJobLimit", "its QOS has as many jobs as allowed"),
    ("QOSResourceLimit", "its QOS holds as much as allowed"),
    ("QOSTimeLimit", "its QOS has used its time"),
    ("QOSNotAllowed", "its QOS is not allowed in its partition"),
    ("Licenses", "a license that it asks is in use"),
    ("Reservation", "its reservation has not begun or has no room"),
    ("ReservationDeleted", "its reservation is gone: it never starts so"),
    ("BadConstraints", "no node can be what it asks: it never starts so"),
    ("NodeDown", "a node that it asks is down"),
    ("Prolog", "its Prolog runs"),
    ("Cleaning", "its earlier run is still being cleaned up"),
    (
        "launch_failed_requeued_held",
        "its start failed, and Slurm holds it; `scontrol release` lets it go",
    ),
    ("DeadLine", "it cannot end before its deadline"),
];

/// Whose limit a reason tells of, by how it begins.
const WHOSE: [(&str, &str); 5] = [
    ("QOSMax", "its user has what the QOS allows each user"),
    ("QOSGrp", "all jobs of its QOS together have what it allows"),
    ("AssocMax", "its user has what the account allows each user"),
    ("AssocGrp", "all jobs of its account together have what it allows"),
    ("MaxJobsPer", "there are as many jobs as the site allows"),
];

/// Of what, by what is in it.
const OF_WHAT: [(&str, &str); 10] = [
    ("GRESMinutes", "GPU time"),
    ("GRESRunMinutes", "GPU time of running jobs"),
    ("GRES", "GPUs or shares"),
    ("Cpu", "CPUs"),
    ("CPU", "CPUs"),
    ("Mem", "memory"),
    ("Node", "nodes"),
    ("Billing", "billed resources"),
    ("Jobs", "jobs"),
    ("Wall", "time"),
];

/// A reason in words; as it is, if it is not known.
pub(super) fn in_words(reason: &str) -> String {
    if let Some((_, words)) = WORDS.iter().find(|(name, _)| *name == reason) {
        return (*words).to_owned();
    }
    if let Some(rest) = reason.strip_prefix("ReqNodeNotAvail") {
        let nodes = rest.split_once("UnavailableNodes:").map_or("", |(_, nodes)| nodes);
        let which = if nodes.is_empty() { String::new() } else { format!(": {nodes}") };
        return format!("nodes that it needs are out of use or reserved for others{which}");
    }
    if reason.starts_with("Nodes_required_for_job") || reason.starts_with("Nodes required for job")
    {
        return "nodes that it needs are down, drained or kept for partitions of higher priority"
            .into();
    }
    if let Some((_, whose)) = WHOSE.iter().find(|(begin, _)| reason.starts_with(begin)) {
        let what = OF_WHAT.iter().find(|(part, _)| reason.contains(part));
        return what.map_or((*whose).to_owned(), |(_, what)| format!("{whose}: {what}"));
    }
    reason.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_put_into_words() {
        assert!(in_words("Priority").contains("go first"));
        assert_eq!(
            in_words("ReqNodeNotAvail,_UnavailableNodes:n3"),
            "nodes that it needs are out of use or reserved for others: n3"
        );
        assert!(in_words("QOSMaxGRESPerUser").ends_with("each user: GPUs or shares"));
        assert!(
            in_words("AssocGrpBillingMinutes")
                .ends_with("together have what it allows: billed resources")
        );
        assert_eq!(in_words("Something_New"), "Something New");
    }
}
