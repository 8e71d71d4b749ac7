//! gres.conf and slurm.conf: what is found in them, what of it is mended, and what is no mistake.

mod support;

use lint::Kind::{self, GresConf, SlurmConf};
use support::{assert_clean, assert_left, assert_mended, found_of, input};

const GPUS: &str = "# GPUs of the first rack\nName=gpu Type=a100 File=/dev/nvidia[0-3]\n";

fn gres(lines: &str) -> String {
    format!("{GPUS}{lines}\n")
}

#[test]
fn shards_and_mps_of_one_node_are_told() {
    let text = gres("Name=shard Count=16\nName=mps Count=400 Flags=all_sharing");
    assert_left(GresConf, &text, "", &["4 shard-and-mps"]);
    let apart = "Name=gpu File=/dev/nvidia[0-1]\nNodeName=n1 Name=shard Count=8\nNodeName=n2 Name=mps Count=200 Flags=all_sharing\n";
    assert_clean(GresConf, apart, "");
    assert_clean(GresConf, &gres("Name=shard Count=16\nName=mps Count=0"), "");
}

#[test]
fn shards_without_gpus_are_told() {
    assert_left(GresConf, "Name=shard Count=8\n", "", &["1 shared-without-gpu"]);
    let other = "NodeName=n1 Name=gpu File=/dev/nvidia0\nNodeName=n[1-2] Name=shard Count=4\n";
    assert_left(GresConf, other, "", &["2 shared-without-gpu"]);
    assert_clean(GresConf, "AutoDetect=nvml\nName=shard Count=8\n", "");
    assert_clean(
        GresConf,
        "NodeName=n[01-04] AutoDetect=nvml Name=gpu\nNodeName=n[01-04] Name=shard Count=16\n",
        "",
    );
}

#[test]
fn shards_spread_evenly_or_are_told() {
    assert_left(GresConf, &gres("Name=shard Count=10"), "", &["3 shared-uneven"]);
    assert_left(GresConf, &gres("Name=shard Count=2"), "", &["3 shared-uneven"]);
    assert_left(
        GresConf,
        &gres(&format!("Name=shard Count={}", u64::MAX)),
        "",
        &["3 shared-uneven"],
    );
    assert_clean(GresConf, &gres("Name=shard Count=12"), "");
    assert_clean(
        GresConf,
        &gres("Name=shard Count=3 File=/dev/nvidia0\nName=shard Count=5 File=/dev/nvidia1"),
        "",
    );
    let conf = "GresTypes=gpu,shard\nNodeName=n1 Gres=gpu:a100:4(S:0-1),shard:10 CPUs=8\n";
    assert_left(SlurmConf, conf, "", &["2 shared-uneven"]);
}

#[test]
fn shards_are_of_files_that_gpus_have() {
    assert_left(
        GresConf,
        &gres("Name=shard Count=4 File=/dev/nvidia7"),
        "",
        &["3 shared-file-of-no-gpu"],
    );
    assert_clean(GresConf, &gres("Name=shard Count=4 File=/dev/nvidia3"), "");
}

#[test]
fn two_lines_of_shards_need_files() {
    assert_left(GresConf, &gres("Name=shard Count=8\nName=shard Count=8"), "", &["4 shared-twice"]);
    let nodes = "Name=gpu File=/dev/nvidia[0-3]\nNodeName=n1 Name=shard Count=8\nNodeName=n2 Name=shard Count=16\n";
    assert_clean(GresConf, nodes, "");
}

#[test]
fn mps_is_on_one_gpu_without_the_flag() {
    let text = gres("Name=mps Count=400 # percent");
    let clean = gres("Name=mps Count=400 Flags=all_sharing # percent");
    assert_mended(GresConf, &text, &["3 mps-on-one-gpu"], &clean);
    assert_clean(GresConf, "Name=gpu File=/dev/nvidia0\nName=mps Count=100\n", "");
    assert_clean(GresConf, &gres("Name=mps Count=100 File=/dev/nvidia0"), "");
    let apart = gres("Name=mps Count=100 File=/dev/nvidia0\nName=mps Count=100 File=/dev/nvidia1");
    let clean = apart.replace("nvidia0\n", "nvidia0 Flags=all_sharing\n");
    assert_mended(GresConf, &apart, &["3 mps-on-one-gpu"], &clean);
    let empty = gres("Name=mps Count=400 Flags= # none");
    let clean = gres("Name=mps Count=400 Flags=all_sharing # none");
    assert_mended(GresConf, &empty, &["3 mps-on-one-gpu"], &clean);
}

