//! Which shares of which cards a claim's devices are. Pure.

use std::collections::BTreeMap;

use model::{Share, SharingKind};
use thiserror::Error;

use super::allocation::Given;
use super::devices::{Card, Instance, Named, Offers};
use crate::quantity::MIB;
use crate::share::GpuShare;

const WHOLE_MILLI: u32 = 1000;

/// What a claim is to hold of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// UUID of the card.
    pub gpu: String,
    /// The share; `None` for whoever only watches.
    pub share: Option<Share>,
    /// Whose turn comes first where tenants take turns: the higher.
    pub priority: i32,
    /// Positions of the claim's devices that it stands for.
    pub of: Vec<usize>,
}

/// Why a claim's devices are no shares that can be given.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SeatError {
    /// The node has no such device.
    #[error("this node has no device {device}: {}", why)]
    Unknown {
        /// Its name.
        device: String,
        /// What may be the reason.
        why: &'static str,
    },
    /// The device is there, and the share cannot be had.
    #[error("device {device}: {why}")]
    Refused {
        /// Its name.
        device: String,
        /// Why.
        why: String,
    },
}

/// The seats of a claim: one for each card that it has a share of, several instances of one card apart.
///
/// * `whole_only` — the API server knows no shares of devices, so that a card is always booked as a whole.
///
/// # Errors
/// [`SeatError`].
pub fn seats(given: &[Given], offers: &Offers, whole_only: bool) -> Result<Vec<Seat>, SeatError> {
    let mut seats: Vec<Seat> = Vec::new();
    let mut at_card: BTreeMap<String, usize> = BTreeMap::new();
    for (at, one) in given.iter().enumerate() {
        let seat = seat(one, at, offers, whole_only)?;
        let is_instance = matches!(seat.share, Some(Share::Mig { .. }));
        match at_card.get(&seat.gpu).and_then(|known| seats.get_mut(*known)) {
            Some(known) if !is_instance => join(known, seat, one)?,
            _ => {
                at_card.insert(seat.gpu.clone(), seats.len());
                seats.push(seat);
            }
        }
    }
    let is_mps = |seat: &&Seat| matches!(seat.share, Some(Share::Mps { .. }));
    let mut of_mps = seats.iter().filter(is_mps);
    match (of_mps.next(), of_mps.next()) {
        (Some(_), Some(second)) => {
            let device = second.of.first().and_then(|at| given.get(*at));
            let why = "shares by MPS of several cards cannot be had in one claim: a process has one \
                       MPS daemon; make one claim for each container";
            Err(refused(device.map_or("", |given| given.device.as_str()), why))
        }
        _ => Ok(seats),
    }
}

/// Two parts of one card are one for their claim: the limiter keeps one account for a tenant on a card.
fn join(known: &mut Seat, more: Seat, given: &Given) -> Result<(), SeatError> {
    match (known.share, more.share) {
        (
            Some(Share::MemoryCapped { memory_mib: one, compute_milli: first }),
            Some(Share::MemoryCapped { memory_mib: other, compute_milli: second }),
        ) => {
            let uncapped = first == 0 || second == 0;
            let compute_milli = if uncapped { 0 } else { (first + second).min(WHOLE_MILLI) };
            known.share = Some(Share::MemoryCapped { memory_mib: one + other, compute_milli });
        }
        (_, None) => {}
        (None, _) => known.share = more.share,
        (Some(_), Some(_)) => {
            let why = "the claim has two shares of this card, which cannot be one; ask for one of that size";
            return Err(refused(&given.device, why));
        }
    }
    known.priority = known.priority.max(more.priority);
    known.of.extend(more.of);
    Ok(())
}

fn seat(given: &Given, at: usize, offers: &Offers, whole_only: bool) -> Result<Seat, SeatError> {
    let why = "it was taken out, or MIG is not to be had on its card any more; delete the pod, so that the claim is \
               given another one";
    let unknown = || SeatError::Unknown { device: given.device.clone(), why };
    let (card, share) = match offers.named(&given.device).ok_or_else(unknown)? {
        Named::Card(card) if given.admin => (card, None),
        Named::Instance(..) if given.admin => {
            return Err(refused(&given.device, "instances cannot be watched; ask for the card"));
        }
        Named::Card(card) => (card, Some(of_card(given, card, whole_only)?)),
        Named::Instance(card, instance) => (card, Some(of_instance(given, instance)?)),
    };
    let priority = given.share.as_ref().and_then(|share| share.priority).unwrap_or(0);
    Ok(Seat { gpu: card.uuid.clone(), share, priority, of: vec![at] })
}

fn of_card(given: &Given, card: &Card, whole_only: bool) -> Result<Share, SeatError> {
    let nobody = GpuShare::new();
    let share = match &given.share {
        Some(share) => share,
        None if given.booked => &nobody,
        None if whole_only => return Ok(Share::Exclusive),
        None => {
            let why = "nothing says which share of the card it is: hotpot's controller has not given it, and nothing is \
                       booked of the card's memory; was the claim's status written by somebody else?";
            return Err(refused(&given.device, why));
        }
    };
    // Of compute, 0 is no cap and books nothing.
    let memory_mib = given.memory_bytes.map(|bytes| bytes / MIB);
    let compute_milli = given.compute_milli.unwrap_or(0).min(WHOLE_MILLI);
    let is_all = memory_mib.is_none_or(|mib| mib >= card.memory_mib)
        && (compute_milli == 0 || compute_milli >= WHOLE_MILLI);
    let kind = match share.sharing.as_deref() {
        None if is_all => SharingKind::Exclusive,
        None => SharingKind::MemoryCapped,
        Some(word) => SharingKind::parse(word)
            .ok_or_else(|| refused(&given.device, format!("`{word}` is no way of sharing")))?,
    };
    let need_memory =
        || memory_mib.ok_or_else(|| refused(&given.device, "no amount of memory is given"));
    match kind {
        SharingKind::Exclusive if is_all => Ok(Share::Exclusive),
        SharingKind::Exclusive => {
            let why = "the whole card is given, but only a part of it is booked";
            Err(refused(&given.device, why))
        }
        SharingKind::TimeSlice => Ok(Share::TimeSlice { memory_mib: memory_mib.unwrap_or(0) }),
        SharingKind::Mps => Ok(Share::Mps { compute_milli, memory_mib: memory_mib.unwrap_or(0) }),
        SharingKind::MemoryCapped => {
            Ok(Share::MemoryCapped { memory_mib: need_memory()?, compute_milli })
        }
        SharingKind::Mig => {
            Err(refused(&given.device, "an instance is given, and the device is the whole card"))
        }
    }
}

fn of_instance(given: &Given, instance: &Instance) -> Result<Share, SeatError> {
    let way = given.share.as_ref().and_then(|share| share.sharing.as_deref());
    match way.is_none_or(|word| word == SharingKind::Mig.as_str()) {
        true => Ok(Share::Mig { profile: instance.profile, start: instance.start }),
        false => {
            Err(refused(&given.device, "it is an instance, and another way of sharing is given"))
        }
    }
}

fn refused(device: &str, why: impl Into<String>) -> SeatError {
    SeatError::Refused { device: device.to_owned(), why: why.into() }
}

#[cfg(test)]
mod tests;
