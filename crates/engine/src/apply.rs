//! What an action does to a snapshot: the only definition, used by every caller.

use model::{Action, Class, Policy, Refusal, Snapshot, Workload};

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
            let until_ms = snapshot
                .waiting()
                .get(workload)
                .map_or(snapshot.now_ms, |found| expected_end_ms(snapshot.now_ms, found, policy));
            snapshot.place(*workload, seats, until_ms)
        }
        Action::Preempt { workload, by_ms } => snapshot.ask_to_leave(*workload, *by_ms),
    }
}

/// When a workload started at `now_ms` has to be gone; never, for a service without a limit.
pub(crate) fn expected_end_ms(now_ms: u64, workload: &Workload, policy: &Policy) -> u64 {
    let default_ms = match workload.class {
        Class::Service => u64::MAX,
        Class::Training | Class::Batch | Class::Interactive => policy.time_limit_default_ms,
    };
    now_ms.saturating_add(workload.time_limit_ms.unwrap_or(default_ms))
}
