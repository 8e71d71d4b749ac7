//! Physical memory that is mapped by hand: `cuMemCreate` and its relatives.
//!
//! A piece of physical memory goes when its last handle is released and nothing maps it any more. Only
//! pieces that lie on a GPU count; the id of any other place may be anything.
//!
//! A piece that was imported is looked at when it is first mapped, for its size is not known earlier. If
//! the tenant has exported a piece of that size it is taken for the same one, which the longest holder
//! pays: handles of the system carry nothing by which it could be known better.
//!
//! No lock is held over a call of the driver: what a call is about is held fast by a count instead.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::Kind;

use super::amount::Amount;
use super::external;
use super::ground::{self, booked, capped, given, reserve};
use crate::abi::{AllocationProperties, Code, Device, DevicePtr, NOT_FOUND, Placed, SUCCESS, read};
use crate::driver;
use crate::entry::hooks::hooks;
use crate::tenant::Tenant;

hooks! { NOT_FOUND;
    fn create(to: *mut u64, bytes: usize, properties: *const Placed, flags: u64) as "cuMemCreate":
        cuMemCreate 10020;
    fn release(handle: u64) as "cuMemRelease": cuMemRelease 10020;
    fn map(address: DevicePtr, bytes: usize, offset: usize, handle: u64, flags: u64) as "cuMemMap":
        cuMemMap 10020;
    fn unmap(address: DevicePtr, bytes: usize) as "cuMemUnmap": cuMemUnmap 10020;
    fn export(
        to: *mut c_void, handle: u64, kind: c_int, flags: u64
    ) as "cuMemExportToShareableHandle":
        cuMemExportToShareableHandle 10020;
    fn import(to: *mut u64, from: *mut c_void, kind: c_int) as "cuMemImportFromShareableHandle":
        cuMemImportFromShareableHandle 10020;
    fn retain(to: *mut u64, address: *mut c_void) as "cuMemRetainAllocationHandle":
        cuMemRetainAllocationHandle 11000;
}

/// A piece of physical memory.
#[derive(Clone, Copy)]
struct Piece {
    device: Device,
    /// Virtual or imported.
    kind: Kind,
    /// What is booked for it, in bytes.
    booked: u64,
    /// Its size in bytes; 0 while it is imported and not yet looked at.
    bytes: u64,
    handles: u32,
    mappings: u32,
    /// Calls under way that are about it.
    calls: u32,
    /// What it is known by to other processes of the tenant; 0 if to none.
    key: u64,
}

impl Piece {
    fn with_handle(device: Device, kind: Kind, bytes: u64) -> Self {
        let (booked, handles) = (bytes, 1);
        Self { device, kind, booked, bytes, handles, mappings: 0, calls: 0, key: 0 }
    }
}

/// Where a piece is mapped.
#[derive(Clone, Copy)]
struct Mapping {
    bytes: u64,
    /// The piece.
    number: u64,
    /// Tells it from an earlier one at the address.
    serial: u64,
}

/// The pieces of the process.
#[derive(Default)]
pub(crate) struct Pieces(Mutex<Table>);

/// By numbers of our own, for the driver uses a handle's number again while the piece is still mapped.
#[derive(Default)]
struct Table {
    last: u64,
    pieces: BTreeMap<u64, Piece>,
    /// By handle: the piece, and how many times the handle was given.
    handles: BTreeMap<u64, (u64, u32)>,
    mappings: BTreeMap<DevicePtr, Mapping>,
}

