//! `libhotpot_spank.so`: a plugin of Slurm's SPANK. It gives `sbatch`, `srun` and `salloc` the options
//! `--gpu-mem`, `--gpu-compute`, `--gpu-share` and `--gpu-pilots`, and on the nodes it gives tasks the
//! environment that belongs to their shares of GPUs.
//!
//! `option` checks what is asked, in the command, before anything is submitted; `deploy/slurm/hotpot.lua`
//! in slurmctld turns it into what Slurm counts. `task_file` reads what the node's agent has written for a
//! job, `task` puts it into a task's environment, `prolog` has it written where Slurm did not. `pilots` hands an array over to `hotpot slurm run`, `hint` answers
//! a popular mistake.
//! `host` is what we call of Slurm, `entry` what Slurm calls of us.
//!
//! **One file for all releases.** Slurm compares the exported `plugin_version` with its own release and refuses
//! a plugin of another. The number is read after the file has been mapped, so `version` sets it while that
//! happens, from what the process says that it is. Nothing else is bound to a release: the functions are looked
//! up by name, and those we call are the same in all of them. Tried with 22.05; the numbers of later releases
//! are Slurm's own.
//!
//! **Loading.** A line in `plugstack.conf` or a file that it includes: `optional /usr/lib/hotpot/libhotpot_spank.so
//! [jobs=FOLDER] [hotpot=PROGRAM] [prolog=PROGRAM]`; `deploy/slurm/spank.conf` says why `optional`. What must not be is ended here, and
//! not by the return code, which Slurm heeds only with `required`.
//!
//! *Rule:* nothing panics into Slurm, and nothing is said of a job that asks for nothing.
#![allow(
    unsafe_code,
    reason = "a C interface: functions are exported and pointers come from outside"
)]

mod arguments;
mod entry;
mod hint;
mod host;
mod option;
mod pilots;
mod prolog;
mod task;
mod task_file;
mod version;
