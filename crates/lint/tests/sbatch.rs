//! Scripts for sbatch: what is found in them, what of it is mended, and what is no mistake.

mod support;

use lint::Kind::{self, Sbatch};
use support::{assert_clean, assert_left, assert_mended, found_of, input, mended};

/// A script like those of users, with one directive to look at.
fn script(directives: &str) -> String {
    format!(
        "#!/bin/bash\n#SBATCH --job-name=train --time=2:00:00\n{directives}\n#SBATCH --output=%x.log\n\nmodule load cuda\nsrun python train.py --gpus=1:shared\n"
    )
}

fn becomes(directives: &str, name: &str, clean: &str) {
    assert_mended(Sbatch, &script(directives), &[&format!("3 {name}")], &script(clean));
}

fn stays(directives: &str, name: &str) {
    assert_left(Sbatch, &script(directives), "", &[&format!("3 {name}")]);
}

#[test]
fn shared_exists_in_no_slurm_and_becomes_a_shard() {
    becomes("#SBATCH --gpus=1:shared", "gpus-shared", "#SBATCH --gres=shard:1");
    becomes("#SBATCH -G 1:shared  # ours", "gpus-shared", "#SBATCH --gres=shard:1  # ours");
    becomes("#SBATCH --gres=gpu:1:shared", "gpus-shared", "#SBATCH --gres=shard:1");
    becomes("#SBATCH --gres=GPUSHARED:1", "gpus-shared", "#SBATCH --gres=shard:1");
    becomes("#SBATCH --gpus=shared:1 --mem=4G", "gpus-shared", "#SBATCH --gres=shard:1 --mem=4G");
    becomes("#SBATCH --gres=\"gpu:1:shared\"", "gpus-shared", "#SBATCH --gres=\"shard:1\"");
    becomes("#SBATCH --gpus='1:shared'", "gpus-shared", "#SBATCH --gres=shard:1");
    becomes("#SBATCH --gpus=1:shard", "gpus-shared", "#SBATCH --gres=shard:1");
    becomes("#SBATCH --gpus=shard:3", "gpus-shared", "#SBATCH --gres=shard:3");
    stays("#SBATCH --gpus=2:shared", "gpus-shared");
    stays("#SBATCH --gres=GPUSHARED:2", "gpus-shared");
    stays("#SBATCH --gpus=1:mps", "gpus-shared");
}

#[test]
fn what_may_not_go_with_a_part_is_left_to_a_person() {
    stays("#SBATCH --gpus=a100:1:shared", "gpus-shared");
    stays("#SBATCH --gpus=1:shared --exclusive", "gpus-shared");
    stays("#SBATCH --gpus=1:shared --gres=none", "gpus-shared");
    stays("#SBATCH --gpus=1:shared --mem-per-gpu=8G", "gpus-shared");
    stays("#SBATCH --gpus-per-task=1:shared -n 4", "gpus-shared");
    let step = "#!/bin/bash\n#SBATCH --gpus=1:shared\nsrun --gpus=1 a\n";
    assert_left(Sbatch, step, "", &["2 gpus-shared"]);
}

#[test]
fn resources_have_one_name() {
    becomes("#SBATCH --gres=gpus:2", "gres-name", "#SBATCH --gres=gpu:2");
    becomes(
        "#SBATCH --gres=lustre:1,gres/Shard:2",
        "gres-name",
        "#SBATCH --gres=lustre:1,gres/shard:2",
    );
    becomes("#SBATCH --gpus=gpu:a100:2", "gpus-no-number", "#SBATCH --gpus=a100:2");
    stays("#SBATCH --gres=2", "gres-name");
    stays("#SBATCH --gpus=two", "gpus-no-number");
    stays("#SBATCH --gpus=1:exclusive_process", "gpus-no-number");
}

#[test]
fn options_have_the_names_that_sbatch_knows() {
    becomes("#SBATCH --gpu=1", "option-unknown", "#SBATCH --gpus=1");
    stays("#SBATCH --gpu=1 --gpus=2", "option-unknown");
    becomes("#SBATCH --gpu-per-node 2", "option-unknown", "#SBATCH --gpus-per-node 2");
    becomes("#SBATCH --gpus-per-n=1:shared", "gpus-shared", "#SBATCH --gres=shard:1");
    assert_clean(Sbatch, &script("#SBATCH --container-image=a --mps=50"), "");
}

#[test]
fn parts_of_a_heterogeneous_job_ask_each_for_itself() {
    assert_clean(
        Sbatch,
        &script("#SBATCH --gpus=1 --exclusive\n#SBATCH hetjob\n#SBATCH --gres=shard:1"),
        "",
    );
    assert_left(
        Sbatch,
        &script("#SBATCH --gres=shard:1\n#SBATCH hetjob\n#SBATCH --gres=gpu:1,shard:1"),
        "",
        &["5 gpu-beside-part"],
    );
}