impl Pieces {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, handle: u64, piece: Piece) {
        self.last = self.last.saturating_add(1);
        self.pieces.insert(self.last, piece);
        self.handles.insert(handle, (self.last, 1));
    }

    /// A handle is given, perhaps once more.
    fn give(&mut self, handle: u64, number: u64) {
        let given = self.handles.entry(handle).or_insert((number, 0));
        *given = match *given {
            (known, times) if known == number => (number, times.saturating_add(1)),
            // The driver gives the number of another piece's handle only if that has gone.
            _ => (number, 1),
        };
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.handles = piece.handles.saturating_add(1);
        }
    }

    /// A handle is taken back once.
    fn take(&mut self, handle: u64, number: u64) {
        if let Some(given) = self.handles.get_mut(&handle).filter(|given| given.0 == number) {
            given.1 = given.1.saturating_sub(1);
            if given.1 == 0 {
                self.handles.remove(&handle);
            }
        }
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.handles = piece.handles.saturating_sub(1);
        }
    }

    fn by_handle(&mut self, handle: u64) -> Option<&mut Piece> {
        self.pieces.get_mut(&self.handles.get(&handle)?.0)
    }

    /// Holds a piece fast while a call is about it; its number.
    fn hold(&mut self, handle: u64) -> Option<u64> {
        let (number, _) = *self.handles.get(&handle)?;
        let piece = self.pieces.get_mut(&number)?;
        piece.calls = piece.calls.saturating_add(1);
        Some(number)
    }

    /// Lets it go.
    fn let_go(&mut self, tenant: &Tenant, number: u64) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.calls = piece.calls.saturating_sub(1);
        }
        self.sweep(tenant, number);
    }

    /// Ends a piece that nothing refers to.
    fn sweep(&mut self, tenant: &Tenant, number: u64) {
        let idle = |piece: &&Piece| piece.handles == 0 && piece.mappings == 0 && piece.calls == 0;
        let Some(piece) = self.pieces.get(&number).filter(idle).copied() else { return };
        self.pieces.remove(&number);
        let Some(gpu) = tenant.gpu(piece.device) else { return };
        if piece.key != 0 && self.pass_on(piece) {
            return;
        }
        if piece.key != 0 {
            gpu.close(piece.key);
        }
        gpu.release(piece.kind, Amount::Own(piece.booked));
        gpu.note_opened(0, piece.bytes.saturating_sub(piece.booked));
    }

    /// What this process has exported it may have imported itself, and not yet looked at: then the memory is
    /// still there, and goes on to that. Whether there is such.
    fn pass_on(&mut self, piece: Piece) -> bool {
        let unseen = |other: &&mut Piece| other.bytes == 0 && other.device == piece.device;
        let Some(heir) = self.pieces.values_mut().find(unseen) else { return false };
        let (kind, booked, bytes, key) = (piece.kind, piece.booked, piece.bytes, piece.key);
        *heir = Piece { kind, booked, bytes, key, ..*heir };
        true
    }

    /// The piece that is mapped at an address.
    fn mapped_at(&self, address: DevicePtr) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start.saturating_add(mapping.bytes)).then_some(mapping.number)
    }

    /// Notes a mapping that the driver has made; one that was there must have ended.
    fn mapped(&mut self, tenant: &Tenant, address: DevicePtr, bytes: u64, number: u64) {
        self.last = self.last.saturating_add(1);
        let mapping = Mapping { bytes, number, serial: self.last };
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.mappings = piece.mappings.saturating_add(1);
        }
        if let Some(before) = self.mappings.insert(address, mapping) {
            self.unmapped(tenant, before.number);
        }
    }

    /// One mapping of a piece less.
    fn unmapped(&mut self, tenant: &Tenant, number: u64) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.mappings = piece.mappings.saturating_sub(1);
        }
        self.sweep(tenant, number);
    }
}

unsafe fn create(
    call: impl Fn() -> Code,
    to: *mut u64,
    bytes: usize,
    properties: *const Placed,
    _flags: u64,
) -> Code {
    // SAFETY: the caller's.
    let device = unsafe { read(properties) }.and_then(|properties| properties.location.device());
    let (tenant, gpu) = given!(ground::named(device), call);
    let (kind, bytes) = (Kind::Virtual, bytes as u64);
    let code = booked(tenant, gpu, kind, Amount::Own(bytes), call);
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(handle)) = (code, unsafe { read(to) }) {
        tenant.pieces.lock().add(handle, Piece::with_handle(gpu.device, kind, bytes));
    }
    code
}

unsafe fn release(call: impl Fn() -> Code, handle: u64) -> Code {
    let tenant = capped!(call);
    // Before the call: afterwards the number may be another piece's.
    let number = {
        let mut table = tenant.pieces.lock();
        let number = table.hold(handle);
        if let Some(number) = number {
            table.take(handle, number);
        }
        number
    };
    let Some(number) = number else { return call() };
    let code = call();
    let mut table = tenant.pieces.lock();
    if code != SUCCESS {
        table.give(handle, number);
    }
    table.let_go(tenant, number);
    code
}

unsafe fn map(
    call: impl Fn() -> Code,
    address: DevicePtr,
    bytes: usize,
    _offset: usize,
    handle: u64,
    _flags: u64,
) -> Code {
    let tenant = capped!(call);
    let Some(number) = tenant.pieces.lock().hold(handle) else { return call() };
    let code = match look_at(tenant, number, bytes as u64) {
        Ok(()) => call(),
        Err(code) => code,
    };
    let mut table = tenant.pieces.lock();
    if code == SUCCESS {
        table.mapped(tenant, address, bytes as u64, number);
    }
    table.let_go(tenant, number);
    code
}

