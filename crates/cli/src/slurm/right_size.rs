//! `hotpot slurm run --right-size`: asks what earlier runs have used.

use nix::unistd::Uid;
use slurm::array::ArrayError;
use slurm::array::given::Given;
use slurm::report::{Size, Sizing};
use slurm::right_size::{Choice, Wanted, choose};

use super::report::{SIZED_BY_S, name_of, own_name, size_of};
use crate::failure::Failure;
use crate::screen;

/// Lets a submission ask what fits, and says what was changed, or why nothing was. Nothing that goes wrong here
/// keeps it from being submitted.
///
/// * `words` — of sbatch; the option comes before them.
pub(super) fn apply(given: &mut Given, words: &mut Vec<String>) -> Result<(), ArrayError> {
    let (name, sizing) = (given.name().to_owned(), Sizing::default());
    let variable = std::env::var("HOTPOT_GPU_MEM").ok();
    let wanted = Wanted::of(given, variable.as_deref().filter(|value| !value.is_empty()));
    let found = if wanted.stays().is_some() { Ok(None) } else { measured(given, sizing) };
    let choice = match &found {
        Ok(size) => choose(&wanted, size.as_ref(), &sizing),
        Err(failure) => Choice::Stays(format!("{failure}; submitted as it stands")),
    };
    match choice {
        Choice::Stays(why) => screen::note(&format!("{name}: {why}")),
        Choice::Ask { option, why } => {
            screen::note(&format!("{name}: {why}"));
            given.add(&option)?;
            words.insert(0, option);
        }
    }
    Ok(())
}

/// Why a call is not looked at.
pub(super) fn pass_over() {
    screen::note("--right-size: sbatch alone reads a script that comes in; submitted as it stands");
}

fn measured(given: &Given, sizing: Sizing) -> Result<Option<Size>, Failure> {
    let user = given.get("uid").map_or_else(own_name, |user| match user.parse() {
        Ok(number) => name_of(Uid::from_raw(number)),
        Err(_) => user.to_owned(),
    });
    size_of(&user, given.name(), SIZED_BY_S, sizing)
}
