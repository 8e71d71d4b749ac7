//! Rewrites golden files. Read the diff before committing it: each changed line needs a reason.

use crate::{Verdict, shell};

pub(crate) fn run() -> Verdict {
    shell::cargo_with(&["test", "--workspace", "--quiet"], &[("UPDATE_EXPECT", "1")])
}
