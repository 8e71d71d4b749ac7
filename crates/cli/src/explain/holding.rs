//! What a task holds of GPUs, in words: its caps, and its accounts as they are now or as they were when it
//! was over.

use std::fmt::Write;
use std::path::Path;

use local::journal::RunRow;
use local::{Held, containment};
use model::{GpuAsk, Workload};
use node::account::Account;
use node::amounts;
use node::backend::Enforcement;
use node::{limiter, live};

use crate::run::seconds;
use crate::words;

/// What a task that goes on holds, with the accounts as its processes write them at this moment; one that
/// cannot be read is left out. The journal has those of tasks that are over only.
///
/// * `state` — the state folder.
/// * `label` — of the task.
/// * `held` — what the journal says.
pub(super) fn now(state: &Path, run: &RunRow, label: &str, held: &[Held]) -> Vec<Held> {
    let name = containment::name(run.run, run.pid);
    let published = live::published(&live::folder(state));
    let of_run = published.into_iter().find(|published| published.run.run == name);
    let account = |uuid: &str| {
        let of_run = of_run.as_ref()?;
        let task = of_run.run.tasks.iter().find(|task| task.task == label)?;
        let ledger = task.shares.iter().find(|share| share.gpu == uuid)?.ledger.as_ref()?;
        limiter::ledger_of_user(ledger, of_run.user).then(|| Account::read(ledger).ok()).flatten()
    };
    held.iter().map(|held| Held { account: account(&held.uuid), ..held.clone() }).collect()
}

/// `memory-capped: 2.29 GiB (cooperative), of which 300 MiB for a context, 20 % of its time (cooperative)`.
pub(super) fn given(held: &Held, workload: &Workload) -> String {
    let mut parts = Vec::new();
    if held.memory_mib > 0 {
        parts.push(format!("{} ({})", amounts::mib(held.memory_mib), hard(&held.memory)));
        parts.extend(
            context_mib(held, workload)
                .map(|mib| format!("of which {} for a context", amounts::mib(mib))),
        );
    }
    if held.compute_milli > 0 {
        let percent = f64::from(held.compute_milli) / 10.0;
        parts.push(format!("{percent} % of its time ({})", hard(&held.compute)));
    }
    let parts = if parts.is_empty() { "no caps of its own".to_owned() } else { parts.join(", ") };
    format!("{}: {parts}", held.sharing)
}

/// What a cap of memory has on top of what was asked for.
fn context_mib(held: &Held, workload: &Workload) -> Option<u64> {
    match &workload.demand.gpus.as_ref()?.each {
        GpuAsk::Fraction { memory_mib: asked @ 1.., .. } => {
            held.memory_mib.checked_sub(*asked).filter(|mib| *mib > 0)
        }
        GpuAsk::Fraction { .. } | GpuAsk::Whole | GpuAsk::Profile(_) => None,
    }
}

fn hard(enforcement: &Enforcement) -> String {
    match enforcement {
        Enforcement::Absent(why) | Enforcement::Unknown(why) => {
            format!("{}: {why}", enforcement.as_str())
        }
        Enforcement::Hard | Enforcement::Cooperative => enforcement.as_str().to_owned(),
    }
}

/// An account, of a task that is over or that goes on.
pub(super) fn booked(account: &Account, goes_on: bool) -> String {
    let counts = &account.counts;
    let time = counts
        .measured_us()
        .map_or(String::new(), |us| format!("{} of GPU time, ", seconds(us / 1000)));
    let (peak, launches) = (amounts::bytes(account.peak_bytes), counts.launches);
    let memory = match goes_on {
        true => format!("holds {} now, {peak} at most so far", memory(account)),
        false => format!("held at most {peak}"),
    };
    let plural = if launches == 1 { "launch" } else { "launches" };
    let mut text = format!("{memory}; {time}{launches} {plural}");
    if counts.throttled > 0 {
        let waited = seconds(counts.throttled_us / 1000);
        let _ = write!(text, ", {} of them held back, for {waited} in all", counts.throttled);
    }
    text
}

/// `1.5 GiB (300 MiB of it for contexts)`.
fn memory(account: &Account) -> String {
    let contexts = words::contexts_bytes(account);
    let [held, of_contexts] = amounts::apart([account.held_bytes(), contexts]);
    match contexts {
        0 => held,
        _ => format!("{held} ({of_contexts} of it for contexts)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_held_now_is_told_with_its_contexts() {
        let mut account = Account::default();
        assert_eq!(booked(&account, false), "held at most 0 MiB; 0.000 s of GPU time, 0 launches");
        account.memory_bytes.insert("context".into(), 300 * MIB);
        account.memory_bytes.insert("plain".into(), 2048 * MIB);
        account.peak_bytes = 2348 * MIB;
        account.counts.launches = 1;
        let expected =
            "holds 2.29 GiB (300 MiB of it for contexts) now, 2.29 GiB at most so far; 1 launch";
        assert_eq!(booked(&account, true), expected);
    }
}
