//! Attributes of workloads in the scenario format.

use model::{Class, GpuAsk, GpuDemand, Isolation, ModeSet, ModelSet, Owner, Workload};

use crate::words::{Words, amounts, kinds};

/// Takes one attribute that running and waiting workloads share.
pub(crate) fn attribute(workload: &mut Workload, word: &str, words: &mut Words<'_>) {
    let gpus = &mut workload.demand.gpus;
    match word {
        "owner" => workload.owner = Owner::new(words.next()),
        "prio" => workload.priority = words.number(),
        "class" => workload.class = Class::parse(words.next()).expect("a class"),
        "submitted" => workload.submitted_ms = words.number(),
        "limit" => workload.time_limit_ms = Some(words.number()),
        "members" => workload.members = words.number(),
        "apart" => workload.apart = true,
        "stays" => workload.preemptible = false,
        "bides" => workload.preempts = false,
        // One word; underscores are blanks: `ResNet-18_(batch_size_16)`.
        "kind" => workload.kind = words.next().replace('_', " "),
        "busy" => workload.profile.busy_milli = Some(words.number()),
        "dram" => workload.profile.dram_milli = Some(words.number()),
        "sm" => workload.profile.sm_milli = Some(words.number()),
        "answers" => {
            workload.latency_alone_ms = Some(words.number());
            assert!(words.take("within"), "answers ALONE within TARGET");
            workload.latency_target_ms = Some(words.number());
        }
        "cpu" => workload.demand.cpu_milli = words.milli(),
        "mem" => workload.demand.memory_mib = words.mib(),
        "gpu" => *gpus = Some(whole(words.number())),
        "of" => gpus.as_mut().expect("gpu N of").each = ask(words.next()),
        "isolation" => {
            gpus.as_mut().expect("gpu first").isolation = match words.next() {
                "none" => Isolation::None,
                "memory" => Isolation::Memory,
                "hard" => Isolation::Hard,
                other => words.fail(other),
            }
        }
        "models" | "then" => {
            gpus.as_mut().expect("gpu first").accepts.push(ModelSet::parse(words.next()));
        }
        "modes" => gpus.as_mut().expect("gpu first").modes = ModeSet::of(&kinds(words.next())),
        other => words.fail(other),
    }
}

/// That many GPUs, whole, of any model.
pub(crate) fn whole(count: u32) -> GpuDemand {
    GpuDemand {
        count,
        each: GpuAsk::Whole,
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::ALL,
    }
}

fn ask(word: &str) -> GpuAsk {
    if word.contains("g.") {
        return GpuAsk::Profile(word.to_owned());
    }
    let (compute_milli, memory_mib) = amounts(word);
    GpuAsk::Fraction { compute_milli, memory_mib }
}
