//! Who had how much of the GPU, and who should have.

use super::{PROBE_NS, Tenant};

/// What was read, every [`PROBE_NS`].
#[derive(Debug)]
pub(crate) struct Measured {
    tenants: Vec<Tenant>,
    /// GPU time had until then, by tenant.
    used: Vec<Vec<u64>>,
    /// GPU time that each should have had until then, if the GPU could be divided without end.
    right: Vec<Vec<f64>>,
}

impl Measured {
    pub(crate) fn new(tenants: &[Tenant]) -> Self {
        Self { tenants: tenants.to_vec(), used: Vec::new(), right: Vec::new() }
    }

    /// * `wanting` — who has work, or has asked for a launch.
    pub(crate) fn push(&mut self, used: Vec<u64>, wanting: Vec<bool>) {
        let right = self.rights(&wanting);
        let last = self.right.last().cloned().unwrap_or(vec![0.0; right.len()]);
        let sum = last.iter().zip(&right).map(|(had, part)| had + part * PROBE_NS as f64);
        self.right.push(sum.collect());
        self.used.push(used);
    }

    /// The part of the GPU that each has a right to at a time.
    fn rights(&self, wanting: &[bool]) -> Vec<f64> {
        let share = |tenant: &Tenant| f64::from(tenant.terms.share_milli.unwrap_or(0));
        let given: f64 = self.tenants.iter().map(share).sum();
        let free = self.tenants.iter().filter(|tenant| tenant.terms.share_milli.is_none()).count();
        let left = (1000.0 - given).max(50.0) / free.max(1) as f64;
        let part = |(tenant, wants): (&Tenant, &bool)| match tenant.terms.share_milli {
            _ if !wants => 0.0,
            Some(_) => share(tenant),
            None => left,
        };
        let parts = || self.tenants.iter().zip(wanting).map(part);
        let sum: f64 = parts().sum();
        parts().map(|part| part / sum.max(1.0)).collect()
    }

    fn steps(window_ns: u64) -> usize {
        usize::try_from(window_ns / PROBE_NS).unwrap()
    }

    /// The largest difference between what a tenant had and what it should have had, in points of what
    /// all had together, over all windows of this length after the first `skip_ns`.
    pub(crate) fn worst(&self, window_ns: u64, skip_ns: u64) -> f64 {
        let (steps, skip) = (Self::steps(window_ns), Self::steps(skip_ns));
        let windows = (skip..self.used.len().saturating_sub(steps)).map(|at| (at, at + steps));
        windows.map(|(from, to)| self.error(from, to)).fold(0.0, f64::max)
    }

    fn error(&self, from: usize, to: usize) -> f64 {
        let had: Vec<f64> = self.had(from, to);
        let right: Vec<f64> =
            self.right[to].iter().zip(&self.right[from]).map(|(to, from)| to - from).collect();
        let (all, due) = (had.iter().sum::<f64>(), right.iter().sum::<f64>());
        let parts = had.iter().zip(&right);
        parts.map(|(had, right)| (had / all - right / due).abs() * 100.0).fold(0.0, f64::max)
    }

    fn had(&self, from: usize, to: usize) -> Vec<f64> {
        let (to, from) = (&self.used[to], &self.used[from]);
        to.iter().zip(from).map(|(to, from)| (to - from) as f64).collect()
    }

    /// The part of the time in which each tenant had the GPU, after the first `skip_ns`, in percent.
    pub(crate) fn parts(&self, skip_ns: u64) -> Vec<f64> {
        self.parts_between(skip_ns, self.used.len() as u64 * PROBE_NS)
    }

    /// The same between two times since the beginning.
    pub(crate) fn parts_between(&self, from_ns: u64, to_ns: u64) -> Vec<f64> {
        let (from, to) = (Self::steps(from_ns), Self::steps(to_ns).min(self.used.len()) - 1);
        let time = ((to - from) as u64 * PROBE_NS) as f64;
        self.had(from, to).into_iter().map(|had| had / time * 100.0).collect()
    }

    /// The least and most that a tenant had in a window of this length, in percent of the window.
    pub(crate) fn range(&self, tenant: usize, window_ns: u64, skip_ns: u64) -> (f64, f64) {
        let (steps, skip) = (Self::steps(window_ns), Self::steps(skip_ns));
        let windows = skip..self.used.len().saturating_sub(steps);
        let part = |at: usize| {
            (self.used[at + steps][tenant] - self.used[at][tenant]) as f64 / window_ns as f64
                * 100.0
        };
        windows.map(part).fold((f64::MAX, 0.0), |(low, high), part| (low.min(part), high.max(part)))
    }
}
