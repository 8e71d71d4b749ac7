//! sbatch scripts: what `#SBATCH` lines ask of GPUs, and lines that sbatch does not read.

mod ask;
mod parts;
mod whole;

use std::ops::Range;

use formats::placed::{self, Placed};

use crate::card::Card;
use crate::finding::Severity::{NotWhatYouThink, Refused};
use crate::finding::{Edit, Finding};
use crate::site::Site;

/// What is wrong in a script.
pub(crate) fn check(text: &str, site: &Site, card: Option<&Card>) -> Vec<Finding> {
    let directives = placed::directives(text);
    let asks = ask::all(&directives.options);
    let mut found = whole::check(&asks, card);
    found.extend(parts::check(&asks, &directives.options, site));
    found.extend(directives.options.iter().filter_map(|option| profile(option, card)));
    found.extend(unread(&directives));
    found.extend(folk_variables(text));
    found.extend(first_line(text));
    found.extend(dos(text));
    found
}

/// hotpot's own way to ask for a MIG instance.
fn profile(option: &Placed, card: Option<&Card>) -> Option<Finding> {
    let is_profile = option.name == "gpu-profile";
    let span = option.value_span.clone().unwrap_or_else(|| option.span.clone());
    is_profile.then(|| whole::of_profile(&option.value, span, card)).flatten()
}

/// Lines that look like directives and are comments to sbatch.
fn unread(directives: &placed::Directives) -> Vec<Finding> {
    let late = directives.too_late.iter().map(|span| {
        let happens = "sbatch reads directives up to the first command: this one does not count";
        (span, happens, "move it above the first command")
    });
    let shifted = directives.not_at_start.iter().map(|span| {
        let happens =
            "to sbatch this is a comment: a directive begins with #SBATCH, first in its line";
        (
            span,
            happens,
            "write #SBATCH at the start of the line; to switch a directive off write ##SBATCH",
        )
    });
    let found = late.chain(shifted).map(|(span, happens, instead)| {
        Finding::new(("directive-not-read", NotWhatYouThink), span.clone(), happens, instead)
    });
    found.collect()
}

/// `GPUSHARED=…` among the commands.
fn folk_variables(text: &str) -> Vec<Finding> {
    const NAME: &str = "GPUSHARED=";
    let (mut found, mut from) = (Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        let is_command = !line.trim_start().starts_with('#');
        let word = line.trim_start();
        let word = word.strip_prefix("export ").unwrap_or(word).trim_start();
        if is_command && word.starts_with(NAME) {
            let at = from + (line.len() - word.len());
            found.push(Finding::new(
                ("gpushared", NotWhatYouThink),
                at..at + NAME.len() - 1,
                "no version of Slurm reads GPUSHARED: the job has the GPUs that its options ask for, whole",
                "ask for a part by #SBATCH --gres=shard:N where the cluster has shards, or by hotpot's --gpu-mem=8G, and leave this line out",
            ));
        }
        from += line.len();
    }
    found
}

fn first_line(text: &str) -> Option<Finding> {
    let end = text.find('\n').unwrap_or(text.len());
    (!text.starts_with("#!")).then(|| {
        Finding::new(
            ("no-interpreter", Refused),
            0..end,
            "sbatch answers `This does not look like a batch script`: the first line must be #! and the path of an interpreter",
            "begin with #!/bin/bash",
        )
        .with(Some(Edit::new(0..0, "#!/bin/bash\n")))
    })
}

/// Line ends of DOS, which sbatch refuses. The edits are as many as the lines.
fn dos(text: &str) -> Option<Finding> {
    let ends: Vec<Range<usize>> = text.match_indices("\r\n").map(|(at, _)| at..at + 1).collect();
    let (first, last) = (ends.first()?, ends.last()?);
    let mut finding = Finding::new(
        ("dos-line-ends", Refused),
        first.start..last.end,
        "sbatch answers `Batch script contains DOS line breaks (\\r\\n) instead of expected UNIX line breaks (\\n)`",
        "write the lines with UNIX ends, as dos2unix does",
    );
    finding.edits = ends.into_iter().map(|span| Edit::new(span, "")).collect();
    Some(finding)
}
