//! On which GPU a call takes memory, and the order in which books and driver are asked.

use caps::Kind;

use super::amount::Amount;
use super::kept::{Held, Name, primary_of};
use super::own;
use crate::abi::{Code, Device, OUT_OF_MEMORY, SUCCESS};
use crate::tenant::{self, Gpu, Now, Place, Tenant};
use crate::{driver, log};

/// Whether and where a call is counted.
pub(crate) enum Ground {
    /// Nowhere: straight to the driver.
    Free,
    /// The call is not allowed.
    Refused(Code),
    /// In the books of this GPU.
    Given(&'static Tenant, &'static Gpu),
}

/// `let (tenant, gpu) = given!(ground, call);` leaves the function if there is nothing to count.
macro_rules! given {
    ($ground:expr, $call:ident) => {
        match $ground {
            $crate::memory::ground::Ground::Free => return $call(),
            $crate::memory::ground::Ground::Refused(code) => return code,
            $crate::memory::ground::Ground::Given(tenant, gpu) => (tenant, gpu),
        }
    };
}
pub(crate) use given;

/// `let tenant = capped!(call);` leaves the function if the process has no caps. For calls that give
/// memory back or show it: these are always allowed.
macro_rules! capped {
    ($call:ident) => {
        match $crate::tenant::now() {
            $crate::tenant::Now::Capped(tenant) => tenant,
            $crate::tenant::Now::Free | $crate::tenant::Now::Refused(_) => return $call(),
        }
    };
}
pub(crate) use capped;

/// The ground of a call that takes memory of a GPU; `None` if the driver is to find what is wrong.
fn of(device: impl FnOnce(&Tenant) -> Option<Device>, foreign: Code) -> Ground {
    let tenant = match tenant::now() {
        Now::Free => return Ground::Free,
        Now::Refused(code) => return Ground::Refused(code),
        Now::Capped(tenant) => tenant,
    };
    let Some(device) = device(tenant) else { return Ground::Free };
    match tenant.place(device) {
        Place::Free => Ground::Free,
        Place::Foreign => Ground::Refused(foreign),
        Place::Given(gpu) => Ground::Given(tenant, gpu),
    }
}

/// The GPU of the thread's context.
pub(crate) fn current() -> Ground {
    of(|_| driver::device(), OUT_OF_MEMORY)
}

/// A GPU that the call names.
pub(crate) fn named(device: Option<Device>) -> Ground {
    of(|_| device, OUT_OF_MEMORY)
}

/// A GPU on which a context is to be made.
pub(crate) fn for_context(device: Device) -> Ground {
    of(|_| Some(device), crate::abi::UNAVAILABLE)
}

/// A GPU that the tenant's own notes tell.
pub(crate) fn found(device: impl FnOnce(&Tenant) -> Option<Device>) -> Ground {
    of(device, OUT_OF_MEMORY)
}

/// Books an amount before the driver is asked for it. Before a refusal the process's pools give back what
/// they do not use.
pub(crate) fn reserve(tenant: &Tenant, gpu: &Gpu, kind: Kind, amount: Amount) -> Result<(), Code> {
    own::look_if_due(gpu);
    if gpu.reserve(kind, amount).is_ok() {
        return Ok(());
    }
    tenant.pools.trim(tenant, gpu);
    own::look_again(gpu);
    gpu.reserve(kind, amount).map_err(|over| {
        gpu.note_over(over);
        log::line(format_args!(
            "refused {} bytes ({}) on GPU {}: {} of {} bytes are held",
            over.asked,
            kind.as_str(),
            gpu.device,
            over.held,
            over.cap
        ));
        OUT_OF_MEMORY
    })
}

/// Books an amount, calls the driver, and takes the amount off again if the driver has not given it.
pub(crate) fn booked(
    tenant: &Tenant,
    gpu: &Gpu,
    kind: Kind,
    amount: Amount,
    call: impl Fn() -> Code,
) -> Code {
    if let Err(code) = reserve(tenant, gpu, kind, amount) {
        return code;
    }
    let mut code = call();
    if code == OUT_OF_MEMORY && tenant.pools.trim(tenant, gpu) {
        code = call();
    }
    if code != SUCCESS {
        gpu.release(kind, amount);
    }
    if code == OUT_OF_MEMORY {
        gpu.note_full(amount.bytes());
    }
    code
}

/// Corrects what was booked to what it has turned out to be; whether the tenant holds too much then.
pub(crate) fn correct(gpu: &Gpu, kind: Kind, booked: Amount, actual: Amount) -> bool {
    if booked == actual {
        return false;
    }
    // What cannot be reserved exists all the same, so it is counted.
    if gpu.reserve(kind, actual).is_err() {
        gpu.settle(kind, 0, actual.bytes());
    }
    gpu.release(kind, booked);
    gpu.is_over()
}

/// Gives something back: forgets it, calls the driver, and takes it off the books; all as it was if the
/// driver does not take it.
pub(crate) fn given_back(tenant: &Tenant, name: Name, call: impl Fn() -> Code) -> Code {
    let Some(held) = tenant.kept.take(name) else { return call() };
    let code = call();
    if code == SUCCESS {
        forget(tenant, held);
    } else {
        keep_again(tenant, name, held);
    }
    code
}

/// Notes again what the driver has not taken back.
pub(crate) fn keep_again(tenant: &Tenant, name: Name, held: Held) {
    if let Some(gone) = tenant.kept.put_back(name, held) {
        forget(tenant, gone);
    }
}

/// Takes something off the books.
pub(crate) fn forget(tenant: &Tenant, held: Held) {
    if let Some(gpu) = tenant.gpu(held.device) {
        // Another one who has it open takes it over first: for a moment too much is booked, never too
        // little.
        if held.key != 0 {
            gpu.close(held.key);
        }
        if held.unpaid != 0 {
            gpu.note_opened(0, held.unpaid);
        }
        gpu.release(held.kind, held.amount);
    }
}

/// The context that what is allocated now ends with: the thread's own, if the client has made it as one.
pub(crate) fn context(tenant: &Tenant, gpu: &Gpu) -> u64 {
    let context = driver::context();
    if tenant.kept.is_clients(context) { context } else { primary_of(gpu.device) }
}

/// Notes what the process has got in the thread's context.
pub(crate) fn keep(tenant: &Tenant, gpu: &Gpu, name: Name, kind: Kind, amount: Amount) {
    let context = context(tenant, gpu);
    note(tenant, name, Held { device: gpu.device, kind, amount, context, ..Held::NONE });
}

/// Notes what is held under a name that the driver has just given.
pub(crate) fn note(tenant: &Tenant, name: Name, held: Held) {
    if let Some(gone) = tenant.kept.put(name, held) {
        forget(tenant, gone);
    }
}
