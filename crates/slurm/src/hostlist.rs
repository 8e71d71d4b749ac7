//! Lists as Slurm writes them: `n[1-3,07],m5`, `/dev/nvidia[0-3]`, `0-2,5`.

/// Names that one list, or all lists of one job, stand for at most: Slurm has no more nodes (`MAX_SLURM_NODES`).
pub const NAMES_MAX: usize = 1 << 16;
/// Letters of a name beside its numbers, digits of a number, and pairs of brackets in a name, at most. What has more
/// is no list of Slurm's.
const LETTERS_MAX: usize = 1024;
const DIGITS_MAX: usize = 20;
const BRACKETS_MAX: usize = 4;

/// The names of a list, in its order, [`NAMES_MAX`] of them at most. What cannot be read is left as it stands.
pub fn expand(list: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in parts(list) {
        let left = NAMES_MAX.saturating_sub(names.len());
        if left == 0 {
            break;
        }
        let is_read = part.matches('[').count() <= BRACKETS_MAX;
        match brackets(part).filter(|_| is_read) {
            Some((before, inside, after)) if before.len() + after.len() <= LETTERS_MAX => {
                let (numbers, tails) = (numbers_as_written(inside), expand(after));
                let with = |number: &String| {
                    let named = |tail: &String| format!("{before}{number}{tail}");
                    tails.iter().map(named).collect::<Vec<_>>()
                };
                names.extend(numbers.iter().flat_map(with).take(left));
            }
            _ => names.push(part.to_owned()),
        }
    }
    names
}

/// The shortest list of names in their order: `n[1-3,7],m5`.
pub fn fold(names: &[String]) -> String {
    let mut parts: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    for name in names {
        let digits = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        // A longer number is left alone.
        let (before, number) = name.split_at(digits.max(name.len().saturating_sub(18)));
        match parts.last_mut() {
            Some((same, ranges)) if *same == before && !number.is_empty() && !ranges.is_empty() => {
                match ranges.last_mut().filter(|(_, last)| follows(last, number)) {
                    Some(range) => range.1 = number,
                    None => ranges.push((number, number)),
                }
            }
            _ if number.is_empty() => parts.push((before, Vec::new())),
            _ => parts.push((before, vec![(number, number)])),
        }
    }
    parts.iter().map(|(before, ranges)| folded(before, ranges)).collect::<Vec<_>>().join(",")
}

fn folded(before: &str, ranges: &[(&str, &str)]) -> String {
    match ranges {
        [] => before.to_owned(),
        [(first, last)] if first == last => format!("{before}{first}"),
        _ => {
            let range = |(first, last): &(&str, &str)| match first == last {
                true => (*first).to_owned(),
                false => format!("{first}-{last}"),
            };
            format!("{before}[{}]", ranges.iter().map(range).collect::<Vec<_>>().join(","))
        }
    }
}

/// Whether a number is the next one, written as wide.
fn follows(last: &str, next: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let padded = last.starts_with('0') || next.starts_with('0');
    number(last).zip(number(next)).is_some_and(|(last, next)| last + 1 == next)
        && (last.len() == next.len() || !padded)
}

/// Whether a list names it. `ALL` names every node.
pub fn contains(list: &str, name: &str) -> bool {
    list == "ALL" || expand(list).iter().any(|one| one == name)
}

/// The numbers of a list such as `0-2,5`; `None` if it holds anything else.
pub fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || (last - first) as usize >= NAMES_MAX - found.len().min(NAMES_MAX) {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

/// Parts between commas that are not in brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut found, mut inside, mut from) = (Vec::new(), false, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                found.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[from..]);
    found
}

fn brackets(part: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = part.split_once('[')?;
    let (inside, after) = rest.split_once(']')?;
    Some((before, inside, after))
}

/// `01-03` is `01`, `02`, `03`.
fn numbers_as_written(inside: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in inside.split(',') {
        let ends = part.split_once('-').unwrap_or((part, part));
        match (ends.0.parse::<u64>(), ends.1.parse::<u64>()) {
            (Ok(first), Ok(last))
                if ends.0.len() <= DIGITS_MAX
                    && first <= last
                    && last - first < NAMES_MAX as u64 =>
            {
                let (wide, left) = (ends.0.len(), NAMES_MAX.saturating_sub(found.len()));
                found.extend((first..=last).take(left).map(|number| format!("{number:0wide$}")));
            }
            _ => found.push(part.to_owned()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        assert_eq!(expand("n[1-3,07],m5"), ["n1", "n2", "n3", "n07", "m5"]);
        assert_eq!(expand("r[1-2]n[08-09]"), ["r1n08", "r1n09", "r2n08", "r2n09"]);
        assert_eq!(expand("/dev/nvidia[0-1]"), ["/dev/nvidia0", "/dev/nvidia1"]);
        assert_eq!(numbers("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!((numbers(""), numbers("2-1"), numbers("0-x")), (None, None, None));
        assert!(contains("n[1-3]", "n2") && !contains("n[1-3]", "n4") && contains("ALL", "x"));
        assert_eq!(expand("n[1-"), ["n[1-"]);
    }

    #[test]
    fn no_list_is_too_long_to_be_read() {
        for list in [
            "[0-999999],".repeat(1000),
            "n[0-65535]".repeat(3),
            format!("n[{}]", "0-65535,".repeat(100)),
            format!("n[{}1-{}9]", "0".repeat(70_000), "0".repeat(70_000)),
            "[0-1]".repeat(100_000),
            format!("{}[0-65535]", "n".repeat(1 << 20)),
        ] {
            let names = expand(&list);
            let letters: usize = names.iter().map(String::len).sum();
            assert!(names.len() <= NAMES_MAX && letters <= 2 << 20, "{} {letters}", names.len());
        }
        assert_eq!(numbers(&["0-65535"; 3].join(",")), None);
        assert_eq!(numbers("0-65535").map(|all| all.len()), Some(NAMES_MAX));
    }

    #[test]
    fn names_are_folded_in_their_order() {
        for list in ["n[1-3,7],m5", "n1", "n[08-10]", "a,b", "n[9-11]", "n[2,1]", "10.0.0.[1-4]"] {
            assert_eq!(fold(&expand(list)), list);
        }
        assert_eq!(fold(&expand("n1,n2,n3,x,n4")), "n[1-3],x,n4");
        assert_eq!(fold(&expand("r[1-2]n[08-09]")), "r1n[08-09],r2n[08-09]");
        assert_eq!(fold(&[]), "");
    }
}
