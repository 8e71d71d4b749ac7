//! `cargo xtask kubernetes-chaos`: pods come and go on a real cluster while parts of it die, stop and come back, by seed.

use std::path::Path;
use std::time::Duration;

use crate::Verdict;
use crate::gpu::table::Table;

#[path = "../../crates/kubernetes/tests/chaos/mod.rs"]
mod chaos;

/// How long pods and faults come, in full and with `--quick`.
const SPAN: [Duration; 2] = [Duration::from_secs(150), Duration::from_secs(30)];

/// * `words` — `--seed N` (1), `--quick`.
pub(crate) fn run(words: &[&str]) -> Verdict {
    let (mut seed, mut quick) = (1, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--quick" => quick = true,
            "--seed" => {
                let value = words.next().and_then(|text| text.parse().ok());
                seed = value.ok_or("--seed needs a number, as in `--seed 7`")?;
            }
            other => return Err(format!("unknown: {other}; there are --seed N and --quick")),
        }
    }
    one(seed, quick)
}

fn one(seed: u64, quick: bool) -> Verdict {
    let span = SPAN[usize::from(quick)];
    let programs = crate::slurm::built()?;
    let folder = std::env::temp_dir().join(format!("hotpot-chaos-{}", std::process::id()));
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let say = |line: &str| eprintln!("{line}");
    let plan = chaos::Plan {
        seed,
        span,
        waits_for_kubelet: !quick,
        folder: folder.clone(),
        programs,
        project,
        say,
    };
    let outcome = chaos::run(&plan)?;
    let mut table = Table::new(&format!("chaos for {} s, seed {seed}", span.as_secs()), &["", ""]);
    for (name, value) in outcome.rows {
        table.row(vec![name, value]);
    }
    println!("{}", table.text());
    if outcome.violations.is_empty() {
        let _ = std::fs::remove_dir_all(&folder);
        return Ok(());
    }
    let (all, folder) = (outcome.violations.join("\n"), folder.display());
    Err(format!("seed {seed}:\n{all}\n{}\nlogs and objects: {folder}", outcome.evidence))
}