#[test]
fn options_of_steps_are_read_up_to_the_program() {
    let of = |command: &str| format!("#!/bin/bash\n#SBATCH --gpus=1\n{command}\n");
    for command in [
        "srun --gres=gpu:1:shared python a.py",
        "A=1 srun -n 2 --gpus=1:shared \\\n a",
        "exec srun --mpi=pmix -G 1:shared a",
        "sbatch --gpus=1:shared other.sbatch",
    ] {
        assert_left(Sbatch, &of(command), "", &["3 gpus-shared"]);
    }
    assert_left(Sbatch, &of("srun -n 2 \\\n  --gpus=1:shared a"), "", &["4 gpus-shared"]);
    for command in [
        "srun --gpus=\"$N\" a",
        "srun a --gpus=1:shared",
        "echo srun --gpus=1:shared",
        "srun --gpus=2 a",
    ] {
        assert_clean(Sbatch, &of(command), "");
    }
}

#[test]
fn gpushared_is_read_by_nobody() {
    let text = "#!/bin/bash\n#SBATCH --gpus=1\nexport GPUSHARED=1\nsrun a\n";
    assert_left(Sbatch, text, "", &["3 gpushared"]);
    let text = "#!/bin/bash\n#SBATCH --export=ALL,GPUSHARED=1\nexport A=1 GPUSHARED=1\n";
    assert_left(Sbatch, text, "", &["2 gpushared", "3 gpushared"]);
    assert_clean(
        Sbatch,
        "#!/bin/bash\n#SBATCH --gpus=1 --constraint=gpushared\n# GPUSHARED=1\necho GPUSHARED=1\n",
        "",
    );
}

#[test]
fn whole_gpus_and_parts_do_not_go_together() {
    stays("#SBATCH --gres=gpu:1,shard:1", "gpu-beside-part");
    stays("#SBATCH --gres=gpu:a100:1,mps:50", "gpu-beside-part");
    let text = script("#SBATCH --gpus=1\n#SBATCH --gres=shard:2");
    assert_left(Sbatch, &text, "", &["4 gpu-beside-part"]);
    for clean in ["--gres=shard:2", "--gres=mps:50,lustre:1", "--gres=gpu:0,shard:1", "--gres=none"]
    {
        assert_clean(Sbatch, &script(&format!("#SBATCH {clean}")), "");
    }
}

#[test]
fn a_number_stands_behind_its_type() {
    becomes("#SBATCH --gpus=a100", "gpus-no-number", "#SBATCH --gpus=a100:1");
    becomes("#SBATCH --gpus-per-node=2:a100", "gpus-no-number", "#SBATCH --gpus-per-node=a100:2");
    becomes(
        "#SBATCH --gres=lustre:1,gpu:2:h100",
        "gpus-no-number",
        "#SBATCH --gres=lustre:1,gpu:h100:2",
    );
    stays("#SBATCH --gpus=two:a100:1", "gpus-no-number");
    stays("#SBATCH --gpus=$N", "gpus-no-number");
    stays("#SBATCH --gres=gpu:0.5", "gpu-fraction");
    stays("#SBATCH --gpus=0.5", "gpu-fraction");
    for clean in [
        "-G2",
        "--gpus=a100:2",
        "--gres=gpu",
        "--gres=gpu:a100",
        "--gpus=a100:1,v100:2",
        "--gres=gres:gpu:1",
    ] {
        assert_clean(Sbatch, &script(&format!("#SBATCH {clean}")), "");
    }
}

#[test]
fn shards_have_no_type() {
    becomes("#SBATCH --gres=shard:a100:2", "part-with-type", "#SBATCH --gres=shard:2");
    stays("#SBATCH --gres=shard:many", "gpus-no-number");
}

#[test]
fn more_shards_than_a_gpu_has_wait_for_ever() {
    let script = |n| input(Sbatch, &script(&format!("#SBATCH --gres=shard:{n}")));
    let gres = "Name=gpu Type=a100 File=/dev/nvidia[0-3]\nName=shard Count=16\n";
    let conf = "NodeName=n[1-2] CPUs=64 Gres=gpu:a100:4,shard:16 State=UNKNOWN\n";
    for site in [input(Kind::GresConf, gres), input(Kind::SlurmConf, conf)] {
        let of = |n| found_of(&[script(n), site.clone()], "").swap_remove(0);
        assert_eq!(of(5), ["3 shards-over-one-gpu"]);
        assert!(of(4).is_empty(), "a GPU has four");
    }
    assert!(found_of(&[script(500)], "")[0].is_empty(), "nobody says how many a GPU has");
    let several = format!("SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ\n{conf}");
    let several = found_of(&[script(5), input(Kind::SlurmConf, &several)], "").swap_remove(0);
    assert!(several.is_empty(), "there a job's parts may be of several GPUs");
    assert_clean(Sbatch, "#!/bin/bash\n#SBATCH --gres=shard:1K\n", "");
}

