//! No reader panics, whatever the bytes: arbitrary ones, and valid files with a few bytes changed.

mod support;

use formats::policy;
use formats::sbatch;
use formats::throughput::Throughputs;
use formats::trace::{self, TraceOptions};
use formats::{Source, fleet, openb, workloads};
use model::Catalogue;
use proptest::collection::vec;
use proptest::prelude::*;
use support::example;

const NAMES: [&str; 6] = ["a.csv", "a.toml", "a.yaml", "a.sbatch", "a.json", "a"];

const OPENB: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,\
    creation_time,deletion_time,scheduled_time\n\
    openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\n\
    openb-pod-0001,6000,12288,1,460,T4|P100,BE,Running,427061,12902960,427061\n";
const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,2,T4\nn1,9,9,0,\n";
const GAVEL: &str = "job_type,total_steps,arrival_s,workers\nA3C,563,0,1\nA3C,107,219316,4\n";
const SACCT: &str = "JobID|JobName|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES\n\
    4_1|e|RUNNING|2026-11-30T10:14:50|1796033692|Unknown|388|45|cpu=1,gres/shard=160,mem=1000M,node=1\n\
    3|t|CANCELLED by 0|1|1|9|57|UNLIMITED|cpu=16,gres/gpu:1g.10gb=2,gres/gpu=2,mem=2G,node=2\n";
const TABLE: &str = "{\"v100\": {\"('A3C', 1)\": {\"null\": 4.0}}}";

/// Gives the bytes to every reader under every name.
fn read_all(bytes: &[u8]) {
    for name in NAMES {
        let Ok(source) = Source::from_bytes(name, bytes.to_vec()) else {
            continue;
        };
        let mut catalogue = Catalogue::shipped().expect("the shipped tables");
        let errors = [
            trace::read(&source, &TraceOptions::default()).err(),
            workloads::read(&source).err(),
            fleet::read(&source, &mut catalogue).err(),
            policy::read(&source).err(),
            sbatch::read(&source, 1024).err(),
            openb::node_rows(&source).err(),
            openb::tasks(&source).err(),
            Throughputs::read(&source, "v100").err(),
        ];
        for error in errors.into_iter().flatten() {
            assert!(!error.way_out.is_empty(), "{error}");
            assert!(error.to_string().len() < 2000, "{error}");
        }
    }
}

fn valid() -> Vec<Vec<u8>> {
    let shipped = ["fleet.toml", "fleet.yaml", "workloads.toml", "workloads.yaml", "policy.toml"];
    let shipped = shipped.into_iter().chain(["embed.sbatch"]);
    let shipped = shipped.map(|name| example(name).text().as_bytes().to_vec());
    shipped
        .chain([OPENB, NODES, GAVEL, SACCT, TABLE].map(|text| text.as_bytes().to_vec()))
        .collect()
}

/// Bytes that mean something to one of the formats.
fn telling_byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        any::<u8>(),
        proptest::sample::select(b"\"'#-%:=,[]{}&*|>!\n\r\t 0919.eE\\/\x00\xff".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
    }

    #[test]
    fn telling_bytes(bytes in vec(telling_byte(), 0..300)) {
        read_all(&bytes);
    }

    #[test]
    fn arbitrary_gzip(bytes in vec(any::<u8>(), 0..200)) {
        read_all(&[&[0x1f, 0x8b, 8, 0][..], &bytes].concat());
    }

    #[test]
    fn valid_files_with_bytes_changed(
        at in any::<proptest::sample::Index>(),
        changes in vec((any::<proptest::sample::Index>(), telling_byte(), 0..3u8), 1..6),
    ) {
        let files = valid();
        let mut bytes = files[at.index(files.len())].clone();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len().max(1));
            match how {
                _ if bytes.is_empty() => bytes.push(byte),
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => bytes.truncate(place),
            }
        }
        read_all(&bytes);
    }
}
