//! The books of memory: which process holds what.
//!
//! The table of claims is the truth; accounts and totals follow from it and are made anew by
//! [`Books::recount`]. A claim counts from the moment its `state` is set, which is the last thing that
//! taking it does, and until `state` is cleared, which is the first thing that freeing it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::owner::Owner;
use crate::shape::Room;
use crate::works::{GPUS, PlaceKey};
use crate::{Claim, Full, Held, KINDS, MemoryKind, Place};

/// Claims at one time on the machine, less one.
const CLAIMS: usize = 65_536;
/// Pairs of a process and a place that hold memory, less one.
const ACCOUNTS: usize = 1024;
/// Holds of the same memory at one time. With so many a claim fills 64 bytes.
const HOLDS: usize = 20;
/// Numbers of GPU instances, which drivers number below 15, and one for the whole GPU.
const INSTANCES: usize = 17;
/// How long the dead may stay in the books if memory is not short, in ns.
const SWEEP_NS: u64 = 100_000_000;

#[repr(C)]
pub(crate) struct Books {
    /// Number 0 stands for none in both tables.
    accounts: [Account; ACCOUNTS],
    claims: [Entry; CLAIMS],
    /// Numbers from here on were never used.
    accounts_end: u32,
    claims_end: u32,
    /// First of the list of free claims below `claims_end`.
    free_claim: u32,
    /// When the dead were last looked for.
    swept_ns: u64,
    /// Bytes held by GPU, and there by GPU instance.
    totals: [[u64; INSTANCES]; GPUS],
}

/// What a process holds of a place.
#[repr(C)]
struct Account {
    /// 0 for an account that is free; set last.
    pid: AtomicU32,
    place: PlaceKey,
    start: u64,
    bytes: [u64; KINDS],
}

/// A claim.
#[repr(C)]
struct Entry {
    /// 1 while it is held.
    state: AtomicU32,
    /// Tells claims with the same number apart.
    generation: u32,
    bytes: u64,
    kind: u32,
    next_free: u32,
    /// Accounts, all of the same place, once for each hold; 0 where there is none. The first pays.
    holders: [u16; HOLDS],
}

impl Entry {
    fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    fn holders(&self) -> impl Iterator<Item = u16> {
        self.holders.iter().copied().filter(|holder| *holder != 0)
    }

    /// The account that pays; 0 if nobody holds it.
    fn payer(&self) -> u16 {
        self.holders().next().unwrap_or(0)
    }

    /// Adds a holder, behind all others if there is room.
    fn add(&mut self, holder: u16) -> bool {
        let behind = self.holders.iter().rposition(|other| *other != 0).map_or(0, |last| last + 1);
        let between = || self.holders.iter().rposition(|other| *other == 0);
        let free = Some(behind).filter(|at| *at < HOLDS).or_else(between);
        free.map(|at| self.holders[at] = holder).is_some()
    }

    /// Takes one hold of a holder out.
    fn remove(&mut self, holder: u16) {
        if let Some(hold) = self.holders.iter_mut().find(|other| **other == holder) {
            *hold = 0;
        }
    }
}

impl Account {
    fn owner(&self) -> Option<Owner> {
        let pid = self.pid.load(Ordering::Acquire);
        (pid != 0).then_some(Owner { pid, start: self.start })
    }
}

impl Books {
    /// Takes memory of a place in which there is that `room`.
    pub(crate) fn take(
        &mut self,
        owner: Owner,
        place: Place,
        (kind, bytes): (MemoryKind, u64),
        room: &Room,
        now_ns: u64,
    ) -> Result<Claim, Full> {
        self.sweep_if_due(now_ns);
        match self.try_take(owner, place, (kind, bytes), room) {
            Ok(claim) => Ok(claim),
            Err(_) => {
                self.sweep(now_ns);
                self.try_take(owner, place, (kind, bytes), room)
            }
        }
    }

    fn try_take(
        &mut self,
        owner: Owner,
        place: Place,
        (kind, bytes): (MemoryKind, u64),
        room: &Room,
    ) -> Result<Claim, Full> {
        // Asked with the books locked: what those of a cgroup hold must not change until it is booked.
        let left = room.left_by_limits(owner.pid, |pids| self.held_by(place.gpu, pids));
        let free = self.free(place, room.bytes).min(left);
        let full = Full { asked: bytes, free };
        if bytes > free {
            return Err(full);
        }
        let account = self.account(owner, place.into()).ok_or(full)?;
        let number = self.unused_claim().ok_or(full)?;
        let entry = &mut self.claims[number];
        entry.generation = entry.generation.wrapping_add(1);
        (entry.bytes, entry.kind) = (bytes, kind as u32);
        entry.holders = [0; HOLDS];
        entry.holders[0] = account;
        entry.state.store(1, Ordering::Release);
        let claim = Claim(u64::from(entry.generation) << 32 | number as u64);
        self.book(number);
        Ok(claim)
    }

