//! A template of claims is called by all that it asks, so that whoever sees a pod that names one can make it: the webhook writes nothing
//! but the pod. Pure.
//!
//! `hotpot-2xcard`, `hotpot-1x10240mib-300m`, `hotpot-1xmig-1g-10gb`; of another class than ours `hotpot-small-1a2b3c4d-1xcard`.

use super::ask::{Ask, Each, Profile};
use crate::names;

/// How all such names begin.
const PREFIX: &str = "hotpot-";
/// Letters of a class's name that are shown.
const CLASS_SHOWN_MAX: usize = 12;

/// The name, a DNS label of at most 63 letters.
pub fn of(ask: &Ask) -> String {
    let each = match ask.each() {
        Each::Card => "card".to_owned(),
        Each::Part { memory_mib, compute_milli } => {
            let memory = memory_mib.map(|mib| format!("{mib}mib"));
            let compute = compute_milli.map(|milli| format!("{milli}m"));
            memory.into_iter().chain(compute).collect::<Vec<_>>().join("-")
        }
        Each::Instance(profile) => format!("mig-{}", profile.label()),
    };
    format!("{}{}x{each}", prefix(ask.class()), ask.count())
}

/// What a template of that name asks; `None` if it is no such name.
///
/// * `classes` — the names of our classes; one that is not among them is not known again.
pub fn read<'a>(name: &str, classes: impl IntoIterator<Item = &'a str>) -> Option<Ask> {
    if !name.starts_with(PREFIX) {
        return None;
    }
    let of_class = |class: &str| {
        let (count, each) = name.strip_prefix(&prefix(class))?.split_once('x')?;
        let ask = Ask::new(class, count.parse().ok()?, read_each(each)?).ok()?;
        // Nothing else than what is written is read: no `01x`, no `+1x`.
        (of(&ask) == name).then_some(ask)
    };
    classes.into_iter().find_map(of_class)
}

fn read_each(text: &str) -> Option<Each> {
    if text == "card" {
        return Some(Each::Card);
    }
    if let Some(profile) = text.strip_prefix("mig-") {
        return Profile::of_label(profile).map(Each::Instance);
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let (memory_mib, compute) = match text.split_once("mib") {
        Some((memory, rest)) => (Some(number(memory)?), rest.strip_prefix('-')),
        None => (None, Some(text)),
    };
    let compute_milli = compute.map(|text| number(text.strip_suffix('m')?));
    let compute_milli = compute_milli.map_or(Some(None), |read| read.map(Some))?;
    Some(Each::Part { memory_mib, compute_milli })
}

/// What stands before the amounts: of a class other than ours its first letters and a number that tells it from others.
fn prefix(class: &str) -> String {
    if class == names::CLASS {
        return PREFIX.to_owned();
    }
    let shown: String =
        class.chars().filter(char::is_ascii_alphanumeric).take(CLASS_SHOWN_MAX).collect();
    format!("{PREFIX}{}-{:08x}-", shown.to_ascii_lowercase(), number(class))
}

/// Folded to 32 bits.
fn number(text: &str) -> u32 {
    let sum = names::fingerprint(text.as_bytes());
    ((sum >> 32) ^ sum) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn each() -> impl Strategy<Value = Each> {
        let part = (1..=super::super::ask::MEMORY_MAX_MIB, 1..=1000_u64, 0..3);
        let part = part.prop_map(|(memory, compute, which)| Each::Part {
            memory_mib: (which != 0).then_some(memory),
            compute_milli: (which != 1).then_some(compute),
        });
        let profile = "[1-9]g\\.[1-9][0-9]{0,2}gb([+-](me|gfx|me\\.all|all))?";
        let profile = profile.prop_map(|text| Each::Instance(Profile::parse(&text).unwrap()));
        prop_oneof![Just(Each::Card), part, profile]
    }

    fn class() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(names::CLASS.to_owned()),
            "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\\.[a-z0-9]{1,20}){0,4}",
            // As if it were amounts.
            "[1-9]x[1-9]{1,3}m",
        ]
    }

    fn is_label(name: &str) -> bool {
        let ends = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric());
        let all =
            name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-');
        name.len() <= 63 && all && ends(name.chars().next()) && ends(name.chars().last())
    }

    proptest! {
        #[test]
        fn a_name_is_a_label_and_says_all_that_is_asked(
            class in class(), others in proptest::collection::vec(class(), 0..4), count in 1..=32_u64, each in each(),
        ) {
            let ask = Ask::new(&class, count, each).unwrap();
            let name = of(&ask);
            prop_assert!(is_label(&name), "{}", name);
            let known = others.iter().chain([&class]).map(String::as_str);
            prop_assert_eq!(read(&name, known), Some(ask));
        }

        #[test]
        fn what_is_read_is_written_the_same(text in "hotpot-[0-9]{1,2}x[0-9a-z-]{1,16}") {
            if let Some(ask) = read(&text, [names::CLASS]) {
                prop_assert_eq!(of(&ask), text);
            }
        }
    }

    #[test]
    fn names_are_as_people_are_told() {
        let of = |each| of(&Ask::new(names::CLASS, 1, each).unwrap());
        let part = |memory_mib, compute_milli| of(Each::Part { memory_mib, compute_milli });
        assert_eq!(of(Each::Card), "hotpot-1xcard");
        assert_eq!(part(Some(10_240), Some(300)), "hotpot-1x10240mib-300m");
        assert_eq!(part(Some(10_240), None), "hotpot-1x10240mib");
        assert_eq!(part(None, Some(300)), "hotpot-1x300m");
        let mig = |text| of(Each::Instance(Profile::parse(text).unwrap()));
        assert_eq!(mig("1g.10gb"), "hotpot-1xmig-1g-10gb");
        assert_eq!(mig("1g.24gb-me"), "hotpot-1xmig-1g-24gb-no-me");
        assert_eq!(mig("1g.10gb+me"), "hotpot-1xmig-1g-10gb-me");
    }

    #[test]
    fn what_is_no_such_name_asks_nothing() {
        for name in [
            "",
            "hotpot-",
            "hotpot",
            "hotpot-webhook",
            "hotpot-1x",
            "hotpot-0xcard",
            "hotpot-33xcard",
            "hotpot-01xcard",
            "hotpot-+1xcard",
            "hotpot-1x0mib",
            "hotpot-1x5mib-",
            "hotpot-1x5mib-0m",
            "hotpot-1x1001m",
            "hotpot-1x5mib-5",
            "hotpot-1xm",
            "hotpot-1xmig-",
            "hotpot-1xmig-1g",
            "hotpot-1x99999999999999999999mib",
            "other-1xcard",
            "hotpot-small-00000000-1xcard",
        ] {
            assert_eq!(read(name, [names::CLASS, "small"]), None, "{name}");
        }
    }
}
