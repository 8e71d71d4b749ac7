//! From the instances there are to those there should be, with the fewest disturbances. Pure.

use std::collections::BTreeMap;

use model::{MigGeometry, MigLayout, ProfileIndex};

use crate::inventory::Instance;

/// What a GPU's instances should become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// These instances at these placements, and no others.
    Exact(Vec<(ProfileIndex, u8)>),
    /// So many of these profiles wherever they fit, and no others.
    Profiles(Vec<ProfileIndex>),
    /// One instance at this placement; the others stay as far as they leave room for it.
    Including(ProfileIndex, u8),
}

/// An instance and whoever it was granted to.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The instance.
    pub instance: &'a Instance,
    /// Whose hold the journal has on it.
    pub holder: Option<&'a str>,
}

impl Standing<'_> {
    /// Whether processes or a hold forbid touching it, or that somebody else has divided it: that could
    /// not be put back.
    pub fn in_use(&self) -> bool {
        self.holder.is_some() || !self.instance.pids.is_empty() || self.instance.divided
    }

    fn place(&self) -> (ProfileIndex, u8) {
        (self.instance.profile, self.instance.start)
    }
}

/// What to do, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relayout {
    /// GPU instances to remove, by the driver's number.
    pub destroy: Vec<u32>,
    /// GPU instances to give the compute instance that they lack, by the driver's number.
    pub complete: Vec<u32>,
    /// Instances to make.
    pub create: Vec<(ProfileIndex, u8)>,
    /// All instances afterwards, by first memory slice.
    pub layout: Vec<(ProfileIndex, u8)>,
}

impl Relayout {
    /// Whether the GPU is as it should be.
    pub fn is_done(&self) -> bool {
        self.destroy.is_empty() && self.complete.is_empty() && self.create.is_empty()
    }
}

/// An instance that is in use and would have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// UUID of its MIG device, if it has one.
    pub uuid: Option<String>,
    /// The driver's number of the GPU instance.
    pub gpu_instance: u32,
    /// Profile name, such as `3g.40gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u8,
    /// Processes on it.
    pub pids: Vec<u32>,
    /// Who holds it.
    pub holder: Option<String>,
    /// Whether somebody else has divided it into compute instances.
    pub divided: bool,
}

/// Why a target cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayoutRefusal {
    /// Instances in use would have to go.
    #[error("instances in use are in the way: {}", list(.0))]
    InTheWay(Vec<Obstacle>),
    /// No GPU of this model can hold these instances together.
    #[error("no GPU of this model can hold {0} together")]
    Impossible(String),
}

fn list(obstacles: &[Obstacle]) -> String {
    let words: Vec<String> = obstacles.iter().map(Obstacle::words).collect();
    words.join("; ")
}

impl Obstacle {
    fn words(&self) -> String {
        let name = self.uuid.as_deref().unwrap_or("without a device");
        let mut words = format!("{} at slice {} ({name})", self.profile, self.start);
        if !self.pids.is_empty() {
            let pids: Vec<String> = self.pids.iter().map(ToString::to_string).collect();
            words += &format!(", processes {}", pids.join(" "));
        }
        if let Some(holder) = &self.holder {
            words += &format!(", held by {holder}");
        }
        if self.divided {
            words += ", divided by somebody else: remove it with `nvidia-smi mig`, or leave it";
        }
        words
    }
}