    /// Adds a hold of a process to a claim.
    pub(crate) fn keep(&mut self, owner: Owner, claim: Claim) -> bool {
        let Some(number) = self.number(claim) else { return false };
        let place = self.accounts[usize::from(self.claims[number].payer())].place;
        let Some(account) = self.account(owner, place) else { return false };
        self.unbook(number);
        let added = self.claims[number].add(account);
        self.book(number);
        added
    }

    /// Ends a hold of a process.
    pub(crate) fn give(&mut self, owner: Owner, claim: Claim) -> bool {
        let Some(number) = self.number(claim) else { return false };
        let of = |account: &Account| account.owner() == Some(owner);
        let mine = |holder: &u16| of(&self.accounts[usize::from(*holder)]);
        let found = self.claims[number].holders().find(mine);
        let Some(holder) = found else { return false };
        self.unbook(number);
        self.claims[number].remove(holder);
        self.book_or_free(number);
        true
    }

    /// What a claim is for.
    pub(crate) fn bytes(&self, claim: Claim) -> Option<(Place, MemoryKind, u64)> {
        let entry = &self.claims[self.number(claim)?];
        let place = self.accounts[usize::from(entry.payer())].place;
        Some((place.into(), MEMORY_KINDS[entry.kind as usize % KINDS], entry.bytes))
    }

    /// Bytes left of a place that has `room`.
    pub(crate) fn free(&self, place: Place, room: u64) -> u64 {
        let Some(totals) = self.totals.get(place.gpu as usize) else { return 0 };
        let used = match place.instance {
            None => totals.iter().sum(),
            Some(_) => totals[column(place.into())],
        };
        room.saturating_sub(used)
    }

    /// Bytes of a GPU that some processes hold.
    fn held_by(&self, gpu: u32, pids: &BTreeSet<u32>) -> u64 {
        let of = |account: &&Account| {
            let owner = account.owner();
            account.place.gpu == gpu && owner.is_some_and(|owner| pids.contains(&owner.pid))
        };
        let accounts = self.accounts[..self.accounts_end as usize].iter().filter(of);
        accounts.flat_map(|account| account.bytes).sum()
    }

    /// What living processes hold.
    pub(crate) fn held(&mut self, now_ns: u64) -> Vec<Held> {
        self.sweep(now_ns);
        let holding = |account: &Account| {
            let Owner { pid, .. } = account.owner()?;
            let holds = account.bytes.iter().any(|bytes| *bytes > 0);
            holds.then_some(Held { pid, place: account.place.into(), bytes: account.bytes })
        };
        self.accounts[..self.accounts_end as usize].iter().filter_map(holding).collect()
    }

    /// The entry of a claim that is held.
    fn number(&self, claim: Claim) -> Option<usize> {
        let number = (claim.0 & 0xffff_ffff) as usize;
        let entry = self.claims.get(number)?;
        let same = u64::from(entry.generation) == claim.0 >> 32;
        (same && entry.is_held()).then_some(number)
    }

    /// The account of a process at a place, made if there is none.
    fn account(&mut self, owner: Owner, place: PlaceKey) -> Option<u16> {
        let end = self.accounts_end.max(1) as usize;
        let known = self.accounts[1..end]
            .iter()
            .position(|a| a.place == place && a.owner() == Some(owner))
            .map(|at| at + 1);
        let unused = || (1..ACCOUNTS).find(|at| self.accounts[*at].owner().is_none());
        let number = known.or_else(unused)?;
        if known.is_none() {
            let account = &mut self.accounts[number];
            (account.place, account.start, account.bytes) = (place, owner.start, [0; KINDS]);
            account.pid.store(owner.pid, Ordering::Release);
            self.accounts_end = self.accounts_end.max(number as u32 + 1);
        }
        u16::try_from(number).ok()
    }

    fn unused_claim(&mut self) -> Option<usize> {
        let number = self.free_claim as usize;
        if number != 0 {
            self.free_claim = self.claims[number].next_free;
            return Some(number);
        }
        let number = self.claims_end.max(1);
        if number as usize >= CLAIMS {
            return None;
        }
        self.claims_end = number + 1;
        Some(number as usize)
    }

    fn free_entry(&mut self, number: usize) {
        let entry = &mut self.claims[number];
        entry.state.store(0, Ordering::Release);
        entry.next_free = self.free_claim;
        self.free_claim = number as u32;
    }

    /// Books a claim anew after its holders have changed; frees it if there are none.
    fn book_or_free(&mut self, number: usize) {
        if self.claims[number].payer() == 0 {
            self.free_entry(number);
        } else {
            self.book(number);
        }
    }

