//! What an action does to a snapshot: the only definition, used by every caller.

use model::{Action, Policy, Refusal, Snapshot};

/// Carries one action out on a snapshot.
///
/// Doing it twice is the same as doing it once.
///
/// # Errors
/// What did not fit; the snapshot is then unchanged.
pub fn apply(snapshot: &mut Snapshot, action: &Action, policy: &Policy) -> Result<(), Refusal> {
    match action {
        Action::SetMode { gpu, mode } => snapshot.set_mode(*gpu, *mode),
        Action::Place { workload, seats } => {
            let until_ms = snapshot.waiting().get(workload).map_or(snapshot.now_ms, |found| {
                expected_end_ms(snapshot.now_ms, found.time_limit_ms, policy)
            });
            snapshot.place(*workload, seats, until_ms)
        }
    }
}

/// When a workload started at `now_ms` has to be gone.
pub(crate) fn expected_end_ms(now_ms: u64, time_limit_ms: Option<u64>, policy: &Policy) -> u64 {
    now_ms.saturating_add(time_limit_ms.unwrap_or(policy.time_limit_default_ms))
}
