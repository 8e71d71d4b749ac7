//! Host functions in streams, and values in memory that streams wait for and write.

use std::ffi::c_void;

use crate::action::{Action, Data, HostFunction, Value};
use crate::calls::{Call, exports};
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::pointers::get_at;
use crate::result::{INVALID_VALUE, Outcome};

/// A function that a stream or a graph calls.
pub(crate) type HostFn = extern "C" fn(*mut c_void);

impl Call {
    /// Lets a stream do what a node would do, or captures it as one.
    pub(crate) fn issue(&self, stream: Handle, node: NodeKind, action: Action) -> Outcome {
        let mut driver = self.lock();
        let stream = self.resolve(&mut driver, stream)?;
        if driver.takes_captured(stream)? {
            return driver.capture(stream, node).map(|_| ());
        }
        drop(driver);
        self.act(stream, action)
    }

    fn host(&self, stream: Handle, function: Option<HostFn>, data: *mut c_void) -> Outcome {
        let function = HostFunction::Plain(function.ok_or(INVALID_VALUE)?, Data(data));
        self.issue(stream, NodeKind::Host(function), Action::Host(function))
    }

    fn value(&self, stream: Handle, value: Value, write: bool) -> Outcome {
        if value.address == 0 || !value.address.is_multiple_of(if value.wide { 8 } else { 4 }) {
            return Err(INVALID_VALUE);
        }
        let action = if write { Action::WriteValue(value) } else { Action::WaitValue(value) };
        self.issue(stream, NodeKind::Value(value, write), action)
    }

    /// A list of operations: cuda.h's union of 48 bytes, of which the first is the kind, the second
    /// the address, the third the value and the fourth the flags.
    fn batch(&self, stream: Handle, count: u32, list: *const [u64; 6]) -> Outcome {
        for at in 0..count as usize {
            let [kind, address, value, flags, ..] = get_at(list, at)?;
            let kind = kind & 0xffff_ffff;
            let value = Value {
                address,
                value,
                wide: kind == 4 || kind == 5,
                how: (flags & 0xffff_ffff) as u32,
            };
            match kind {
                1 | 4 => self.value(stream, value, false)?,
                2 | 5 => self.value(stream, value, true)?,
                // Barriers and flushes: nothing of memory is ever behind.
                3 | 6 => {}
                _ => return Err(INVALID_VALUE),
            }
        }
        Ok(())
    }
}

fn narrow(address: u64, value: u32, how: u32) -> Value {
    Value { address, value: u64::from(value), wide: false, how }
}

fn wide(address: u64, value: u64, how: u32) -> Value {
    Value { address, value, wide: true, how }
}

exports! { STREAM_FUNCTIONS;
    "cuLaunchHostFunc" 10000 call [cuLaunchHostFunc_ptsz 10000] fn cuLaunchHostFunc(
        stream: Handle, function: Option<HostFn>, data: *mut c_void,
    ) |call| { call.host(stream, function, data) }

    "cuLaunchHostFunc" 13010 call [cuLaunchHostFunc_v2_ptsz 13010] fn cuLaunchHostFunc_v2(
        stream: Handle, function: Option<HostFn>, data: *mut c_void, _mode: u32,
    ) |call| { call.host(stream, function, data) }

    "cuStreamAddCallback" 5000 call [cuStreamAddCallback_ptsz 7000] fn cuStreamAddCallback(
        stream: Handle, function: Option<extern "C" fn(Handle, u32, *mut c_void)>,
        data: *mut c_void, flags: u32,
    ) |call| {
        let function = function.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        let function = HostFunction::Callback(function, stream, Data(data));
        call.issue(stream, NodeKind::Host(function), Action::Host(function))
    }

    "cuStreamWaitValue32" 8000 call [cuStreamWaitValue32_ptsz 8000] fn cuStreamWaitValue32(
        stream: Handle, address: u64, value: u32, flags: u32,
    ) |call| { call.value(stream, narrow(address, value, flags), false) }

    "cuStreamWaitValue32" 11070 call [cuStreamWaitValue32_v2_ptsz 11070] fn cuStreamWaitValue32_v2(
        stream: Handle, address: u64, value: u32, flags: u32,
    ) |call| { call.value(stream, narrow(address, value, flags), false) }

    "cuStreamWriteValue32" 8000 call [cuStreamWriteValue32_ptsz 8000] fn cuStreamWriteValue32(
        stream: Handle, address: u64, value: u32, flags: u32,
    ) |call| { call.value(stream, narrow(address, value, flags), true) }

    "cuStreamWriteValue32" 11070 call [cuStreamWriteValue32_v2_ptsz 11070] fn cuStreamWriteValue32_v2(
        stream: Handle, address: u64, value: u32, flags: u32,
    ) |call| { call.value(stream, narrow(address, value, flags), true) }

    "cuStreamWaitValue64" 9000 call [cuStreamWaitValue64_ptsz 9000] fn cuStreamWaitValue64(
        stream: Handle, address: u64, value: u64, flags: u32,
    ) |call| { call.value(stream, wide(address, value, flags), false) }

    "cuStreamWaitValue64" 11070 call [cuStreamWaitValue64_v2_ptsz 11070] fn cuStreamWaitValue64_v2(
        stream: Handle, address: u64, value: u64, flags: u32,
    ) |call| { call.value(stream, wide(address, value, flags), false) }

    "cuStreamWriteValue64" 9000 call [cuStreamWriteValue64_ptsz 9000] fn cuStreamWriteValue64(
        stream: Handle, address: u64, value: u64, flags: u32,
    ) |call| { call.value(stream, wide(address, value, flags), true) }

    "cuStreamWriteValue64" 11070 call [cuStreamWriteValue64_v2_ptsz 11070] fn cuStreamWriteValue64_v2(
        stream: Handle, address: u64, value: u64, flags: u32,
    ) |call| { call.value(stream, wide(address, value, flags), true) }

    "cuStreamBatchMemOp" 8000 call [cuStreamBatchMemOp_ptsz 8000] fn cuStreamBatchMemOp(
        stream: Handle, count: u32, list: *const [u64; 6], _flags: u32,
    ) |call| { call.batch(stream, count, list) }

    "cuStreamBatchMemOp" 11070 call [cuStreamBatchMemOp_v2_ptsz 11070] fn cuStreamBatchMemOp_v2(
        stream: Handle, count: u32, list: *const [u64; 6], _flags: u32,
    ) |call| { call.batch(stream, count, list) }
}
