//! The file in which a node's agent says what a job's tasks are to see: `JOBS/JOBID.task`.
//!
//! ```text
//! hotpot-slurm-task/1
//! restart 0
//! device 0 GPU-8f3a…
//! file 0 /dev/nvidia0
//! set CUDA_MPS_PIPE_DIRECTORY /run/hotpot/mps
//! prepend LD_PRELOAD /usr/lib/hotpot/libhotpot_limiter.so
//! refuse the node has lost this GPU
//! sent-back another job is on this GPU
//! ```
//!
//! `restart` counts the job's starts before the one that is meant. `device` names what the number by which Slurm
//! counts a GPU of this node is for CUDA, `file` the device file that it has for itself, `set` and `prepend` change a
//! variable, `refuse` says why the job must not run here, `sent-back` why it is about to go back into the queue. A
//! value goes to the end of its line. Root writes the file, as a whole or not at all (written elsewhere, then
//! renamed).

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const HEAD: &str = "hotpot-slurm-task/1";
/// Bytes that a file has at most.
const SIZE_MAX: u64 = 64 * 1024;
/// Bits of a mode that let others than the owner write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What a job's tasks are to see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskFile {
    /// Starts of the job before the one that this is about.
    pub(crate) restart: Option<u32>,
    /// The job's GPUs on this node: Slurm's number and CUDA's name, in the order of the file.
    pub(crate) devices: Vec<(u32, String)>,
    /// Files that the devices have for themselves alone, by Slurm's number.
    pub(crate) files: Vec<(u32, String)>,
    /// Variables and their values.
    pub(crate) set: Vec<(String, String)>,
    /// Variables that are lists, and what goes in front.
    pub(crate) prepend: Vec<(String, String)>,
    /// Why the job must not run here.
    pub(crate) refuse: Option<String>,
    /// Whether it is about to be ended and to go back into the queue.
    pub(crate) sent_back: bool,
}

impl TaskFile {
    /// Reads a file; `None` if there is none, as for a job without GPUs.
    ///
    /// # Errors
    /// It cannot be trusted, or says what has no meaning.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, String> {
        let wrong = |why: String| format!("{}: {why}", path.display());
        let opened = OpenOptions::new()
            .read(true)
            // A pipe in its place does not make us wait, a link does not lead us elsewhere.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path);
        match opened {
            Ok(file) => Self::of(&file).map(Some).map_err(wrong),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    fn of(file: &File) -> Result<Self, String> {
        let about = file.metadata().map_err(|error| error.to_string())?;
        if !about.is_file() || about.uid() != 0 || about.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err("not a file that root alone can write".into());
        }
        let mut text = String::new();
        let limited = file.take(SIZE_MAX.saturating_add(1));
        let read = { limited }.read_to_string(&mut text).map_err(|error| error.to_string())?;
        if u64::try_from(read).is_ok_and(|read| read > SIZE_MAX) {
            return Err(format!("longer than {SIZE_MAX} bytes"));
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != HEAD) {
            return Err(format!("line 1: not '{HEAD}'; hotpot and its plugin are of two releases"));
        }
        let mut read = Self::default();
        for (index, line) in lines {
            let number = index.saturating_add(1);
            read.line(line).ok_or_else(|| format!("line {number}: '{line}' has no meaning"))?;
        }
        Ok(read)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (verb, rest) = line.split_once(' ')?;
        if matches!(verb, "refuse" | "sent-back") {
            self.refuse = Some(rest.into());
            self.sent_back = verb == "sent-back";
            return Some(());
        }
        if verb == "restart" {
            self.restart = Some(rest.parse().ok()?);
            return Some(());
        }
        let (name, value) = rest.split_once(' ')?;
        let value = value.to_string();
        match verb {
            "device" if !value.is_empty() => self.devices.push((name.parse().ok()?, value)),
            "file" if !value.is_empty() => self.files.push((name.parse().ok()?, value)),
            "set" => self.set.push((variable(name)?, value)),
            "prepend" if !value.is_empty() => self.prepend.push((variable(name)?, value)),
            _ => return None,
        }
        Some(())
    }
}

/// The name of a variable.
fn variable(name: &str) -> Option<String> {
    let is_name = !name.is_empty() && !name.contains(['=', '\0']);
    is_name.then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn all_that_a_file_can_say_is_read() {
        let text = "hotpot-slurm-task/1\nrestart 2\ndevice 0 GPU-8f\ndevice 3 MIG-1\nfile 0 /dev/nvidia0\nset A b c=d \nset E \n\
                    prepend LD_PRELOAD /x.so\nrefuse taken by job 7\n";
        let read = TaskFile::parse(text).unwrap();
        assert_eq!(read.restart, Some(2));
        assert_eq!(read.devices, [(0, "GPU-8f".into()), (3, "MIG-1".into())]);
        assert_eq!(read.files, [(0, "/dev/nvidia0".into())]);
        assert_eq!(read.set, [("A".into(), "b c=d ".into()), ("E".into(), String::new())]);
        assert_eq!(read.prepend, [("LD_PRELOAD".into(), "/x.so".into())]);
        assert_eq!(read.refuse.as_deref(), Some("taken by job 7"));
        assert!(!read.sent_back);
        let read = TaskFile::parse("hotpot-slurm-task/1\nsent-back taken by job 7\n").unwrap();
        assert!(read.sent_back && read.refuse.is_some());
    }

    #[test]
    fn what_has_no_meaning_is_an_error_with_its_line() {
        let said = |text: &str| TaskFile::parse(text).unwrap_err();
        assert!(said("").starts_with("line 1"));
        assert!(said("hotpot-slurm-task/2\n").contains("two releases"));
        for bad in
            ["device x GPU-1", "device 0", "device 0 ", "set A=B c", "unset A", "prepend A ", ""]
        {
            let text = format!("{HEAD}\nset A b\n{bad}\n");
            assert_eq!(said(&text), format!("line 3: '{bad}' has no meaning"));
        }
    }

    #[test]
    fn only_a_file_that_root_alone_can_write_is_believed() {
        let folder = std::env::temp_dir().join(format!("spank-task-file-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("1.task");
        assert_eq!(TaskFile::open(&path), Ok(None));
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            TaskFile::open(&path)
        };
        let good = write(&format!("{HEAD}\n"), 0o644);
        // SAFETY: asks who we are.
        if unsafe { libc::geteuid() } == 0 {
            assert_eq!(good, Ok(Some(TaskFile::default())));
        } else {
            assert!(good.unwrap_err().contains("root"));
        }
        assert!(write(&format!("{HEAD}\n"), 0o664).unwrap_err().contains("root alone"));
        let long = format!("{HEAD}\nset A {}\n", "x".repeat(70_000));
        assert!(write(&long, 0o644).is_err());
        std::os::unix::fs::symlink(&path, folder.join("2.task")).unwrap();
        assert!(TaskFile::open(&folder.join("2.task")).is_err());
        assert!(TaskFile::open(&folder).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
