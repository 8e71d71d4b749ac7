//! What calls cost, in ns of the calling thread, in rounds that the starter asks for one by one so that
//! two clients can take turns.

use std::time::Instant;

use super::compute::{Cost, Kernels};
use super::{Ask, say, wait_at};
use crate::Verdict;
use crate::gpu::driver::Cuda;
use crate::gpu::table::rank;

/// Bytes of the allocations.
const BYTES: u64 = 4 << 20;
/// Launches after which the stream is run dry, so that it never fills up.
const DRY: usize = 128;

/// `calls` — of each kind in a round; `rounds`.
pub(super) fn run(ask: &Ask) -> Verdict {
    let cuda = Cuda::open(ask.lookup())?;
    let (kernels, stream) = (Kernels::load(&cuda, 8)?, cuda.stream(false)?);
    let nothing = Cost { ns: 0, rounds: 0 };
    let (calls, rounds): (usize, u32) = (ask.get("calls")?, ask.get("rounds")?);
    let (mut allocs, mut frees, mut launches) = (vec![0; calls], vec![0; calls], vec![0; calls]);
    for _ in 0..rounds {
        wait_at("ready")?;
        for (alloc, free) in allocs.iter_mut().zip(&mut frees) {
            let mut address = 0;
            *alloc = timed(|| {
                address = cuda.alloc(BYTES)?;
                Ok(())
            })?;
            *free = timed(|| Ok(cuda.free(address)?))?;
        }
        for (at, launch) in launches.iter_mut().enumerate() {
            if at % DRY == 0 {
                cuda.synchronize(stream)?;
            }
            *launch = timed(|| Ok(kernels.work(nothing, stream)?))?;
        }
        cuda.synchronize(stream)?;
        for (name, times) in
            [("alloc", &mut allocs), ("free", &mut frees), ("launch", &mut launches)]
        {
            times.sort_unstable();
            say(&format!("{name}.p50"), rank(times, 500));
            say(&format!("{name}.p99"), rank(times, 990));
        }
    }
    wait_at("done").map(|_| ())
}

fn timed(call: impl FnOnce() -> Verdict) -> Result<u64, String> {
    let begin = Instant::now();
    call()?;
    Ok(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
