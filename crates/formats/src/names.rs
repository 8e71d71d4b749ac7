//! Names from a fixed list: classes, isolation, sharing modes, MIG profiles.

use model::{Class, Isolation, SharingKind};

use crate::error::{Complaint, quote};
use crate::near::nearest;

/// A class by its name.
pub(crate) fn class(name: &str) -> Result<Class, Complaint> {
    Class::parse(name).ok_or_else(|| unknown("class", name, &Class::ALL.map(Class::as_str)))
}

/// Isolation by its name.
pub(crate) fn isolation(name: &str) -> Result<Isolation, Complaint> {
    match name {
        "none" => Ok(Isolation::None),
        "memory" => Ok(Isolation::Memory),
        "hard" => Ok(Isolation::Hard),
        _ => Err(unknown("isolation", name, &["none", "memory", "hard"])),
    }
}

/// A sharing mode by its name; `timeslice` and `capped` are taken for the long forms.
pub(crate) fn mode(name: &str) -> Result<SharingKind, Complaint> {
    let known = SharingKind::ALL.map(SharingKind::as_str);
    let found = match name {
        "timeslice" => Some(SharingKind::TimeSlice),
        "capped" => Some(SharingKind::MemoryCapped),
        _ => SharingKind::parse(name),
    };
    found.ok_or_else(|| unknown("sharing mode", name, &known))
}

/// Whether a word has the shape of a MIG profile: `1g.10gb`, `1g.10gb+me`.
pub fn is_mig_profile(word: &str) -> bool {
    let (base, _) = word.split_once('+').unwrap_or((word, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = base.split_once("g.").and_then(|(slices, size)| {
        let gigabytes = size.strip_suffix("gb")?;
        Some((slices, gigabytes))
    });
    parts.is_some_and(|(slices, gigabytes)| digits(slices) && digits(gigabytes))
}

/// A MIG profile's name, in lower case.
pub(crate) fn mig_profile(name: &str) -> Result<String, Complaint> {
    let name = name.to_ascii_lowercase();
    if is_mig_profile(&name) {
        return Ok(name);
    }
    let what = format!("{} is not a MIG profile", quote(&name));
    Err(Complaint::new(what, "give one such as \"1g.10gb\" or \"3g.40gb\""))
}

/// The complaint about a name that is not on the list, with the one that was meant.
pub(crate) fn unknown(kind: &str, name: &str, known: &[&str]) -> Complaint {
    let what = format!("{} is not a known {kind}", quote(name));
    let list = known.join(", ");
    match nearest(name, known) {
        Some(meant) => Complaint::new(what, format!("did you mean {meant}? known: {list}")),
        None => Complaint::new(what, format!("known: {list}")),
    }
}
