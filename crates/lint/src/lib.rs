//! Mistakes in what people hand to Slurm and Kubernetes to share GPUs: text in, findings out.
//!
//! `kind` tells what a file is, one module per kind finds what is wrong in it: `sbatch`, `gres_conf` and `slurm_conf` over `conf`,
//! `manifest`. A [`Finding`] has its place, what happens if the file is used as it is, and what to write instead; `mend` carries out
//! what can be mended without asking. Nothing is read but the text, and nothing written.
#![forbid(unsafe_code)]

mod card;
mod conf;
mod finding;
mod gres_conf;
mod input;
mod lines;
mod manifest;
mod mend;
mod mig;
mod sbatch;
mod show;
mod site;
mod slurm_conf;
mod spread;

pub use card::Card;
pub use finding::{Edit, Finding, Severity};
pub use input::{Input, Kind, SIZE_MAX_BYTES};
pub use mend::{Mended, mend};
pub use show::{Place, place, shown};

use formats::ReadError;

/// What is wrong in each of the files, in the order of their lines. Files of one call know of each other: `gres.conf` says how
/// many shards a card has that a script asks for.
///
/// * `card` — the card that the files are meant for, if it is known.
///
/// # Errors
/// The first file that is not what its kind says, such as a manifest that is no YAML.
pub fn check(inputs: &[Input], card: Option<&Card>) -> Result<Vec<Vec<Finding>>, ReadError> {
    let site = site::Site::of(inputs);
    inputs.iter().map(|input| check_one(input, &site, card)).collect()
}

fn check_one(
    input: &Input,
    site: &site::Site,
    card: Option<&Card>,
) -> Result<Vec<Finding>, ReadError> {
    let text = input.text();
    let mut findings = match input.kind() {
        Kind::Sbatch => sbatch::check(text, site, card),
        Kind::GresConf => gres_conf::check(text, site),
        Kind::SlurmConf => slurm_conf::check(text),
        Kind::Manifest => manifest::check(input.source(), card)?,
    };
    if input.is_marked() && input.kind() == Kind::Sbatch {
        findings.push(sbatch::marked(text));
    }
    findings.sort_by_key(|finding| (finding.span.start, finding.name));
    Ok(findings)
}
