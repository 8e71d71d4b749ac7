//! Copies of bytes in a row, between host and device memory and arrays.

use std::ffi::c_void;

use crate::action::Action;
use crate::calls::{Call, exports};
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::layouts::Location;
use crate::movement::{Corner, Movement};
use crate::pointers::{get_at, put_if};
use crate::result::{INVALID_VALUE, Outcome};

fn host(address: *const c_void) -> Corner {
    Corner::host(address.expose_provenance() as u64)
}

/// Memory of either side: the address says which.
fn any(call: &Call, address: u64) -> Corner {
    let driver = call.lock();
    let known = driver.allocation(address).is_some();
    let device = known || driver.arena.contains(address);
    Corner { device, ..Corner::device(address) }
}

impl Call {
    /// Moves bytes in a stream.
    pub(crate) fn move_in(&self, stream: Handle, movement: Movement) -> Outcome {
        movement.check(&mut self.lock())?;
        let action = Action::Move(movement, movement.work());
        self.issue(stream, NodeKind::Move(movement, None), action)
    }

    /// Moves bytes in the default stream and waits for them.
    pub(crate) fn move_now(&self, movement: Movement) -> Outcome {
        let mut driver = self.lock();
        self.current(&driver)?;
        driver.forbid_unsafe()?;
        movement.check(&mut driver)?;
        let stream = self.resolve(&mut driver, 0)?;
        drop(driver);
        let stream = self.checked_for_waiting(stream)?;
        self.act(stream, Action::Move(movement, movement.work()))?;
        // Copies inside a GPU and fills are not waited for (CUDA driver API, "API synchronization
        // behavior").
        if movement.touches_host() { self.wait_until(|| self.is_idle(stream)) } else { Ok(()) }
    }

    /// A place in an array, whose first row alone counts.
    fn in_array(&self, array: Handle, offset: usize) -> Result<Corner, crate::result::Error> {
        Ok(Corner::device(self.lock().array_address(array)? + offset as u64))
    }
}

/// `CUmemcpyAttributes`, of which nothing changes what is copied.
#[repr(C)]
struct CopyAttributes {
    order: u32,
    from: Location,
    to: Location,
    flags: u32,
}

impl Call {
    fn batch_copy(
        &self,
        to: *const u64,
        from: *const u64,
        sizes: *const usize,
        count: usize,
        stream: Handle,
    ) -> Outcome {
        if count == 0 || stream == 0 {
            return Err(INVALID_VALUE);
        }
        for at in 0..count {
            let (to, from) = (any(self, get_at(to, at)?), any(self, get_at(from, at)?));
            self.move_in(stream, Movement::row(to, from, get_at(sizes, at)? as u64))?;
        }
        Ok(())
    }
}

