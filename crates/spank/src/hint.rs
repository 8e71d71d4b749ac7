//! A way of asking that many believe in and no Slurm has: `--gpus=1:shared`, `--gres=gpu:1:shared`. The command
//! refuses it before slurmctld sees it, and does not say what there is instead.

use crate::pilots::words;

/// Says what there is instead, if such a word is on the command line; Slurm then says no.
pub(crate) fn on_shared() -> Option<String> {
    let line = std::fs::read("/proc/self/cmdline").ok()?;
    let words = words(&line).into_iter().filter_map(|word| word.into_string().ok());
    let word = { words }.find(|word| is_shared(word))?;
    Some(format!(
        "{word}: Slurm has no shared GPUs by that name; ask a share: --gpu-mem=2G or \
         --gpu-compute=20%, or plainly --gres=shard:N"
    ))
}

/// Whether a word is an option for GPUs, or its value, that ends with `:shared`.
fn is_shared(word: &str) -> bool {
    let (option, value) = word.split_once('=').unwrap_or(("", word));
    let Some(before) = value.strip_suffix(":shared") else { return false };
    let is_amount = before.starts_with("gpu:") || before.parse::<u32>().is_ok();
    is_amount && (option.is_empty() || option.starts_with("--g"))
}

#[cfg(test)]
mod tests {
    use super::is_shared;

    #[test]
    fn only_words_that_ask_for_gpus_are_meant() {
        for word in ["--gpus=1:shared", "--gres=gpu:1:shared", "1:shared", "gpu:a100:1:shared"] {
            assert!(is_shared(word), "{word}");
        }
        for word in ["--gres=gpu:1", "shared", "--mode=1:shared", "/home:shared", "--gres=shard:1"]
        {
            assert!(!is_shared(word), "{word}");
        }
    }
}
