//! Accounts of tasks that the limiter holds, read from their ledgers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::account::{Account, Counts};
use crate::limiter::ledger_of_user;
use crate::sample::{AccountSample, GpuSample};
use crate::tenant::{Booked, Tenants};

/// What is remembered of ledgers from round to round.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<PathBuf, Seen>);

/// An account as it was last read.
#[derive(Clone, Debug)]
struct Seen {
    at: Duration,
    account: Account,
}

impl Accounts {
    /// Puts accounts to the GPUs that they are about.
    ///
    /// * `at` — now, since 1970.
    pub(super) fn fill(&mut self, gpus: &mut [GpuSample], tenants: &Tenants, at: Duration) {
        let mut seen = BTreeMap::new();
        for booked in tenants.booked() {
            let share = &booked.given.share;
            let gpu = gpus.iter_mut().find(|gpu| gpu.uuid == share.gpu);
            let (Some(gpu), Some(ledger)) = (gpu, &share.ledger) else { continue };
            let before = self.0.get(ledger);
            let Some(account) = read(booked, before) else { continue };
            gpu.accounts.push(sample(booked, &account, before, at));
            seen.insert(ledger.clone(), Seen { at, account });
        }
        self.0 = seen;
        for ended in tenants.ended() {
            if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid == ended.gpu) {
                let sum: &mut Counts = gpu.ended.entry(ended.run.clone()).or_default();
                *sum = sum.plus(&ended.counts);
            }
        }
    }
}

/// The account; of a task whose ledger has just gone what it had last, so that no count goes down until
/// its run has added it to those of ended tasks.
fn read(booked: &Booked, before: Option<&Seen>) -> Option<Account> {
    let ledger = booked.given.share.ledger.as_ref()?;
    if ledger_of_user(ledger, booked.user) {
        return Account::read(ledger).ok();
    }
    let last = before?.account.clone();
    let memory_bytes = last.memory_bytes.into_keys().map(|kind| (kind, 0)).collect();
    Some(Account { processes: 0, memory_bytes, ..last })
}

fn sample(
    booked: &Booked,
    account: &Account,
    before: Option<&Seen>,
    at: Duration,
) -> AccountSample {
    let share = &booked.given.share;
    let rate = |count: fn(&Counts) -> u64| {
        let before = before?;
        let passed_us = at.checked_sub(before.at)?.as_micros();
        let had_us = count(&account.counts).checked_sub(count(&before.account.counts))?;
        (passed_us > 0).then(|| float(u128::from(had_us)) / float(passed_us))
    };
    AccountSample {
        tenant: booked.given.tenant.clone(),
        cap_bytes: share.memory_mib.checked_mul(1 << 20).filter(|bytes| *bytes > 0),
        compute_milli: Some(share.compute_milli).filter(|milli| *milli > 0),
        account: account.clone(),
        gpu_ratio: account.counts.measured_us().and_then(|_| rate(|counts| counts.gpu_us)),
        throttled_ratio: rate(|counts| counts.throttled_us),
    }
}

#[expect(clippy::cast_precision_loss, reason = "times between two rounds are short")]
fn float(us: u128) -> f64 {
    us as f64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::live::{LiveRun, LiveShare, LiveTask, folder};
    use crate::procfs::Procfs;

    /// The books of a task of this very process.
    fn publish(state: &Path, ledger: &Path, ended: Counts) {
        let pid = std::process::id();
        let start_ticks = Procfs::default().living(pid).unwrap().start_ticks;
        let share = LiveShare {
            gpu: "GPU-1".into(),
            kind: "memory-capped".into(),
            memory_mib: 2048,
            compute_milli: 300,
            ledger: Some(ledger.to_owned()),
            ..LiveShare::default()
        };
        let task = LiveTask { task: "1".into(), pid, start_ticks, shares: vec![share] };
        let ended = [("GPU-1".to_owned(), ended)].into();
        let run = LiveRun { run: "r".into(), pid, start_ticks, tasks: vec![task], ended };
        run.publish(&folder(state)).unwrap();
    }

    fn round(accounts: &mut Accounts, state: &Path, at_ms: u64) -> GpuSample {
        let mut tenants = Tenants::new(state);
        tenants.refresh();
        let mut gpus = [GpuSample { uuid: "GPU-1".into(), ..GpuSample::default() }];
        accounts.fill(&mut gpus, &tenants, Duration::from_millis(at_ms));
        let [gpu] = gpus;
        gpu
    }

    #[test]
    fn accounts_come_with_their_caps_and_what_has_ended() {
        let state = std::env::temp_dir().join(format!("accounts-{}", std::process::id()));
        std::fs::create_dir_all(&state).unwrap();
        let ledger = state.join("ledger");
        let books = caps::Ledger::make(&ledger, 0o600).unwrap();
        publish(&state, &ledger, Counts { launches: 5, ..Counts::default() });
        let mut accounts = Accounts::default();
        let slot = books.join(caps::ProcessId::own()).unwrap();
        books.reserve(slot, caps::Kind::Plain, 1 << 30, Some(2 << 30)).unwrap();
        let first = round(&mut accounts, &state, 1_000);
        let [of_task] = first.accounts.as_slice() else { panic!("{first:?}") };
        assert_eq!((of_task.cap_bytes, of_task.compute_milli), (Some(2 << 30), Some(300)));
        assert_eq!((of_task.account.held_bytes(), of_task.gpu_ratio), (1 << 30, None));
        assert_eq!(first.ended["r"].launches, 5);
        books.count(1, 250_000, (0, 0));
        let second = round(&mut accounts, &state, 2_000);
        assert_eq!(second.accounts[0].gpu_ratio, Some(0.25));
        assert_eq!(second.accounts[0].throttled_ratio, Some(0.0));
        // Its ledger is gone and its run has not said so yet.
        std::fs::remove_file(&ledger).unwrap();
        let third = round(&mut accounts, &state, 3_000);
        let gone = &third.accounts[0].account;
        assert_eq!((gone.held_bytes(), gone.counts.gpu_us), (0, 250_000));
        std::os::unix::fs::symlink("/etc/passwd", &ledger).unwrap();
        assert!(!ledger_of_user(&ledger, nix::unistd::getuid().as_raw()), "no links are followed");
        std::fs::remove_dir_all(&state).unwrap();
    }
}
