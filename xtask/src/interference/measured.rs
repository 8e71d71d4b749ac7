//! The measured speeds of shared GPUs, as they were published.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::interference::Observation;
use engine::sharing::InstanceShare;
use formats::Source;
use model::SharingKind;

use crate::shell;

/// All that was measured, by source.
pub(crate) struct Measured {
    /// Pairs of training jobs in turns (Gavel): both directions, once each.
    pub(crate) pairs: Vec<Observation>,
    /// Equal inference processes under MPS in a MIG instance (ParvaGPU).
    pub(crate) processes: Vec<Observation>,
    /// Training jobs on MIG instances (MISO).
    pub(crate) instances: Vec<Observation>,
}

impl Measured {
    /// Reads the three tables.
    ///
    /// # Errors
    /// A table that is not there, with the way out.
    pub(crate) fn read() -> Result<Self, String> {
        Ok(Self { pairs: pairs()?, processes: processes()?, instances: instances()? })
    }
}

fn rows(name: &str) -> Result<Vec<Vec<String>>, String> {
    let named = std::env::var_os("HOTPOT_TRACES").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| shell::root().join("../shared/traces"));
    let source = Source::open(&folder.join("colocation").join(name)).map_err(|error| {
        format!("{error}; set HOTPOT_TRACES to the folder that holds colocation/")
    })?;
    let cells = |line: &str| line.split(',').map(str::to_string).collect();
    Ok(source.text().lines().skip(1).map(cells).collect())
}

fn number(row: &[String], at: usize) -> f64 {
    row.get(at).and_then(|cell| cell.parse().ok()).unwrap_or(0.0)
}

/// Single-worker pairs that run, on one machine; a pair that is listed both ways is one measurement.
fn pairs() -> Result<Vec<Observation>, String> {
    let mut found = BTreeMap::new();
    for row in rows("gavel_pairs.csv.gz")? {
        let amounts = [5, 6, 7, 8].map(|at| number(&row, at));
        let single = row[2] == "1" && row[4] == "1" && !row[0].ends_with("unconsolidated");
        if !single || amounts.iter().any(|amount| *amount <= 0.0) {
            continue;
        }
        let [alone_a, alone_b, a, b] = amounts;
        let gpu = &row[0];
        let key = |of: usize, other: usize| (gpu.clone(), row[of].clone(), row[other].clone());
        found.entry(key(1, 3)).or_insert(a / alone_a);
        found.entry(key(3, 1)).or_insert(b / alone_b);
    }
    let seen = |((gpu, kind, other), speed)| Observation {
        mode: SharingKind::TimeSlice,
        gpu,
        kind,
        others: vec![other],
        slice: None,
        speed,
    };
    Ok(found.into_iter().map(seen).collect())
}

/// Speed of each of N processes against one; the GPU is named with the compute slices of its instance, if not all.
fn processes() -> Result<Vec<Observation>, String> {
    let rows = rows("parvagpu_a100_80gb_inference.csv.gz")?;
    let key = |row: &[String]| (row[0].clone(), row[1].clone(), row[2].clone());
    let one = rows.iter().filter(|row| row[3] == "1" && number(row, 4) > 0.0);
    let alone: BTreeMap<_, f64> = one.map(|row| (key(row), number(row, 4))).collect();
    let mut found = Vec::new();
    for row in &rows {
        let (count, rate) = (number(row, 3) as usize, number(row, 4));
        let Some(alone) = alone.get(&key(row)).filter(|_| count > 1 && rate > 0.0) else {
            continue;
        };
        let kind = format!("{} (batch {})", row[0], row[2]);
        let gpu = match row[1].as_str() {
            "7" => "a100-80gb".to_string(),
            slices => format!("a100-80gb/{slices}"),
        };
        let others = vec![kind.clone(); count - 1];
        let (mode, speed) = (SharingKind::Mps, rate / alone);
        found.push(Observation { mode, gpu, kind, others, slice: None, speed });
    }
    Ok(found)
}

fn instances() -> Result<Vec<Observation>, String> {
    let milli = |part: u32, all: u32| part * 1000 / all;
    let seen = |row: Vec<String>| {
        let (compute, memory) = match row[2].split('.').next()? {
            "1g" => (1, 1),
            "2g" => (2, 2),
            "3g" => (3, 4),
            "4g" => (4, 4),
            _ => return None,
        };
        let slice =
            InstanceShare { compute_milli: milli(compute, 7), memory_milli: milli(memory, 8) };
        Some(Observation {
            mode: SharingKind::Mig,
            gpu: "a100-40gb".to_string(),
            kind: format!("{} (batch {})", row[0], row[1]),
            others: Vec::new(),
            slice: Some(slice),
            speed: number(&row, 6),
        })
    };
    let read = rows("miso_a100_40gb_mig_training_speed.csv")?.into_iter().filter_map(seen);
    Ok(read.filter(|seen| seen.speed > 0.0).collect())
}
