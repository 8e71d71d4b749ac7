//! A thousand small requests on ten cards: an array with a card a task, the same shared up to memory and up to compute, and a
//! deployment that stays.

use std::sync::Arc;

use advice::Course;
use engine::sharing::{GpuHours, money};
use model::{
    Arrival, Class, Demand, GpuAsk, GpuDemand, GpuModel, Isolation, ModeSet, Owner, Placement,
    Profile, SharingKind, Trace, Workload, WorkloadId,
};
use simulator::Predicted;

use super::PRICE_PER_HOUR;
use crate::Verdict;
use crate::gpu::table::Table;

const CARDS: u32 = 10;
const TASKS: u64 = 100;
const REQUESTS_OF_TASK: u64 = 10;
/// One request, alone on a card.
const REQUEST_MS: u64 = 30_000;
/// Starting a task and loading its model.
const LOAD_MS: u64 = 20_000;
const MEMORY_MIB: u64 = 2 << 10;
/// Parts of a card's time that a request computes.
const BUSY_MILLI: [u32; 4] = [50, 100, 300, 1000];
const DAY_MS: u64 = 24 * 3_600_000;
/// Hours of the day without a request, where a deployment stays.
const IDLE_H: u64 = 18;

/// One way to serve the requests.
struct Way {
    name: &'static str,
    each: GpuAsk,
    placement: Placement,
    is_resident: bool,
}

pub(crate) fn run() -> Verdict {
    let model = super::card("a100-80gb")?;
    println!(
        "{} requests of {} GiB on {CARDS} {}, {} s each alone, in {TASKS} tasks that take {} s to start and load; resident: {CARDS} services for a day, \
         {IDLE_H} h of it idle. {PRICE_PER_HOUR} a GPU hour.\n",
        TASKS * REQUESTS_OF_TASK,
        MEMORY_MIB >> 10,
        model.name,
        REQUEST_MS / 1000,
        LOAD_MS / 1000
    );
    for busy_milli in BUSY_MILLI {
        println!("{}", table(&model, busy_milli)?);
    }
    Ok(())
}

/// All ways side by side for requests that compute so much of their time.
fn table(model: &Arc<GpuModel>, busy_milli: u32) -> Result<String, String> {
    let head = [
        "way",
        "takes",
        "GPU hours held",
        "busy",
        "utilisation",
        "money",
        "against an array with a card each",
        "against resident with a card each",
    ];
    let title = format!("Requests that compute {} % of their time", f64::from(busy_milli) / 10.0);
    let mut table = Table::new(&title, &head);
    let ways = ways(busy_milli);
    let served = |way| served(model, way, busy_milli);
    let all = ways.iter().map(served).collect::<Result<Vec<_>, String>>()?;
    let whole = |is_resident| {
        let way = ways
            .iter()
            .position(|way| way.is_resident == is_resident && matches!(way.each, GpuAsk::Whole));
        way.map_or(0.0, |at| all[at].1.held)
    };
    for (way, (course, hours)) in ways.iter().zip(&all) {
        table.row(vec![
            way.name.to_string(),
            format!("{:.0} min", course.total_ms as f64 / 60_000.0),
            format!("{:.2}", hours.held),
            format!("{:.2}", hours.busy),
            format!("{:.1} %", hours.utilisation() * 100.0),
            format!("{:.2}", money(hours.held, PRICE_PER_HOUR)),
            saved(hours.held, whole(false)),
            saved(hours.held, whole(true)),
        ]);
    }
    Ok(table.text())
}

/// What is saved of the hours of another way; money is in proportion.
fn saved(held: f64, of: f64) -> String {
    match held > of * 1.005 {
        true => format!("{:.1} × as much", held / of),
        false => format!("{:.0} % saved", ((1.0 - held / of) * 100.0).abs()),
    }
}

fn ways(busy_milli: u32) -> Vec<Way> {
    let part = |compute_milli| GpuAsk::Fraction { compute_milli, memory_mib: MEMORY_MIB };
    let way = |name, each, placement, is_resident| Way { name, each, placement, is_resident };
    vec![
        way("array, a card each", GpuAsk::Whole, Placement::BestFit, false),
        way("array, by memory, packed", part(0), Placement::BestFit, false),
        way("array, by memory, spread", part(0), Placement::Spread, false),
        way("array, by compute, packed", part(busy_milli), Placement::BestFit, false),
        way("array, by compute, spread", part(busy_milli), Placement::Spread, false),
        way("resident, a card each", GpuAsk::Whole, Placement::BestFit, true),
        way("resident, by compute", part(busy_milli), Placement::BestFit, true),
    ]
}

/// The course of all requests, and GPU hours.
fn served(model: &Arc<GpuModel>, way: &Way, busy_milli: u32) -> Result<(Course, GpuHours), String> {
    let task_ms = LOAD_MS + REQUESTS_OF_TASK * REQUEST_MS;
    let (count, runs_ms) =
        if way.is_resident { (u64::from(CARDS), DAY_MS) } else { (TASKS, task_ms) };
    let arrival = |number| Arrival {
        at_ms: 0,
        runs_ms: Some(runs_ms),
        workload: workload(number, way, busy_milli),
    };
    let trace = Trace { arrivals: (0..count).map(arrival).collect() };
    let fleet = advice::fleet(model, CARDS);
    let course = advice::course(fleet, &trace, way.placement.clone(), &Predicted::default());
    let course = course.map_err(|error| error.to_string())?;
    let computed_ms = TASKS * REQUESTS_OF_TASK * REQUEST_MS * u64::from(busy_milli) / 1000;
    let busy = computed_ms as f64 / 3_600_000.0;
    Ok((course, GpuHours { held: course.gpu_hours_held, busy }))
}

fn workload(number: u64, way: &Way, busy_milli: u32) -> Workload {
    let gpus = GpuDemand {
        count: 1,
        each: way.each.clone(),
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::of(&[SharingKind::Exclusive, SharingKind::MemoryCapped]),
    };
    let demand = Demand { gpus: Some(gpus), ..Demand::default() };
    let name = format!("requests-{number}");
    let workload = Workload::new(WorkloadId(number), name, Owner::new("embeddings"), demand);
    Workload {
        class: if way.is_resident { Class::Service } else { Class::Batch },
        profile: Profile { busy_milli: Some(busy_milli), ..Profile::default() },
        ..workload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_saves_where_requests_hardly_compute_and_nothing_where_they_compute_all_the_time() {
        let model = crate::advice::card("a100-80gb").unwrap();
        let held = |at: usize, busy_milli| {
            served(&model, &ways(busy_milli)[at], busy_milli).unwrap().1.held
        };
        // 100 tasks of 320 s, a card each.
        assert!((held(0, 50) - 32_000.0 / 3600.0).abs() < 0.01);
        assert!(held(3, 50) < held(0, 50) / 10.0, "twenty on a card");
        assert!((held(3, 1000) - held(0, 1000)).abs() < 0.01, "one on a card");
        assert!(held(1, 1000) > 0.95 * held(0, 1000), "by memory alone all wait for each other");
        assert!((held(5, 50) - 240.0).abs() < 0.01 && (held(6, 50) - 24.0).abs() < 0.01);
    }
}
