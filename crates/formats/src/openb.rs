//! The Alibaba GPU-sharing trace of 2023 ("openb"): its node list and its task lists.
//!
//! Columns are described in the trace's own README. Nodes can be exclusive or memory-capped, as in
//! the published experiments, where a task's share is booked and nothing else.

use std::collections::BTreeSet;

use model::{
    Arrival, Catalogue, Class, Demand, Fleet, Gpu, GpuAsk, GpuDemand, Isolation, ModeSet, ModelSet,
    Node, Owner, SharingKind, Trace, Workload, WorkloadId,
};

use crate::error::{Complaint, ReadError, quote};
use crate::quantity::{CPU_MAX_MILLI, MEMORY_MAX_MIB};
use crate::table::{Row, Table};
use crate::text::Source;

/// Owner of every task: the trace names none.
pub const OWNER: &str = "openb";

/// Thousandths that make a whole GPU; larger asks are cut to it.
const WHOLE_MILLI: u64 = 1000;
/// Largest `gpu_milli` that is taken for a whole GPU rather than for a mistake.
const GPU_MILLI_BELIEVED: u64 = 1_000_000;
const GPUS_MAX: u64 = 255;

pub(crate) const NODE_COLUMNS: [&str; 5] = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
pub(crate) const POD_COLUMNS: [&str; 5] =
    ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
const POD_COLUMNS_OPTIONAL: [&str; 6] =
    ["gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time"];

/// One row of a node list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Name.
    pub name: String,
    /// Thousandths of a vCPU.
    pub cpu_milli: u64,
    /// Main memory.
    pub memory_mib: u64,
    /// GPUs, 0 to 255.
    pub gpus: u8,
    /// Model of all its GPUs as the file spells it; empty on a node without GPUs.
    pub model: String,
}

/// Reads a node list, in file order.
///
/// # Errors
/// A missing or unknown column, a value that is not a count or absurdly large, GPUs without model,
/// two nodes of one name.
pub fn node_rows(source: &Source) -> Result<Vec<NodeRow>, ReadError> {
    let mut table = Table::open(source, &NODE_COLUMNS, &[])?;
    let mut nodes = Vec::new();
    let mut names = BTreeSet::new();
    while let Some(row) = table.next()? {
        let name = row.name("sn")?;
        if !names.insert(name.to_string()) {
            let what = format!("a node named {} stands above already", quote(name));
            return Err(row.error("sn", what, "give every node a name of its own"));
        }
        let gpus = row.amount("gpu", GPUS_MAX)? as u8;
        let model = if gpus == 0 { "" } else { row.name("model")? };
        nodes.push(NodeRow {
            name: name.to_string(),
            cpu_milli: row.amount("cpu_milli", CPU_MAX_MILLI)?,
            memory_mib: row.amount("memory_mib", MEMORY_MAX_MIB)?,
            gpus,
            model: model.to_string(),
        });
    }
    Ok(nodes)
}

/// The rows in another order, which is the order of preference among equally good nodes.
///
/// * `order` — positions in `rows`, each at most once; rows that it leaves out are left out.
///
/// # Errors
/// A position that does not exist or is there twice.
pub fn reorder(rows: &[NodeRow], order: &[usize]) -> Result<Vec<NodeRow>, Complaint> {
    let mut left: Vec<_> = rows.iter().map(Some).collect();
    let take = |at: &usize| match left.get_mut(*at).and_then(Option::take) {
        Some(row) => Ok(row.clone()),
        None => {
            let what = format!("node position {at} does not exist or is there twice");
            Err(Complaint::new(what, format!("give each of 0 to {} at most once", rows.len())))
        }
    };
    order.iter().map(take).collect()
}

