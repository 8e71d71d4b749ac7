//! What `scontrol show job -o -d` says: which jobs are in which state, and which devices Slurm has given them. Read
//! here and not by hotpot's own reader, which is what is tested.

use super::judge::{Claim, Part};

/// A job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) job: u32,
    pub(super) state: String,
    /// Slurm calls a job running while its Prolog is.
    pub(super) in_prolog: bool,
    /// How often it was started anew.
    pub(super) restarts: u64,
    /// Whether it asks for parts of cards.
    pub(super) wants_shards: bool,
    /// What it has, by its node.
    pub(super) held: Vec<Claim>,
}

/// All jobs of an answer.
pub(super) fn read(text: &str) -> Vec<Shown> {
    text.lines().map(one).filter(|shown| shown.job > 0).collect()
}

fn one(line: &str) -> Shown {
    let mut shown = Shown::default();
    let mut node = "";
    for (name, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        match name {
            // The first of an array's record is the task's own.
            "JobId" => shown.job = value.parse().unwrap_or(0),
            "JobState" => shown.state = value.to_owned(),
            "Reason" => shown.in_prolog = value == "Prolog",
            "Restarts" => shown.restarts = value.parse().unwrap_or(0),
            "TresPerNode" => shown.wants_shards = value.contains("shard"),
            "Nodes" => node = value,
            "GRES" => shown.held.extend(held(shown.job, node, value)),
            _ => {}
        }
    }
    shown
}

/// Reads such as `gpu:a100:2(IDX:0-1),shard:80(IDX:2)`.
fn held(job: u32, node: &str, text: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    for word in text.split(')') {
        let Some((what, list)) = word.split_once("(IDX:") else { continue };
        let what = what.trim_start_matches(',');
        let amount = what.rsplit(':').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let part = if what.starts_with("shard") { Part::Of(amount) } else { Part::Whole };
        let devices = list.split(',').flat_map(numbers);
        claims.extend(devices.map(|device| Claim {
            job,
            device: format!("{node}/{device}"),
            part,
        }));
    }
    claims
}

/// Reads `3` or `0-2`.
fn numbers(text: &str) -> Vec<u32> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    from.parse().ok().zip(to.parse().ok()).map_or(Vec::new(), |(from, to)| (from..=to).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_with_their_devices() {
        let text = "JobId=8 ArrayJobId=7 ArrayTaskId=2 JobName=wrap UserId=root(0) JobState=RUNNING Reason=None \
                    Requeue=1 Restarts=2 NodeList=n1 NumNodes=1 JOB_GRES=gpu:a100:2,gpu:1g.10gb:1   Nodes=n1 \
                    CPU_IDs=1 Mem=16 GRES=gpu:a100:2(IDX:0,2),gpu:1g.10gb:1(IDX:4) TresPerNode=gres:gpu:a100:2\n\n\
                    JobId=9 JobState=PENDING Restarts=0 TresPerNode=gres:shard:80\n\
                    JobId=10 JobState=RUNNING Reason=Prolog Nodes=n2 GRES=shard:80(IDX:1) TresPerNode=gres:shard:80\n";
        let jobs = read(text);
        assert_eq!((jobs.len(), jobs[0].job, jobs[0].restarts), (3, 8, 2));
        assert_eq!((jobs[0].state.as_str(), jobs[1].state.as_str()), ("RUNNING", "PENDING"));
        let devices: Vec<_> = jobs[0].held.iter().map(|claim| claim.device.as_str()).collect();
        assert_eq!(devices, ["n1/0", "n1/2", "n1/4"]);
        assert!(jobs[0].held.iter().all(|claim| claim.part == Part::Whole));
        assert!(jobs[1].wants_shards && jobs[1].held.is_empty() && !jobs[0].wants_shards);
        assert_eq!((jobs[0].in_prolog, jobs[2].in_prolog), (false, true));
        let wanted = Claim { job: 10, device: "n2/1".into(), part: Part::Of(80) };
        assert_eq!(jobs[2].held, [wanted]);
    }
}
