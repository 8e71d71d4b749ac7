//! The screen: colour and a progress bar on a terminal only, lines that fit it.

mod support;

use support::{Done, Place, skip};

const JOBS: &str = "[[workload]]\nname = 'a'\ngpus = 1\nruns = '1h'\nmembers = 2\n\
    [[workload]]\nname = 'b'\ngpu_share = 0.3\ngpus = 1\ncount = 9\nruns = '2h'\n";
const LINE: &str = "hotpot simulate jobs.toml --gpus t4:3 --policy fgd --policy spread";

fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.write("jobs.toml", JOBS);
    place
}

/// Runs a line on a terminal of its own; `None` without script(1).
fn on_terminal(place: &Place, line: &str, variables: &[(&str, &str)]) -> Option<Done> {
    let mut script = place.command("script");
    script.args(["-qec", line, "/dev/null"]).envs(variables.iter().copied()).env("TERM", "xterm");
    let done = script.output().ok().map(Done::of);
    if done.is_none() {
        skip("no script(1)");
    }
    done
}

#[test]
fn colour_is_for_terminals_and_not_for_those_who_say_no() {
    let place = place("colour");
    let plain = place.shell(LINE);
    assert!(!plain.out.contains('\u{1b}') && !plain.err.contains('\u{1b}'), "{plain:?}");
    let Some(colourful) = on_terminal(&place, LINE, &[]) else { return };
    assert!(colourful.out.contains("\u{1b}[1m"), "{colourful:?}");
    let refused = on_terminal(&place, LINE, &[("NO_COLOR", "1")]).expect("script again");
    assert!(!refused.out.contains('\u{1b}'), "{refused:?}");
    assert_eq!(refused.out.replace("\r\n", "\n"), plain.out);
    let empty = on_terminal(&place, LINE, &[("NO_COLOR", "")]).expect("script again");
    assert_eq!(empty.out, colourful.out, "an empty NO_COLOR says nothing");
    for verb in ["plan jobs.toml --gpus t4:1", "explain a jobs.toml --gpus t4:1"] {
        let told = on_terminal(&place, &format!("hotpot {verb}"), &[]).expect("script again");
        assert!(!told.out.contains('\u{1b}'), "{told:?}");
    }
}

#[test]
fn lines_fit_the_screen() {
    let place = place("width");
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    for (columns, fits) in [("60", 60), ("100", 100), ("7", 80), ("wide", 80), ("9999", 160)] {
        let done = place.shell(&format!("COLUMNS={columns} {LINE}"));
        assert!((41..=fits).contains(&widest(&done.out)), "{columns}: {}", done.out);
    }
    let sized = format!("stty cols 50 rows 20; {LINE}");
    let Some(done) = on_terminal(&place, &sized, &[("NO_COLOR", "1")]) else { return };
    assert_eq!(widest(&done.out), 50, "{}", done.out);
}

#[test]
fn a_bar_shows_after_two_seconds_on_a_terminal() {
    let place = Place::new("bar");
    let row = |at: usize| format!("t{at},4000,8192,1,{},{at},{}\n", 100 + at % 900, at + 90_000);
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n";
    place.write("tasks.csv", head.to_string() + &(0..60_000).map(row).collect::<String>());
    let run = "timeout -s INT 4 hotpot simulate tasks.csv --gpus t4:4";
    let Some(done) = on_terminal(&place, run, &[]) else { return };
    assert!(done.out.contains("best-fit") && done.out.contains(" left"), "{done:?}");
    let short = on_terminal(&place, "timeout -s INT 1 hotpot simulate tasks.csv --gpus t4:4", &[]);
    assert!(!short.expect("script again").out.contains("left"));
}
