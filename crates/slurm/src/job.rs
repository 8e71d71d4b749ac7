//! One job as `scontrol show job -d` tells of it.

use node::tool::ToolError;

use crate::ask::Ask;
use crate::commands::{Slurm, SlurmError};
use crate::gres::{self, Booked};
use crate::hostlist;
use crate::record::Record;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: u32,
    /// As users are told of it: its number, or `ARRAY_TASK`.
    pub name: String,
    /// How Slurm's programs are told of it alone: by its number; one task of each array has the number of the whole, and
    /// is told by both.
    pub target: String,
    /// `RUNNING`, `PENDING`, `COMPLETING` and so on, without flags.
    pub state: String,
    /// Whether its Prologs still run. In 22.05 it is `RUNNING` then (seen), in others `CONFIGURING`.
    pub in_prolog: bool,
    /// Its user's number.
    pub uid: u32,
    /// Its user's first group.
    pub gid: u32,
    /// Whether Slurm may start it anew: it has a script, and its user allows it.
    pub can_be_requeued: bool,
    /// How often it was started anew.
    pub restarts: u32,
    /// What only operators can write.
    pub admin_comment: String,
    /// Whether it asks for GPUs, or parts of one, on each of its nodes.
    pub wants_gpus: bool,
    /// What it holds, by node.
    pub booked: Vec<(String, Vec<Booked>)>,
}

impl Job {
    /// Asks Slurm for a job; `None` if there is no such job any more.
    ///
    /// # Errors
    /// Slurm does not answer, or what it says is no job.
    pub fn ask(slurm: Slurm, id: u32) -> Result<Option<Self>, SlurmError> {
        let words = ["show", "job", "-d", &id.to_string()];
        let answer = |answer: &str| {
            let (call, answer) = (format!("scontrol {}", words.join(" ")), answer.to_owned());
            SlurmError::Answer { call, answer }
        };
        let text = match slurm.call("scontrol", &words) {
            Err(error) if error.to_string().contains("Invalid job id") => return Ok(None),
            // Its user has written it.
            Err(SlurmError::Tool(ToolError::TooMuch { .. })) => return Err(answer("too much")),
            other => other?,
        };
        let job = Record::job(&text, id.into()).as_ref().and_then(Self::of);
        let unread = || answer(&text.chars().take(200).collect::<String>());
        job.map(Some).ok_or_else(unread)
    }

