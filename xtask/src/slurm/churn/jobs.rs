//! The jobs that come and go: whole cards, shards, MIG instances, arrays of each. Each holds memory of its
//! devices for one to four seconds and notes what it was and when.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use model::SplitMix;

use super::nodes::SHARD_MIB;
use crate::Verdict;
use crate::slurm::Bench;

/// What a job asks of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Whole,
    /// Shards, at least.
    Shards(u64),
    Instance,
}

/// A kind of job.
struct Kind {
    what: What,
    /// For sbatch.
    words: &'static [&'static str],
    /// The same in hotpot's words; none where they are Slurm's.
    asked: &'static [&'static str],
}

const fn plain(what: What, words: &'static [&'static str]) -> Kind {
    Kind { what, words, asked: &[] }
}

/// Types are named: an untyped `gpu:1` may be an instance.
const KINDS: [Kind; 14] = [
    plain(What::Whole, &["--gres=gpu:a100:1"]),
    Kind {
        what: What::Whole,
        words: &["--gres=gpu:a100:1"],
        asked: &["--gpu-mem=40G", "--gpu-share=exclusive"],
    },
    plain(What::Whole, &["--gres=gpu:a100:2"]),
    plain(What::Whole, &["--gres=gpu:a100:1", "--array=1-3"]),
    plain(What::Shards(20), &["--gres=shard:20"]),
    Kind { what: What::Shards(76), words: &["--gres=shard:78"], asked: &["--gpu-mem=19G"] },
    plain(What::Shards(80), &["--gres=shard:80"]),
    plain(What::Shards(80), &["--gres=shard:80", "--array=1-3"]),
    plain(What::Shards(160), &["--gres=shard:160"]),
    plain(What::Shards(317), &["--gres=shard:317"]),
    plain(What::Instance, &["--gres=gpu:1g.10gb:1"]),
    plain(What::Instance, &["--gres=gpu:1g.10gb:1"]),
    Kind {
        what: What::Instance,
        words: &["--gres=gpu:1g.10gb:1"],
        asked: &["--gpu-mem=8G", "--gpu-share=mig"],
    },
    plain(What::Instance, &["--gres=gpu:1g.10gb:1", "--array=1-3"]),
];

impl What {
    /// Its word in a note, and shards.
    fn words(self) -> (&'static str, u64) {
        match self {
            Self::Whole => ("whole", 0),
            Self::Shards(count) => ("shards", count),
            Self::Instance => ("instance", 0),
        }
    }

    pub(super) fn of(word: &str, shards: u64) -> Option<Self> {
        let all = [Self::Whole, Self::Shards(shards), Self::Instance];
        all.into_iter().find(|what| what.words().0 == word)
    }

    /// Device memory that a job holds, which is less than it has: most of what its shards stand for, beside a
    /// context.
    fn memory_mib(self) -> u64 {
        match self {
            Self::Whole => 60_000,
            Self::Shards(count) => count * SHARD_MIB * 3 / 4,
            Self::Instance => 6_000,
        }
    }
}

/// Who submits jobs.
pub(super) struct Submitter<'a> {
    bench: &'a Bench,
    with_hotpot: bool,
    client: PathBuf,
    random: SplitMix,
}

impl<'a> Submitter<'a> {
    /// * `client` — this program.
    pub(super) fn new(bench: &'a Bench, with_hotpot: bool, client: PathBuf) -> Self {
        Self { bench, with_hotpot, client, random: SplitMix::new(7) }
    }

    /// A job of some kind.
    pub(super) fn submit(&mut self) -> Verdict {
        let kind = &KINDS[self.random.position(KINDS.len())];
        let stay_ms = 1000 + self.random.below(3000);
        let script = self.script(kind.what, stay_ms);
        let asked = self.with_hotpot && !kind.asked.is_empty();
        let words = if asked { kind.asked } else { kind.words };
        let mut command: Command = self.bench.cluster.command("sbatch");
        command.args(["-Q", "--mem=16", "--output=/dev/null"]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("sbatch: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(script.as_bytes()).map_err(|error| format!("sbatch: {error}"))?;
        }
        let done = child.wait().map_err(|error| format!("sbatch: {error}"))?;
        if done.success() { Ok(()) } else { Err(format!("sbatch {}: {done}", words.join(" "))) }
    }

    /// A process for each device, as a CUDA program sees no second instance.
    fn script(&self, what: What, stay_ms: u64) -> String {
        let folder = self.bench.folder.display();
        let (word, shards) = what.words();
        let (client, bytes) = (self.client.display(), what.memory_mib() << 20);
        // Slurm's numbers count instances, which CUDA's do not. Where Slurm asks NVML it gives names; with hotpot
        // its plugin does.
        let names = if self.with_hotpot {
            String::new()
        } else {
            format!(
                "mapfile -t names <{folder}/names.$SLURMD_NODENAME\nCUDA_VISIBLE_DEVICES=\n\
                 for at in ${{SLURM_JOB_GPUS//,/ }}; do CUDA_VISIBLE_DEVICES+=,${{names[at]}}; done\n"
            )
        };
        format!(
            "#!/bin/bash\nbegun=$EPOCHREALTIME\n{names}clients=()\ncode=0\n\
             for device in ${{CUDA_VISIBLE_DEVICES//,/ }}; do\n\
             CUDA_VISIBLE_DEVICES=$device {client} gpu-client hold bytes={bytes} ms={stay_ms} \
             >/dev/null 2>>{folder}/errors &\n\
             clients+=($!)\ndone\n\
             [ ${{#clients[@]}} -gt 0 ] || code=1\n\
             for one in ${{clients[@]}}; do wait $one || code=1; done\n\
             echo \"$SLURM_JOB_ID $SLURMD_NODENAME ${{SLURM_JOB_GPUS:--}} {word} {shards} \
             ${{SLURM_ARRAY_TASK_ID:--}} $begun $EPOCHREALTIME $code\" >>{folder}/log\n"
        )
    }
}
