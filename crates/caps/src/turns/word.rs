//! The word in which the turn lies: who has it, whether it ends, its number, and its last sign of life.
//! All in one, so that taking a turn from a holder that has just shown that it lives fails.

use super::SEATS;

/// A turn, unpacked. Bits: 0-6 holder, 7 closing, 8-23 number, 24-63 beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Whose turn it is; `None` if nobody's.
    pub(super) holder: Option<usize>,
    /// The holder has stopped launching and hands the turn on when its work has run dry.
    pub(super) closing: bool,
    /// Tells turns apart.
    pub(super) number: u16,
    /// Last sign of life, in ms.
    pub(super) beat_ms: u64,
    /// As it lies on the page: nonsense must be replaceable too.
    pub(super) raw: u64,
}

/// Bits of the beat: 34 years.
const BEAT_BITS: u32 = 40;

impl Word {
    pub(super) fn unpack(word: u64) -> Self {
        let holder = usize::try_from(word & 0x7f).unwrap_or(0);
        // Nonsense counts as nobody.
        let holder = holder.checked_sub(1).filter(|seat| *seat < SEATS);
        let number = u16::try_from(word >> 8 & 0xffff).unwrap_or(0);
        Self { holder, closing: word & 0x80 != 0, number, beat_ms: word >> 24, raw: word }
    }

    pub(super) fn pack(self) -> u64 {
        let holder = self.holder.map_or(0, |seat| seat as u64 + 1) & 0x7f;
        let beat = self.beat_ms & ((1 << BEAT_BITS) - 1);
        beat << 24 | u64::from(self.number) << 8 | u64::from(self.closing) << 7 | holder
    }

    /// The turn after this one.
    pub(super) fn then(self, holder: Option<usize>, now_us: u64) -> Self {
        let number = self.number.wrapping_add(1);
        Self { holder, closing: false, number, beat_ms: now_us / 1000, raw: 0 }
    }

    /// Whether its holder has been silent for too long. A beat of the future is nonsense.
    pub(super) fn overdue(self, now_us: u64) -> bool {
        let now_ms = now_us / 1000;
        now_ms.saturating_sub(self.beat_ms) >= super::OVERDUE_MS || self.beat_ms > now_ms + 1000
    }
}

/// What the lowest byte of the word is while the turn is this seat's and does not end: all that a launch
/// has to look at.
pub(super) fn own_byte(seat: usize) -> u64 {
    (seat as u64 + 1) & 0x7f
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn packs_what_it_unpacks_and_takes_any_bits() {
        for holder in [None, Some(0), Some(SEATS - 1)] {
            let word =
                Word { holder, closing: true, number: 65535, beat_ms: (1 << 40) - 1, raw: 0 };
            let word = Word { raw: word.pack(), ..word };
            assert_eq!(Word::unpack(word.raw), word);
            assert_eq!(word.then(Some(3), 5_000).number, 0);
        }
        assert_eq!(
            Word::unpack(0),
            Word { holder: None, closing: false, number: 0, beat_ms: 0, raw: 0 }
        );
        assert_eq!(Word::unpack(0x7f).holder, None);
        assert!(Word::unpack(u64::MAX).overdue(1_000_000));
    }
}