    /// Whether a job may still have processes on its nodes. One that cannot be read may: what it holds stays.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn may_be_there(
        slurm: Slurm,
        id: u32,
        is_there: impl Fn(&Self) -> bool,
    ) -> Result<bool, SlurmError> {
        match Self::ask(slurm, id) {
            Ok(job) => Ok(job.is_some_and(|job| job.is_on_nodes() && is_there(&job))),
            Err(SlurmError::Answer { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads a record.
    pub fn of(record: &Record) -> Option<Self> {
        let number = |name| record.number(name).and_then(|number| u32::try_from(number).ok());
        let in_brackets = |name: &str| {
            let text = record.get(name)?.rsplit_once('(')?.1;
            text.trim_end_matches(')').parse().ok()
        };
        let state = record.get("JobState")?;
        let lists = record.values("Nodes").iter().zip(record.values("GRES"));
        let booked = lists.flat_map(|(nodes, text)| {
            let booked = gres::booked(text);
            hostlist::expand(nodes).into_iter().map(move |node| (node, booked.clone()))
        });
        let booked: Vec<_> = booked.take(hostlist::NAMES_MAX + 1).collect();
        if booked.len() > hostlist::NAMES_MAX {
            return None;
        }
        let id = number("JobId")?;
        let task = number("ArrayJobId").zip(number("ArrayTaskId"));
        let name = task.map_or_else(|| id.to_string(), |(array, task)| format!("{array}_{task}"));
        let is_array = task.is_some_and(|(array, _)| array == id);
        let target = if is_array { name.clone() } else { id.to_string() };
        let state = state.split(['+', ' ']).next().unwrap_or(state);
        Some(Self {
            id,
            name,
            target,
            state: state.to_owned(),
            in_prolog: state == "CONFIGURING" || record.get("Reason") == Some("Prolog"),
            uid: in_brackets("UserId")?,
            gid: in_brackets("GroupId").unwrap_or(0),
            can_be_requeued: number("BatchFlag")? > 0 && number("Requeue") == Some(1),
            restarts: number("Restarts").unwrap_or(0),
            admin_comment: record.get("AdminComment").unwrap_or_default().to_owned(),
            wants_gpus: wants_gpus(record.get("TresPerNode").unwrap_or_default()),
            booked,
        })
    }

    /// What it holds on a node.
    pub fn booked_on(&self, node: &str) -> &[Booked] {
        let found = self.booked.iter().find(|(name, _)| name == node);
        found.map_or(&[], |(_, booked)| booked)
    }

    /// What its user asked of GPUs.
    ///
    /// # Errors
    /// See [`Ask::of_comment`].
    pub fn asked(&self) -> Result<Ask, String> {
        Ask::of_comment(&self.admin_comment)
    }

    /// Whether it may still have processes on its nodes.
    pub fn is_on_nodes(&self) -> bool {
        matches!(
            self.state.as_str(),
            "RUNNING"
                | "COMPLETING"
                | "CONFIGURING"
                | "SUSPENDED"
                | "STOPPED"
                | "STAGE_OUT"
                | "SIGNALING"
        )
    }
}

/// Whether `gres:gpu:a100:2,gres:shard:3`, in later releases `gres/gpu:a100=2`, asks for any.
fn wants_gpus(tres: &str) -> bool {
    gres::amounts(tres).any(|one| gres::is_of_gpus(one.name) && one.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_gpus_are_wanted_is_read_in_the_words_of_all_releases() {
        for yes in
            ["gres:gpu:1", "gres:gpu", "gres/gpu:a100=2", "gres:shard:3,gres:nic:1", "gres/mps=5"]
        {
            assert!(wants_gpus(yes), "{yes}");
        }
        for no in ["", "(null)", "gres:nic:1", "gres:gpu:0", "gres:none"] {
            assert!(!wants_gpus(no), "{no}");
        }
    }

    #[test]
    fn a_job_on_two_nodes_is_read() {
        let line = "JobId=8 JobName=wrap UserId=ann(1000) GroupId=ann(1001) JobState=RUNNING Requeue=1 \
                    Restarts=2 BatchFlag=1 AdminComment=hotpot(gpu-mem=2048) JOB_GRES=gpu:a100:3   \
                    Nodes=n1 CPU_IDs=1 Mem=16 GRES=gpu:a100:2(IDX:1-2)   Nodes=n2 CPU_IDs=0 Mem=16 \
                    GRES=gpu:a100:1(IDX:0) MinCPUsNode=1 ";
        let job = Job::of(&Record::parse(line)).unwrap();
        assert_eq!((job.id, job.uid, job.gid, job.restarts), (8, 1000, 1001, 2));
        assert!(job.can_be_requeued && job.is_on_nodes());
        assert_eq!(job.booked_on("n1")[0].of_device.len(), 2);
        assert_eq!(job.booked_on("n2")[0].of_device.len(), 1);
        assert!(job.booked_on("n3").is_empty());
        assert_eq!((job.name.as_str(), job.target.as_str()), ("8", "8"));
        let of_array = |array| {
            let line =
                line.replace("JobName", &format!("ArrayJobId={array} ArrayTaskId=3 JobName"));
            let job = Job::of(&Record::parse(&line)).unwrap();
            [job.name, job.target]
        };
        assert_eq!(of_array(7), ["7_3", "8"], "no other job's number is acted on");
        assert_eq!(of_array(8), ["8_3", "8_3"]);
        let bomb = line.replace("GRES=gpu:a100:1(IDX:0)", &"GRES= Nodes=[0-65535] ".repeat(160));
        assert_eq!(Job::of(&Record::parse(&bomb)), None);
        assert_eq!(job.asked().unwrap().memory_mib, Some(2048));
        let in_prolog = |line: &str| Job::of(&Record::parse(line)).unwrap().in_prolog;
        assert!(!in_prolog(line));
        assert!(in_prolog(&line.replace("RUNNING", "CONFIGURING")));
        assert!(in_prolog(&line.replace("RUNNING", "RUNNING Reason=Prolog")));
    }
}
