//! Who is next, and how fast a tenant's virtual time runs: pure functions of what the board shows.

use super::{FLOOR_SLICE_US, SEATS, Terms, UNCAPPED_MILLI};

/// A seat as the one who decides sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatView {
    /// Its number.
    pub seat: usize,
    /// What its tenant has been given.
    pub terms: Terms,
    /// Whether it waits for the turn, and lives.
    pub wants: bool,
    /// Whether it may have the turn now: a strict share may be used up.
    pub eligible: bool,
    /// Whether it has the turn.
    pub holds: bool,
    /// Since when it waits, in µs.
    pub want_us: u64,
    /// Virtual time, in µs.
    pub virtual_us: u64,
    /// What it is owed by its floor, in µs of GPU time.
    pub owed_us: i64,
}

/// The seats that are taken by somebody who lives.
#[derive(Clone, Copy, Debug)]
pub struct Views {
    seats: [Option<SeatView>; SEATS],
    count: usize,
}

impl Views {
    /// Nobody.
    pub fn new() -> Self {
        Self { seats: [None; SEATS], count: 0 }
    }

    /// Adds a seat; beyond [`SEATS`] nothing happens.
    pub fn push(&mut self, view: SeatView) {
        if let Some(free) = self.seats.get_mut(self.count) {
            *free = Some(view);
            self.count += 1;
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &SeatView> {
        self.seats.iter().take(self.count).flatten()
    }

    /// One of them.
    pub fn get(&self, seat: usize) -> Option<&SeatView> {
        self.iter().find(|view| view.seat == seat)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, seat: usize) -> Option<&mut SeatView> {
        self.seats.iter_mut().take(self.count).flatten().find(|view| view.seat == seat)
    }
}

impl Default for Views {
    fn default() -> Self {
        Self::new()
    }
}

/// Whose turn is next among those who want it: first whoever is owed by its floor while a higher
/// priority wants too, then the highest priority, then the least virtual time, then who has waited
/// longest.
pub fn next(views: &Views) -> Option<usize> {
    let wanting = || views.iter().filter(|view| view.wants && view.eligible);
    let highest = wanting().map(|view| view.terms.priority).max()?;
    let owed = wanting()
        .filter(|view| view.terms.priority < highest && view.owed_us >= FLOOR_SLICE_US as i64)
        .max_by_key(|view| (view.owed_us, std::cmp::Reverse(view.want_us)));
    if let Some(view) = owed {
        return Some(view.seat);
    }
    wanting()
        .filter(|view| view.terms.priority == highest)
        .min_by_key(|view| (view.virtual_us, view.want_us, view.seat))
        .map(|view| view.seat)
}

/// Shares and weights as they count now: tenants without a cap divide what the capped ones leave.
struct Rights {
    left: u64,
}

impl Rights {
    fn of(views: &Views) -> Self {
        let capped: u64 =
            views.iter().filter_map(|view| view.terms.share_milli).map(u64::from).sum();
        let uncapped = views.iter().filter(|view| view.terms.share_milli.is_none()).count().max(1);
        Self { left: (1000u64.saturating_sub(capped).max(UNCAPPED_MILLI) / uncapped as u64).max(1) }
    }

    fn share(&self, terms: &Terms) -> u64 {
        terms.share_milli.map_or(self.left, u64::from)
    }

    /// Of what is left over.
    fn weight(&self, terms: &Terms) -> u64 {
        match terms.share_milli {
            Some(_) if terms.strict => 0,
            Some(_) => u64::from(terms.weight),
            None => self.left,
        }
    }
}

/// The part of the GPU, in thousandths, that a tenant has a right to while those compute or wait who do
/// so now: its share, and its part by weight of what nobody of them has a right to. At least 1.
pub fn effective_milli(views: &Views, seat: usize) -> u64 {
    let rights = Rights::of(views);
    let active = || views.iter().filter(|view| view.wants || view.holds || view.seat == seat);
    let shares: u64 = active().map(|view| rights.share(&view.terms)).sum();
    let weights: u64 = active().map(|view| rights.weight(&view.terms)).sum();
    let Some(view) = views.get(seat) else { return 1 };
    let surplus = 1000u64.saturating_sub(shares);
    (rights.share(&view.terms) + surplus * rights.weight(&view.terms) / weights.max(1)).max(1)
}

/// The mean virtual time of those of a priority who compute or wait, without `seat`, by their shares; and
/// by how much a lag of `seat` must be stretched so that it is the same beside the mean of all: in
/// thousandths. `None` if there is nobody.
pub fn mean_virtual(views: &Views, seat: usize) -> Option<(u64, u64)> {
    let rights = Rights::of(views);
    let own = views.get(seat)?;
    let others = || {
        let active = views.iter().filter(|view| view.seat != seat && (view.wants || view.holds));
        active.filter(|view| view.terms.priority == own.terms.priority)
    };
    let shares: u64 = others().map(|view| rights.share(&view.terms)).sum();
    if shares == 0 {
        return None;
    }
    let weighed =
        |view: &SeatView| u128::from(view.virtual_us) * u128::from(rights.share(&view.terms));
    let sum: u128 = others().map(weighed).sum();
    let mean = u64::try_from(sum / u128::from(shares)).unwrap_or(u64::MAX);
    Some((mean, (shares + rights.share(&own.terms)) * 1000 / shares))
}
