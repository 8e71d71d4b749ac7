//! A submission asks what earlier runs of its user and name have used, instead of what its script says.
//!
//! *Invariant:* what the user says beside the script counts. *Invariant:* less is asked only of jobs whose need was
//! measured often enough, and never while runs that were refused memory are the last that is known.

use formats::quantity::slurm_memory_mib;
use node::amounts;

use crate::array::given::Given;
use crate::gres;
use crate::report::{Size, Sizing, amount};

/// Options for GPUs beside which `--gpu-mem` is refused.
const OF_CARDS: [&str; 4] = ["gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"];

/// What a submission asks of a card's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No share of a GPU.
    Nothing,
    /// An amount that the user has given beside the script, as written.
    ByUser(String),
    /// Cards, slices or shards, as written, in whose place an amount would have to stand.
    Cards(String),
    /// A part of the compute alone, as written, which has its part of the memory with it.
    Compute(String),
    /// An amount, in MiB.
    Memory(u64),
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This option is added.
    Ask {
        /// Such as `--gpu-mem=2G`.
        option: String,
        /// Why, in a sentence.
        why: String,
    },
    /// It is submitted as it stands; why.
    Stays(String),
}

impl Wanted {
    /// * `variable` — HOTPOT_GPU_MEM, which counts where no option says otherwise.
    pub fn of(given: &Given, variable: Option<&str>) -> Self {
        let written = |option: &str| Some(format!("--{option}={}", given.get(option)?));
        if let Some(value) = given.on_command_line("gpu-mem") {
            return Self::ByUser(format!("--gpu-mem={value}"));
        }
        let gres = given.get("gres").and_then(of_gres).map(|gres| format!("--gres={gres}"));
        let cards = || OF_CARDS.into_iter().find_map(written);
        if let Some(cards) = gres.or_else(cards) {
            return Self::Cards(cards);
        }
        if matches!(given.get("gpu-share"), Some("exclusive" | "mig")) {
            return written("gpu-share").map_or(Self::Nothing, Self::Cards);
        }
        match (given.get("gpu-mem"), variable) {
            (Some(text), _) => slurm_memory_mib(text).map_or(Self::Nothing, Self::Memory),
            (None, Some(value)) => Self::ByUser(format!("HOTPOT_GPU_MEM={value}")),
            (None, None) => written("gpu-compute").map_or(Self::Nothing, Self::Compute),
        }
    }

    /// Why it stays as it is, whatever earlier runs were.
    pub fn stays(&self) -> Option<String> {
        match self {
            Self::Nothing => Some("asks no amount of a GPU's memory; nothing to change".into()),
            Self::ByUser(written) => {
                Some(format!("{written} is the user's word; nothing is changed"))
            }
            Self::Cards(_) | Self::Compute(_) | Self::Memory(_) => None,
        }
    }
}

/// What is asked of GPUs in a list of GRES.
fn of_gres(list: &str) -> Option<&str> {
    list.split(',').find(|one| gres::amounts(one).any(|amount| gres::is_of_gpus(amount.name)))
}

