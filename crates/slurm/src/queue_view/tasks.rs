//! Which tasks of an array a record stands for.

/// Tasks of an array, such as `7`, `3-5,9%2`, `0-100:2`; a list that Slurm has cut off ends in `...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// First, last, and from one to the next.
    ranges: Vec<(u32, u32, u32)>,
    is_cut: bool,
}

impl Tasks {
    /// Reads what Slurm calls `ArrayTaskId`; what has no meaning is passed over.
    pub fn parse(text: &str) -> Self {
        // Behind it stands how many may run at once.
        let list = text.split('%').next().unwrap_or_default();
        // The last number may have lost digits.
        let (list, is_cut) = match list.strip_suffix("...") {
            Some(begin) => (begin.rsplit_once(',').map_or("", |(whole, _)| whole), true),
            None => (list, false),
        };
        Self { ranges: list.split(',').filter_map(range).collect(), is_cut }
    }

    /// Whether a task is among those that are told.
    pub fn contains(&self, task: u32) -> bool {
        let has = |(first, last, step): &(u32, u32, u32)| {
            (*first..=*last).contains(&task) && (task - first).is_multiple_of(*step)
        };
        self.ranges.iter().any(has)
    }

    /// How many are told.
    pub fn count(&self) -> usize {
        let of = |(first, last, step): &(u32, u32, u32)| ((last - first) / step) as usize + 1;
        self.ranges.iter().map(of).fold(0, usize::saturating_add)
    }

    /// Whether there are more than are told.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

fn range(text: &str) -> Option<(u32, u32, u32)> {
    let (ends, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
    let (first, last, step) = (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
    (first <= last && step > 0).then_some((first, last, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_with_steps_and_limits_and_where_they_are_cut() {
        for (text, has, has_not, count, is_cut) in [
            ("7", vec![7], vec![0, 8], 1, false),
            ("3-5,9%2", vec![3, 4, 5, 9], vec![2, 6, 10], 4, false),
            ("1-100%10", vec![1, 100], vec![0, 101], 100, false),
            ("0-100:2", vec![0, 4, 100], vec![1, 101, 102], 51, false),
            ("1-10:4,20%1", vec![1, 5, 9, 20], vec![4, 10], 4, false),
            ("1,3,5-7,12...%3", vec![1, 3, 5, 7], vec![12, 123], 5, true),
            ("1...", vec![], vec![1], 0, true),
            ("", vec![], vec![0], 0, false),
            ("5-3,2-4:0,x", vec![], vec![2, 3, 4, 5], 0, false),
            ("0-4294967295", vec![u32::MAX], vec![], 1 << 32, false),
        ] {
            let tasks = Tasks::parse(text);
            assert!(has.iter().all(|task| tasks.contains(*task)), "{text}");
            assert!(!has_not.iter().any(|task| tasks.contains(*task)), "{text}");
            assert_eq!((tasks.count(), tasks.is_cut()), (count, is_cut), "{text}");
        }
    }
}
