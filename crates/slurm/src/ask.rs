//! What a job asks of a GPU beyond what Slurm books: memory, compute and the way of sharing. The plugin
//! takes it from the user, `job_submit.lua` turns it into GRES and leaves it in the job's AdminComment,
//! which users cannot edit, as `hotpot(gpu-mem=2048,gpu-compute=200,gpu-share=capped)`.

use model::SharingKind;

/// Where the words of an ask begin and end in a comment.
const BRACKETS: (&str, char) = ("hotpot(", ')');

/// What is asked for of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Memory, without what a context takes.
    pub memory_mib: Option<u64>,
    /// Part of its compute, in thousandths.
    pub compute_milli: Option<u32>,
    /// How it is shared; `None` for whatever the site has chosen.
    pub sharing: Option<SharingKind>,
}

impl Ask {
    /// Reads the ask out of a comment; nothing is asked if there is none.
    ///
    /// # Errors
    /// A word that is not understood: it was written by another release.
    pub fn of_comment(comment: &str) -> Result<Self, String> {
        let Some((_, rest)) = comment.split_once(BRACKETS.0) else { return Ok(Self::default()) };
        let words = rest.split(BRACKETS.1).next().unwrap_or_default();
        let mut ask = Self::default();
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let wrong = || format!("`{word}` in the job's AdminComment is not understood");
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            match name {
                "gpu-mem" => ask.memory_mib = Some(value.parse().map_err(|_| wrong())?),
                "gpu-compute" => ask.compute_milli = Some(value.parse().map_err(|_| wrong())?),
                "gpu-share" => ask.sharing = sharing(value).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        Ok(ask)
    }
}

/// Reads what users call a way of sharing; the inner `None` is `auto`.
pub fn sharing(word: &str) -> Option<Option<SharingKind>> {
    Some(match word {
        "auto" => None,
        "exclusive" => Some(SharingKind::Exclusive),
        "timeslice" => Some(SharingKind::TimeSlice),
        "mps" => Some(SharingKind::Mps),
        "mig" => Some(SharingKind::Mig),
        "capped" => Some(SharingKind::MemoryCapped),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_is_found_in_a_comment() {
        let ask =
            Ask::of_comment("site note; hotpot(gpu-mem=2048,gpu-compute=200,gpu-share=mps) x");
        let expected = Ask {
            memory_mib: Some(2048),
            compute_milli: Some(200),
            sharing: Some(SharingKind::Mps),
        };
        assert_eq!(ask, Ok(expected));
        assert_eq!(Ask::of_comment("hotpot is a dish"), Ok(Ask::default()));
        assert_eq!(Ask::of_comment("hotpot()"), Ok(Ask::default()));
        assert!(Ask::of_comment("hotpot(gpu-mem=2G)").is_err());
        assert!(Ask::of_comment("hotpot(gpu-frob=2)").is_err());
    }
}