/// * `size` — by earlier runs; `None` if none was measured.
pub fn choose(wanted: &Wanted, size: Option<&Size>, sizing: &Sizing) -> Choice {
    if let Some(why) = wanted.stays() {
        return Choice::Stays(why);
    }
    let stays = |why: String| Choice::Stays(format!("{why}; submitted as it stands"));
    let Some(size) = size else { return stays("no earlier run of it was measured".into()) };
    let seen = size.seen();
    let Some(fits_mib) = size.fits_mib else {
        return stays(format!("{seen}: too few to say more ({} are needed)", sizing.runs_min));
    };
    let option = format!("--gpu-mem={}", amount(fits_mib));
    match wanted {
        Wanted::Cards(cards) => stays(format!(
            "asks {cards}, beside which --gpu-mem is refused; {seen}: write {option} in its place"
        )),
        Wanted::Compute(part) => {
            stays(format!("asks {part} and no amount of memory; {seen}: write {option} beside it"))
        }
        Wanted::Memory(asked_mib) => {
            let asked = format!("asked {}, {seen}", amounts::mib(*asked_mib));
            let changes =
                if size.wants_more { fits_mib > *asked_mib } else { fits_mib < *asked_mib };
            if changes {
                let why = format!("{asked}; asking {} ({option})", amounts::mib(fits_mib));
                return Choice::Ask { option, why };
            }
            let right = if size.wants_more { "no less" } else { "the right size" };
            stays(format!("{asked}: {right}"))
        }
        Wanted::Nothing | Wanted::ByUser(_) => stays(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &str, script: &str) -> Given {
        let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
        Given::of(&words, "job.sh", &format!("#!/bin/sh\n{script}\n")).unwrap()
    }

    #[test]
    fn what_is_asked_of_a_cards_memory() {
        use Wanted::{ByUser, Cards, Compute, Memory, Nothing};
        let mem = "#SBATCH --gpu-mem=8G";
        for (words, script, variable, expected) in [
            ("", mem, None, Memory(8192)),
            ("-J x --gpu-share=mps", mem, None, Memory(8192)),
            ("", mem, Some("4G"), Memory(8192)),
            ("--gpu-mem=2G", mem, None, ByUser("--gpu-mem=2G".into())),
            ("--gpu-m 2G", mem, None, ByUser("--gpu-mem=2G".into())),
            ("", "", Some("4G"), ByUser("HOTPOT_GPU_MEM=4G".into())),
            ("", "#SBATCH --gres=gpu:1", None, Cards("--gres=gpu:1".into())),
            ("--gres=nic:1,shard:8", "", None, Cards("--gres=shard:8".into())),
            ("-G 1", "", None, Cards("--gpus=1".into())),
            ("--gpu-share=mig", mem, None, Cards("--gpu-share=mig".into())),
            ("--gpu-compute=20%", "", None, Compute("--gpu-compute=20%".into())),
            ("--gpu-compute=20%", mem, None, Memory(8192)),
            ("--gres=nic:1 -c2", "", None, Nothing),
            ("", "#SBATCH --gpu-mem=much", None, Nothing),
        ] {
            assert_eq!(Wanted::of(&given(words, script), variable), expected, "{words} {script}");
        }
        assert_eq!(given("", mem).name(), "job.sh");
        assert_eq!(given("", "#SBATCH -J embed").name(), "embed");
        assert_eq!(given("--job-name other", "#SBATCH -J embed").name(), "other");
    }

    #[test]
    fn a_choice_keeps_what_is_not_known_to_be_wrong() {
        let size = |fits_mib, wants_more| {
            let refused_runs = usize::from(wants_more);
            Size { runs: 40, peak_mib: 1712, fits_mib, wants_more, refused_runs, ..Size::default() }
        };
        let memory = Wanted::Memory(8192);
        for (wanted, size, expected, why) in [
            (&memory, Some(size(Some(2048), false)), Some("2G"), "asking 2 GiB (--gpu-mem=2G)"),
            (&memory, Some(size(Some(2304), false)), Some("2304M"), "asked 8 GiB, never above"),
            (&memory, Some(size(Some(8192), false)), None, "the right size"),
            (&memory, Some(size(Some(9216), false)), None, "the right size"),
            (&memory, Some(size(Some(12_288), true)), Some("12G"), "1 was refused memory; asking"),
            (&memory, Some(size(Some(3072), true)), None, "no less"),
            (&memory, Some(size(None, false)), None, "too few to say more (5 are needed)"),
            (&memory, None, None, "no earlier run"),
            (&Wanted::ByUser("--gpu-mem=9G".into()), Some(size(Some(2048), false)), None, "9G is"),
            (&Wanted::Nothing, Some(size(Some(2048), false)), None, "nothing to change"),
            (&Wanted::Compute("20%".into()), Some(size(Some(2048), false)), None, "2G beside it"),
            (
                &Wanted::Cards("--gres=gpu:1".into()),
                Some(size(Some(2048), false)),
                None,
                "asks --gres=gpu:1, beside which --gpu-mem is refused; never above 1.67 GiB in 40 \
                 runs: write --gpu-mem=2G in its place",
            ),
        ] {
            let (option, said) = match choose(wanted, size.as_ref(), &Sizing::default()) {
                Choice::Ask { option, why } => (Some(option), why),
                Choice::Stays(why) => (None, why),
            };
            assert_eq!(option, expected.map(|amount| format!("--gpu-mem={amount}")), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}
