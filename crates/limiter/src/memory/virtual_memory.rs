//! Physical memory that is mapped by hand: `cuMemCreate` and its relatives.
//!
//! A piece of physical memory goes when its last handle is released and nothing maps it any more. Only
//! pieces that lie on a GPU count; the id of any other place may be anything.
//!
//! A piece that was imported is looked at when it is first mapped, for its size is not known earlier. If
//! the tenant has exported a piece of that size it is the same one and counts at its exporter; handles
//! of the system carry nothing by which it could be known better.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::Kind;

use super::amount::Amount;
use super::external::size_key;
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
}

/// The pieces of the process.
#[derive(Default)]
pub(crate) struct Pieces(Mutex<Table>);

/// By numbers of our own, for the driver uses a handle's number again while the piece is still mapped.
#[derive(Default)]
struct Table {
    last: u64,
    pieces: BTreeMap<u64, Piece>,
    handles: BTreeMap<u64, u64>,
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
        self.handles.insert(handle, self.last);
    }

    fn by_handle(&mut self, handle: u64) -> Option<&mut Piece> {
        self.pieces.get_mut(self.handles.get(&handle)?)
    }

    /// Ends a piece that nothing refers to.
    fn sweep(&mut self, tenant: &Tenant, number: u64) {
        let Some(piece) = self.pieces.get(&number).copied() else { return };
        if piece.handles == 0 && piece.mappings == 0 {
            self.pieces.remove(&number);
            if let Some(gpu) = tenant.gpu(piece.device) {
                gpu.release(piece.kind, Amount::Own(piece.booked));
            }
        }
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
        let device = gpu.device;
        let piece = Piece { device, kind, booked: bytes, bytes, handles: 1, mappings: 0 };
        tenant.pieces.lock().add(handle, piece);
    }
    code
}

unsafe fn release(call: impl Fn() -> Code, handle: u64) -> Code {
    let tenant = capped!(call);
    // Held over the call: afterwards the number may be another piece's.
    let mut table = tenant.pieces.lock();
    let code = call();
    let Some(number) = table.handles.get(&handle).copied().filter(|_| code == SUCCESS) else {
        return code;
    };
    if let Some(piece) = table.pieces.get_mut(&number) {
        piece.handles = piece.handles.saturating_sub(1);
        if piece.handles == 0 {
            table.handles.remove(&handle);
        }
    }
    table.sweep(tenant, number);
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
    let mut table = tenant.pieces.lock();
    let Some(piece) = table.by_handle(handle) else { return call() };
    if piece.bytes == 0
        && let Err(code) = look_at(tenant, piece, bytes as u64)
    {
        return code;
    }
    let code = call();
    if code == SUCCESS {
        piece.mappings = piece.mappings.saturating_add(1);
        if let Some(number) = table.handles.get(&handle).copied() {
            table.mappings.insert(address, (bytes as u64, number));
        }
    }
    code
}

/// Books an imported piece if nobody of the tenant has it in the books.
fn look_at(tenant: &Tenant, piece: &mut Piece, bytes: u64) -> Result<(), Code> {
    let Some(gpu) = tenant.gpu(piece.device) else { return Ok(()) };
    if !gpu.exported(size_key(bytes)) {
        reserve(tenant, gpu, piece.kind, Amount::Own(bytes))?;
        piece.booked = bytes;
    }
    piece.bytes = bytes;
    Ok(())
}

unsafe fn unmap(call: impl Fn() -> Code, address: DevicePtr, bytes: usize) -> Code {
    let tenant = capped!(call);
    let mut table = tenant.pieces.lock();
    let code = call();
    if code == SUCCESS {
        let range = address..address.saturating_add(bytes as u64);
        let gone: Vec<u64> =
            table.mappings.extract_if(range, |_, _| true).map(|(_, (_, number))| number).collect();
        for number in gone {
            if let Some(piece) = table.pieces.get_mut(&number) {
                piece.mappings = piece.mappings.saturating_sub(1);
            }
            table.sweep(tenant, number);
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
    let piece = tenant.pieces.lock().by_handle(handle).copied();
    if let (SUCCESS, Some(piece)) = (code, piece)
        && piece.booked > 0
        && let Some(gpu) = tenant.gpu(piece.device)
    {
        gpu.export(size_key(piece.bytes), piece.bytes);
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
    if let Some(piece) = table.by_handle(handle) {
        piece.handles = piece.handles.saturating_add(1);
    } else if let Some(device) = device {
        let kind = Kind::Imported;
        table.add(handle, Piece { device, kind, booked: 0, bytes: 0, handles: 1, mappings: 0 });
    }
    code
}

unsafe fn retain(call: impl Fn() -> Code, to: *mut u64, address: *mut c_void) -> Code {
    let tenant = capped!(call);
    let mut table = tenant.pieces.lock();
    let code = call();
    let number = table.mapped_at(address.addr() as u64);
    // SAFETY: the driver has written it.
    if let (SUCCESS, Some(handle), Some(number)) = (code, unsafe { read(to) }, number) {
        table.handles.insert(handle, number);
        if let Some(piece) = table.pieces.get_mut(&number) {
            piece.handles = piece.handles.saturating_add(1);
        }
    }
    code
}
