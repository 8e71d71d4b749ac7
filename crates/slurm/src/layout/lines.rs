//! Lines of Slurm's configuration, changed in place: `Key=value` words, a comment behind `#`, and a line that
//! goes on behind a backslash. All bytes that need not change stay.

use std::ops::Range;

use crate::hostlist;

/// Keys of a line of nodes whose lists run beside that of their names (slurm.conf manual, "NodeName").
const BESIDE: [&str; 4] = ["NodeAddr", "NodeHostname", "BcastAddr", "Port"];

/// Lines with those that they go on with, each with its end.
pub(super) fn logical(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.split_inclusive('\n') {
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(line),
            None => lines.push(line.to_owned()),
        }
        goes_on = line.trim_end_matches(['\n', '\r']).ends_with('\\');
    }
    lines
}

/// A line without its comment.
fn body(line: &str) -> &str {
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        if letter == '#' && before != '\\' {
            return &line[..at];
        }
        before = letter;
    }
    line
}

/// Where a key's value stands in a line.
fn place(line: &str, key: &str) -> Option<Range<usize>> {
    let body = body(line);
    let (mut from, mut quoted) = (None, false);
    let ends = |letter: char| letter.is_whitespace() || letter == '\\';
    for (at, letter) in body.char_indices().chain([(body.len(), '\n')]) {
        quoted ^= letter == '"';
        match from {
            None if !ends(letter) => from = Some(at),
            Some(begin) if ends(letter) && (!quoted || at == body.len()) => {
                if let Some((name, _)) = body[begin..at].split_once('=')
                    && name.eq_ignore_ascii_case(key)
                {
                    return Some(begin + name.len() + 1..at);
                }
                from = None;
            }
            None | Some(_) => {}
        }
    }
    None
}

/// A key's value; keys count in any case.
pub(super) fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    place(line, key).map(|range| &line[range])
}

/// The line with another value of a key, which is added if it is not there.
pub(super) fn with(line: &str, key: &str, value: &str) -> String {
    match place(line, key) {
        Some(range) => format!("{}{value}{}", &line[..range.start], &line[range.end..]),
        None => {
            let end = body(line).trim_end().len();
            format!("{} {key}={value}{}", &line[..end], &line[end..])
        }
    }
}

/// Whether a line is about a node by name.
pub(super) fn names(line: &str, node: &str) -> bool {
    let list = value(line, "NodeName");
    list.is_some_and(|list| hostlist::expand(list).iter().any(|name| name == node))
}

/// The line for one node alone, and for the others that it is about.
pub(super) fn split(line: &str, node: &str) -> (String, Option<String>) {
    let list = |key| value(line, key).map(hostlist::expand).unwrap_or_default();
    let all = list("NodeName");
    let Some(at) = all.iter().position(|name| name == node) else {
        return (line.to_owned(), None);
    };
    if all.len() == 1 {
        return (line.to_owned(), None);
    }
    let (mut one, mut rest) = (line.to_owned(), line.to_owned());
    for key in ["NodeName"].iter().chain(&BESIDE) {
        let mut values = list(key);
        if values.len() == all.len() {
            let own = values.remove(at);
            one = with(&one, key, &own);
            rest = with(&rest, key, &hostlist::fold(&values));
        }
    }
    // The comment is about all of them; once is enough.
    let mut one = body(&one).trim_end().to_owned();
    one.push('\n');
    (one, Some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_changed_in_place() {
        let line = "NodeName=n1\tgres=gpu:a100:4  Reason=\"a Gres=x b\" State=UP # Gres=none\n";
        assert_eq!(value(line, "Gres"), Some("gpu:a100:4"));
        assert_eq!(value(line, "State"), Some("UP"));
        assert_eq!(value(line, "Reason"), Some("\"a Gres=x b\""));
        let expected = line.replace("gpu:a100:4", "gpu:b:1");
        assert_eq!(with(line, "Gres", "gpu:b:1"), expected);
        assert_eq!(with("NodeName=n1 # x\n", "Gres", "gpu:1"), "NodeName=n1 Gres=gpu:1 # x\n");
        assert_eq!(with("NodeName=n1", "Gres", "gpu:1"), "NodeName=n1 Gres=gpu:1");
        let long = "NodeName=n1 \\\n  Gres=gpu:2\\\n CPUs=4\nx\n";
        assert_eq!(logical(long).len(), 2);
        assert_eq!(with(&logical(long)[0], "Gres", "gpu:3"), long[..36].replace(":2", ":3"));
    }

    #[test]
    fn a_line_of_several_nodes_is_split_with_the_lists_beside_it() {
        let line = "NodeName=n[1-4] NodeAddr=10.0.0.[1-4] Port=[7001-7004] CPUs=4 # four\n";
        let (one, rest) = split(line, "n2");
        assert_eq!(one, "NodeName=n2 NodeAddr=10.0.0.2 Port=7002 CPUs=4\n");
        let expected =
            "NodeName=n[1,3-4] NodeAddr=10.0.0.[1,3-4] Port=[7001,7003-7004] CPUs=4 # four\n";
        assert_eq!(rest.as_deref(), Some(expected));
        assert_eq!(split("NodeName=n1 CPUs=4", "n1"), ("NodeName=n1 CPUs=4".to_owned(), None));
        assert!(names(line, "n3") && !names(line, "n5") && !names("#NodeName=n1", "n1"));
        assert!(!names("PartitionName=p Nodes=n1", "n1"));
    }
}
