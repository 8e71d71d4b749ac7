//! Filling memory with a value.

use crate::calls::exports;
use crate::handles::Handle;
use crate::movement::{Extent, Movement};

fn row(to: u64, element: u32, value: u32, count: usize) -> Movement {
    Movement::Fill { to, pitch: 0, element, value, extent: Extent::row(count as u64) }
}

fn rows(
    to: u64,
    pitch: usize,
    (element, value): (u32, u32),
    width: usize,
    height: usize,
) -> Movement {
    let extent = Extent { width: width as u64, height: height as u64, depth: 1 };
    Movement::Fill { to, pitch: pitch as u64, element, value, extent }
}

exports! { FILL;
    "cuMemsetD8" 3020 call [cuMemsetD8_v2_ptds 7000] fn cuMemsetD8_v2(
        to: u64, value: u8, count: usize,
    ) |call| { call.move_now(row(to, 1, u32::from(value), count)) }

    "cuMemsetD8Async" 3020 call [cuMemsetD8Async_ptsz 7000] fn cuMemsetD8Async(
        to: u64, value: u8, count: usize, stream: Handle,
    ) |call| { call.move_in(stream, row(to, 1, u32::from(value), count)) }

    "cuMemsetD2D8" 3020 call [cuMemsetD2D8_v2_ptds 7000] fn cuMemsetD2D8_v2(
        to: u64, pitch: usize, value: u8, width: usize, height: usize,
    ) |call| { call.move_now(rows(to, pitch, (1, u32::from(value)), width, height)) }

    "cuMemsetD2D8Async" 3020 call [cuMemsetD2D8Async_ptsz 7000] fn cuMemsetD2D8Async(
        to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle,
    ) |call| { call.move_in(stream, rows(to, pitch, (1, u32::from(value)), width, height)) }

    "cuMemsetD16" 3020 call [cuMemsetD16_v2_ptds 7000] fn cuMemsetD16_v2(
        to: u64, value: u16, count: usize,
    ) |call| { call.move_now(row(to, 2, u32::from(value), count)) }

    "cuMemsetD16Async" 3020 call [cuMemsetD16Async_ptsz 7000] fn cuMemsetD16Async(
        to: u64, value: u16, count: usize, stream: Handle,
    ) |call| { call.move_in(stream, row(to, 2, u32::from(value), count)) }

    "cuMemsetD2D16" 3020 call [cuMemsetD2D16_v2_ptds 7000] fn cuMemsetD2D16_v2(
        to: u64, pitch: usize, value: u16, width: usize, height: usize,
    ) |call| { call.move_now(rows(to, pitch, (2, u32::from(value)), width, height)) }

    "cuMemsetD2D16Async" 3020 call [cuMemsetD2D16Async_ptsz 7000] fn cuMemsetD2D16Async(
        to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle,
    ) |call| { call.move_in(stream, rows(to, pitch, (2, u32::from(value)), width, height)) }

    "cuMemsetD32" 3020 call [cuMemsetD32_v2_ptds 7000] fn cuMemsetD32_v2(
        to: u64, value: u32, count: usize,
    ) |call| { call.move_now(row(to, 4, value, count)) }

    "cuMemsetD32Async" 3020 call [cuMemsetD32Async_ptsz 7000] fn cuMemsetD32Async(
        to: u64, value: u32, count: usize, stream: Handle,
    ) |call| { call.move_in(stream, row(to, 4, value, count)) }

    "cuMemsetD2D32" 3020 call [cuMemsetD2D32_v2_ptds 7000] fn cuMemsetD2D32_v2(
        to: u64, pitch: usize, value: u32, width: usize, height: usize,
    ) |call| { call.move_now(rows(to, pitch, (4, value), width, height)) }

    "cuMemsetD2D32Async" 3020 call [cuMemsetD2D32Async_ptsz 7000] fn cuMemsetD2D32Async(
        to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle,
    ) |call| { call.move_in(stream, rows(to, pitch, (4, value), width, height)) }
}
