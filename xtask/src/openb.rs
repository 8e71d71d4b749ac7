//! The published openb experiments: tasks, node orders, arrivals and expected curves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use formats::Source;
use formats::openb::{self, NodeRow};
use model::{Arrival, Catalogue, Fleet, MixShape, Policy, Trace};
use simulator::outcome::Outcome;
use simulator::{Observer, Protocol, arrivals};

use crate::shell;

/// Workloads with published curves and known arrival orders.
pub(crate) const WORKLOADS: [&str; 13] = [
    "default",
    "cpu050",
    "cpu100",
    "cpu250",
    "gpushare40",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu40",
    "multigpu50",
];

/// Seeds of the published runs.
pub(crate) const SEEDS: std::ops::RangeInclusive<u64> = 42..=51;

/// Where the full traces are; `None` if they are not on this machine.
pub(crate) fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("HOTPOT_TRACES").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| shell::root().join("../shared/traces")).join("openb");
    folder.join("openb_node_list_gpu_node.csv.gz").exists().then_some(folder)
}

/// As [`folder`], as an error that says how to get on.
pub(crate) fn folder_or_why() -> Result<PathBuf, String> {
    folder().ok_or_else(|| {
        "the full openb traces are not here; set HOTPOT_TRACES to the folder that holds openb/"
            .to_string()
    })
}

/// One workload, ready to be run under every seed.
pub(crate) struct Experiment {
    tasks: Trace,
    nodes: Vec<NodeRow>,
    /// What the workload is expected to look like.
    pub(crate) mix: Vec<MixShape>,
    orders: BTreeMap<u64, Vec<usize>>,
    ranks: BTreeMap<u64, Vec<usize>>,
}

impl Experiment {
    /// Reads a workload with its orders.
    pub(crate) fn read(folder: &std::path::Path, workload: &str) -> Result<Self, String> {
        let open = |name: &str| Source::open(&folder.join(name)).map_err(|error| error.to_string());
        let source = open(&format!("openb_pod_list_{workload}.csv.gz"))?;
        let mut tasks = openb::tasks(&source).map_err(|error| error.to_string())?;
        // Orders name rows of the file, and a task's id is its row.
        tasks.arrivals.sort_by_key(|arrival| arrival.workload.id);
        let source = open("openb_node_list_gpu_node.csv.gz")?;
        let nodes = openb::node_rows(&source).map_err(|error| error.to_string())?;
        let orders =
            columns(open(&format!("order/arrival_{workload}.csv.gz"))?.text(), 0, |_| true);
        let prefix = format!("{workload},");
        let ranks =
            columns(open("order/node_rank.csv.gz")?.text(), 2, |line| line.starts_with(&prefix));
        let mix = engine::mix::of(tasks.arrivals.iter().map(|arrival| &arrival.workload));
        Ok(Self { tasks, nodes, mix, orders, ranks })
    }

    /// Runs the published experiment: the policy with this workload's mix, tasks never leave.
    pub(crate) fn run(
        &self,
        policy: Policy,
        seed: u64,
        watch: &mut dyn Observer,
    ) -> Result<Outcome, String> {
        let policy = Policy { mix: self.mix.clone(), ..policy };
        let (fleet, trace) = (self.fleet(seed)?, self.arrivals(seed)?);
        let outcome = simulator::simulate(&fleet, &trace, policy, Protocol::Fill, &(), watch);
        outcome.map_err(|error| error.to_string())
    }

    /// The fleet in the seed's order of preference.
    pub(crate) fn fleet(&self, seed: u64) -> Result<Fleet, String> {
        let ranks = self.ranks.get(&seed).ok_or("no node order for that seed")?;
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|at| ranks.get(*at).copied());
        let rows = openb::reorder(&self.nodes, &order).map_err(|error| error.to_string())?;
        let mut catalogue = Catalogue::shipped().map_err(|error| error.to_string())?;
        Ok(openb::fleet(&rows, &mut catalogue))
    }

    /// The tasks in the seed's order of arrival.
    pub(crate) fn arrivals(&self, seed: u64) -> Result<Trace, String> {
        let rows = self.orders.get(&seed).ok_or("no arrival order for that seed")?;
        Ok(arrivals::ordered(&self.tasks, rows))
    }

    /// The tasks of the file, in its order.
    pub(crate) fn tasks(&self) -> &[Arrival] {
        &self.tasks.arrivals
    }

    /// Rows of the task file in the seed's order of arrival.
    pub(crate) fn rows(&self, seed: u64) -> &[usize] {
        self.orders.get(&seed).map_or(&[], Vec::as_slice)
    }
}

/// One column per seed, from the given column on; blanks at the end of a column are left out.
fn columns(text: &str, skip: usize, wanted: impl Fn(&str) -> bool) -> BTreeMap<u64, Vec<usize>> {
    let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for line in text.lines().skip(1).filter(|line| wanted(line)) {
        for (seed, cell) in SEEDS.zip(line.split(',').skip(skip)) {
            if let Ok(value) = cell.trim().parse() {
                found.entry(seed).or_default().push(value);
            }
        }
    }
    found
}