    /// Adds a claim to the account of its first holder and to the totals.
    fn book(&mut self, number: usize) {
        let (account, kind, bytes) = self.posting(number);
        let account = &mut self.accounts[account];
        account.bytes[kind] = account.bytes[kind].saturating_add(bytes);
        let place = account.place;
        if let Some(totals) = self.totals.get_mut(place.gpu as usize) {
            totals[column(place)] = totals[column(place)].saturating_add(bytes);
        }
    }

    fn unbook(&mut self, number: usize) {
        let (account, kind, bytes) = self.posting(number);
        let account = &mut self.accounts[account];
        account.bytes[kind] = account.bytes[kind].saturating_sub(bytes);
        let place = account.place;
        if let Some(totals) = self.totals.get_mut(place.gpu as usize) {
            totals[column(place)] = totals[column(place)].saturating_sub(bytes);
        }
    }

    /// Who pays for a claim, as what, and how much.
    fn posting(&self, number: usize) -> (usize, usize, u64) {
        let entry = &self.claims[number];
        (usize::from(entry.payer()) % ACCOUNTS, entry.kind as usize % KINDS, entry.bytes)
    }

    /// Takes the dead out of the books, but not too often: asking the kernel is dear.
    pub(crate) fn sweep_if_due(&mut self, now_ns: u64) {
        if now_ns.wrapping_sub(self.swept_ns) >= SWEEP_NS {
            self.sweep(now_ns);
        }
    }

    /// Takes the dead out of the books.
    fn sweep(&mut self, now_ns: u64) {
        self.swept_ns = now_ns;
        let mut asked = BTreeMap::new();
        let mut dead = |account: &Account| {
            account.owner().is_some_and(|o| !*asked.entry(o).or_insert_with(|| o.lives()))
        };
        self.close(&mut dead);
    }

    /// Takes a process out of the books.
    pub(crate) fn renounce(&mut self, owner: Owner) {
        self.close(&mut |account| account.owner() == Some(owner));
    }

    fn close(&mut self, gone: &mut dyn FnMut(&Account) -> bool) {
        let end = self.accounts_end as usize;
        let gone: Vec<bool> = self.accounts[..end].iter().map(gone).collect();
        if !gone.contains(&true) {
            return;
        }
        let stays = |holder: u16| !gone.get(usize::from(holder)).copied().unwrap_or(true);
        self.drop_holders(stays);
        for (account, _) in self.accounts.iter_mut().zip(&gone).filter(|(_, gone)| **gone) {
            account.pid.store(0, Ordering::Release);
        }
    }

    /// Keeps only the holders of claims that `stays` names; claims without a holder are freed.
    fn drop_holders(&mut self, stays: impl Fn(u16) -> bool) {
        for number in 1..self.claims_end as usize {
            let entry = &self.claims[number];
            if !entry.is_held() || entry.holders().all(&stays) {
                continue;
            }
            self.unbook(number);
            self.leave_holders(number, &stays);
            self.book_or_free(number);
        }
    }

    fn leave_holders(&mut self, number: usize, stays: impl Fn(u16) -> bool) {
        for holder in &mut self.claims[number].holders {
            if !stays(*holder) {
                *holder = 0;
            }
        }
    }

    /// Makes accounts, totals and the list of free claims anew from the claims.
    pub(crate) fn recount(&mut self) {
        self.totals = [[0; INSTANCES]; GPUS];
        for account in &mut self.accounts {
            account.bytes = [0; KINDS];
        }
        let used = |account: &Account| account.owner().is_some();
        self.accounts_end = self.accounts.iter().rposition(used).map_or(0, |at| at as u32 + 1);
        self.claims_end =
            self.claims.iter().rposition(Entry::is_held).map_or(1, |at| at as u32 + 1);
        self.free_claim = 0;
        let known: Vec<bool> = self.accounts.iter().map(used).collect();
        for number in 1..self.claims_end as usize {
            if self.claims[number].is_held() {
                let known = |holder| known.get(usize::from(holder)).copied().unwrap_or(false);
                self.leave_holders(number, known);
                self.book_or_free(number);
            } else {
                self.free_entry(number);
            }
        }
    }
}

const MEMORY_KINDS: [MemoryKind; KINDS] = [
    MemoryKind::Context,
    MemoryKind::Module,
    MemoryKind::Plain,
    MemoryKind::Managed,
    MemoryKind::Pool,
    MemoryKind::Physical,
    MemoryKind::Array,
    MemoryKind::Graph,
];

/// Where a place stands in the totals of its GPU.
fn column(place: PlaceKey) -> usize {
    Place::from(place).instance.map_or(0, |(id, _)| (id as usize + 1).min(INSTANCES - 1))
}
