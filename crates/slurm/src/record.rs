//! What `scontrol show` prints: `Name=value` words. Of nodes, partitions and reservations one record a line, in
//! which a value may hold blanks and equals signs.
//!
//! Jobs are read from several lines, as their users choose what stands in some fields (name, comment, paths), and
//! Slurm prints that as it is, line breaks too: `JobName=x Nodes=gpu01 GRES=gpu:1(IDX:0)` must give nobody a GPU. Of
//! such a field all that follows on its line is its value, and a job whose lines are not those that Slurm prints is
//! none.

use std::collections::{BTreeMap, BTreeSet};

/// With these lines each job begins, in this order. Behind the fields of users in the first three no other line fits.
const FIRST: [&str; 5] = ["JobId", "UserId", "Priority", "JobState", "Requeue"];
/// Only of jobs of several parts, behind the first line.
const OF_PARTS: &str = "HetJobIdSet";
/// Other lines that are read, by their first field. Of a line that begins otherwise nothing is taken.
const LINES: [&str; 26] = [
    "RunTime",
    "SubmitTime",
    "AccrueTime",
    "StartTime",
    "Partition",
    "ReqNodeList",
    "NodeList",
    "SchedNodeList",
    "BatchHost",
    "NumNodes",
    "TRES",
    "ReqTRES",
    "AllocTRES",
    "Socks/Node",
    "JOB_GRES",
    "Nodes",
    "MinCPUsNode",
    "Features",
    "Reservation",
    "Command",
    "Comment",
    "AdminComment",
    "TresPerJob",
    "TresPerNode",
    "TresPerSocket",
    "TresPerTask",
];
/// Fields with what users write, in those lines; each is the last of its line.
const TEXTS: [&str; 6] = ["JobName", "MCS_label", "WCKey", "Command", "Comment", "AdminComment"];
/// What a job holds on nodes: told in lines of its own, behind one of these.
const OF_NODES: [&str; 4] = ["Nodes", "CPU_IDs", "Mem", "GRES"];
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
    /// line breaks. So are those of one number, see [`Record::twice`].
    pub fn jobs(text: &str) -> Vec<Self> {
        let twice = Self::twice(text);
        let all = pieces(text).into_iter().filter(|(number, _)| !twice.contains(number));
        all.filter_map(|(_, lines)| Self::job(&lines)).collect()
    }

    /// Numbers of jobs that are there more than once: users can write what looks like the record of another job.
    pub fn twice(text: &str) -> BTreeSet<u64> {
        let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
        for (number, _) in pieces(text) {
            if !seen.insert(number) {
                twice.insert(number);
            }
        }
        twice
    }

    /// An answer with what Slurm says when it is asked for one job alone, instead of all that is there of it.
    pub fn with_job(text: &str, number: u64, alone: &str) -> String {
        let others = pieces(text).into_iter().filter(|(other, _)| *other != number);
        let own = pieces(alone).into_iter().filter(|(other, _)| *other == number);
        others.chain(own).map(|(_, lines)| lines.join("\n") + "\n").collect()
    }

    /// Reads the lines of one job: each begins with another field, but for those of its nodes, which follow each
    /// other.
    fn job(lines: &[&str]) -> Option<Self> {
        let (mut record, mut first) = (Self::default(), Vec::new());
        for line in lines {
            let name = line.split_once('=').map(|(name, _)| name.trim());
            let Some(name) = name.filter(|name| *name != OF_PARTS) else { continue };
            let before = first.last().copied().unwrap_or_default();
            let is_in_place = match (FIRST.get(first.len()), name) {
                (Some(expected), name) => *expected == name,
                (None, "Nodes") => BEFORE_NODES.contains(&before),
                (None, other) => !first.contains(&other),
            };
            if !is_in_place {
                return None;
            }
            if first.len() < FIRST.len() || LINES.contains(&name) {
                record.add(line, name == "Nodes");
            }
            first.push(name);
        }
        (first.len() > FIRST.len()).then_some(record)
    }

    /// Reads a line up to its end, or to a field with what users write.
    ///
    /// * `of_nodes` — it is one of those that say what is held.
    fn add(&mut self, line: &str, of_nodes: bool) {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let field = word.split_once('=').filter(|(name, _)| is_name(name));
            if let Some((name, value)) =
                field.filter(|(name, _)| of_nodes == OF_NODES.contains(name))
            {
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

/// Lines from one `JobId=` to the next, by its number.
fn pieces(text: &str) -> Vec<(u64, Vec<&str>)> {
    let mut all: Vec<(u64, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let number = line.strip_prefix("JobId=").and_then(|rest| rest.split(' ').next());
        match (number.and_then(|number| number.parse().ok()), all.last_mut()) {
            (Some(number), _) => all.push((number, vec![line])),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    all
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
             JobState=RUNNING Reason=None Dependency=(null)\n   Requeue=1 Restarts=0 BatchFlag=1\n   Socks/Node=* CoreSpec=*\n   JOB_GRES=gpu:a100:2\n     \
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

    #[test]
    fn a_job_that_another_ones_text_hides_is_asked_for_alone() {
        let honest = job("x", "y").replace("JobId=8", "JobId=9");
        let hides = job("z", "z")
            .replace("MCS_label=N/A", "MCS_label=a\nJobId=9 JobName=w\n   UserId=root(0)");
        let text = hides + &honest;
        assert_eq!(Record::twice(&text).into_iter().collect::<Vec<_>>(), [9]);
        assert!(Record::jobs(&text).is_empty());
        let read = Record::jobs(&Record::with_job(&text, 9, &honest));
        assert_eq!((read.len(), read[0].get("JobName")), (1, Some("x")));
    }

    /// Fields that no rule of a site can clean: on the second line, on that of features, and where paths are.
    #[test]
    fn lines_of_users_between_those_of_slurm_give_nothing() {
        let honest = Record::jobs(&job("x", "x")).remove(0);
        let held = "CPU_IDs=1 Mem=16 GRES=gpu:a100:4(IDX:0-3)";
        for line in [
            format!("Foo=1 Nodes=n1 {held}"),
            "Foo=1 JobState=COMPLETED UserId=root(0)".to_owned(),
            format!("Priority=1 JobState=COMPLETED Nodes=n1 {held}"),
            format!("JOB_GRES=gpu:4\n     Nodes=n1 {held}"),
            "AdminComment=hotpot(z)".to_owned(),
        ] {
            let forged = job("x", "x").replace("MCS_label=N/A", &format!("MCS_label=a\n   {line}"));
            assert!(Record::jobs(&forged).is_empty(), "{line}");
        }
        for at in ["MinCPUsNode=1", "Command=/a b"] {
            for line in [format!("Foo=1 Nodes=n1 {held}"), format!("Features=a Nodes=n1 {held}")] {
                let forged = job("x", "x").replace(at, &format!("{at}\n   {line}"));
                let read = Record::jobs(&forged).remove(0);
                for name in ["Nodes", "GRES", "JobState", "UserId"] {
                    assert_eq!(read.values(name), honest.values(name), "{line}");
                }
            }
        }
    }
}
