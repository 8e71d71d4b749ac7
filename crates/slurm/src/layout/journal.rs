//! What a change of layout is about to do, written down before it does it: one file of JSON lines for each
//! change, on the machine that carries it out. Its first line is the plan.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::LayoutError;
use super::card::{Becomes, Files};
use super::plan::Plan;
use crate::whole;

/// Rights of the files.
const MODE: u32 = 0o644;

/// What a line says is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The plan of all of it.
    Plan,
    /// All nodes are to go back.
    Undo,
    /// What the node was is noted.
    Note,
    /// No more jobs.
    Drain,
    /// Its jobs end.
    Wait,
    /// Its cards are divided.
    Divide,
    /// Its slurmd is stopped, and slurmctld forgets it or is stopped.
    Stop,
    /// Slurm's files are written.
    Files,
    /// What was stopped is started.
    Start,
    /// It comes back with what it has now.
    Back,
    /// It takes jobs again.
    Resume,
    /// The node is finished.
    Done,
    /// All of it is finished.
    End,
}

/// What a node was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Old {
    /// Whether it registers itself.
    pub dynamic: bool,
    /// Whether Slurm knows shards.
    pub shards: bool,
    /// Its `Gres=`.
    pub gres: String,
    /// Its lines of gres.conf.
    pub gres_conf: String,
    /// Those of its cards that are to change.
    pub cards: Vec<Becomes>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What is about to be done.
    pub step: Step,
    /// To which node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether the node is on its way back.
    #[serde(default, skip_serializing_if = "is_not")]
    pub back: bool,
    /// Why it goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the node was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Old>,
    /// What is to stand in its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// The plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_not(flag: &bool) -> bool {
    !flag
}

impl Line {
    /// A line of that step, of a node or of all.
    pub fn of(step: Step, node: Option<&str>) -> Self {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self {
            step,
            node: node.map(str::to_owned),
            back: false,
            why: None,
            old: None,
            files: None,
            plan: None,
            at_ms: u64::try_from(at_ms).unwrap_or_default(),
        }
    }
}

/// A change's journal, ours alone as long as this lives.
#[derive(Debug)]
pub struct Journal {
    /// Its number.
    pub id: u64,
    path: PathBuf,
    file: File,
    /// Where its last whole line ends.
    end: u64,
    lines: Vec<Line>,
    _lock: File,
}

impl Journal {
    /// Begins one with a plan.
    ///
    /// # Errors
    /// Another change is not finished, or somebody carries one out now; the folder cannot be written.
    pub fn begin(folder: &Path, plan: &Plan) -> Result<Self, LayoutError> {
        node::state_dir::make(folder).map_err(|error| LayoutError::Usage(error.to_string()))?;
        let lock = lock(folder)?;
        let newest = finished(folder)?;
        let (id, path) = (newest + 1, file_of(folder, newest + 1));
        let line = Line { plan: Some(plan.clone()), ..Line::of(Step::Plan, None) };
        let made = || -> io::Result<(File, u64)> {
            let text = text(&line)?;
            whole::write(&path, &text, MODE)?;
            File::open(folder)?.sync_all()?;
            Ok((OpenOptions::new().append(true).open(&path)?, text.len() as u64))
        };
        let (file, end) =
            made().map_err(|error| LayoutError::file(&path.display().to_string(), error))?;
        Ok(Self { id, path, file, end, lines: vec![line], _lock: lock })
    }

    /// Opens the newest one.
    ///
    /// # Errors
    /// There is none, somebody carries it out now, or it cannot be read.
    pub fn newest(folder: &Path) -> Result<Self, LayoutError> {
        let none = || LayoutError::Usage("there is no change of layout".to_owned());
        let id = numbers(folder).last().copied().ok_or_else(none)?;
        let lock = lock(folder)?;
        let path = file_of(folder, id);
        let (lines, end) = read(&path)?;
        let failed = |error: io::Error| LayoutError::file(&path.display().to_string(), error);
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        Ok(Self { id, path, file, end, lines, _lock: lock })
    }

    /// Writes a line down for good.
    ///
    /// # Errors
    /// It cannot be written; what it says must then not be done.
    pub fn write(&mut self, line: Line) -> Result<(), LayoutError> {
        let written = text(&line).and_then(|text| self.append(&text));
        written.map_err(|error| LayoutError::file(&self.path.display().to_string(), error))?;
        self.lines.push(line);
        Ok(())
    }

    /// Of a line that was cut short nothing has been done: the next one takes its place.
    fn append(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(self.end)?;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        if written.is_ok() {
            self.end += text.len() as u64;
        } else {
            // The error tells more than one of clearing up would; the next line tries again.
            let _ = self.file.set_len(self.end).and_then(|()| self.file.sync_all());
        }
        written
    }

