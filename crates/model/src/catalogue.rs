//! The GPU models that are known by name, read from the tables in `data/`.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::gpu::GpuModel;
use crate::id::ModelId;
use crate::mig::{MigGeometry, MigProfile};
use crate::sharing::{ModeSet, SharingKind};

const MODELS: &str = include_str!("../../../data/gpu_models.csv");
const PROFILES: &str = include_str!("../../../data/mig_profiles.csv");

/// A row of a table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("GPU table, line {line}: column {column}: cannot read `{value}`")]
pub struct CatalogueError {
    /// One-based line.
    pub line: usize,
    /// Column name.
    pub column: &'static str,
    /// What stands there.
    pub value: String,
}

/// GPU models by name. Models met in a trace but not known get an entry without memory or MIG.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    models: BTreeMap<String, Arc<GpuModel>>,
}

impl Catalogue {
    /// The models of the shipped tables.
    ///
    /// # Errors
    /// None in a build whose tests have passed: the tables are compiled in.
    pub fn shipped() -> Result<Self, CatalogueError> {
        Self::parse(MODELS, PROFILES)
    }

    /// Reads the two tables; see `data/README.md` for their columns. Fields hold no quotes.
    ///
    /// # Errors
    /// The first field that cannot be read.
    pub fn parse(models: &str, profiles: &str) -> Result<Self, CatalogueError> {
        let geometries = parse_profiles(profiles)?;
        let mut catalogue = Self::default();
        for row in rows(models) {
            let reserved_mib: u64 = row.number(2, "reserved_mib")?;
            let memory_mib: u64 = row.number(1, "memory_mib")?;
            let mig = geometries.get(row.field(4)).cloned();
            if mig.is_none() && !row.field(4).is_empty() {
                return Err(row.error("mig_product", row.field(4)));
            }
            let mut modes = ModeSet::of(&[
                SharingKind::Exclusive,
                SharingKind::TimeSlice,
                SharingKind::MemoryCapped,
            ]);
            if row.field(5) == "yes" {
                modes = modes.with(SharingKind::Mps);
            }
            if mig.is_some() {
                modes = modes.with(SharingKind::Mig);
            }
            catalogue.insert(GpuModel {
                id: ModelId(0),
                name: row.field(0).to_ascii_lowercase(),
                memory_mib: memory_mib.saturating_sub(reserved_mib),
                context_mib: row.number(3, "context_mib")?,
                modes,
                mig,
            });
        }
        Ok(catalogue)
    }

    /// The model named `name` in any letter case, if it is known.
    pub fn get(&self, name: &str) -> Option<&Arc<GpuModel>> {
        self.models.get(&name.to_ascii_lowercase())
    }

    /// The model named `name`; an unknown one is entered with unknown memory and every mode but MIG.
    pub fn get_or_enter(&mut self, name: &str) -> Arc<GpuModel> {
        let name = name.to_ascii_lowercase();
        if let Some(model) = self.models.get(&name) {
            return Arc::clone(model);
        }
        self.insert(GpuModel {
            id: ModelId(0),
            name,
            memory_mib: 0,
            context_mib: 0,
            modes: ModeSet::of(&[
                SharingKind::Exclusive,
                SharingKind::TimeSlice,
                SharingKind::Mps,
                SharingKind::MemoryCapped,
            ]),
            mig: None,
        })
    }

    /// Enters a model, in place of one with the same name; its id is given here.
    pub fn insert(&mut self, model: GpuModel) -> Arc<GpuModel> {
        let known = self.models.get(&model.name).map(|known| known.id);
        let id = known.unwrap_or(ModelId(u16::try_from(self.models.len()).unwrap_or(u16::MAX)));
        let model = Arc::new(GpuModel { id, ..model });
        self.models.insert(model.name.clone(), Arc::clone(&model));
        model
    }

    /// All models in order of name.
    pub fn iter(&self) -> impl Iterator<Item = &GpuModel> {
        self.models.values().map(AsRef::as_ref)
    }
}

fn parse_profiles(text: &str) -> Result<BTreeMap<String, MigGeometry>, CatalogueError> {
    let mut geometries: BTreeMap<String, MigGeometry> = BTreeMap::new();
    for row in rows(text) {
        let profile = MigProfile {
            name: row.field(1).to_string(),
            compute_slices: row.number(3, "compute_slices")?,
            memory_slices: row.number(4, "memory_slices")?,
            memory_mib: row.number::<u64>(5, "nominal_gb")? * 1024,
            instances_max: row.number(6, "instances_max")?,
            starts: row.numbers(7, "starts")?,
        };
        let empty = MigGeometry { compute_slices: 0, memory_slices: 0, profiles: Vec::new() };
        let geometry = geometries.entry(row.field(0).to_string()).or_insert(empty);
        // The largest profile is the whole GPU.
        geometry.compute_slices = geometry.compute_slices.max(profile.compute_slices);
        geometry.memory_slices = geometry.memory_slices.max(profile.memory_slices);
        geometry.profiles.push(profile);
    }
    Ok(geometries)
}

struct Row<'a> {
    line: usize,
    fields: Vec<&'a str>,
}

fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    let numbered = text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty());
    numbered.map(|(at, line)| Row { line: at + 1, fields: line.split(',').collect() })
}

impl Row<'_> {
    fn field(&self, at: usize) -> &str {
        self.fields.get(at).copied().unwrap_or("").trim()
    }

    fn number<T: core::str::FromStr>(
        &self,
        at: usize,
        column: &'static str,
    ) -> Result<T, CatalogueError> {
        self.field(at).parse().map_err(|_| self.error(column, self.field(at)))
    }

    fn numbers(&self, at: usize, column: &'static str) -> Result<Vec<u8>, CatalogueError> {
        let words = self.field(at).split_whitespace();
        words.map(|word| word.parse().map_err(|_| self.error(column, word))).collect()
    }

    fn error(&self, column: &'static str, value: &str) -> CatalogueError {
        CatalogueError { line: self.line, column, value: value.to_string() }
    }
}
