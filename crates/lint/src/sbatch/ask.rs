//! The items of a script that ask for GPUs or parts of them, each with its place.

use std::ops::Range;

use formats::placed::Placed;

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

/// All items of a script; of two equal options the last counts.
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
        let span =
            option.value_span.as_ref().map(|value| value.start + at..value.start + at + item.len());
        at += item.len() + 1;
        let bare = item.strip_prefix("gres:").or(item.strip_prefix("gres/")).unwrap_or(item);
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
            Some(word) if is_number(word) => word.parse().ok(),
            None => Some(1),
            Some(_) => (self.is_gres() && self.words.len() == 1).then_some(1),
        }
    }

    /// Whether some word of it is `shared`, or all of it GPUSHARED.
    pub(super) fn is_folk(&self) -> bool {
        let shared =
            |word: &str| ["shared", "gpushared"].iter().any(|it| word.eq_ignore_ascii_case(it));
        self.name.eq_ignore_ascii_case("gpushared")
            || (self.name == "gpu" && self.words.iter().any(|word| shared(word)))
    }
}

/// Digits alone.
pub(super) fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}
