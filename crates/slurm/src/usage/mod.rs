//! What a job used of a node's GPUs, kept where Slurm keeps the job: in the AdminComment of its accounting
//! record, as `hotpot-used(n1: gpu-mem=1712,gpu-time=12.3,launches=400,refused=3)`, one word for each node.

mod keep;
mod waiting;

use std::fmt;

use node::amounts;
use serde::Serialize;

use crate::on_node::Used;
pub(crate) use keep::is_disabled;
pub use keep::{publish, publish_later};
pub use waiting::write;

/// How a word begins and ends.
const BRACKETS: (&str, char) = ("hotpot-used(", ')');
const MIB: u64 = 1 << 20;

/// What a job used of one node's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsedOn {
    /// The node.
    pub node: String,
    /// The most memory that it held of any one device at once, what its contexts take included.
    pub memory_mib: u64,
    /// GPU time had, in seconds, all devices together; `None` if it was not measured.
    pub gpu_s: Option<f64>,
    /// Kernels and graphs launched.
    pub launches: u64,
    /// Allocations refused.
    pub refused: u64,
}

impl UsedOn {
    /// What the accounts of a job's devices come to; `None` if it has none.
    pub fn of(node: &str, used: &[Used]) -> Option<Self> {
        let first = used.first()?;
        let rest = &used[1..];
        let counts =
            rest.iter().fold(first.account.counts, |sum, one| sum.plus(&one.account.counts));
        let peak = used.iter().map(|one| one.account.peak_bytes).max().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "hundredths of a second are shown")]
        let gpu_s = counts.measured_us().map(|us| us as f64 / 1e6);
        let (memory_mib, launches) = (peak.div_ceil(MIB), counts.launches);
        Some(Self { node: node.to_owned(), memory_mib, gpu_s, launches, refused: counts.refused() })
    }

    /// What both come to, of two starts of one job on one node.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let gpu_s = match (self.gpu_s, other.gpu_s) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        Self {
            node: self.node.clone(),
            memory_mib: self.memory_mib.max(other.memory_mib),
            gpu_s,
            launches: self.launches.saturating_add(other.launches),
            refused: self.refused.saturating_add(other.refused),
        }
    }

    /// The word for a comment.
    pub fn word(&self) -> String {
        let time = self.gpu_s.map_or(String::new(), |seconds| format!("gpu-time={seconds:.2},"));
        let Self { node, memory_mib, launches, refused, .. } = self;
        let (begin, end) = BRACKETS;
        format!(
            "{begin}{node}: gpu-mem={memory_mib},{time}launches={launches},refused={refused}{end}"
        )
    }

    /// All words of a comment; what is not understood is passed over, as it is of another release.
    pub fn all_of(comment: &str) -> Vec<Self> {
        let words = comment.split(BRACKETS.0).skip(1);
        words.filter_map(|word| Self::parse(word.split_once(BRACKETS.1)?.0)).collect()
    }

    fn parse(word: &str) -> Option<Self> {
        let (node, values) = word.split_once(':')?;
        let mut used = Self { node: node.trim().to_owned(), ..Self::default() };
        for value in values.split(',') {
            let (name, value) = value.trim().split_once('=')?;
            match name {
                "gpu-mem" => used.memory_mib = value.parse().ok()?,
                "gpu-time" => used.gpu_s = Some(value.parse().ok().filter(|time| *time >= 0.0)?),
                "launches" => used.launches = value.parse().ok()?,
                "refused" => used.refused = value.parse().ok()?,
                _ => {}
            }
        }
        Some(used)
    }

    /// A comment with this word instead of an earlier one of the same node.
    pub fn noted_in(&self, comment: &str) -> String {
        let begin = format!("{}{}:", BRACKETS.0, self.node);
        let without = match comment.split_once(&begin) {
            Some((before, rest)) => {
                let after = rest.split_once(BRACKETS.1).map_or("", |(_, after)| after);
                format!("{} {}", before.trim(), after.trim())
            }
            None => comment.to_owned(),
        };
        format!("{} {}", without.trim(), self.word()).trim().to_owned()
    }
}

impl fmt::Display for UsedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held at most {}", amounts::mib(self.memory_mib))?;
        if let Some(seconds) = self.gpu_s {
            write!(f, ", {seconds:.1} s of GPU time")?;
        }
        write!(f, ", {} launches", self.launches)?;
        match self.refused {
            0 => Ok(()),
            1 => write!(f, ", 1 allocation refused"),
            many => write!(f, ", {many} allocations refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use node::account::{Account, Counts};

    use super::*;

    fn used(index: u32, peak_mib: u64, launches: u64, gpu_us: u64) -> Used {
        let counts = Counts { launches, gpu_us, refused_by_cap: 1, ..Counts::default() };
        let account = Account { peak_bytes: peak_mib * MIB, counts, ..Account::default() };
        Used { index, device: format!("GPU-{index}"), account }
    }

    #[test]
    fn devices_of_a_node_come_to_one_word() {
        let of = UsedOn::of("n1", &[used(0, 1712, 400, 12_000_000), used(1, 90, 4, 300_000)]);
        let of = of.unwrap();
        let word = "hotpot-used(n1: gpu-mem=1712,gpu-time=12.30,launches=404,refused=2)";
        assert_eq!(of.word(), word);
        assert_eq!(UsedOn::all_of(&format!("x {word} y")), [of]);
        assert_eq!(UsedOn::of("n1", &[]), None);
        let not_measured = UsedOn::of("n1", &[used(0, 1, 4, 0)]).unwrap();
        assert!(!not_measured.word().contains("gpu-time"));
    }

    #[test]
    fn words_of_other_nodes_stay() {
        let mut of = UsedOn { node: "n1".into(), memory_mib: 5, ..UsedOn::default() };
        let first = of.noted_in("hotpot(gpu-mem=9)");
        of.node = "n11".into();
        let both = of.noted_in(&first);
        of.memory_mib = 7;
        let again = of.noted_in(&both);
        let told: Vec<_> =
            UsedOn::all_of(&again).into_iter().map(|one| (one.node, one.memory_mib)).collect();
        assert_eq!(told, [("n1".to_owned(), 5), ("n11".to_owned(), 7)]);
        assert!(again.starts_with("hotpot(gpu-mem=9) hotpot-used(n1:"), "{again}");
        assert!(UsedOn::all_of("hotpot-used(n1: gpu-mem=x) hotpot-used(n2").is_empty());
    }
}
