//! Amounts as Kubernetes writes them: `80Gi`, `500m`, `1e3`. Read exactly, in thousandths, and written in the form that
//! the API server gives them itself, so that what is stored can be compared with what was sent.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// What stands behind a number, and the power that it means (Kubernetes API conventions, "Quantities").
const BINARY: [(&str, u32); 6] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];
const DECIMAL: [(&str, u32); 7] =
    [("m", 0), ("k", 2), ("M", 3), ("G", 4), ("T", 5), ("P", 6), ("E", 7)];
/// Length of a number that is still read.
const LENGTH_MAX: usize = 64;
/// Powers of ten that are still read.
const EXPONENT_MAX: i32 = 18;

/// So many bytes, in the largest unit that leaves no fraction.
pub fn of_bytes(bytes: u64) -> Quantity {
    let mut amount = (bytes, "");
    for (unit, power) in BINARY {
        let size = 1 << (10 * power);
        if bytes > 0 && bytes.is_multiple_of(size) {
            amount = (bytes / size, unit);
        }
    }
    Quantity(format!("{}{}", amount.0, amount.1))
}

/// So many thousandths.
pub fn of_milli(milli: u64) -> Quantity {
    let text =
        if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") };
    Quantity(text)
}

/// A whole number below 1000.
pub fn of_count(count: u8) -> Quantity {
    Quantity(count.to_string())
}

/// In whole ones, rounded down; `None` if it is no amount, or below 0.
pub fn whole(quantity: &Quantity) -> Option<u64> {
    u64::try_from(milli_of(&quantity.0)? / 1000).ok()
}

/// In thousandths, rounded up; `None` if it is no amount, or below 0.
pub fn milli(quantity: &Quantity) -> Option<u64> {
    u64::try_from(milli_of(&quantity.0)?).ok()
}

fn milli_of(text: &str) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text.len() > LENGTH_MAX {
        return None;
    }
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    if let Some((_, power)) = BINARY.iter().find(|(unit, _)| *unit == suffix) {
        return scaled(number, 1024_u128.pow(*power).checked_mul(1000)?);
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(unit, _)| *unit == suffix) {
        return scaled(number, 1000_u128.pow(*power));
    }
    if suffix.is_empty() {
        return scaled(number, 1000);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = exponent.checked_add(3).filter(|power| power.abs() <= EXPONENT_MAX)?;
    if power >= 0 {
        return scaled(number, 10_u128.pow(power.unsigned_abs()));
    }
    Some(scaled(number, 1)?.div_ceil(10_u128.pow(power.unsigned_abs())))
}

/// A number with or without a point, times a factor, rounded up.
fn scaled(number: &str, factor: u128) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{part}").parse().ok()?;
    let below = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    Some(digits.checked_mul(factor)?.div_ceil(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("+2", Some(2000)),
            ("1m", Some(1)),
            ("300m", Some(300)),
            ("0.25", Some(250)),
            (".5", Some(500)),
            ("0.0001", Some(1)),
            ("1e3", Some(1_000_000)),
            ("5e-1", Some(500)),
            ("1e-9", Some(1)),
            ("1k", Some(1_000_000)),
            ("30Gi", Some(30 * 1024 * 1024 * 1024 * 1000)),
            ("1.5Gi", Some(1536 * 1024 * 1024 * 1000)),
            ("-1", None),
            ("", None),
            (".", None),
            ("Gi", None),
            ("1Zi", None),
            ("1e99", None),
            ("99999999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(milli(&Quantity(text.into())), expected, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_in_the_servers_form_and_read_again() {
        for (bytes, text) in
            [(0, "0"), (1 << 30, "1Gi"), (81_559 << 20, "81559Mi"), (80 << 30, "80Gi"), (7, "7")]
        {
            assert_eq!(of_bytes(bytes).0, text);
            assert_eq!(whole(&of_bytes(bytes)), Some(bytes));
        }
        assert_eq!([of_milli(0).0, of_milli(250).0, of_milli(3000).0], ["0", "250m", "3"]);
        assert_eq!(milli(&of_milli(142)), Some(142));
    }
}
