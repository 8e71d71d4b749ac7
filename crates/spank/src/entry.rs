//! What Slurm finds in the library: its name and kind, its options, and the moments at which it is called.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::arguments::Arguments;
use crate::host::{self, Call, Context, Handle};
use crate::{hint, option, pilots, prolog, task};

/// The kind of plugin, and under what name its options go into a job's environment.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is Slurm's")]
static plugin_type: [u8; 6] = *b"spank\0";
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is Slurm's")]
static plugin_name: [u8; 7] = *b"hotpot\0";

/// `struct spank_option` of `spank.h`.
#[repr(C)]
struct SpankOption {
    name: *const c_char,
    /// One word for the value, in the help.
    arginfo: *const c_char,
    usage: *const c_char,
    /// 0: no value, 1: one, 2: one or none.
    has_arg: c_int,
    /// Given to the callback.
    val: c_int,
    cb: Option<extern "C" fn(c_int, *const c_char, c_int) -> c_int>,
}

const MEMORY: c_int = 1;
const COMPUTE: c_int = 2;
const SHARE: c_int = 3;
const PILOTS: c_int = 4;

/// All options. A static table, which Slurm would find by itself, is not looked at in `sbatch` and `salloc`.
fn options() -> [SpankOption; 4] {
    let memory = c"GPU memory of the share, on each node (2G, 1500M)";
    let compute = c"part of a GPU's time, on each node (20%)";
    let share = c"how to share a GPU: auto, exclusive, timeslice, mps, mig, capped";
    let pilots = c"sbatch: N jobs pull the array's tasks";
    [
        offer(c"gpu-mem", c"SIZE", memory, 1, MEMORY),
        offer(c"gpu-compute", c"PERCENT", compute, 1, COMPUTE),
        offer(c"gpu-share", c"MODE", share, 1, SHARE),
        offer(c"gpu-pilots", c"N", pilots, 2, PILOTS),
    ]
}

fn offer(
    name: &'static CStr,
    arginfo: &'static CStr,
    usage: &'static CStr,
    has_arg: c_int,
    val: c_int,
) -> SpankOption {
    let (name, arginfo, usage) = (name.as_ptr(), arginfo.as_ptr(), usage.as_ptr());
    SpankOption { name, arginfo, usage, has_arg, val, cb: Some(on_option) }
}

/// Pilots asked for in this command, and how many.
static PILOTS_ASKED: Mutex<Option<Option<u32>>> = Mutex::new(None);

/// An option was given, on the command line, in the script, or by the environment.
extern "C" fn on_option(val: c_int, value: *const c_char, remote: c_int) -> c_int {
    answer(|| {
        if remote != 0 {
            return Ok(());
        }
        if host::context() == Context::Srun && std::env::var_os("SLURM_JOB_ID").is_some() {
            let why = "the steps of a job use the share that the job has; give --gpu-… to the sbatch or \
                       salloc that asks for the job";
            return Err(why.into());
        }
        // SAFETY: Slurm passes a string or null.
        let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy());
        let text = value.as_deref().unwrap_or_default();
        match val {
            MEMORY => option::memory(text),
            COMPUTE => option::compute(text),
            SHARE => option::share(text),
            _ => {
                let asked = option::pilots(value.as_deref())?;
                *PILOTS_ASKED.lock().map_err(|error| error.to_string())? = Some(asked);
                Ok(())
            }
        }
    })
}

/// The plugin has been loaded.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_init(
    handle: Handle,
    _count: c_int,
    _words: *const *const c_char,
) -> c_int {
    answer(|| {
        match host::context() {
            Context::Other => return Ok(()),
            context @ (Context::Srun | Context::Allocator) => forget_the_job(context),
            Context::Node => {}
        }
        let address = host::symbol(c"spank_option_register").ok_or("this is not Slurm")?;
        // SAFETY: `spank_option_register` takes the handle and an option.
        let register: extern "C" fn(Handle, *mut SpankOption) -> c_int =
            unsafe { std::mem::transmute(address) };
        for mut option in options() {
            // It is copied. A code says that another plugin has an option of the name, and Slurm has said so.
            register(handle, &raw mut option);
        }
        Ok(())
    })
}

/// Slurm gives a job the options it was submitted with in variables, and each command in the job reads them as if
/// they were written behind it: a second `sbatch` would ask for the share of the first, and a step for a share
/// that its job has. A new job would inherit the count of the first one's restarts, too.
fn forget_the_job(context: Context) {
    let is_step = context == Context::Srun && std::env::var_os("SLURM_JOB_ID").is_some();
    let options = ["gpu_mem", "gpu_compute", "gpu_share", "gpu_pilots"];
    let options = options.map(|name| format!("_SLURM_SPANK_OPTION_hotpot_{name}"));
    let prefixed = options.iter().map(|name| format!("SLURM_SPANK_{name}"));
    let count = (!is_step).then(|| "SLURM_RESTART_COUNT".to_string());
    for variable in prefixed.chain(options.iter().cloned()).chain(count) {
        // SAFETY: the command has not begun its work and has no second thread.
        unsafe { std::env::remove_var(variable) };
    }
}

/// All options of a command have been read.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_init_post_opt(
    handle: Handle,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let act = || {
        match host::context() {
            Context::Srun | Context::Allocator => {}
            Context::Node => {
                // slurmstepd must go on, or Slurm waits for it: what is wrong with the arguments is said by the
                // tasks, which do not run then.
                // SAFETY: Slurm passes `count` strings.
                if let Ok(arguments) = unsafe { Arguments::of(count, words) } {
                    prolog::ensure(Call(handle), &arguments);
                }
                return Ok(());
            }
            Context::Other => return Ok(()),
        }
        if let Some(hint) = hint::on_shared() {
            host::error(&format!("hotpot: {hint}"));
        }
        let asked = *PILOTS_ASKED.lock().map_err(|error| error.to_string())?;
        let Some(pilots) = asked else { return Ok(()) };
        // SAFETY: Slurm passes `count` strings.
        let arguments = unsafe { Arguments::of(count, words) }?;
        pilots::hand_on(pilots, &arguments)
    };
    end_if_refused(answer(act))
}

/// In the process of a task, as its user, before its program takes over.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_task_init(
    handle: Handle,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let act = || {
        // SAFETY: Slurm passes `count` strings.
        let arguments = unsafe { Arguments::of(count, words) }?;
        task::prepare(Call(handle), &arguments)
    };
    end_if_refused(answer(act))
}

/// Ends the command, before it has submitted anything, or the task's process, before its program has begun. Slurm
/// would go on where the plugin is `optional` in `plugstack.conf`.
fn end_if_refused(code: c_int) -> c_int {
    if code != 0 {
        // SAFETY: nothing of this process is to be put in order.
        unsafe { libc::_exit(1) };
    }
    code
}

/// Does something and says what went wrong; Slurm's kind of answer.
fn answer(act: impl FnOnce() -> Result<(), String>) -> c_int {
    let why = match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => return 0,
        Ok(Err(why)) => why,
        Err(_) => "a fault in libhotpot_spank.so".into(),
    };
    host::error(&format!("hotpot: {why}"));
    -1
}
