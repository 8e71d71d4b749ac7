//! The items of a script that ask for GPUs or parts of them, each with its place.

use std::ops::Range;

use formats::placed::Placed;

use crate::conf;

/// One item: `gpu:a100:2` of `--gres`, or `a100:2` of `--gpus`.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    /// The option that it stands in.
    pub(super) option: &'a Placed,
    /// `gpu`, `shard`, `mps` or what else `--gres` names.
    pub(super) name: &'a str,
    /// What stands behind the name, between colons.
    pub(super) words: Vec<&'a str>,
    /// Its bytes; those of the option if they are not known exactly.
    pub(super) span: Range<usize>,
    /// Whether they are.
    pub(super) is_exact: bool,
}

/// All items of a job; of two equal options the last counts.
pub(super) fn all(options: &[Placed]) -> Vec<Ask<'_>> {
    let of = |name: &'static str| options.iter().rfind(|option| option.name == name);
    let gpus = ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"];
    let counts = gpus.into_iter().filter_map(of).flat_map(|option| items(option, Some("gpu")));
    let gres = of("gres").into_iter().flat_map(|option| items(option, None));
    counts.chain(gres).collect()
}

/// * `name` — what the items are of, if they do not say it.
fn items<'a>(option: &'a Placed, name: Option<&'static str>) -> Vec<Ask<'a>> {
    let (mut asks, mut at) = (Vec::new(), 0);
    for item in option.value.split(',') {
        let bare = item.strip_prefix("gres:").or(item.strip_prefix("gres/")).unwrap_or(item);
        let (start, end) = (at + item.len() - bare.len(), at + item.len());
        let span = option.value_span.as_ref().map(|value| value.start + start..value.start + end);
        at = end + 1;
        if ["", "none"].contains(&bare.trim()) {
            continue;
        }
        let mut words = bare.split(':');
        let name = name.or_else(|| words.next()).unwrap_or_default();
        let is_exact = span.is_some();
        let span = span.unwrap_or_else(|| option.span.clone());
        asks.push(Ask { option, name, words: words.collect(), span, is_exact });
    }
    asks
}

impl Ask<'_> {
    /// Whether it is of the option `--gres`.
    pub(super) fn is_gres(&self) -> bool {
        self.option.name == "gres"
    }

    /// Its number, if it has one; 1 of `gpu` or `gpu:a100`.
    pub(super) fn count(&self) -> Option<u64> {
        match self.words.last() {
            Some(word) if is_number(word) => conf::count(word),
            None => Some(1),
            Some(_) => (self.is_gres() && self.words.len() == 1).then_some(1),
        }
    }

    /// The word that says that GPUs be shared, which Slurm has none for: `1:shared`, `shard:2`, all of GPUSHARED.
    pub(super) fn folk(&self) -> Option<&str> {
        let is_folk = |word: &&str| FOLK.iter().any(|it| word.eq_ignore_ascii_case(it));
        if self.name.eq_ignore_ascii_case("gpushared") {
            return Some(self.name);
        }
        self.words.iter().copied().find(is_folk).filter(|_| self.name == "gpu")
    }

    /// Whether the shell makes something else of it.
    pub(super) fn is_of_shell(&self) -> bool {
        self.option.value.contains(['$', '`'])
    }
}

/// What people write for a part of a GPU behind the number of GPUs.
const FOLK: [&str; 7] = ["shared", "share", "sharing", "gpushared", "shard", "shards", "mps"];

/// A number as Slurm counts: digits, and perhaps `K`, `M` or `G` behind.
pub(super) fn is_number(word: &str) -> bool {
    let digits = word.strip_suffix(['K', 'k', 'M', 'G']).unwrap_or(word);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
