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
    /// By address: bytes and piece.
    mappings: BTreeMap<DevicePtr, (u64, u64)>,
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

    /// Lets it go, with what the call has changed.
    fn let_go(&mut self, tenant: &Tenant, number: u64, change: impl FnOnce(&mut Piece)) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.calls = piece.calls.saturating_sub(1);
            change(piece);
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
        let (start, (bytes, number)) = self.mappings.range(..=address).next_back()?;
        (address < start.saturating_add(*bytes)).then_some(*number)
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
    table.let_go(tenant, number, |_| ());
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
        table.mappings.insert(address, (bytes as u64, number));
    }
    let more = u32::from(code == SUCCESS);
    table.let_go(tenant, number, |piece| piece.mappings = piece.mappings.saturating_add(more));
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
    // Before the call: afterwards the addresses may be another mapping's.
    let range = address..address.saturating_add(bytes as u64);
    let mut table = tenant.pieces.lock();
    let gone: Vec<_> = table.mappings.extract_if(range, |_, _| true).collect();
    drop(table);
    let code = call();
    let mut table = tenant.pieces.lock();
    for (address, (bytes, number)) in gone {
        if code != SUCCESS {
            table.mappings.entry(address).or_insert((bytes, number));
            continue;
        }
        if let Some(piece) = table.pieces.get_mut(&number) {
            piece.mappings = piece.mappings.saturating_sub(1);
        }
        table.sweep(tenant, number);
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
    let Some(number) = number else { return code };
    let mut table = tenant.pieces.lock();
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(handle)) = (code, unsafe { read(to) }) {
        // Another piece may have been mapped there meanwhile; a handle that is known tells which.
        let given = table.handles.get(&handle).map_or(number, |(known, _)| *known);
        table.give(handle, given);
    }
    table.let_go(tenant, number, |_| ());
    code
}