/// Books an imported piece, whose size is known now, if nobody of the tenant has it in the books.
fn look_at(tenant: &Tenant, number: u64, bytes: u64) -> Result<(), Code> {
    let Some(mut piece) = tenant.pieces.lock().pieces.get(&number).copied() else { return Ok(()) };
    let Some(gpu) = tenant.gpu(piece.device).filter(|_| piece.bytes == 0) else { return Ok(()) };
    match external::open(gpu, bytes) {
        Some(key) => piece.key = key,
        None => {
            reserve(tenant, gpu, piece.kind, Amount::Own(bytes))?;
            piece.booked = bytes;
        }
    }
    piece.bytes = bytes;
    let mut table = tenant.pieces.lock();
    match table.pieces.get_mut(&number) {
        Some(place) if place.bytes == 0 => {
            *place = Piece { booked: piece.booked, bytes, key: piece.key, ..*place };
            gpu.note_opened(bytes.saturating_sub(piece.booked), 0);
        }
        // Another thread was as quick.
        _ => {
            if piece.key != 0 {
                gpu.close(piece.key);
            }
            gpu.release(piece.kind, Amount::Own(piece.booked));
        }
    }
    Ok(())
}

unsafe fn unmap(call: impl Fn() -> Code, address: DevicePtr, bytes: usize) -> Code {
    let tenant = capped!(call);
    // Looked at before the call: afterwards the addresses may be another mapping's. They stay noted until
    // they are gone, for another thread may ask for the piece that is mapped there.
    let range = address..address.saturating_add(bytes as u64);
    let going: Vec<(DevicePtr, Mapping)> = {
        let table = tenant.pieces.lock();
        table.mappings.range(range).map(|(at, mapping)| (*at, *mapping)).collect()
    };
    let code = call();
    if code == SUCCESS {
        let mut table = tenant.pieces.lock();
        for (at, Mapping { number, serial, .. }) in going {
            // If not, another thread was as quick.
            if table.mappings.get(&at).is_some_and(|now| now.serial == serial) {
                table.mappings.remove(&at);
                table.unmapped(tenant, number);
            }
        }
    }
    code
}

unsafe fn export(
    call: impl Fn() -> Code,
    _to: *mut c_void,
    handle: u64,
    _kind: c_int,
    _flags: u64,
) -> Code {
    let tenant = capped!(call);
    let code = call();
    let mut table = tenant.pieces.lock();
    if let (SUCCESS, Some(piece)) = (code, table.by_handle(handle))
        && piece.booked > 0
        && piece.key == 0
        && let Some(gpu) = tenant.gpu(piece.device)
    {
        piece.key = external::export(gpu, piece.bytes);
    }
    code
}

unsafe fn import(call: impl Fn() -> Code, to: *mut u64, _from: *mut c_void, _kind: c_int) -> Code {
    let tenant = capped!(call);
    let code = call();
    // SAFETY: the driver has written it.
    let (SUCCESS, Some(handle)) = (code, unsafe { read(to) }) else { return code };
    let mut properties = AllocationProperties::EMPTY;
    // SAFETY: a place of ours, and a handle that the driver has just given.
    let known = unsafe { driver::allocation_properties(&raw mut properties, handle) } == SUCCESS;
    let device = properties.placed.location.device().filter(|_| known);
    let mut table = tenant.pieces.lock();
    if let Some((number, _)) = table.handles.get(&handle).copied() {
        table.give(handle, number);
    } else if let Some(device) = device {
        table.add(handle, Piece::with_handle(device, Kind::Imported, 0));
    }
    code
}

unsafe fn retain(call: impl Fn() -> Code, to: *mut u64, address: *mut c_void) -> Code {
    let tenant = capped!(call);
    let number = {
        let mut table = tenant.pieces.lock();
        let number = table.mapped_at(address.addr() as u64);
        if let Some(piece) = number.and_then(|number| table.pieces.get_mut(&number)) {
            piece.calls = piece.calls.saturating_add(1);
        }
        number
    };
    let code = call();
    let mut table = tenant.pieces.lock();
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(handle)) = (code, unsafe { read(to) }) {
        // Another thread may be about to unmap it, or have mapped another piece there meanwhile; a handle
        // that is known tells which it is.
        let known = table.handles.get(&handle).map(|(known, _)| *known);
        if let Some(given) = known.or(number) {
            table.give(handle, given);
        }
    }
    if let Some(number) = number {
        table.let_go(tenant, number);
    }
    code
}
