//! Finding the name that was meant.

/// Most names that are suggested.
const SUGGESTIONS_MAX: usize = 4;
/// Longer words are not compared: no name of ours is that long.
const WORD_MAX: usize = 64;

/// The known name that `word` most likely stands for, if one is close.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    near(word, known.iter().copied()).into_iter().next()
}

/// Known names close to `word`, closest first, those that go on from it before all others; letter
/// case and `_`, `-` are taken as equal.
pub fn near<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let word = plain(word);
    let rank = |name: &'a str| closeness(&word, &plain(name)).map(|rank| (rank, name));
    let mut found: Vec<_> = known.filter_map(rank).collect();
    found.sort();
    found.truncate(SUGGESTIONS_MAX);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Edits that still are a slip of the hand.
const SLIP_MAX: usize = 2;

/// Whether a word is another one with a slip in it: at most two letters off, and not the same.
pub fn is_slip(word: &str, name: &str) -> bool {
    let short = |text: &str| text.chars().take(WORD_MAX).collect::<String>();
    let near_in_length = word.len().abs_diff(name.len()) <= SLIP_MAX && word.len() <= WORD_MAX;
    word != name && near_in_length && edits(&short(word), &short(name)) <= SLIP_MAX
}

fn plain(word: &str) -> String {
    word.chars().take(WORD_MAX).filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase()
}

/// How far a name is off, smallest first; `None` if it is not close.
fn closeness(word: &str, name: &str) -> Option<(bool, usize)> {
    let distance = edits(word, name);
    let goes_on = word.len() >= 2 && name.starts_with(word);
    let begins = name.len() >= 2 && word.starts_with(name);
    let few = distance <= (word.len().max(name.len()) / 3).max(1);
    (few || goes_on || begins).then_some((!goes_on, distance))
}

/// Least number of insertions, removals, replacements and swaps of neighbours that turn one word
/// into the other (optimal string alignment).
fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let width = other.len() + 1;
    let mut table = vec![0; (one.len() + 1) * width];
    for at in 0..=one.len() {
        for to in 0..=other.len() {
            let cell = |back: usize, left: usize| table[(at - back) * width + to - left];
            table[at * width + to] = if at == 0 || to == 0 {
                at + to
            } else {
                let replaced = cell(1, 1) + usize::from(one[at - 1] != other[to - 1]);
                let swap = at > 1
                    && to > 1
                    && one[at - 1] == other[to - 2]
                    && one[at - 2] == other[to - 1];
                let swapped = if swap { cell(2, 2) + 1 } else { usize::MAX };
                replaced.min(swapped).min(cell(1, 0) + 1).min(cell(0, 1) + 1)
            };
        }
    }
    table.last().copied().unwrap_or(0)
}