exports! { COPY;
    "cuMemcpy" 4000 call [cuMemcpy_ptds 7000] fn cuMemcpy(to: u64, from: u64, bytes: usize) |call| {
        call.move_now(Movement::row(any(call, to), any(call, from), bytes as u64))
    }

    "cuMemcpyAsync" 4000 call [cuMemcpyAsync_ptsz 7000] fn cuMemcpyAsync(
        to: u64, from: u64, bytes: usize, stream: Handle,
    ) |call| { call.move_in(stream, Movement::row(any(call, to), any(call, from), bytes as u64)) }

    "cuMemcpyPeer" 4000 call [cuMemcpyPeer_ptds 7000] fn cuMemcpyPeer(
        to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize,
    ) |call| {
        call.move_now(Movement::row(Corner::device(to), Corner::device(from), bytes as u64))
    }

    "cuMemcpyPeerAsync" 4000 call [cuMemcpyPeerAsync_ptsz 7000] fn cuMemcpyPeerAsync(
        to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize,
        stream: Handle,
    ) |call| {
        let movement = Movement::row(Corner::device(to), Corner::device(from), bytes as u64);
        call.move_in(stream, movement)
    }

    "cuMemcpyHtoD" 3020 call [cuMemcpyHtoD_v2_ptds 7000] fn cuMemcpyHtoD_v2(
        to: u64, from: *const c_void, bytes: usize,
    ) |call| { call.move_now(Movement::row(Corner::device(to), host(from), bytes as u64)) }

    "cuMemcpyDtoH" 3020 call [cuMemcpyDtoH_v2_ptds 7000] fn cuMemcpyDtoH_v2(
        to: *mut c_void, from: u64, bytes: usize,
    ) |call| { call.move_now(Movement::row(host(to), Corner::device(from), bytes as u64)) }

    "cuMemcpyDtoD" 3020 call [cuMemcpyDtoD_v2_ptds 7000] fn cuMemcpyDtoD_v2(
        to: u64, from: u64, bytes: usize,
    ) |call| {
        call.move_now(Movement::row(Corner::device(to), Corner::device(from), bytes as u64))
    }

    "cuMemcpyHtoDAsync" 3020 call [cuMemcpyHtoDAsync_v2_ptsz 7000] fn cuMemcpyHtoDAsync_v2(
        to: u64, from: *const c_void, bytes: usize, stream: Handle,
    ) |call| { call.move_in(stream, Movement::row(Corner::device(to), host(from), bytes as u64)) }

    "cuMemcpyDtoHAsync" 3020 call [cuMemcpyDtoHAsync_v2_ptsz 7000] fn cuMemcpyDtoHAsync_v2(
        to: *mut c_void, from: u64, bytes: usize, stream: Handle,
    ) |call| { call.move_in(stream, Movement::row(host(to), Corner::device(from), bytes as u64)) }

    "cuMemcpyDtoDAsync" 3020 call [cuMemcpyDtoDAsync_v2_ptsz 7000] fn cuMemcpyDtoDAsync_v2(
        to: u64, from: u64, bytes: usize, stream: Handle,
    ) |call| {
        let movement = Movement::row(Corner::device(to), Corner::device(from), bytes as u64);
        call.move_in(stream, movement)
    }

    "cuMemcpyDtoA" 3020 call [cuMemcpyDtoA_v2_ptds 7000] fn cuMemcpyDtoA_v2(
        array: Handle, offset: usize, from: u64, bytes: usize,
    ) |call| {
        let to = call.in_array(array, offset)?;
        call.move_now(Movement::row(to, Corner::device(from), bytes as u64))
    }

    "cuMemcpyAtoD" 3020 call [cuMemcpyAtoD_v2_ptds 7000] fn cuMemcpyAtoD_v2(
        to: u64, array: Handle, offset: usize, bytes: usize,
    ) |call| {
        let from = call.in_array(array, offset)?;
        call.move_now(Movement::row(Corner::device(to), from, bytes as u64))
    }

    "cuMemcpyHtoA" 3020 call [cuMemcpyHtoA_v2_ptds 7000] fn cuMemcpyHtoA_v2(
        array: Handle, offset: usize, from: *const c_void, bytes: usize,
    ) |call| {
        let to = call.in_array(array, offset)?;
        call.move_now(Movement::row(to, host(from), bytes as u64))
    }

    "cuMemcpyAtoH" 3020 call [cuMemcpyAtoH_v2_ptds 7000] fn cuMemcpyAtoH_v2(
        to: *mut c_void, array: Handle, offset: usize, bytes: usize,
    ) |call| {
        let from = call.in_array(array, offset)?;
        call.move_now(Movement::row(host(to), from, bytes as u64))
    }

    "cuMemcpyAtoA" 3020 call [cuMemcpyAtoA_v2_ptds 7000] fn cuMemcpyAtoA_v2(
        array: Handle, offset: usize, other: Handle, other_offset: usize, bytes: usize,
    ) |call| {
        let (to, from) = (call.in_array(array, offset)?, call.in_array(other, other_offset)?);
        call.move_now(Movement::row(to, from, bytes as u64))
    }

    "cuMemcpyHtoAAsync" 3020 call [cuMemcpyHtoAAsync_v2_ptsz 7000] fn cuMemcpyHtoAAsync_v2(
        array: Handle, offset: usize, from: *const c_void, bytes: usize, stream: Handle,
    ) |call| {
        let to = call.in_array(array, offset)?;
        call.move_in(stream, Movement::row(to, host(from), bytes as u64))
    }

    "cuMemcpyAtoHAsync" 3020 call [cuMemcpyAtoHAsync_v2_ptsz 7000] fn cuMemcpyAtoHAsync_v2(
        to: *mut c_void, array: Handle, offset: usize, bytes: usize, stream: Handle,
    ) |call| {
        let from = call.in_array(array, offset)?;
        call.move_in(stream, Movement::row(host(to), from, bytes as u64))
    }

    "cuMemcpyBatchAsync" 12080 call [cuMemcpyBatchAsync_ptsz 12080] fn cuMemcpyBatchAsync(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize,
        _attributes: *const CopyAttributes, _at: *const usize, _attribute_count: usize,
        failed: *mut usize, stream: Handle,
    ) |call| {
        put_if(failed, usize::MAX);
        call.batch_copy(to, from, sizes, count, stream)
    }

    "cuMemcpyBatchAsync" 13000 call [cuMemcpyBatchAsync_v2_ptsz 13000] fn cuMemcpyBatchAsync_v2(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize,
        _attributes: *const CopyAttributes, _at: *const usize, _attribute_count: usize,
        stream: Handle,
    ) |call| { call.batch_copy(to, from, sizes, count, stream) }

    "cuMemcpyWithAttributesAsync" 13020 call [cuMemcpyWithAttributesAsync_ptsz 13020]
    fn cuMemcpyWithAttributesAsync(
        to: u64, from: u64, bytes: usize, _attributes: *const CopyAttributes, stream: Handle,
    ) |call| { call.move_in(stream, Movement::row(any(call, to), any(call, from), bytes as u64)) }
}
