//! `dlsym` and `dlopen`, exported so that those who look symbols up themselves meet our functions too.
//!
//! Both must not be noticed: the real ones look at the address that they return to (`RTLD_NEXT`, the
//! caller's `RUNPATH`), so ours leave everything as it was and jump there instead of calling.
//! `dlvsym` is not taken: nobody asks for the driver's functions by version, and we need it ourselves.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::find_by_symbol;
use crate::real::{Library, Owner, owner};

/// `int` flag of `dlopen` that puts a library's own dependencies before everybody else's.
#[cfg(target_arch = "x86_64")]
const _: () = assert!(libc::RTLD_DEEPBIND == 8);

/// The C library's `dlsym` and `dlopen`, found once. Null until then.
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What becomes of a lookup: `hook` is the answer; if it is null the real `dlsym` is asked for `name`.
/// Comes back in two registers.
#[derive(Clone, Copy)]
#[repr(C)]
struct Answer {
    hook: *const c_void,
    name: *const c_char,
}

/// A name that no library has: what is asked for instead of a driver's function while no driver is
/// loaded, so that the answer is none (and `dlerror` says so), and not our export.
const ABSENT: &CStr = c"hotpot: the library of this function is not loaded";

/// `dlsym(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        // Where the caller goes on.
        "mov rdx, qword ptr [rsp]",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        // Three words make the stack even to 16 bytes for the call.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {look}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jnz 2f",
        "mov rsi, rdx",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        "2: ret",
        ".cfi_endproc",
        look = sym look,
        real = sym REAL_DLSYM,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "hint #34", // bti c
        "stp x29, x30, [sp, #-32]!",
        "str x0, [sp, #16]",
        // Where the caller goes on.
        "mov x2, x30",
        "bl {look}",
        "mov x9, x0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x9, 2f",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        "2: mov x0, x9",
        "ret",
        look = sym look,
        real = sym REAL_DLSYM,
    );
}

/// `dlopen(3)` without `RTLD_DEEPBIND`: with it a library that is linked with the driver would find the
/// driver's functions before ours. What is lost: such a library no longer prefers its own copies of
/// symbols that the program has too.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: libc::c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "and esi, -9",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "2: jmp rax",
        ".cfi_endproc",
        find = sym real_dlopen,
        real = sym REAL_DLOPEN,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "hint #34", // bti c
        "and w1, w1, #-9",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbnz x16, 2f",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "2: br x16",
        find = sym real_dlopen,
        real = sym REAL_DLOPEN,
    );
}

/// Decides what becomes of a lookup. Takes no lock and no memory for names that are not ours.
///
/// * `caller` — where the code is that asks.
unsafe extern "C" fn look(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> Answer {
    let real = real_dlsym();
    let pass = Answer { hook: null(), name };
    // SAFETY: whoever calls dlsym gives a string that ends.
    if name.is_null() || !unsafe { may_be_ours(name) } {
        return pass;
    }
    // SAFETY: as above.
    let asked = unsafe { CStr::from_ptr(name) };
    let Some(hook) = find_by_symbol(asked) else { return pass };
    if matches!(owner(caller), Some(Owner::Other(_))) {
        // The library itself, or one of its name that passes on to it (as on WSL): given our function it
        // would come back to us.
        return pass;
    }
    let ours = Answer { hook: hook.function, name };
    let absent = Answer { hook: null(), name: ABSENT.as_ptr() };
    let ours_or_absent = || if hook.real.is_there() { ours } else { absent };
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        // Who comes next is a matter of the caller's place, but whoever it is: our functions go to the
        // driver itself, so nothing goes round in circles if they are given to an interposer below us.
        return ours_or_absent();
    }
    // SAFETY: the caller's own arguments; the caller's place does not matter for a handle.
    let found = unsafe { real(handle, name) };
    if found.is_null() {
        return pass;
    }
    match owner(found) {
        // The handle of the whole program, or of this library.
        Some(Owner::Ours) => ours_or_absent(),
        Some(Owner::Other(library)) if library == Library::of(asked) => ours,
        _ if hook.real.is(found) => ours,
        // A wrapper's function of the same name, which ends with the driver's by a way that we see.
        _ => pass,
    }
}

/// Whether a name begins as the driver's functions do: `cu` and a capital, or `nvml`.
unsafe fn may_be_ours(name: *const c_char) -> bool {
    // SAFETY: reads no further than to the first character that differs, so never past the end.
    unsafe {
        match *name.cast::<u8>() {
            b'c' => {
                *name.add(1).cast::<u8>() == b'u'
                    && (*name.add(2).cast::<u8>()).is_ascii_uppercase()
            }
            b'n' => libc::strncmp(name, c"nvml".as_ptr(), 4) == 0,
            _ => false,
        }
    }
}

/// The type of `dlsym`.
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// The type of `dlopen`.
type Dlopen = unsafe extern "C" fn(*const c_char, libc::c_int) -> *mut c_void;

/// Versions under which the C library has `dlsym`. The oldest of the architecture comes first: every glibc
/// has it, and a lookup that fails would allocate, perhaps inside of an allocator that asks for symbols.
#[cfg(target_arch = "x86_64")]
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.2.5", c"GLIBC_2.34"];
/// As for the other architecture.
#[cfg(target_arch = "aarch64")]
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.17", c"GLIBC_2.34"];

/// The next `dlsym` after ours; one that finds nothing if there is none.
pub(crate) fn real_dlsym() -> Dlsym {
    let mut found = REAL_DLSYM.load(Ordering::Relaxed);
    if found.is_null() {
        found = VERSIONS
            .iter()
            // SAFETY: both strings end; `dlvsym` is the C library's.
            .map(|version| unsafe {
                libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr())
            })
            .find(|found| !found.is_null())
            .unwrap_or(finds_nothing as *mut c_void);
        REAL_DLSYM.store(found, Ordering::Relaxed);
    }
    // SAFETY: a function of this type, by its name.
    unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) }
}

unsafe extern "C" fn finds_nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
    null_mut()
}

/// The next `dlopen` after ours.
pub(crate) extern "C" fn real_dlopen() -> Dlopen {
    let mut found = REAL_DLOPEN.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name ends; called from here, so that "next" is what comes after us.
        found = unsafe { real_dlsym()(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        if found.is_null() {
            found = opens_nothing as *mut c_void;
        }
        REAL_DLOPEN.store(found, Ordering::Relaxed);
    }
    // SAFETY: a function of this type, by its name.
    unsafe { std::mem::transmute::<*mut c_void, Dlopen>(found) }
}

unsafe extern "C" fn opens_nothing(_: *const c_char, _: libc::c_int) -> *mut c_void {
    null_mut()
}