/// The way from `standing` to `target` that keeps as many instances as can be, and never touches one
/// that is in use.
///
/// # Errors
/// The instances in the way, or that the target cannot be on such a GPU at all.
pub fn plan_relayout(
    geometry: &MigGeometry,
    standing: &[Standing<'_>],
    target: &Target,
) -> Result<Relayout, RelayoutRefusal> {
    if let Target::Exact(asked) = target
        && !fits(geometry, asked)
    {
        return Err(impossible(geometry, asked.iter().map(|(profile, _)| *profile)));
    }
    let mut best: Option<Choice> = None;
    let mut least_in_the_way: Option<Choice> = None;
    // At most 7 instances stand on one GPU, so that all ways to keep some of them are tried.
    for kept in 0..1u32 << standing.len().min(16) {
        let is_kept = |at: usize| kept & (1 << at) != 0;
        let Some(layout) = completed(geometry, standing, &is_kept, target) else { continue };
        let choice = Choice::new(standing, kept, layout);
        if choice.in_the_way == 0 && choice.is_better_than(best.as_ref()) {
            best = Some(choice);
        } else if choice.is_better_than(least_in_the_way.as_ref()) {
            least_in_the_way = Some(choice);
        }
    }
    match (best, least_in_the_way) {
        (Some(choice), _) => Ok(choice.into_relayout(standing)),
        (None, Some(choice)) => Err(choice.into_refusal(geometry, standing)),
        (None, None) => Err(match target {
            Target::Exact(asked) => impossible(geometry, asked.iter().map(|(of, _)| *of)),
            Target::Profiles(asked) => impossible(geometry, asked.iter().copied()),
            Target::Including(profile, _) => impossible(geometry, [*profile].into_iter()),
        }),
    }
}

/// One way: who is kept, and what stands afterwards.
struct Choice {
    kept: u32,
    layout: Vec<(ProfileIndex, u8)>,
    in_the_way: usize,
}

impl Choice {
    fn new(standing: &[Standing<'_>], kept: u32, layout: Vec<(ProfileIndex, u8)>) -> Self {
        let gone = standing.iter().enumerate().filter(|(at, _)| kept & (1 << at) == 0);
        let in_the_way = gone.filter(|(_, one)| one.in_use()).count();
        Self { kept, layout, in_the_way }
    }

    /// In-use ones kept above all, then as many as can be; then the lower slices, so that the
    /// answer does not depend on chance.
    fn is_better_than(&self, other: Option<&Self>) -> bool {
        let Some(other) = other else { return true };
        let key = |choice: &Self| (choice.in_the_way, u32::MAX - choice.kept.count_ones());
        key(self) < key(other)
    }

    fn into_relayout(self, standing: &[Standing<'_>]) -> Relayout {
        let mut plan = Relayout { layout: self.layout, ..Relayout::default() };
        plan.create.clone_from(&plan.layout);
        for (at, one) in standing.iter().enumerate() {
            let instance = one.instance;
            if self.kept & (1 << at) == 0 {
                plan.destroy.push(instance.gpu_instance);
                continue;
            }
            plan.create.retain(|place| *place != one.place());
            if instance.device.is_none() && !instance.divided {
                plan.complete.push(instance.gpu_instance);
            }
        }
        plan
    }

    fn into_refusal(self, geometry: &MigGeometry, standing: &[Standing<'_>]) -> RelayoutRefusal {
        let gone = standing.iter().enumerate().filter(|(at, _)| self.kept & (1 << at) == 0);
        let in_use = gone.filter(|(_, one)| one.in_use());
        RelayoutRefusal::InTheWay(in_use.map(|(_, one)| obstacle(geometry, one)).collect())
    }
}

/// The layout that keeps the chosen instances and fulfils the target, if there is one.
fn completed(
    geometry: &MigGeometry,
    standing: &[Standing<'_>],
    is_kept: &dyn Fn(usize) -> bool,
    target: &Target,
) -> Option<Vec<(ProfileIndex, u8)>> {
    let kept = standing.iter().enumerate().filter(|(at, _)| is_kept(*at));
    let kept: Vec<&Standing<'_>> = kept.map(|(_, one)| one).collect();
    let places: Vec<(ProfileIndex, u8)> = kept.iter().map(|one| one.place()).collect();
    let whole = |one: &&Standing<'_>| !one.instance.divided;
    let mut layout = match target {
        Target::Exact(asked) => {
            let all_asked = kept.iter().all(|one| whole(one) && asked.contains(&one.place()));
            all_asked.then(|| asked.clone())
        }
        Target::Profiles(asked) => {
            if !kept.iter().all(whole) {
                return None;
            }
            let missing = without(asked, &places)?;
            place(geometry, layout_of(&places), &missing).map(|layout| layout.instances().to_vec())
        }
        Target::Including(profile, start) => {
            let mut layout = places;
            let there = kept.iter().find(|one| one.place() == (*profile, *start));
            if there.is_some_and(|one| one.instance.divided) {
                return None;
            }
            if there.is_none() {
                layout.push((*profile, *start));
            }
            fits(geometry, &layout).then_some(layout)
        }
    }?;
    layout.sort_by_key(|(_, start)| *start);
    Some(layout)
}

/// What is left of `asked` once each of `kept` has taken one; `None` if one of them was not asked for.
fn without(asked: &[ProfileIndex], kept: &[(ProfileIndex, u8)]) -> Option<Vec<ProfileIndex>> {
    let mut missing = asked.to_vec();
    for (profile, _) in kept {
        let at = missing.iter().position(|other| other == profile)?;
        missing.swap_remove(at);
    }
    Some(missing)
}

/// Places for all of `missing` beside `layout`: the largest first, the lowest start first.
fn place(geometry: &MigGeometry, layout: MigLayout, missing: &[ProfileIndex]) -> Option<MigLayout> {
    let size = |profile: &ProfileIndex| {
        let found = geometry.profile(*profile);
        found.map_or((0, 0), |found| (found.memory_slices, found.compute_slices))
    };
    let Some(next) = missing.iter().max_by_key(|profile| (size(profile), **profile)) else {
        return Some(layout);
    };
    let mut rest = missing.to_vec();
    rest.swap_remove(missing.iter().position(|profile| profile == next)?);
    let free = geometry.free_starts(&layout, *next);
    let mut starts = (0..16u8).filter(|start| free & (1 << start) != 0);
    starts.find_map(|start| place(geometry, layout.with(*next, start), &rest))
}

fn layout_of(places: &[(ProfileIndex, u8)]) -> MigLayout {
    let empty = MigLayout::default();
    places.iter().fold(empty, |layout, (profile, start)| layout.with(*profile, *start))
}

/// Whether a GPU can hold all of these together.
fn fits(geometry: &MigGeometry, places: &[(ProfileIndex, u8)]) -> bool {
    let mut layout = MigLayout::default();
    for (profile, start) in places {
        if geometry.admit(&layout, *profile, *start).is_err() {
            return false;
        }
        layout = layout.with(*profile, *start);
    }
    true
}

fn obstacle(geometry: &MigGeometry, one: &Standing<'_>) -> Obstacle {
    let instance = one.instance;
    Obstacle {
        uuid: instance.device.as_ref().map(|device| device.uuid.clone()),
        gpu_instance: instance.gpu_instance,
        profile: profile_name(geometry, instance.profile),
        start: instance.start,
        pids: instance.pids.clone(),
        holder: one.holder.map(str::to_owned),
        divided: instance.divided,
    }
}

pub(crate) fn profile_name(geometry: &MigGeometry, profile: ProfileIndex) -> String {
    let found = geometry.profile(profile);
    found.map_or_else(|| format!("profile {}", profile.0), |found| found.name.clone())
}

fn impossible(
    geometry: &MigGeometry,
    asked: impl Iterator<Item = ProfileIndex>,
) -> RelayoutRefusal {
    let mut counts: BTreeMap<ProfileIndex, u32> = BTreeMap::new();
    for profile in asked {
        *counts.entry(profile).or_default() += 1;
    }
    let names =
        counts.iter().map(|(of, count)| format!("{count} × {}", profile_name(geometry, *of)));
    RelayoutRefusal::Impossible(names.collect::<Vec<String>>().join(", "))
}
