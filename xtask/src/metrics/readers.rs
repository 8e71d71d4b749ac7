//! Readers of metrics that others have written: Prometheus's own `promtool` and the parsers of
//! `prometheus_client`. Also whether Prometheus understands the dashboard's queries.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::python::Python;
use crate::{Verdict, shell};

/// `promtool` ends with this where the text is well formed, but breaks a convention.
const LINT: i32 = 3;

/// Reads the text as each scheme has it, and counts the samples that it finds.
const READ: &str = "
import sys
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as prometheus
reader = openmetrics if sys.argv[1] == 'openmetrics' else prometheus
families = list(reader.text_string_to_metric_families(sys.stdin.read()))
print(sum(len(family.samples) for family in families))
";

/// Has the texts read by everybody.
pub(crate) fn check(text: &str, openmetrics: &str) -> Verdict {
    let python = Python::ready()?;
    for (kind, text) in [("prometheus", text), ("openmetrics", openmetrics)] {
        let found = pipe(python.program("python").args(["-c", READ, kind]), text)?;
        let written = text.lines().filter(|line| !line.starts_with('#')).count();
        if found.1.trim() != written.to_string() {
            return Err(format!("prometheus_client ({kind}): {written} samples, not {}", found.1));
        }
        println!("prometheus_client ({kind}): {written} samples");
    }
    let promtool = promtool()?;
    // DCGM's counters do not end in `_total`; all of ours must pass without a word.
    let own: String =
        text.lines().filter(|line| !line.contains("DCGM_")).fold(String::new(), |mut own, line| {
            own.push_str(line);
            own.push('\n');
            own
        });
    for (what, text, allowed) in [("our own", own.as_str(), &[0][..]), ("all", text, &[0, LINT])] {
        let (code, said) = pipe(Command::new(&promtool).args(["check", "metrics"]), text)?;
        if !allowed.contains(&code) {
            return Err(format!("promtool check metrics ({what}): code {code}\n{said}"));
        }
        println!("promtool check metrics ({what}): good");
    }
    queries(&promtool)
}

/// Gives a program a text; its exit code and all that it says.
fn pipe(command: &mut Command, text: &str) -> Result<(i32, String), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let wrong = |error: std::io::Error| format!("cannot run {name}: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(wrong)?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    let text = text.to_string();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let done = child.wait_with_output().map_err(wrong)?;
    // A program that stops reading says why itself.
    let _ = writer.join();
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
}

/// Prometheus's own tool: the machine's, else that of Debian's package, unpacked into the target folder.
fn promtool() -> Result<PathBuf, String> {
    let installed = Path::new("/usr/bin/promtool");
    if installed.exists() {
        return Ok(installed.to_path_buf());
    }
    let folder = shell::target().join("debian");
    let unpacked = folder.join("usr/bin/promtool");
    if unpacked.exists() {
        return Ok(unpacked);
    }
    println!("fetching Debian's package prometheus into {}", folder.display());
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let script = "fetch() { apt-get download -qq prometheus; }
                  fetch || { apt-get update -qq && fetch; } && dpkg-deb -x prometheus_*.deb .";
    let fetched = shell::output(Command::new("sh").args(["-c", script]).current_dir(&folder));
    fetched
        .map_err(|error| format!("{error}\nelsewhere than on Debian put promtool into /usr/bin"))?;
    Ok(unpacked)
}

/// Has every query of the dashboard read as a rule.
fn queries(promtool: &Path) -> Verdict {
    let path = shell::root().join("deploy/grafana/hotpot.json");
    let board =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let expressions = board.lines().filter_map(|line| line.trim().strip_prefix("\"expr\": \""));
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut count = 0;
    for expression in expressions {
        let expression = expression.trim_end_matches(',').trim_end_matches('"');
        let expression = expression.replace("\\\"", "\"").replace('\'', "\"");
        rules.push_str(&format!("  - record: query:{count}\n    expr: '{expression}'\n"));
        count += 1;
    }
    let file = shell::target().join("metrics/dashboard.yaml");
    fs::write(&file, rules).map_err(|error| format!("{}: {error}", file.display()))?;
    shell::output(Command::new(promtool).args(["check", "rules"]).arg(&file))?;
    println!("promtool check rules: {count} queries of the dashboard");
    Ok(())
}
