//! The ways by which a client comes to a function of the driver: linked with it, by `dlsym`, by
//! `cuGetProcAddress`. All of them end at the same hooks, which all stand in one table.

pub(crate) mod dlsym;
pub(crate) mod hooks;
mod proc_address;

use std::ffi::{CStr, c_void};

use self::hooks::Hook;
use crate::{compute, memory, start, wait};

/// All hooks, by the file that has them.
static TABLE: &[&[&[Hook]]] =
    &[&[proc_address::HOOKS, start::HOOKS, wait::HOOKS], memory::HOOKS, compute::HOOKS];

fn all() -> impl Iterator<Item = &'static Hook> {
    TABLE.iter().flat_map(|part| part.iter()).flat_map(|file| file.iter())
}

/// The hook that is exported under this name.
fn find_by_symbol(name: &CStr) -> Option<&'static Hook> {
    all().find(|hook| hook.symbol() == name)
}

/// Names that since a CUDA version stand for a function of another name (`cuda.h`).
const RENAMED: [(&CStr, i32, &CStr); 1] =
    [(c"cuGraphInstantiate", 12_000, c"cuGraphInstantiateWithFlags")];

/// The hook for what `cuGetProcAddress` has found: the one that stands before this very function. If what it
/// gives is not what is exported, the newest form that this CUDA version has; a function without a form of
/// its own for the thread's stream has one form only.
fn find_by_address(
    found: *const c_void,
    name: &CStr,
    version: i32,
    per_thread: bool,
) -> Option<&'static Hook> {
    let renamed = RENAMED.iter().find(|(old, since, _)| *old == name && version >= *since);
    let newest = renamed.map_or(name, |(_, _, new)| new);
    let wanted = name.to_bytes();
    let named = |hook: &&Hook| hook.base.as_bytes() == wanted || hook.symbol() == name;
    // A name may have been given to another function later: what it is called then begins like it.
    let like = |hook: &&Hook| hook.base.as_bytes().starts_with(wanted);
    all().filter(named).chain(all().filter(like)).find(|hook| hook.real.is(found)).or_else(|| {
        all()
            .filter(|hook| hook.base.as_bytes() == newest.to_bytes() || hook.symbol() == newest)
            .filter(|hook| hook.since <= version && (per_thread || !hook.per_thread))
            .max_by_key(|hook| (hook.since, hook.per_thread))
    })
}
