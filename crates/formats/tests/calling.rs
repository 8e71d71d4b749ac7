//! Calls of sbatch: which words are options, which is the script, and what is handed on.
#![allow(clippy::unwrap_used, reason = "tests")]

use formats::calling::{self, Call};

fn call(words: &str) -> Call {
    let words: Vec<String> = words.split(' ').map(str::to_string).collect();
    Call::of(&words).unwrap()
}

#[test]
fn options_end_at_the_script() {
    let call = call("-p gpu --array 1-9%3 -c4 --exclusive -HW --time=5 job.sh -p x");
    assert_eq!(call.script.as_deref(), Some("job.sh"));
    assert_eq!(call.arguments, ["-p", "x"]);
    assert_eq!(call.value("array"), Some("1-9%3"));
    assert_eq!((call.value("cpus-per-task"), call.value("wait")), (Some("4"), Some("")));
    assert_eq!(call.value("gres"), None);
    let kept = call.without(&["array", "time", "wait"]);
    assert_eq!(kept, ["-p", "gpu", "-c4", "--exclusive", "-H"]);
}

#[test]
fn names_may_be_cut_short_and_the_last_counts() {
    let call = call("--part a --partition=b --arr=1-2 --plugin=3 --quiet job.sh");
    assert_eq!((call.value("partition"), call.value("array")), (Some("b"), Some("1-2")));
    let kept = call.without(&["partition"]);
    assert_eq!(kept, ["--arr=1-2", "--plugin=3", "--quiet"]);
}

#[test]
fn an_option_is_added_behind_the_others() {
    let mut call = call("--gpu-mem=8G -c4 job.sh x");
    call.add("--gpu-mem=2G").unwrap();
    assert_eq!(call.value("gpu-mem"), Some("2G"));
    assert_eq!(call.without(&[]), ["--gpu-mem=8G", "-c4", "--gpu-mem=2G"]);
    assert_eq!(call.script.as_deref(), Some("job.sh"));
    assert!(call.add("--gpu-mem").is_err());
}

#[test]
fn a_value_that_is_missing_is_told() {
    let refused = Call::of(&["--array".to_string()]).unwrap_err();
    assert_eq!(refused.to_string(), "\"--array\" has no value; write --array=VALUE");
    assert_eq!(call("-- job.sh -x").arguments, ["-x"]);
}

#[test]
fn a_line_loses_an_option_and_nothing_else() {
    let without = |line: &str| calling::line_without(line, &["wait"]);
    assert_eq!(without("#SBATCH -W -J 'a b' # x"), "#SBATCH \"-J\" \"a b\"");
    assert_eq!(
        without("#SBATCH --wait --comment='a \\ \"b\"'"),
        r#"#SBATCH "--comment=a \\ \"b\"""#
    );
    for line in ["#SBATCH -J 'a  b' # x", "#SBATCHED -W", "# -W", "#SBATCH --wait-all-nodes=1"] {
        assert_eq!(without(line), line);
    }
}
