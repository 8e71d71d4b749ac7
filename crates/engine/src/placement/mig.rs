//! On which GPU a MIG instance is put: where the least openness is lost.

use model::Share;

use super::Candidate;
use crate::mig::openness;

/// The openness that the GPUs lose, negated; of equal losses the fuller GPU wins.
pub(crate) fn score(candidate: &Candidate<'_>) -> i64 {
    let loss = candidate.picks.iter().map(|pick| {
        let gpu = candidate.node.gpus().get(usize::from(pick.gpu));
        let geometry = gpu.and_then(|gpu| Some((gpu, gpu.model().mig.as_ref()?)));
        let (Some((gpu, geometry)), Share::Mig { profile, start }) = (geometry, pick.share) else {
            return 0;
        };
        let before = gpu.layout();
        let after = before.with(profile, start);
        let lost = openness(geometry, &before) - openness(geometry, &after);
        lost * 1001 + i64::from(pick.left_milli)
    });
    -loss.sum::<i64>()
}
