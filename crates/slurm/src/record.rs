//! What `scontrol show` prints: `Name=value` words. Of nodes, partitions and reservations one record a line, in
//! which a value may hold blanks and equals signs.
//!
//! Jobs are read from several lines, as their users choose what stands in some fields (name, comment, paths), and
//! Slurm prints that as it is, line breaks too: `JobName=x Nodes=gpu01 GRES=gpu:1(IDX:0)` must give nobody a GPU. So
//! a field counts only on the line where Slurm prints it, in front of what users write there, and a job whose lines are
//! not those that Slurm prints is none. In no value anything steers a terminal.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

/// With these lines each job begins, in this order. Behind the fields of users in the first three no other line fits.
const FIRST: [&str; 5] = ["JobId", "UserId", "Priority", "JobState", "Requeue"];
/// Only of jobs of several parts, behind the first line.
const OF_PARTS: &str = "HetJobIdSet";
/// Lines that are known, by their first field, and what may be taken from each (Slurm's `src/api/job_info.c`, 22.05 to
/// 25.11). Each comes once; others, such as those of a burst buffer, are passed over. Fields that stand behind what a user writes are not among them, but for those that cannot be forged: Slurm
/// always prints them too, and what comes twice on a line is taken from nowhere.
const LINES: [(&str, &[&str]); 27] = [
    ("JobId", &["JobId", "ArrayJobId", "ArrayTaskId", "ArrayTaskThrottle", "JobName"]),
    ("UserId", &["UserId", "GroupId", "MCS_label"]),
    ("Priority", &["Priority", "Account", "QOS"]),
    ("JobState", &["JobState", "Reason", "Dependency"]),
    ("Requeue", &["Requeue", "Restarts", "BatchFlag"]),
    ("SubmitTime", &["SubmitTime"]),
    ("StartTime", &["StartTime", "EndTime"]),
    ("Partition", &["Partition"]),
    ("ReqNodeList", &["ReqNodeList", "ExcNodeList"]),
    ("NodeList", &["NodeList", "SchedNodeList"]),
    ("NumNodes", &["NumNodes", "NumCPUs", "NumTasks"]),
    ("TRES", &["TRES"]),
    ("ReqTRES", &["ReqTRES"]),
    ("AllocTRES", &["AllocTRES"]),
    ("Socks/Node", &[]),
    ("JOB_GRES", &[]),
    (OF_NODES, &HELD),
    ("MinCPUsNode", &["MinCPUsNode", "MinMemoryNode", "MinMemoryCPU"]),
    ("Features", &["Features"]),
    ("Reservation", &["Reservation"]),
    ("Command", &["Command"]),
    ("Comment", &["Comment"]),
    ("AdminComment", &["AdminComment"]),
    ("TresPerJob", &["TresPerJob"]),
    ("TresPerNode", &["TresPerNode"]),
    ("TresPerSocket", &["TresPerSocket"]),
    ("TresPerTask", &["TresPerTask"]),
];
/// Fields with what users write; each is the last of its line.
const TEXTS: [&str; 5] = ["JobName", "MCS_label", "Command", "Comment", "AdminComment"];
/// What a job holds, in a line for each group of nodes that hold alike.
const OF_NODES: &str = "Nodes";
const HELD: [&str; 4] = ["Nodes", "CPU_IDs", "Mem", "GRES"];
/// Lines that count only behind one of others, which are always there: what a user writes elsewhere makes none of them.
const BEHIND: [(&str, &[&str]); 5] = [
    ("TRES", &["NumNodes"]),
    ("ReqTRES", &["NumNodes"]),
    ("AllocTRES", &["ReqTRES"]),
    ("JOB_GRES", &["Socks/Node"]),
    (OF_NODES, &["Socks/Node", "JOB_GRES", OF_NODES]),
];

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
                    fields.entry(name.to_owned()).or_default().push(harmless(value));
                    last = Some(name.to_owned());
                }
                None => {
                    let values = last.as_ref().and_then(|name| fields.get_mut(name));
                    if let Some(value) = values.and_then(|values| values.last_mut()) {
                        value.push(' ');
                        value.push_str(&harmless(word));
                    }
                }
            }
        }
        Self(fields)
    }

    /// Reads all jobs of an answer, without `-o`; without those that cannot be read, see [`Record::by_number`].
    pub fn jobs(text: &str) -> Vec<Self> {
        Self::by_number(text).into_values().flatten().collect()
    }

    /// Reads one job of an answer, without `-o`; `None` if it is not there as Slurm prints it, once.
    pub fn job(text: &str, number: u64) -> Option<Self> {
        Self::by_number(text).remove(&number)?
    }

    /// Reads the jobs of an answer, without `-o`. `None` is one that is not what Slurm prints, or that is there more than
    /// once: its user has written line breaks, or another has written what looks like its record.
    pub fn by_number(text: &str) -> BTreeMap<u64, Option<Self>> {
        let mut all = BTreeMap::new();
        for (number, lines) in pieces(text) {
            match all.entry(number) {
                Entry::Vacant(free) => drop(free.insert(Self::of_lines(&lines))),
                Entry::Occupied(mut twice) => drop(twice.insert(None)),
            }
        }
        all
    }

    /// Reads the lines of one job: each begins with another field, but for those of its nodes.
    fn of_lines(lines: &[&str]) -> Option<Self> {
        let (mut record, mut seen, mut before) = (Self::default(), BTreeSet::new(), "");
        for line in lines {
            let name = line.split_once('=').map(|(name, _)| name.trim());
            let Some(name) = name.filter(|name| *name != OF_PARTS) else { continue };
            let fields = LINES.iter().find(|(first, _)| *first == name);
            let is_expected = FIRST.get(seen.len()).is_none_or(|expected| *expected == name);
            let follows = name == OF_NODES && before == OF_NODES;
            if !is_expected || fields.is_some() && !seen.insert(name) && !follows {
                return None;
            }
            let behind = BEHIND.iter().find(|(first, _)| *first == name);
            let counts = behind.is_none_or(|(_, lines)| lines.contains(&before));
            if let Some((_, fields)) = fields.filter(|_| counts) {
                record.add(line, fields);
            }
            before = if counts { name } else { "" };
        }
        (seen.len() > FIRST.len()).then_some(record)
    }

    /// Reads a line up to its end, or to a field with what users write.
    ///
    /// * `fields` — those that may be taken from it.
    fn add(&mut self, line: &str, fields: &[&str]) {
        let mut found: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let field = word.split_once('=').filter(|(name, _)| fields.contains(name));
            let is_text = field.is_some_and(|(name, _)| TEXTS.contains(&name));
            if let Some((name, value)) = field {
                let value = if is_text { &rest[name.len() + 1..] } else { value };
                found.entry(name).and_modify(|twice| *twice = None).or_insert(Some(value));
            }
            rest = if is_text { "" } else { after.trim_start() };
        }
        for name in fields {
            let value = found.get(name).copied().flatten();
            // Of each line of nodes all fields are there: they belong together.
            if let Some(value) = value.or((*fields == HELD).then_some("")) {
                self.0.entry((*name).to_owned()).or_default().push(harmless(value.trim_end()));
            }
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

/// Without what steers a terminal.
fn harmless(text: &str) -> String {
    text.replace(char::is_control, "?")
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
    fn a_job_that_another_ones_text_hides_is_not_read() {
        let honest = job("x", "y").replace("JobId=8", "JobId=9");
        let hides = job("z", "z")
            .replace("MCS_label=N/A", "MCS_label=a\nJobId=9 JobName=w\n   UserId=root(0)");
        let text = hides + &honest;
        let read = Record::by_number(&text);
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [(8, None), (9, None)]);
        assert_eq!(Record::job(&text, 9), None);
        assert_eq!(Record::job(&honest, 9).unwrap().get("JobName"), Some("x"));
        assert_eq!(Record::job(&honest, 8), None, "another one is not taken for it");
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

    /// Each field is taken from its own line, in front of what users write there.
    #[test]
    fn no_field_is_taken_from_a_line_that_is_not_its_own() {
        let forged = "JobId=9 ArrayJobId=15 ArrayTaskId=0 JobState=COMPLETED Restarts=9 UserId=root(0) GroupId=root(0) \
                      NodeList=n9 Nodes=n9 GRES=gpu:9 Requeue=1 BatchFlag=1 AdminComment=hotpot(z) Reservation=r";
        let honest =
            job("x", "x").replace("MinCPUsNode=1", "MinCPUsNode=1\n   Features=a DelayBoot=0");
        let read = Record::job(&honest, 8).unwrap();
        let same = |text: String, but: &[&str]| {
            let mut told = Record::job(&text, 8).unwrap_or_else(|| panic!("{text}"));
            let mut read = read.clone();
            for name in but {
                told.0.remove(*name);
                read.0.remove(*name);
            }
            assert_eq!(told, read, "{text}");
        };
        same(honest.replace("Features=a", &format!("Features=a {forged}")), &[]);
        same(honest.replace("MCS_label=N/A", &format!("MCS_label=N/A {forged}")), &["MCS_label"]);
        same(honest.replace("Network=(null)", &format!("Network=a {forged}")), &[]);
        let burst = "BurstBuffer=#DW stage_in type=a\n#DW stage_in type=b\n#DW stage_in type=b\n";
        same(honest.replace("Power=\n", burst), &[]);
        for first in [
            "AllocTRES=billing=1",
            "ReqTRES=a=1",
            "SchedNodeList=n1",
            "Reservation=r",
            "TresPerJob=x",
            "WorkDir=/a",
            "Foo=1",
        ] {
            let name = first.split('=').next().unwrap();
            let line = format!("StdOut=/o\n   {first} {forged}");
            let is_own = ["Reservation", "TresPerJob"].contains(&name);
            let taken = if is_own { name } else { "" };
            same(honest.replace("StdOut=/o", &line), &[taken]);
        }
    }

    #[test]
    fn what_a_job_holds_stands_behind_lines_that_are_always_there() {
        let held = "JOB_GRES=gpu:1\n     Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:0)";
        let without = job("x", "x").replace("   JOB_GRES=gpu:a100:2\n", "");
        for at in ["   Requeue=1", "   Socks/Node=*", "   MinCPUsNode=1", "   StdOut=/o"] {
            let forged = without.replace(at, &format!("   {held}\n{at}"));
            assert_eq!(Record::job(&forged, 8), None, "{at}");
        }
        let nodes = without.find("     Nodes=n1").unwrap()..without.find("   MinCPUsNode").unwrap();
        let waits = without.replace(&without[nodes], "");
        let forged = waits.replace("   StdOut=/o", &format!("   {held}\n   StdOut=/o"));
        assert_eq!(Record::job(&forged, 8), Record::job(&waits, 8));
    }

    #[test]
    fn what_comes_twice_on_a_line_is_taken_from_nowhere() {
        let text = job("x", "x").replace("Nice=0", "Nice=0 Account=a QOS=z QOS=normal");
        let read = Record::job(&text, 8).unwrap();
        assert_eq!((read.get("Account"), read.get("QOS")), (Some("a"), None));
    }

    #[test]
    fn nothing_in_a_value_steers_a_terminal() {
        let read = Record::job(&job("\u{1b}[2Jx\u{9b}2J", "y"), 8).unwrap();
        assert_eq!(read.get("JobName"), Some("?[2Jx?2J"));
        let node = Record::parse("NodeName=n1 Reason=a \u{1b}[2J b");
        assert_eq!(node.get("Reason"), Some("a ?[2J b"));
    }

    /// As many lines as fit into what is read of Slurm.
    #[test]
    fn many_lines_take_no_long() {
        let lines: String = (0..300_000).map(|line| format!("   x{line}=\n")).collect();
        let begun = std::time::Instant::now();
        assert!(Record::job(&job("x", "x").replace("   Power=\n", &lines), 8).is_some());
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    }
}
