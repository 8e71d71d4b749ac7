//! What the jobs noted of themselves.

use super::jobs::What;
use super::judge::{Claim, Part, Stay};

/// How many jobs of which kind came to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) all: usize,
    pub(super) whole: usize,
    pub(super) shards: usize,
    pub(super) instance: usize,
    /// Tasks of arrays, counted above too.
    pub(super) array: usize,
    /// Jobs that did not get the memory which was theirs.
    pub(super) short: usize,
}

/// What is in the notes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) done: Done,
    pub(super) stays: Vec<Stay>,
}

impl Notes {
    /// Lines `JOB NODE DEVICES KIND SHARDS ARRAY-TASK BEGUN END CODE`; others are passed over.
    pub(super) fn read(text: &str) -> Self {
        let mut notes = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // A job that was killed has not written to the end.
            let _whole_line = notes.line(&words);
        }
        notes
    }

    fn line(&mut self, words: &[&str]) -> Option<()> {
        let [job, node, devices, kind, shards, task, begun, end, code] = words else { return None };
        let what = What::of(kind, shards.parse().ok()?)?;
        let (job, begun_s, end_s) = (job.parse().ok()?, begun.parse().ok()?, end.parse().ok()?);
        let done = &mut self.done;
        let (count, part) = match what {
            What::Whole => (&mut done.whole, Part::Whole),
            What::Shards(count) => (&mut done.shards, Part::Of(count)),
            What::Instance => (&mut done.instance, Part::Whole),
        };
        *count += 1;
        done.all += 1;
        done.array += usize::from(*task != "-");
        done.short += usize::from(*code != "0");
        for device in devices.split(',') {
            let claim = Claim { job, device: format!("{node}/{device}"), part };
            self.stays.push(Stay { claim, begun_s, end_s });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::{moments_over, pairs_of_stays};
    use super::*;

    #[test]
    fn notes_are_counted_and_judged() {
        let log = "1 n1 0 whole 0 - 1.0 3.0 0\n2 n1 0 shards 20 1 2.5 4.0 0\n\
                   3 n1 1 shards 200 - 1.0 3.0 1\n4 n1 1 shards 200 - 2.0 3.0 0\n\
                   5 n2 0,1 whole 0 - 1.0 3.0 0\n6 n2 1 whole 0 - 3.01 5.0 0\n\
                   7 n2 5 instance 0 3 1.0 3.0 0\n8 n2 5 instance 0 - 2.0 3.0 0\n9 n2 5 inst";
        let notes = Notes::read(log);
        let wanted = Done { all: 8, whole: 3, shards: 3, instance: 2, array: 2, short: 1 };
        assert_eq!(notes.done, wanted);
        let pairs: Vec<_> =
            pairs_of_stays(&notes.stays).into_iter().map(|(_, a, b)| (a, b)).collect();
        assert_eq!(pairs, [(1, 2), (7, 8)]);
        assert_eq!(moments_over(&notes.stays, 317), 1);
    }
}
