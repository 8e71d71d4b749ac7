//! The card that files are meant for: a model of the catalogue, and how many of it a node has.

use std::sync::Arc;

use model::{Catalogue, GpuModel, MigGeometry};

/// Most cards of a node.
const COUNT_MAX: u64 = 64;

/// The cards of a node.
#[derive(Clone, Debug)]
pub struct Card {
    model: Arc<GpuModel>,
    count: u64,
}

impl Card {
    /// `a100-80gb`, one card, or `a100-80gb:4`, so many on each node.
    ///
    /// # Errors
    /// A model that the catalogue lacks, with those that are near, or a count that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let count = count.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        let count = count.ok_or_else(|| {
            format!("{text}: no count of cards; give 1 to {COUNT_MAX}, as in a100-80gb:4")
        })?;
        let catalogue = Catalogue::shipped().map_err(|error| error.to_string())?;
        let model = catalogue.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = catalogue.iter().map(|model| model.name.as_str()).collect();
            let near = formats::near(name, names.iter().copied());
            let named = if near.is_empty() { names } else { near };
            format!("{name}: no such card is known; there are {}", named.join(", "))
        })?;
        Ok(Self { model, count })
    }

    /// The catalogue's name of the model.
    pub(crate) fn name(&self) -> &str {
        &self.model.name
    }

    /// Cards of a node.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The profiles; `None` for a card without MIG.
    pub(crate) fn mig(&self) -> Option<&MigGeometry> {
        self.model.mig.as_ref()
    }

    /// Memory that a program can have on one card beside its CUDA context, in MiB; 0 if it is not known.
    pub(crate) fn memory_mib(&self) -> u64 {
        self.model.memory_mib.saturating_sub(self.model.context_mib)
    }
}

/// The models that a product's name, such as the node label `nvidia.com/gpu.product`, may mean: `NVIDIA-A100-SXM4-80GB`.
pub(crate) fn of_product(product: &str) -> Vec<Arc<GpuModel>> {
    let Ok(catalogue) = Catalogue::shipped() else { return Vec::new() };
    let product = product.to_ascii_lowercase();
    let product = product.split("-mig-").next().unwrap_or_default();
    let words: Vec<&str> = product.split(|c: char| !c.is_alphanumeric()).collect();
    let named = |name: &str| name.split('-').next().is_some_and(|family| words.contains(&family));
    let of_size = |name: &str| name.split('-').skip(1).all(|size| words.contains(&size));
    let family: Vec<_> = catalogue.iter().filter(|model| named(&model.name)).collect();
    let exact = family.iter().filter(|model| of_size(&model.name)).count();
    let meant = family.into_iter().filter(|model| exact == 0 || of_size(&model.name));
    meant.filter_map(|model| catalogue.get(&model.name).cloned()).collect()
}
