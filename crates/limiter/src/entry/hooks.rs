//! The macro by which all hooks are written, and the macro for calls that are not hooked.

use std::ffi::{CStr, c_void};

use crate::real::Real;

/// A function that clients get from us instead of from the library that has it.
pub(crate) struct Hook {
    /// The name without version and stream suffix, as `cuGetProcAddress` is asked for it.
    pub(crate) base: &'static str,
    /// The CUDA version that brought this form of it (1000 x major + 10 x minor).
    pub(crate) since: i32,
    /// Whether it is the form in which stream 0 means the thread's own stream.
    pub(crate) per_thread: bool,
    /// Ours.
    pub(crate) function: *const c_void,
    /// The one behind it, with its exported name.
    pub(crate) real: &'static Real,
}

// SAFETY: the address of a function is the same for all threads.
unsafe impl Sync for Hook {}

impl Hook {
    /// The exported name.
    pub(crate) fn symbol(&self) -> &'static CStr {
        self.real.name()
    }
}

/// Exports functions and lists them in `HOOKS`.
///
/// `fn body(arguments) as "base": symbol since, symbol since per_thread;` makes one exported function
/// per symbol. Each calls `body(call, arguments)`, where `call()` calls the real function with the same
/// arguments. If the library lacks it, the answer is `$missing`.
///
/// `streamed body(arguments) as …` is for a body that must know which form was called, as stream 0 means
/// something else in each: it is called as `body(call, per_thread, arguments)`.
macro_rules! hooks {
    ($missing:expr; $(
        $how:ident $body:ident $arguments:tt as $base:literal: $($symbol:ident $since:literal $($thread:ident)?),+;
    )*) => {
        /// The functions of this file.
        pub(crate) static HOOKS: &[$crate::entry::hooks::Hook] = &[$($(
            $crate::entry::hooks::Hook {
                base: $base,
                since: $since,
                per_thread: $crate::entry::hooks::hooks!(@thread $($thread)?),
                function: local::$symbol as *const std::ffi::c_void,
                real: &reals::$symbol,
            },
        )+)*];
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod reals {
            $($(
                pub(super) static $symbol: $crate::real::Real =
                    $crate::real::Real::new(concat!(stringify!($symbol), "\0"));
            )+)*
        }
        #[allow(non_snake_case, reason = "named as the functions are")]
        mod local {
            #[allow(unused_imports, reason = "types of arguments, if there are any")]
            use super::*;
            $($( $crate::entry::hooks::hooks!(
                @local $missing, $how $body, $symbol, $arguments, $($thread)?
            ); )+)*
        }
        $($( $crate::entry::hooks::hooks!(@export $symbol, $arguments); )+)*
    };
    (@thread) => { false };
    (@thread per_thread) => { true };
    // What the table gives to clients. The exported name will not do: where another library before us
    // exports it too, it is theirs, and what they ask us for would be they themselves.
    (@local $missing:expr, $how:ident $body:ident, $symbol:ident,
        ($($argument:ident: $type:ty),*), $($thread:ident)?) => {
        #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
        pub(super) unsafe extern "C" fn $symbol($($argument: $type),*) -> $crate::abi::Code {
            let Some(real) = reals::$symbol.get() else { return $missing };
            // SAFETY: the function of this name, which has this type.
            let real = unsafe {
                std::mem::transmute::<
                    *mut std::ffi::c_void,
                    unsafe extern "C" fn($($type),*) -> $crate::abi::Code,
                >(real)
            };
            // SAFETY: the caller's own arguments.
            let call = || unsafe { real($($argument),*) };
            // SAFETY: as the driver's function: pointers are valid or null.
            unsafe {
                $crate::entry::hooks::hooks!(
                    @body $how $body, call, ($($argument),*),
                    $crate::entry::hooks::hooks!(@thread $($thread)?)
                )
            }
        }
    };
    (@body fn $body:ident, $call:ident, ($($argument:ident),*), $thread:expr) => {
        super::$body($call, $($argument),*)
    };
    (@body streamed $body:ident, $call:ident, ($($argument:ident),*), $thread:expr) => {
        super::$body($call, $thread, $($argument),*)
    };
    (@export $symbol:ident, ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own signature")]
        unsafe extern "C" fn $symbol($($argument: $type),*) -> $crate::abi::Code {
            // SAFETY: the caller's own arguments.
            unsafe { local::$symbol($($argument),*) }
        }
    };
}
pub(crate) use hooks;

/// Calls of the driver that we make ourselves: `fn name(arguments) = "symbol"` is a function that
/// answers [`NOT_FOUND`](crate::abi::NOT_FOUND) if the driver lacks it.
macro_rules! calls {
    ($missing:expr; $(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) = $symbol:literal;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are valid for what the driver reads or writes.
        #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
        pub(crate) unsafe fn $name($($argument: $type),*) -> $crate::abi::Code {
            static REAL: $crate::real::Real = $crate::real::Real::new(concat!($symbol, "\0"));
            let Some(real) = REAL.get() else { return $missing };
            // SAFETY: the function of this name, which has this type.
            let real = unsafe {
                std::mem::transmute::<
                    *mut std::ffi::c_void,
                    unsafe extern "C" fn($($type),*) -> $crate::abi::Code,
                >(real)
            };
            // SAFETY: the caller's.
            unsafe { real($($argument),*) }
        }
    )* };
}
pub(crate) use calls;
