//! What `scontrol show` prints: `Name=value` words. Of nodes, partitions and reservations one record a line, in
//! which a value may hold blanks and equals signs.
//!
//! Jobs are read from several lines, as their users choose what stands in some fields (name, comment, paths), and
//! Slurm prints that as it is, line breaks too: `JobName=x Nodes=gpu01 GRES=gpu:1(IDX:0)` must give nobody a GPU. Of
//! such a field all that follows on its line is its value, and a job whose lines are not those that Slurm prints is
//! none.

use std::collections::BTreeMap;

/// Fields with what users write; each is the last one of its line, as far as others of it are of use to us.
const TEXTS: [&str; 19] = [
    "JobName",
    "MCS_label",
    "WCKey",
    "Reservation",
    "Network",
    "Command",
    "SubmitLine",
    "WorkDir",
    "Comment",
    "AdminComment",
    "SystemComment",
    "Extra",
    "StdErr",
    "StdIn",
    "StdOut",
    "MailUser",
    "BurstBuffer",
    "Container",
    "TresBind",
];
/// The second line of each job begins with it: nothing of the first, which ends with the name, goes on behind it.
const SECOND: &str = "UserId";
/// What a job holds on nodes stands behind one of these.
const BEFORE_NODES: [&str; 3] = ["Socks/Node", "JOB_GRES", "Nodes"];

/// One record, by name of its fields. A name that comes again, as the lines for each node of a job do, is
/// kept in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<String, Vec<String>>);

impl Record {
    /// Reads one line.
    pub fn parse(line: &str) -> Self {
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut last: Option<String> = None;
        for word in line.split_whitespace() {
            match word.split_once('=').filter(|(name, _)| is_name(name)) {
                Some((name, value)) => {
                    fields.entry(name.to_owned()).or_default().push(value.to_owned());
                    last = Some(name.to_owned());
                }
                None => {
                    let values = last.as_ref().and_then(|name| fields.get_mut(name));
                    if let Some(value) = values.and_then(|values| values.last_mut()) {
                        value.push(' ');
                        value.push_str(word);
                    }
                }
            }
        }
        Self(fields)
    }

    /// Reads all jobs of an answer, without `-o`. One that is not what Slurm prints is left out: its user has written
    /// line breaks. So are those of one number.
    pub fn jobs(text: &str) -> Vec<Self> {
        let mut all: Vec<Vec<&str>> = Vec::new();
        for line in text.lines() {
            match all.last_mut() {
                _ if line.starts_with("JobId=") => all.push(vec![line]),
                Some(lines) => lines.push(line),
                None => {}
            }
        }
        let mut jobs: Vec<Self> = all.iter().filter_map(|lines| Self::job(lines)).collect();
        let mut count = BTreeMap::new();
        for job in &jobs {
            *count.entry(job.number("JobId")).or_insert(0) += 1;
        }
        jobs.retain(|job| count.get(&job.number("JobId")) == Some(&1));
        jobs
    }

    /// Reads the lines of one job: each begins with another field, but for those of its nodes, which follow each
    /// other.
    fn job(lines: &[&str]) -> Option<Self> {
        let (mut record, mut first) = (Self::default(), Vec::new());
        for line in lines {
            let Some(name) = line.split_once('=').map(|(name, _)| name.trim()) else { continue };
            let before = first.last().copied().unwrap_or_default();
            let is_in_place = match name {
                "Nodes" => BEFORE_NODES.contains(&before),
                other => !first.contains(&other),
            };
            if !is_in_place {
                return None;
            }
            first.push(name);
            record.add(line);
        }
        (first.get(1) == Some(&SECOND)).then_some(record)
    }

    /// Reads a line up to its end, or to a field with what users write.
    fn add(&mut self, line: &str) {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let field = word.split_once('=').filter(|(name, _)| is_name(name));
            if let Some((name, value)) = field {
                let is_text = TEXTS.contains(&name);
                let value = if is_text { &rest[name.len() + 1..] } else { value };
                self.0.entry(name.to_owned()).or_default().push(value.trim_end().to_owned());
                if is_text {
                    return;
                }
            }
            rest = after.trim_start();
        }
    }

    /// Reads all records of an answer.
    pub fn all(text: &str) -> Vec<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(Self::parse).filter(|record| !record.0.is_empty()).collect()
    }

    /// The first value of a field; `None` if it is not there, empty, or one of Slurm's words for nothing.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.first()?.trim();
        (!matches!(value, "" | "(null)" | "N/A" | "None")).then_some(value)
    }

    /// All values of a field.
    pub fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