    /// All lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The plan.
    ///
    /// # Errors
    /// The file has none.
    pub fn plan(&self) -> Result<&Plan, LayoutError> {
        let plan = self.lines.first().and_then(|line| line.plan.as_ref());
        plan.ok_or_else(|| LayoutError::file(&self.path.display().to_string(), "it has no plan"))
    }

    /// Whether all of it is finished.
    pub fn is_over(&self) -> bool {
        is_over(&self.lines)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Sees that no change is left unfinished, and gives the number of the last one; 0 if there was none.
///
/// # Errors
/// One is.
pub fn finished(folder: &Path) -> Result<u64, LayoutError> {
    let newest = numbers(folder).last().copied().unwrap_or(0);
    if newest > 0 && !is_over(&read(&file_of(folder, newest))?.0) {
        return Err(LayoutError::Usage(format!(
            "layout {newest} is not finished: `hotpot slurm layout apply --resume` goes on with it, \
             `--undo` takes it back"
        )));
    }
    Ok(newest)
}

fn is_over(lines: &[Line]) -> bool {
    lines.last().is_some_and(|line| line.step == Step::End)
}

fn text(line: &Line) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

fn file_of(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id}.jsonl"))
}

fn numbers(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        entry.file_name().to_str()?.strip_suffix(".jsonl")?.parse::<u64>().ok()
    };
    let mut numbers: Vec<u64> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn lock(folder: &Path) -> Result<File, LayoutError> {
    let path = folder.join("lock");
    let file = File::create(&path)
        .map_err(|error| LayoutError::file(&path.display().to_string(), error))?;
    let taken = || LayoutError::Usage("another hotpot changes layouts now; wait for it".to_owned());
    file.try_lock().map_err(|_| taken())?;
    Ok(file)
}

/// The whole lines of a file, and where the last one ends. What stands behind that is no line, and may end
/// within a letter.
fn read(path: &Path) -> Result<(Vec<Line>, u64), LayoutError> {
    let failed = |why: String| LayoutError::file(&path.display().to_string(), why);
    let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let parse = |(line, number): (&[u8], u32)| {
        serde_json::from_slice(line).map_err(|error| failed(format!("line {number}: {error}")))
    };
    let lines = bytes[..end].split_inclusive(|byte| *byte == b'\n').zip(1..);
    Ok((lines.map(parse).collect::<Result<_, _>>()?, end as u64))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_journal_is_found_again_and_a_cut_line_is_none() {
        let folder = std::env::temp_dir().join(format!("hotpot-journal-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        assert!(Journal::newest(&folder).is_err());
        let mut journal = Journal::begin(&folder, &Plan::default()).unwrap();
        journal.write(Line::of(Step::Drain, Some("n1"))).unwrap();
        assert!(Journal::newest(&folder).is_err(), "it is carried out now");
        let path = journal.path().to_owned();
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all("{\"why\":\"7 ×".as_bytes().strip_suffix(b"\x97").unwrap()).unwrap();
        let refused = Journal::begin(&folder, &Plan::default()).unwrap_err().to_string();
        assert!(refused.contains("layout 1 is not finished"), "{refused}");
        let mut journal = Journal::newest(&folder).unwrap();
        let steps: Vec<Step> = journal.lines().iter().map(|line| line.step).collect();
        assert_eq!((steps, journal.is_over()), (vec![Step::Plan, Step::Drain], false));
        journal.write(Line::of(Step::End, None)).unwrap();
        drop(journal);
        assert_eq!(read(&path).unwrap().0.len(), 3);
        assert_eq!(Journal::begin(&folder, &Plan::default()).unwrap().id, 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Whether this process is the one that has no room for long files.
    const CRAMPED: &str = "HOTPOT_TEST_CRAMPED";

    #[test]
    fn a_line_without_room_leaves_no_half_of_it() {
        let folder = std::env::temp_dir().join("hotpot-journal-cramped");
        if std::env::var_os(CRAMPED).is_some() {
            return a_long_line_and_a_short_one(&folder);
        }
        let _ = fs::remove_dir_all(&folder);
        let name = "layout::journal::tests::a_line_without_room_leaves_no_half_of_it";
        let cramped = "trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", cramped]).arg(std::env::current_exe().unwrap()).arg(name);
        let output = shell.env(CRAMPED, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let mut journal = Journal::newest(&folder).unwrap();
        journal.write(Line::of(Step::End, None)).unwrap();
        let steps: Vec<Step> =
            read(journal.path()).unwrap().0.iter().map(|line| line.step).collect();
        assert_eq!(steps, [Step::Plan, Step::Drain, Step::End]);
        fs::remove_dir_all(&folder).unwrap();
    }

    fn a_long_line_and_a_short_one(folder: &Path) {
        let mut journal = Journal::begin(folder, &Plan::default()).unwrap();
        let long = Line { why: Some("x".repeat(4096)), ..Line::of(Step::Note, Some("n1")) };
        assert!(journal.write(long).is_err());
        journal.write(Line::of(Step::Drain, Some("n1"))).unwrap();
    }
}
