//! What is wrong with who had which device: at one moment, as somebody saw it, or by the times that jobs noted.

use std::collections::{BTreeMap, BTreeSet};

/// Overlaps shorter than this are a job's last words beside the first of the next.
const OVERLAP_MIN_S: f64 = 0.05;

/// How much of a device a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of a card or of a MIG instance.
    Whole,
    /// So much of a card, in whatever is counted.
    Of(u64),
}

/// A job that has a device or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) job: u32,
    /// Node and device, in the words of who saw it.
    pub(super) device: String,
    pub(super) part: Part,
}

/// A claim and how long it was, in seconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    pub(super) claim: Claim,
    pub(super) begun_s: f64,
    pub(super) end_s: f64,
}

/// Two jobs on one device that one of them has as a whole, the smaller number first.
pub(super) type Pair = (String, u32, u32);

/// The pairs among jobs that are there at once.
pub(super) fn pairs(claims: &[Claim]) -> BTreeSet<Pair> {
    all_pairs(claims).filter_map(|(a, b)| pair(a, b)).collect()
}

/// Devices of which parts, counted together, come to more than there is.
pub(super) fn over(claims: &[Claim], most: u64) -> BTreeSet<String> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for claim in claims {
        if let Part::Of(amount) = claim.part {
            *sums.entry(&claim.device).or_default() += amount;
        }
    }
    let full = sums.into_iter().filter(|(_, sum)| *sum > most);
    full.map(|(device, _)| device.to_owned()).collect()
}

/// The pairs among stays whose times overlap.
pub(super) fn pairs_of_stays(stays: &[Stay]) -> BTreeSet<Pair> {
    let at_once =
        |a: &Stay, b: &Stay| a.end_s.min(b.end_s) - a.begun_s.max(b.begun_s) > OVERLAP_MIN_S;
    let overlapping = all_pairs(stays).filter(|(a, b)| at_once(a, b));
    overlapping.filter_map(|(a, b)| pair(&a.claim, &b.claim)).collect()
}

/// Starts of stays at which parts of a device came to more than there is.
pub(super) fn moments_over(stays: &[Stay], most: u64) -> usize {
    let mut devices: BTreeMap<&str, Vec<(f64, i64)>> = BTreeMap::new();
    for stay in stays {
        let Part::Of(amount) = stay.claim.part else { continue };
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        let steps = devices.entry(&stay.claim.device).or_default();
        steps.push((stay.begun_s + OVERLAP_MIN_S, amount));
        steps.push((stay.end_s - OVERLAP_MIN_S, -amount));
    }
    devices.into_values().map(|steps| peaks(steps, most)).sum()
}

fn peaks(mut steps: Vec<(f64, i64)>, most: u64) -> usize {
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut held = 0;
    let sums = steps.into_iter().map(|(_, step)| {
        held += step;
        (step, held)
    });
    sums.filter(|(step, held)| *step > 0 && u64::try_from(*held).is_ok_and(|it| it > most)).count()
}

fn all_pairs<T>(all: &[T]) -> impl Iterator<Item = (&T, &T)> {
    all.iter().enumerate().flat_map(|(at, a)| all[..at].iter().map(move |b| (a, b)))
}

fn pair(a: &Claim, b: &Claim) -> Option<Pair> {
    let whole = a.part == Part::Whole || b.part == Part::Whole;
    let two = a.job != b.job && a.device == b.device;
    (whole && two).then(|| (a.device.clone(), a.job.min(b.job), a.job.max(b.job)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(job: u32, device: &str, part: Part) -> Claim {
        Claim { job, device: device.into(), part }
    }

    fn stay(job: u32, part: Part, begun_s: f64, end_s: f64) -> Stay {
        Stay { claim: claim(job, "n1/0", part), begun_s, end_s }
    }

    #[test]
    fn a_device_that_two_jobs_have_is_found_if_one_has_it_whole() {
        let claims = [
            claim(1, "n1/0", Part::Whole),
            claim(2, "n1/0", Part::Of(20)),
            claim(3, "n1/0", Part::Of(20)),
            claim(1, "n1/0", Part::Whole),
            claim(4, "n1/1", Part::Whole),
            claim(5, "n2/1", Part::Whole),
        ];
        let found: Vec<_> = pairs(&claims).into_iter().map(|(_, a, b)| (a, b)).collect();
        assert_eq!(found, [(1, 2), (1, 3)]);
        assert!(pairs(&claims[1..3]).is_empty(), "parts share");
    }

    #[test]
    fn parts_are_summed_by_device() {
        let claims = [
            claim(1, "n1/0", Part::Of(200)),
            claim(2, "n1/0", Part::Of(117)),
            claim(3, "n1/1", Part::Of(200)),
            claim(4, "n1/1", Part::Whole),
        ];
        assert!(over(&claims, 317).is_empty());
        assert_eq!(over(&claims, 316), BTreeSet::from(["n1/0".to_owned()]));
    }

    #[test]
    fn stays_are_compared_by_their_times() {
        let stays = [
            stay(1, Part::Whole, 1.0, 3.0),
            stay(2, Part::Of(20), 2.5, 4.0),
            stay(3, Part::Whole, 3.96, 5.0),
        ];
        assert_eq!(pairs_of_stays(&stays), BTreeSet::from([("n1/0".to_owned(), 1, 2)]));
    }

    #[test]
    fn a_moment_over_the_card_is_one_at_which_a_part_was_added() {
        let of = |job, amount, begun, end| stay(job, Part::Of(amount), begun, end);
        let stays = [of(1, 200, 1.0, 3.0), of(2, 200, 2.0, 4.0), of(3, 117, 3.2, 4.0)];
        assert_eq!(moments_over(&stays, 317), 1);
        assert_eq!(moments_over(&stays, 400), 0);
        assert_eq!(moments_over(&[of(1, 200, 1.0, 3.0), of(2, 200, 2.98, 4.0)], 317), 0);
    }
}
