//! Turning a trace into the arrivals of a fill run: shuffled, and topped up or cut to a load.

use model::{Arrival, SplitMix, Trace, Workload};

use crate::yardstick::Yardstick;

/// Most arrivals of a fill run, however little each asks for.
const ARRIVALS_MAX: usize = 4_000_000;

/// Arrivals without times whose GPU demand comes to `load` times the capacity.
///
/// The tasks are shuffled; then tasks are drawn again (with replacement) and appended until the next
/// would pass the load, or dropped from the end while the demand is above it. The procedure is that
/// of Weng et al., USENIX ATC'23; the generator is ours, so seeds do not give their orders.
///
/// * `yardstick` — measures demand by the fleet's GPUs.
/// * `load` — for instance 1.3 for 130 %.
pub fn fill(trace: &Trace, yardstick: &Yardstick, load: f64, seed: u64) -> Trace {
    let wanted_milli = (yardstick.capacity_milli() as f64 * load.max(0.0)) as u64;
    let mut random = SplitMix::new(seed);
    let mut order: Vec<usize> = (0..trace.arrivals.len()).collect();
    random.shuffle(&mut order);
    let measure = |arrival: &Arrival| yardstick.gpu_milli(&arrival.workload);
    let asked: Vec<u64> = trace.arrivals.iter().map(measure).collect();
    let mut demand_milli: u64 = asked.iter().sum();
    while demand_milli > wanted_milli {
        let Some(last) = order.pop() else { break };
        demand_milli -= asked[last];
    }
    // A trace without GPU work can never reach a load of GPU work.
    let arrivals_max = if demand_milli > 0 { ARRIVALS_MAX } else { 0 };
    while order.len() < arrivals_max {
        let row = random.position(trace.arrivals.len());
        if demand_milli + asked[row] > wanted_milli {
            break;
        }
        demand_milli += asked[row];
        order.push(row);
    }
    ordered(trace, &order)
}

/// The arrivals at the given rows, in that order, all at time 0 and never leaving. Arrays lose their
/// limit of tasks at once, which could never be met again. Rows out of range are left out.
pub fn ordered(trace: &Trace, rows: &[usize]) -> Trace {
    let still = |row: &usize| {
        let found = trace.arrivals.get(*row)?;
        let workload = Workload { array: None, ..found.workload.clone() };
        Some(Arrival { at_ms: 0, runs_ms: None, workload })
    };
    Trace { arrivals: rows.iter().filter_map(still).collect() }
}
