//! What the options may say. The same is checked again in slurmctld: not everybody comes by these commands.

/// Ways to share a GPU that can be asked for.
const SHARES: &[&str] = &["auto", "exclusive", "timeslice", "mps", "mig", "capped"];

/// Beyond any GPU, in MiB; more is a slip of the pen.
const MEMORY_MAX_MIB: f64 = (1_u64 << 30) as f64;

/// Checks `--gpu-mem=SIZE`: a number and a unit as in Slurm's `--mem`, MiB if there is none; it may have a
/// fraction, and `GB` and `GiB` mean `G`, which is 1024 MiB.
///
/// # Errors
/// What is wrong, and what can be written instead.
pub(crate) fn memory(text: &str) -> Result<(), String> {
    let way = "write a number and M, G or T, such as 2G, 1.5G or 1500M; a number alone is MiB";
    let refused = |why: &str| Err(format!("--gpu-mem={text}: {why}; {way}"));
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default().to_ascii_uppercase();
    let factor = match unit.as_str() {
        "K" | "KB" | "KIB" => 1.0 / 1024.0,
        "" | "M" | "MB" | "MIB" => 1.0,
        "G" | "GB" | "GIB" => 1024.0,
        "T" | "TB" | "TIB" => 1024.0 * 1024.0,
        _ => return refused("not a size"),
    };
    match decimal(digits).map(|number| number * factor) {
        None => refused("not a size"),
        Some(mib) if mib <= 0.0 => refused("nothing can run in no memory"),
        Some(mib) if mib > MEMORY_MAX_MIB => refused("more than any GPU has"),
        Some(_) => Ok(()),
    }
}

/// Checks `--gpu-compute=PERCENT`: more than 0 and up to 100 percent of a GPU's time, to a tenth.
///
/// # Errors
/// What is wrong, and what can be written instead.
pub(crate) fn compute(text: &str) -> Result<(), String> {
    let way = "write a percentage of one GPU, above 0 and up to 100, such as 20% or 12.5%";
    let refused = |why: &str| Err(format!("--gpu-compute={text}: {why}; {way}"));
    match decimal(text.strip_suffix('%').unwrap_or(text)) {
        None => refused("not a percentage"),
        Some(percent) if percent < 0.1 => refused("less than a thousandth of a GPU"),
        Some(percent) if percent > 100.0 => {
            refused("more than a whole GPU (for several, use --gres=gpu:N)")
        }
        Some(_) => Ok(()),
    }
}

/// Checks `--gpu-share=MODE`.
///
/// # Errors
/// What is wrong, and what can be written instead.
pub(crate) fn share(text: &str) -> Result<(), String> {
    if SHARES.contains(&text) {
        return Ok(());
    }
    let known = SHARES.join(", ");
    Err(format!("--gpu-share={text}: no such way to share a GPU; there are {known}"))
}

/// Reads `--gpu-pilots[=N]`: how many pilots, or `None` where hotpot is to choose.
///
/// # Errors
/// What is wrong, and what can be written instead.
pub(crate) fn pilots(text: Option<&str>) -> Result<Option<u32>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.parse() {
        Ok(number @ 1..=10_000) => Ok(Some(number)),
        _ => Err(format!(
            "--gpu-pilots={text}: not a number of pilots; write --gpu-pilots, or --gpu-pilots=8 for 8 \
             of them (up to 10000)"
        )),
    }
}

/// Digits with at most one point between or behind them; nothing else that Rust would read as a number.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_for_mem() {
        for good in ["2G", "2g", "1500M", "1500", "1.5G", "2GB", "2GiB", "1T", "2048K"] {
            assert_eq!(memory(good), Ok(()), "{good}");
        }
        for bad in
            ["", "G", "2X", "-2G", "0", "0.0G", "2 G", "1e3", "inf", ".5G", "1.2.3G", "9999T"]
        {
            let said = memory(bad).unwrap_err();
            assert!(said.starts_with(&format!("--gpu-mem={bad}: ")), "{said}");
            assert!(said.contains("such as 2G"), "{said}");
        }
    }

    #[test]
    fn compute_is_a_percentage_of_one_gpu() {
        for good in ["20%", "20", "100%", "0.1", "12.5%"] {
            assert_eq!(compute(good), Ok(()), "{good}");
        }
        for bad in ["", "%", "0", "0.05%", "100.1", "120%", "-5", "a%", "nan", "20%%"] {
            assert!(compute(bad).is_err(), "{bad}");
        }
        assert!(compute("200%").unwrap_err().contains("--gres=gpu:N"));
    }

    #[test]
    fn ways_to_share_and_numbers_of_pilots_are_known() {
        assert_eq!(share("mps"), Ok(()));
        assert!(share("MPS").unwrap_err().contains("auto, exclusive, timeslice, mps, mig, capped"));
        assert_eq!(pilots(None), Ok(None));
        assert_eq!(pilots(Some("8")), Ok(Some(8)));
        for bad in ["0", "-1", "many", "10001"] {
            assert!(pilots(Some(bad)).is_err(), "{bad}");
        }
    }
}
