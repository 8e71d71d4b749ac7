//! Decimal numbers times a whole factor, without a float in between.

use crate::error::{Complaint, quote};

/// Digits that a number may have: enough for every `f64` written out that is not absurd.
const DIGITS_MAX: usize = 24;

/// An exact product, between two whole numbers unless it is one.
pub(crate) struct Scaled {
    /// The product, rounded down.
    pub(crate) down: u128,
    exact: bool,
}

impl Scaled {
    /// The product, rounded up.
    pub(crate) fn up(&self) -> u128 {
        self.down + u128::from(!self.exact)
    }
}

/// Why a text is no usable number.
pub(crate) enum Fault {
    NotANumber,
    Negative,
    Absurd,
}

impl Fault {
    /// The complaint about `text`, which should have been `kind`.
    pub(crate) fn complain(&self, text: &str, kind: &str, way_out: &str) -> Complaint {
        let what = match self {
            Self::NotANumber => format!("{} is not {kind}", quote(text)),
            Self::Negative => format!("{} is negative", quote(text)),
            Self::Absurd => format!("{} is absurdly long or large", quote(text)),
        };
        Complaint::new(what, way_out)
    }
}

/// A decimal number times `factor`.
pub(crate) fn scale(number: &str, factor: u128) -> Result<Scaled, Fault> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = number.strip_prefix('-') {
        let is_number = rest.split_once('.').map_or(digits(rest), |(i, f)| digits(i) && digits(f));
        return Err(if is_number { Fault::Negative } else { Fault::NotANumber });
    }
    if !digits(integer) || !digits(fraction) {
        return Err(Fault::NotANumber);
    }
    if integer.len() + fraction.len() > DIGITS_MAX {
        return Err(Fault::Absurd);
    }
    let mantissa: u128 = format!("{integer}{fraction}").parse().map_err(|_| Fault::Absurd)?;
    let one = 10u128.pow(fraction.len() as u32);
    let product = mantissa.checked_mul(factor).ok_or(Fault::Absurd)?;
    Ok(Scaled { down: product / one, exact: product.is_multiple_of(one) })
}