#[test]
fn fewer_shards_than_slurm_conf_says_are_told() {
    let conf = input(SlurmConf, "GresTypes=gpu,shard\nNodeName=n[1-2] Gres=gpu:4,shard:16\n");
    let of = |count| {
        let text = format!(
            "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-3]\nNodeName=n[1-2] Name=shard Count={count}\n"
        );
        found_of(&[input(GresConf, &text), conf.clone()], "").swap_remove(0)
    };
    assert_eq!(of(12), ["2 shard-count-below-slurm-conf"]);
    assert!(of(16).is_empty());
    let of_all = |count: u64| {
        let file = input(GresConf, &gres(&format!("Name=shard Count={count}")));
        found_of(&[file, conf.clone()], "").swap_remove(0)
    };
    assert_eq!(of_all(12), ["3 shard-count-below-slurm-conf"]);
    assert!(of_all(16).is_empty());
}

#[test]
fn blanks_may_stand_around_equals_signs() {
    let text = "Name = gpu File = /dev/nvidia[0-3]\nName = shard Count = 10\n";
    assert_left(GresConf, text, "", &["2 shared-uneven"]);
    let text = "GresTypes = gpu\nNodeName = n1 Gres = \"gpu:4,shard:16\"\n";
    let clean = text.replace("= gpu\n", "= gpu,shard\n");
    assert_mended(SlurmConf, text, &["2 gres-type-missing"], &clean);
}

#[test]
fn included_files_may_say_what_is_missing() {
    assert_clean(GresConf, "Include gpus.conf\nName=shard Count=8\n", "");
}

#[test]
fn types_that_no_node_has_go_where_two_do_not_go_together() {
    let text = "ClusterName=c\nGresTypes=gpu,shard,mps\nNodeName=n1 Gres=gpu:4,shard:16\n";
    let clean = text.replace("gpu,shard,mps", "gpu,shard");
    assert_mended(SlurmConf, text, &["2 shard-and-mps"], &clean);
    let both = "GresTypes=gpu,shard,mps\nNodeName=n1 Gres=gpu:4,shard:16\nNodeName=n2 Gres=gpu:1,mps:100\n";
    assert_left(SlurmConf, both, "", &["1 shard-and-mps"]);
}

#[test]
fn types_of_nodes_are_named() {
    let text = "GresTypes=gpu\nNodeName=n1 CPUs=8 \\\n  Gres=gpu:4,shard:16\n";
    let clean = text.replace("GresTypes=gpu", "GresTypes=gpu,shard");
    assert_mended(SlurmConf, text, &["3 gres-type-missing"], &clean);
    let empty = "GresTypes=\nNodeName=n1 Gres=gpu:4\n";
    assert_mended(SlurmConf, empty, &["2 gres-type-missing"], &empty.replace("=\n", "=gpu\n"));
    let both =
        "GresTypes=gpu,shard\nNodeName=n1 Gres=gpu:4,shard:16\nNodeName=n2 Gres=gpu:1,mps:100\n";
    assert_left(SlurmConf, both, "", &["3 gres-type-missing"]);
    assert_clean(SlurmConf, "include types.conf\nNodeName=n1 Gres=gpu:4,shard:16\n", "");
}

#[test]
fn gpus_are_given_out_by_cons_tres() {
    assert_left(SlurmConf, "GresTypes=gpu\nSelectType=select/linear\n", "", &["2 select-type"]);
    let memory = "GresTypes=gpu\nSelectType=select/linear\nSelectTypeParameters=CR_Memory\n";
    assert_left(SlurmConf, memory, "", &["2 select-type"]);
    let text =
        "GresTypes=gpu,shard\nSelectType=select/linear\nSelectTypeParameters=CR_Core_Memory\n";
    assert_mended(SlurmConf, text, &["2 select-type"], &text.replace("linear", "cons_tres"));
    assert_clean(SlurmConf, "SelectType=select/linear\nTaskPlugin=task/none\n", "");
    assert_left(
        SlurmConf,
        "GresTypes=gpu\nTaskPlugin=task/affinity\n",
        "",
        &["2 devices-not-fenced"],
    );
    assert_clean(SlurmConf, "GresTypes=gpu\nTaskPlugin=\"task/affinity,task/cgroup\"\n", "");
}

#[test]
fn a_file_is_known_by_its_text() {
    let of = |text: &str| Kind::of(text);
    assert_eq!(of("#!/bin/bash\n#SBATCH --gpus=1\n"), Some(Kind::Sbatch));
    assert_eq!(of("# gpus\nNodeName=n1 Name=gpu Count=4\n"), Some(GresConf));
    assert_eq!(of("AutoDetect=nvml\n"), Some(GresConf));
    assert_eq!(of("# cluster\nClusterName=c\n"), Some(SlurmConf));
    assert_eq!(of("NodeName=n1 CPUs=4 Gres=gpu:1\n"), Some(SlurmConf));
    assert_eq!(of("# a pod\napiVersion: v1\nkind: Pod\n"), Some(Kind::Manifest));
    assert_eq!(of("{\"apiVersion\": \"v1\"}"), Some(Kind::Manifest));
    for other in ["#!/bin/bash\nls\n", "[package]\nname = \"x\"\n", "hello\n", "x=1\n"] {
        assert_eq!(of(other), None, "{other}");
    }
}
