//! The options of sbatch (from its manual) and hotpot's own, and what becomes of each.

/// Whether an option takes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Value,
    Nothing,
    /// Only behind `=`.
    Perhaps,
}

/// What becomes of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It shapes the workload.
    Read,
    /// It says how a task is started, nothing about placement.
    Launch,
    /// It says nothing about placement, and nothing here follows it.
    Ignored,
    /// It would change placement on Slurm; hotpot does not do it.
    Unmet,
}

use Takes::{Nothing, Perhaps, Value};
use Use::{Ignored, Launch, Read, Unmet};

/// Long name, short name (or a blank), value, use.
pub(crate) type Known = (&'static str, char, Takes, Use);

/// The option with a long name, or with a short name of one letter.
pub(crate) fn find(name: &str) -> Option<&'static Known> {
    OPTIONS.iter().find(|(long, short, ..)| match name.len() {
        1 => *short != ' ' && name.starts_with(*short),
        _ => *long == name,
    })
}

/// As [`find`], and a long name may be cut short as long as one option alone begins with it
/// (getopt_long(3)).
pub(crate) fn find_cut(name: &str) -> Option<&'static Known> {
    let mut begun = OPTIONS.iter().filter(|(long, ..)| name.len() > 1 && long.starts_with(name));
    find(name).or_else(|| begun.next().filter(|_| begun.next().is_none()))
}

/// All long names.
pub(crate) fn names() -> Vec<&'static str> {
    OPTIONS.iter().map(|(long, ..)| *long).collect()
}

/// The last four of the options that are read are hotpot's own.
const OPTIONS: &[Known] = &[
    ("account", 'A', Value, Read),
    ("array", 'a', Value, Read),
    ("cpus-per-gpu", ' ', Value, Read),
    ("cpus-per-task", 'c', Value, Read),
    ("gpus", 'G', Value, Read),
    ("gpus-per-node", ' ', Value, Read),
    ("gpus-per-task", ' ', Value, Read),
    ("gres", ' ', Value, Read),
    ("job-name", 'J', Value, Read),
    ("mem", ' ', Value, Read),
    ("mem-per-cpu", ' ', Value, Read),
    ("mem-per-gpu", ' ', Value, Read),
    ("nice", ' ', Perhaps, Read),
    ("nodes", 'N', Value, Read),
    ("ntasks", 'n', Value, Read),
    ("ntasks-per-node", ' ', Value, Read),
    ("priority", ' ', Value, Read),
    ("time", 't', Value, Read),
    ("gpu-compute", ' ', Value, Read),
    ("gpu-mem", ' ', Value, Read),
    ("gpu-profile", ' ', Value, Read),
    ("gpu-share", ' ', Value, Read),
    ("batch", ' ', Value, Unmet),
    ("begin", 'b', Value, Unmet),
    ("cluster-constraint", ' ', Value, Unmet),
    ("constraint", 'C', Value, Unmet),
    ("contiguous", ' ', Nothing, Unmet),
    ("exclude", 'x', Value, Unmet),
    ("exclusive", ' ', Perhaps, Unmet),
    ("gpus-per-socket", ' ', Value, Unmet),
    ("hold", 'H', Nothing, Unmet),
    ("licenses", 'L', Value, Unmet),
    ("mincpus", ' ', Value, Unmet),
    ("nodefile", 'F', Value, Unmet),
    ("nodelist", 'w', Value, Unmet),
    ("ntasks-per-gpu", ' ', Value, Unmet),
    ("prefer", ' ', Value, Unmet),
    ("reservation", ' ', Value, Unmet),
    ("segment", ' ', Value, Unmet),
    ("switches", ' ', Value, Unmet),
    ("tres-per-task", ' ', Value, Unmet),
    ("acctg-freq", ' ', Value, Ignored),
    ("bb", ' ', Value, Ignored),
    ("bbf", ' ', Value, Ignored),
    ("chdir", 'D', Value, Launch),
    ("clusters", 'M', Value, Ignored),
    ("comment", ' ', Value, Ignored),
    ("container", ' ', Value, Ignored),
    ("core-spec", 'S', Value, Ignored),
    ("cores-per-socket", ' ', Value, Ignored),
    ("cpu-freq", ' ', Value, Ignored),
    ("deadline", ' ', Value, Ignored),
    ("delay-boot", ' ', Value, Ignored),
    ("dependency", 'd', Value, Launch),
    ("distribution", 'm', Value, Ignored),
    ("error", 'e', Value, Launch),
    ("export", ' ', Value, Launch),
    ("export-file", ' ', Value, Ignored),
    ("extra-node-info", 'B', Value, Ignored),
    ("extra", ' ', Value, Ignored),
    ("get-user-env", ' ', Perhaps, Ignored),
    ("gid", ' ', Value, Ignored),
    ("gpu-bind", ' ', Value, Ignored),
    ("gpu-freq", ' ', Value, Ignored),
    ("gres-flags", ' ', Value, Ignored),
    ("hint", ' ', Value, Ignored),
    ("ignore-pbs", ' ', Nothing, Ignored),
    ("input", 'i', Value, Launch),
    ("kill-on-invalid-dep", ' ', Value, Ignored),
    ("mail-type", ' ', Value, Ignored),
    ("mail-user", ' ', Value, Ignored),
    ("mcs-label", ' ', Value, Ignored),
    ("mem-bind", ' ', Value, Ignored),
    ("network", ' ', Value, Ignored),
    ("no-kill", 'k', Perhaps, Ignored),
    ("no-requeue", ' ', Nothing, Ignored),
    ("ntasks-per-core", ' ', Value, Ignored),
    ("ntasks-per-socket", ' ', Value, Ignored),
    ("oom-kill-step", ' ', Perhaps, Ignored),
    ("open-mode", ' ', Value, Launch),
    ("output", 'o', Value, Launch),
    ("overcommit", 'O', Nothing, Ignored),
    ("oversubscribe", 's', Nothing, Ignored),
    ("parsable", ' ', Nothing, Ignored),
    ("partition", 'p', Value, Ignored),
    ("power", ' ', Value, Ignored),
    ("profile", ' ', Value, Ignored),
    ("propagate", ' ', Perhaps, Ignored),
    ("qos", 'q', Value, Ignored),
    ("quiet", 'Q', Nothing, Ignored),
    ("reboot", ' ', Nothing, Ignored),
    ("requeue", ' ', Nothing, Ignored),
    ("resv-ports", ' ', Perhaps, Ignored),
    ("signal", ' ', Value, Launch),
    ("sockets-per-node", ' ', Value, Ignored),
    ("spread-job", ' ', Nothing, Ignored),
    ("stepmgr", ' ', Nothing, Ignored),
    ("test-only", ' ', Nothing, Ignored),
    ("thread-spec", ' ', Value, Ignored),
    ("threads-per-core", ' ', Value, Ignored),
    ("time-min", ' ', Value, Ignored),
    ("tmp", ' ', Value, Ignored),
    ("uid", ' ', Value, Ignored),
    ("use-min-nodes", ' ', Nothing, Ignored),
    ("verbose", 'v', Nothing, Ignored),
    ("wait", 'W', Nothing, Ignored),
    ("wait-all-nodes", ' ', Value, Ignored),
    ("wckey", ' ', Value, Ignored),
    ("wrap", ' ', Value, Ignored),
];
