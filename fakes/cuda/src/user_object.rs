//! User objects: things of the client's that a graph keeps alive. The client's function is called when
//! the last reference of either is gone.

use std::ffi::c_void;

use crate::action::Data;
use crate::calls::{Call, exports, in_host_function};
use crate::handles::Handle;
use crate::pointers::put;
use crate::result::{INVALID_VALUE, Outcome};
use crate::stream_functions::HostFn;

/// A user object.
pub(crate) struct UserObject {
    data: Data,
    destroy: HostFn,
    references: u32,
}

impl Call {
    fn release_object(&self, object: Handle, count: u32) -> Outcome {
        let mut driver = self.lock();
        let found = driver.user_objects.get_mut(object).ok_or(INVALID_VALUE)?;
        found.references = found.references.checked_sub(count).ok_or(INVALID_VALUE)?;
        if found.references > 0 {
            return Ok(());
        }
        let gone = driver.user_objects.remove(object).ok_or(INVALID_VALUE)?;
        drop(driver);
        in_host_function(|| (gone.destroy)(gone.data.0));
        Ok(())
    }

    fn retain_object(&self, object: Handle, count: u32) -> Outcome {
        let mut driver = self.lock();
        let found = driver.user_objects.get_mut(object).ok_or(INVALID_VALUE)?;
        found.references = found.references.checked_add(count).ok_or(INVALID_VALUE)?;
        Ok(())
    }
}

exports! { USER_OBJECT;
    "cuUserObjectCreate" 11030 call fn cuUserObjectCreate(
        to: *mut Handle, data: *mut c_void, destroy: Option<HostFn>, references: u32, _flags: u32,
    ) |call| {
        let destroy = destroy.filter(|_| references > 0).ok_or(INVALID_VALUE)?;
        let object = UserObject { data: Data(data), destroy, references };
        put(to, call.lock().user_objects.insert(object))
    }

    "cuUserObjectRetain" 11030 call fn cuUserObjectRetain(object: Handle, count: u32) |call| {
        call.retain_object(object, count)
    }

    "cuUserObjectRelease" 11030 call fn cuUserObjectRelease(object: Handle, count: u32) |call| {
        call.release_object(object, count)
    }

    // A graph's references are not counted apart: they end when the client lets them go.
    "cuGraphRetainUserObject" 11030 call fn cuGraphRetainUserObject(
        graph: Handle, object: Handle, count: u32, flags: u32,
    ) |call| {
        const MOVE: u32 = 1;
        call.lock().graph(graph)?;
        if flags == MOVE { Ok(()) } else { call.retain_object(object, count) }
    }

    "cuGraphReleaseUserObject" 11030 call fn cuGraphReleaseUserObject(
        graph: Handle, object: Handle, count: u32,
    ) |call| {
        call.lock().graph(graph)?;
        call.release_object(object, count)
    }
}
