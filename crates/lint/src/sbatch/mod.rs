//! sbatch scripts: what `#SBATCH` lines ask of GPUs, and lines that sbatch does not read.

mod ask;
mod commands;
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
    let steps = commands::of_steps(text, &directives.commands);
    let mut found = unread(&directives);
    for options in &directives.jobs {
        let asks = ask::all(options);
        found.extend(whole::check(&asks, (options, &steps), card));
        found.extend(parts::check(&asks, options, site));
        found.extend(options.iter().filter_map(|option| profile(option, card)));
        found.extend(commands::exported(options));
    }
    found.extend(directives.unknown.iter().filter_map(|one| misspelt(one, &directives.jobs)));
    found.extend(commands::check(text, &directives.commands, &steps));
    found.extend(first_line(text, directives.jobs.iter().any(|options| !options.is_empty())));
    found.extend(dos(text));
    found
}

/// A byte order mark before the first line, which is no part of the text.
pub(crate) fn marked(text: &str) -> Finding {
    Finding::new(
        ("no-interpreter", Refused),
        0..text.find('\n').unwrap_or(text.len()),
        "a byte order mark stands before #!: sbatch answers `This does not look like a batch script`",
        "write the file without it, for example with `sed -i '1s/^\\xEF\\xBB\\xBF//'`",
    )
}

/// hotpot's own way to ask for a MIG instance.
fn profile(option: &Placed, card: Option<&Card>) -> Option<Finding> {
    let is_profile = option.name == "gpu-profile";
    let span = option.value_span.clone().unwrap_or_else(|| option.span.clone());
    is_profile
        .then(|| whole::of_profile(&option.value, (span, "hotpot refuses it"), card))
        .flatten()
}

/// `--gpu=1`. Options of which nothing is near may be those of a site's plugins.
fn misspelt((name, span): &(String, Range<usize>), jobs: &[Vec<Placed>]) -> Option<Finding> {
    let known = ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"];
    let is_ours = ["gpu", "gre"].iter().any(|start| name.starts_with(start));
    let meant = known.into_iter().find(|known| is_ours && formats::is_slip(name, known))?;
    let happens = format!(
        "no option is called --{name}: sbatch ends with `unrecognized option`, or calls it ambiguous"
    );
    // Of two equal options the last counts: where the right one stands, a second is not what is meant.
    let stands = jobs.iter().flatten().any(|option| option.name == meant);
    let edit = (!stands).then(|| Edit::new(span.clone(), meant));
    let instead = format!("write --{meant}");
    Some(Finding::new(("option-unknown", Refused), span.clone(), happens, instead).with(edit))
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

/// * `is_script` — whether options of a job are read in it: else it may be anything, and nothing is put before it.
fn first_line(text: &str, is_script: bool) -> Option<Finding> {
    let end = text.find('\n').unwrap_or(text.len());
    let blanks = text.len() - text.trim_start().len();
    let edit = match text[blanks..].starts_with("#!") {
        true => Some(Edit::new(0..blanks, "")),
        false => is_script.then(|| Edit::new(0..0, "#!/bin/bash\n")),
    };
    (!text.starts_with("#!")).then(|| {
        Finding::new(
            ("no-interpreter", Refused),
            0..end,
            "sbatch answers `This does not look like a batch script`: the first line must be #! and the path of an interpreter",
            "begin with #!/bin/bash",
        )
        .with(edit)
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
