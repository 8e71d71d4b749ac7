//! What is used of what is held.

/// Parts of time: `T_busy / T_total`, 0 to 1; 0 where there is no time. More than all is all.
pub fn utilisation(busy_ms: u64, total_ms: u64) -> f64 {
    if total_ms == 0 {
        return 0.0;
    }
    busy_ms.min(total_ms) as f64 / total_ms as f64
}

/// Efficiency under contention: `η = Σ P_eff / P_total`, where each tenant's effective part is what it asks, times its speed beside the
/// others.
///
/// * `tenants` — what each would use alone, in thousandths of the GPU, and its speed relative to that, 0 to 1.
///
/// 0 to 1, unless more is asked than there is and speeds do not say so.
pub fn efficiency(tenants: impl IntoIterator<Item = (u32, f64)>) -> f64 {
    tenants.into_iter().map(|(milli, speed)| f64::from(milli) / 1000.0 * speed).sum()
}

/// The overhead α of a tenant beside others: `P_alone / P_eff − 1`, 0 at full speed, 1 at half speed; without bound at speed 0.
pub fn alpha(speed: f64) -> f64 {
    1.0 / speed.max(0.0) - 1.0
}

/// GPU time: what was held, and what was busy of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuHours {
    /// GPUs with a tenant, times hours.
    pub held: f64,
    /// Of these, the part in which they computed.
    pub busy: f64,
}

impl GpuHours {
    /// Busy of held, 0 to 1; 0 where nothing is held.
    pub fn utilisation(self) -> f64 {
        if self.held > 0.0 { (self.busy / self.held).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// What GPU hours cost.
///
/// * `price_per_hour` — of one GPU, in whatever currency.
pub fn money(hours: f64, price_per_hour: f64) -> f64 {
    hours * price_per_hour
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} {other}");
    }

    #[test]
    fn parts_of_time() {
        near(utilisation(7, 100), 0.07);
        near(utilisation(0, 0), 0.0);
        near(utilisation(5, 4), 1.0);
        near(GpuHours { held: 24.0, busy: 6.0 }.utilisation(), 0.25);
        near(GpuHours::default().utilisation(), 0.0);
        near(money(100.0, 2.5), 250.0);
    }

    #[test]
    fn what_two_get_done_together() {
        near(efficiency([(500, 1.0), (250, 1.0)]), 0.75);
        near(efficiency([(800, 0.7), (800, 0.5)]), 0.96);
        near(efficiency([]), 0.0);
        near(alpha(1.0), 0.0);
        near(alpha(0.5), 1.0);
        assert!(alpha(0.0).is_infinite());
    }

    /// One GPU of 80 GB and 100 TFLOPS with three tenants: 40 GB and 50 TFLOPS, 20 and 25, 15 and 20.
    #[test]
    fn the_classic_small_case() {
        let tenants = [(40_u64, 500_u32), (20, 250), (15, 200)];
        let memory: u64 = tenants.iter().map(|(gb, _)| gb).sum();
        let compute: u32 = tenants.iter().map(|(_, milli)| milli).sum();
        near(memory as f64 / 80.0, 0.9375);
        assert_eq!(compute, 950);
        near(efficiency(tenants.map(|(_, milli)| (milli, 1.0))), 0.95);
        let of_used = tenants.map(|(gb, _)| gb as f64 / memory as f64);
        for (part, wanted) in of_used.into_iter().zip([0.533, 0.267, 0.200]) {
            assert!((part - wanted).abs() < 0.0005, "{part}");
        }
    }
}