/// Names begin with a capital letter, as `JobId`, `NtasksPerN:B:S:C` and `Nice`; words of a comment rarely do.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || matches!(one, ':' | '_' | '/' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_fields_and_the_rest_belongs_to_the_last() {
        let line = "JobId=7 JobName=a b Reason=None TRES=cpu=1,gres/shard=2 Nodes=n1 CPU_IDs=0 Nodes=n2 \
                    NtasksPerN:B:S:C=0:0:*:* Comment=(null)";
        let record = Record::parse(line);
        assert_eq!(record.number("JobId"), Some(7));
        assert_eq!(record.get("JobName"), Some("a b"));
        assert_eq!(record.get("TRES"), Some("cpu=1,gres/shard=2"));
        assert_eq!(record.values("Nodes"), ["n1", "n2"]);
        assert_eq!((record.get("Reason"), record.get("Comment")), (None, None));
    }

    /// As 22.05 prints it, with only some of the fields.
    fn job(name: &str, comment: &str) -> String {
        format!(
            "JobId=8 JobName={name}\n   UserId=ann(1000) GroupId=ann(1001) MCS_label=N/A\n   Priority=1 Nice=0\n   \
             JobState=RUNNING Reason=None Dependency=(null)\n   Socks/Node=* CoreSpec=*\n   JOB_GRES=gpu:a100:2\n     \
             Nodes=n1 CPU_IDs=1 Mem=16 GRES=gpu:a100:1(IDX:1)\n     Nodes=n2 CPU_IDs=0 Mem=16 GRES=gpu:a100:1(IDX:0)\n   \
             MinCPUsNode=1\n   OverSubscribe=OK Licenses=(null) Network=(null)\n   Command=/a b\n   \
             Comment={comment} \n   StdOut=/o\n   Power=\n   TresPerNode=gres:gpu:1\n   \n\n"
        )
    }

    #[test]
    fn jobs_are_read_from_their_lines() {
        let text = job("a b", "c=d e") + &job("x", "y").replace("JobId=8", "JobId=9 ArrayJobId=7");
        let jobs = Record::jobs(&text);
        assert_eq!(jobs.len(), 2);
        assert_eq!(jobs[0].get("JobName"), Some("a b"));
        assert_eq!((jobs[0].get("Comment"), jobs[0].get("Command")), (Some("c=d e"), Some("/a b")));
        assert_eq!(jobs[0].values("Nodes"), ["n1", "n2"]);
        assert_eq!(jobs[0].get("TresPerNode"), Some("gres:gpu:1"));
        assert_eq!((jobs[1].number("JobId"), jobs[1].number("ArrayJobId")), (Some(9), Some(7)));
    }

    #[test]
    fn nobody_forges_a_field_by_what_he_writes() {
        for text in ["x UserId=root(0)", "x Nodes=n1 GRES=gpu:1(IDX:0)", "JobState=COMPLETED"] {
            let honest = Record::jobs(&job("x", "x")).remove(0);
            for forged in [job(text, "x"), job("x", text)] {
                let read = Record::jobs(&forged).remove(0);
                for name in ["UserId", "Nodes", "GRES", "JobState"] {
                    assert_eq!(read.values(name), honest.values(name), "{text}");
                }
            }
        }
        for text in [
            "x\n   JobState=COMPLETED",
            "x\n   UserId=root(0)",
            "x\n   UserId=root(0)\n   JobState=COMPLETED",
            "x\n     Nodes=n9 GRES=gpu:1(IDX:0)",
            "x\n   Socks/Node=*\n     Nodes=n9 GRES=gpu:1(IDX:0)",
            "x\n   JOB_GRES=gpu:1",
            "x\n\nJobId=8 JobName=y\n   UserId=root(0)",
        ] {
            assert!(Record::jobs(&job(text, "x")).is_empty(), "{text}");
            assert!(Record::jobs(&job("x", text)).is_empty(), "{text}");
        }
    }
}
