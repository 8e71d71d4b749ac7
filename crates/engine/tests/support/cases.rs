//! How often a law is tried.

use proptest::prelude::ProptestConfig;

/// Cases of a law unless the environment says otherwise.
pub(crate) fn cases(number: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let failure_persistence = None;
    ProptestConfig {
        cases: given.unwrap_or(number),
        failure_persistence,
        ..ProptestConfig::default()
    }
}