#[test]
fn more_mps_than_a_gpu_has_waits_for_ever() {
    stays("#SBATCH --gres=mps:110", "mps-over-one-gpu");
    assert_clean(Sbatch, &script("#SBATCH --gres=mps:100"), "");
    let gres = "Name=gpu File=/dev/nvidia[0-1]\nName=mps Count=400 Flags=all_sharing\n";
    let both = [input(Sbatch, &script("#SBATCH --gres=mps:150")), input(Kind::GresConf, gres)];
    assert!(found_of(&both, "")[0].is_empty(), "this site has 200 of a GPU");
}

#[test]
fn a_whole_node_is_no_part_of_a_gpu() {
    stays("#SBATCH --exclusive --gres=shard:2", "exclusive-with-part");
    assert_clean(Sbatch, &script("#SBATCH --exclusive --gres=gpu:2"), "");
    assert_clean(Sbatch, &script("#SBATCH --exclusive=user --gres=shard:2"), "");
}

#[test]
fn mig_types_are_those_of_the_card() {
    let on = |card: &str, directive: &str, names: &[&str]| {
        assert_left(Sbatch, &script(&format!("#SBATCH {directive}")), card, names);
    };
    on("", "--gres=gpu:1g.11gb:1", &["3 mig-unknown"]);
    on("", "--gpu-profile=2g.30gb", &["3 mig-unknown"]);
    on("a100-40gb", "--gres=gpu:2g.20gb:1", &["3 mig-not-on-card"]);
    on("t4", "--gpus=1g.10gb:1", &["3 mig-not-on-card"]);
    on("a100-80gb", "--gres=gpu:2g.20gb:4", &["3 mig-too-many"]);
    on("a100-80gb:2", "--gres=gpu:2g.20gb:4", &[]);
    on("a100-80gb", "--gpus=2g.20gb:4", &[]);
    on("a100-40gb", "--gres=gpu:a100_3g.20gb:1", &[]);
    on("a100-80gb", "--gpu-profile=1g.10gb+me", &[]);
    on("a100-80gb", "--gres=gpu:a100:1", &[]);
}

#[test]
fn lines_that_sbatch_does_not_read_are_told() {
    let late =
        "#!/bin/bash\n#SBATCH --time=5\nmodule load cuda\n#SBATCH --gpus=1\n##SBATCH --gpus=2\n";
    assert_left(Sbatch, late, "", &["4 directive-not-read"]);
    assert_left(Sbatch, &script("# SBATCH --gpus=1"), "", &["3 directive-not-read"]);
    assert_left(Sbatch, &script("  #SBATCH --gpus=1"), "", &["3 directive-not-read"]);
    assert_left(Sbatch, &script(" #SBATCH -G 1"), "", &["3 directive-not-read"]);
    assert_clean(Sbatch, &script("##SBATCH --gpus=1:shared\n# SBATCH lines of old"), "");
}

#[test]
fn scripts_within_scripts_are_not_theirs() {
    let text = "#!/bin/bash\nfor n in 1 2; do\nsbatch <<-'END'\n#!/bin/bash\n#SBATCH --gpus=$n\nGPUSHARED=1\n\tEND\ndone\n";
    assert_clean(Sbatch, text, "");
    let late = format!("{text}x=$((1 << n))\n#SBATCH --gpus=1\n");
    assert_left(Sbatch, &late, "", &["10 directive-not-read"]);
}

#[test]
fn a_byte_order_mark_is_no_interpreter() {
    let bytes = b"\xef\xbb\xbf#!/bin/bash\n#SBATCH --gpus=1\n".to_vec();
    let inputs = [lint::Input::new("file", bytes, None).unwrap()];
    assert_eq!(found_of(&inputs, "")[0], ["1 no-interpreter"]);
}

#[test]
fn a_script_begins_with_its_interpreter() {
    let text = "#SBATCH --gpus=1\nsrun a\n";
    assert_mended(Sbatch, text, &["1 no-interpreter"], &format!("#!/bin/bash\n{text}"));
    let shifted = "\n #!/bin/bash\n#SBATCH --gpus=1\n";
    assert_mended(Sbatch, shifted, &["1 no-interpreter"], shifted.trim_start());
    assert_left(
        Sbatch,
        "Notes\n\n#SBATCH --gpus=1\n",
        "",
        &["1 no-interpreter", "3 directive-not-read"],
    );
}

#[test]
fn line_ends_of_dos_are_refused() {
    let text = script("#SBATCH --gpus=1:shared");
    let (clean, left) = mended(Sbatch, &text.replace('\n', "\r\n"), "");
    assert_eq!((clean, left), (script("#SBATCH --gres=shard:1"), vec![]));
}

#[test]
fn all_else_stays_byte_for_byte() {
    let text = "#!/bin/bash\n#SBATCH\t--gpus=1:shared \t # a note ü\n\n\tsrun a   \n\n# end without a line end";
    let clean = text.replace("--gpus=1:shared", "--gres=shard:1");
    assert_mended(Sbatch, text, &["2 gpus-shared"], &clean);
}
