//! Amounts of memory for people: MiB below 1 GiB, GiB from there on, with two digits at most.

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Digits behind the point.
const DIGITS: usize = 2;
/// With so many, amounts in GiB differ as soon as they do in bytes.
const DIGITS_MAX: usize = 9;

/// Bytes, such as `300 MiB` or `2.29 GiB`.
pub fn bytes(bytes: u64) -> String {
    written(bytes, DIGITS)
}

/// As [`bytes`], of MiB.
pub fn mib(mib: u64) -> String {
    bytes(mib.saturating_mul(MIB))
}

/// Amounts that are compared in one sentence: with as many digits as tell different ones apart.
pub fn apart<const N: usize>(amounts: [u64; N]) -> [String; N] {
    let all = |digits| amounts.map(|amount| written(amount, digits));
    let differ = |texts: &[String; N]| {
        let pairs = (0..N).flat_map(|one| (0..one).map(move |other| (one, other)));
        pairs
            .into_iter()
            .all(|(one, other)| (amounts[one] == amounts[other]) == (texts[one] == texts[other]))
    };
    (DIGITS..DIGITS_MAX).map(all).find(differ).unwrap_or_else(|| all(DIGITS_MAX))
}

/// Without zeros at the end.
fn written(bytes: u64, digits: usize) -> String {
    // What would be written as 1024 MiB is 1 GiB.
    let (unit, name) = if bytes.div_ceil(MIB) >= GIB / MIB { (GIB, "GiB") } else { (MIB, "MiB") };
    #[expect(clippy::cast_precision_loss, reason = "nine digits are shown at most")]
    let units = bytes as f64 / unit as f64;
    let number = format!("{units:.digits$}");
    let number = number.trim_end_matches('0').trim_end_matches('.');
    match number {
        "0" if bytes > 0 => format!("{bytes} bytes"),
        number => format!("{number} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_at_1_gib_and_zeros_are_left_out() {
        for (amount, text) in [
            (0, "0 MiB"),
            (1000, "1000 bytes"),
            (MIB + MIB / 2, "1.5 MiB"),
            (300 * MIB, "300 MiB"),
            (GIB - 1, "1 GiB"),
            (GIB, "1 GiB"),
            (3 * GIB / 2, "1.5 GiB"),
            (2348 * MIB, "2.29 GiB"),
            (80 * GIB, "80 GiB"),
        ] {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!(mib(2048), "2 GiB");
        assert!(mib(u64::MAX).ends_with(" GiB"));
    }

    #[test]
    fn different_amounts_are_told_apart() {
        let of = |amounts: [u64; 2]| apart(amounts).join(", ");
        assert_eq!(of([2348 * MIB, 2348 * MIB]), "2.29 GiB, 2.29 GiB");
        assert_eq!(of([2348 * MIB, 2349 * MIB]), "2.293 GiB, 2.294 GiB");
        assert_eq!(of([80 * GIB, 80 * GIB - 1]), "80 GiB, 79.999999999 GiB");
        assert_eq!(of([GIB, GIB - 1]), "1 GiB, 0.999999999 GiB");
    }
}