/// The nodes, idle, in the order of the rows. Unknown GPU models are entered into the catalogue.
pub fn fleet(rows: &[NodeRow], catalogue: &mut Catalogue) -> Fleet {
    let offers = ModeSet::of(&[SharingKind::Exclusive, SharingKind::MemoryCapped]);
    let node = |row: &NodeRow| {
        let mut gpus = Vec::new();
        if row.gpus > 0 {
            let gpu = Gpu::idle(catalogue.get_or_enter(&row.model), offers);
            gpus = vec![gpu; usize::from(row.gpus)];
        }
        Node::idle(row.name.clone(), row.cpu_milli, row.memory_mib, gpus)
    };
    Fleet::new(rows.iter().map(node).collect())
}

/// Reads a task list.
///
/// A task's id is its zero-based row; arrivals are sorted by creation time, equal ones in row order.
/// Without times everything arrives at 0 and nothing leaves. `gpu_milli` above 1000 counts as 1000;
/// `num_gpu` 0 means CPU-only, whatever the other GPU columns say. LS tasks are services, all others
/// batch.
///
/// # Errors
/// A missing or unknown column, a value that is not a count or absurdly large, a GPU task that asks
/// for no part of a GPU, a task deleted before it was created, an unknown `qos`.
pub fn tasks(source: &Source) -> Result<Trace, ReadError> {
    let mut table = Table::open(source, &POD_COLUMNS, &POD_COLUMNS_OPTIONAL)?;
    let owner = Owner::new(OWNER);
    let mut arrivals = Vec::new();
    while let Some(row) = table.next()? {
        arrivals.push(arrival(&row, &owner)?);
    }
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    Ok(Trace { arrivals })
}

fn arrival(row: &Row<'_>, owner: &Owner) -> Result<Arrival, ReadError> {
    let created = row.seconds_ms("creation_time")?;
    let deleted = row.seconds_ms("deletion_time")?;
    let runs_ms = match (created, deleted) {
        (Some(from), Some(to)) if to < from => {
            let way_out = "give a time at or after creation_time, or leave it empty";
            return Err(row.error("deletion_time", "lies before creation_time", way_out));
        }
        (Some(from), Some(to)) => Some(to - from),
        _ => None,
    };
    let at_ms = created.unwrap_or(0);
    let workload = Workload {
        class: class(row)?,
        submitted_ms: at_ms,
        ..Workload::new(
            WorkloadId(row.number as u64),
            row.name("name")?.to_string(),
            owner.clone(),
            Demand {
                cpu_milli: row.amount("cpu_milli", CPU_MAX_MILLI)?,
                memory_mib: row.amount("memory_mib", MEMORY_MAX_MIB)?,
                gpus: gpus(row)?,
                ..Demand::default()
            },
        )
    };
    Ok(Arrival { at_ms, runs_ms, workload })
}

fn class(row: &Row<'_>) -> Result<Class, ReadError> {
    match row.text("qos") {
        "LS" => Ok(Class::Service),
        "" | "BE" | "Burstable" | "Guaranteed" => Ok(Class::Batch),
        other => {
            let what = format!("{} is not a known class of service", quote(other));
            Err(row.error("qos", what, "known: LS, BE, Burstable, Guaranteed"))
        }
    }
}

fn gpus(row: &Row<'_>) -> Result<Option<GpuDemand>, ReadError> {
    let count = row.amount("num_gpu", GPUS_MAX)? as u32;
    if count == 0 {
        return Ok(None);
    }
    let each = match row.amount("gpu_milli", GPU_MILLI_BELIEVED)? {
        0 => return Err(row.error("gpu_milli", "0 is no part of a GPU", "give 1 to 1000")),
        milli if milli >= WHOLE_MILLI => GpuAsk::Whole,
        milli => GpuAsk::Fraction { compute_milli: milli as u32, memory_mib: 0 },
    };
    let spec = ModelSet::parse(row.text("gpu_spec"));
    let accepts = if spec == ModelSet::default() { Vec::new() } else { vec![spec] };
    let (isolation, modes) = (Isolation::None, ModeSet::ALL);
    Ok(Some(GpuDemand { count, each, accepts, isolation, modes }))
}
