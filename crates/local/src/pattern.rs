//! Slurm's patterns in names of output files: `%A_%a.log` becomes `12_7.log`.
//!
//! Patterns and their meaning: sbatch manual, "filename pattern". A number pads with zeros: `%4a`.

/// What the patterns stand for.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Number of the task's job: of its array, if it has one.
    pub job: u64,
    /// Number of the task.
    pub task: u64,
    /// Index in the array.
    pub index: Option<u32>,
    /// Name of the job.
    pub name: &'a str,
    /// User who runs it.
    pub user: &'a str,
    /// This machine's name, without its domain.
    pub host: &'a str,
}

/// Most digits that a number is padded to (sbatch manual: 10).
const WIDTH_MAX: usize = 10;

/// The name with its patterns replaced. A backslash anywhere turns patterns off, as in sbatch; an
/// unknown pattern stays as it is.
pub fn expand(pattern: &str, names: &Names<'_>) -> String {
    if pattern.contains('\\') {
        return pattern.replace('\\', "");
    }
    let mut out = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let width = after[..digits].parse().unwrap_or(0).min(WIDTH_MAX);
        let mut chars = after[digits..].chars();
        let value = chars.next().and_then(|letter| value(letter, width, names));
        rest = match value {
            Some(value) => {
                out.push_str(&value);
                chars.as_str()
            }
            None => {
                out.push('%');
                after
            }
        };
    }
    out + rest
}

fn value(letter: char, width: usize, names: &Names<'_>) -> Option<String> {
    let padded = |number: u64| format!("{number:0width$}");
    Some(match letter {
        '%' => "%".to_string(),
        'A' => padded(names.job),
        'a' => names.index.map_or_else(|| padded(0), |index| padded(u64::from(index))),
        'j' => padded(names.task),
        'J' => padded(names.task),
        'n' | 's' | 't' => padded(0),
        'N' => names.host.to_string(),
        'u' => names.user.to_string(),
        'x' => names.name.replace('/', "_"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_what_they_stand_for() {
        let names =
            Names { job: 12, task: 19, index: Some(7), name: "a/b", user: "ann", host: "box" };
        let cases = [
            ("slurm-%A_%a.out", "slurm-12_7.out"),
            ("%x-%j-%3a-%u@%N", "a_b-19-007-ann@box"),
            ("100%%", "100%"),
            ("%q %", "%q %"),
            ("%\\A", "%A"),
            ("%99a", "0000000007"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(expand(pattern, &names), expected, "{pattern}");
        }
    }
}
