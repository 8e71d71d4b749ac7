//! Copies in two and three dimensions.

use crate::action::Action;
use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::graph::NodeKind;
use crate::handles::Handle;
use crate::layouts::{Copy2, Copy3, Side2, Side3};
use crate::movement::{Corner, Extent, Movement};
use crate::pointers::get;
use crate::result::{Error, INVALID_VALUE, Outcome};

const HOST: i32 = 1;
const DEVICE: i32 = 2;
const ARRAY: i32 = 3;
const UNIFIED: i32 = 4;

fn side3(side: Side2) -> Side3 {
    let Side2 { x, y, kind, host, device, array, pitch } = side;
    Side3 { x, y, kind, host, device, array, pitch, ..Side3::default() }
}

/// The same copy with a third dimension.
pub(crate) fn copy3(copy: Copy2) -> Copy3 {
    let (from, to) = (side3(copy.from), side3(copy.to));
    Copy3 { from, to, width: copy.width, height: copy.height, depth: 1 }
}

impl Driver {
    /// The copy as a movement.
    pub(crate) fn movement_of(&self, copy: &Copy3) -> Result<Movement, Error> {
        let extent = Extent {
            width: copy.width as u64,
            height: copy.height as u64,
            depth: copy.depth as u64,
        };
        let (to, from) = (self.corner(&copy.to, extent)?, self.corner(&copy.from, extent)?);
        Ok(Movement::Copy { to, from, extent })
    }

    fn corner(&self, side: &Side3, extent: Extent) -> Result<Corner, Error> {
        let [x, y, z] = [side.x, side.y, side.z].map(|at| at as u64);
        // "srcPitch of 0" means rows without gaps where there is but one.
        let pitch = if side.pitch == 0 { extent.width } else { side.pitch as u64 };
        let height = if side.height == 0 { extent.height } else { side.height as u64 };
        let (address, pitch, slice, device) = match side.kind {
            HOST => (side.host as u64, pitch, pitch * height, false),
            DEVICE => (side.device, pitch, pitch * height, true),
            UNIFIED => {
                let device = self.arena.contains(side.device);
                (side.device, pitch, pitch * height, device)
            }
            ARRAY => {
                let (address, pitch, slice) = self.array_shape(side.array)?;
                (address, pitch, slice, true)
            }
            _ => return Err(INVALID_VALUE),
        };
        if pitch < x + extent.width && extent.height > 1 {
            return Err(INVALID_VALUE);
        }
        Ok(Corner { address: address + x + y * pitch + z * slice, pitch, slice, device })
    }
}

impl Call {
    fn box_now(&self, copy: &Copy3) -> Outcome {
        let movement = self.lock().movement_of(copy)?;
        self.move_now(movement)
    }

    fn box_in(&self, copy: &Copy3, stream: Handle) -> Outcome {
        let mut driver = self.lock();
        let movement = driver.movement_of(copy)?;
        movement.check(&mut driver)?;
        drop(driver);
        let action = Action::Move(movement, movement.work());
        self.issue(stream, NodeKind::Move(movement, Some(Box::new(*copy))), action)
    }
}

exports! { COPY_BOXES;
    "cuMemcpy2D" 3020 call [cuMemcpy2D_v2_ptds 7000] fn cuMemcpy2D_v2(copy: *const Copy2) |call| {
        call.box_now(&copy3(get(copy)?))
    }

    "cuMemcpy2DUnaligned" 3020 call [cuMemcpy2DUnaligned_v2_ptds 7000] fn cuMemcpy2DUnaligned_v2(
        copy: *const Copy2,
    ) |call| { call.box_now(&copy3(get(copy)?)) }

    "cuMemcpy2DAsync" 3020 call [cuMemcpy2DAsync_v2_ptsz 7000] fn cuMemcpy2DAsync_v2(
        copy: *const Copy2, stream: Handle,
    ) |call| { call.box_in(&copy3(get(copy)?), stream) }

    "cuMemcpy3D" 3020 call [cuMemcpy3D_v2_ptds 7000] fn cuMemcpy3D_v2(copy: *const Copy3) |call| {
        call.box_now(&get(copy)?)
    }

    "cuMemcpy3DAsync" 3020 call [cuMemcpy3DAsync_v2_ptsz 7000] fn cuMemcpy3DAsync_v2(
        copy: *const Copy3, stream: Handle,
    ) |call| { call.box_in(&get(copy)?, stream) }

    "cuMemcpy3DPeer" 4000 call [cuMemcpy3DPeer_ptds 7000] fn cuMemcpy3DPeer(copy: *const Copy3)
    |call| { call.box_now(&get(copy)?) }

    "cuMemcpy3DPeerAsync" 4000 call [cuMemcpy3DPeerAsync_ptsz 7000] fn cuMemcpy3DPeerAsync(
        copy: *const Copy3, stream: Handle,
    ) |call| { call.box_in(&get(copy)?, stream) }
}
