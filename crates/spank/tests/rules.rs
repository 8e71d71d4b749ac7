//! The rules in a real slurmctld: what jobs ask becomes what Slurm counts, what can never run is refused.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use support::{SITE, SITE_WITH_MIG, Site, up};

/// Words of a submission, its gres for each node, and its token.
type Granted = (&'static [&'static str], &'static str, &'static str);
/// Words of a submission, and what the user reads.
type Refused = (&'static [&'static str], &'static str);

#[track_caller]
fn grants(site: &Site, cases: &[Granted]) {
    for (words, gres, token) in cases {
        let job = site.held(words, "true");
        assert_eq!(site.field(&job, "TresPerNode"), *gres, "{words:?}");
        assert_eq!(site.field(&job, "AdminComment"), *token, "{words:?}");
    }
}

#[track_caller]
fn refuses(site: &Site, cases: &[Refused]) {
    for (words, why) in cases {
        let said = site.fails(&[&["sbatch", "--hold", "--wrap=true"], *words].concat());
        assert!(said.contains(&format!("hotpot: {why}")), "{words:?}: {said}");
    }
}

#[test]
fn shares_become_shards_whole_cards_or_slices() {
    let Some(site) = up("shares_become_shards_whole_cards_or_slices", "optional", false) else {
        return;
    };
    grants(
        &site,
        &[
            (&[], "", ""),
            // 2048 MiB and the 324 that a process takes beside them, in shards of 1015.
            (&["--gpu-mem=2G"], "gres:shard:3", "hotpot(gpu-mem=2048)"),
            (&["--gpu-mem=1.5g"], "gres:shard:2", "hotpot(gpu-mem=1536)"),
            (&["--gpu-mem=691"], "gres:shard:1", "hotpot(gpu-mem=691)"),
            (&["--gpu-mem=692"], "gres:shard:2", "hotpot(gpu-mem=692)"),
            (&["--gpu-compute=20%"], "gres:shard:16", "hotpot(gpu-compute=200)"),
            (&["--gpu-compute=0.1"], "gres:shard:1", "hotpot(gpu-compute=1)"),
            (
                &["--gpu-mem=2G", "--gpu-compute=50", "--gpu-share=mps"],
                "gres:shard:40",
                "hotpot(gpu-mem=2048,gpu-compute=500,gpu-share=mps)",
            ),
            (&["--gpu-mem=79G"], "gres:shard:80", "hotpot(gpu-mem=80896)"),
            (&["--gpu-share=exclusive"], "gres:gpu:1", "hotpot(gpu-share=exclusive)"),
            (&["--gres=gpu:1"], "gres:gpu:1", ""),
            (&["--gres=gpu:a100"], "gres:gpu:a100", ""),
            (&["--gres=shard:80"], "gres:shard:80", ""),
        ],
    );
    site.write("hotpot_site.lua", SITE_WITH_MIG);
    grants(
        &site,
        &[
            (
                &["--gpu-share=mig", "--gpu-mem=9404M"],
                "gres:gpu:1g.10gb:1",
                "hotpot(gpu-mem=9404,gpu-share=mig)",
            ),
            (
                &["--gpu-share=mig", "--gpu-mem=9405M"],
                "gres:gpu:3g.40gb:1",
                "hotpot(gpu-mem=9405,gpu-share=mig)",
            ),
            (
                &["--gpu-share=mig", "--gpu-compute=15"],
                "gres:gpu:3g.40gb:1",
                "hotpot(gpu-compute=150,gpu-share=mig)",
            ),
            (&["--gpu-share=exclusive"], "gres:gpu:a100:1", "hotpot(gpu-share=exclusive)"),
            // An untyped card would otherwise be whatever comes first, a slice too.
            (&["--gres=gpu:2"], "gres:gpu:a100:2", ""),
            (&["--gres=gpu"], "gres:gpu:a100", ""),
            (&["--gres=gpu:1g.10gb:2"], "gres:gpu:1g.10gb:2", ""),
        ],
    );
    let job = site.held(&["--gpus=2"], "true");
    assert_eq!(site.field(&job, "TresPerJob"), "gres:gpu:a100:2");
    let job = site.held(&["--gpus-per-task=1", "-n2"], "true");
    assert_eq!(site.field(&job, "TresPerTask"), "gres:gpu:a100:1");
}

#[test]
fn what_can_never_run_is_refused_with_the_nearest_that_can() {
    let test = "what_can_never_run_is_refused_with_the_nearest_that_can";
    let Some(site) = up(test, "optional", false) else { return };
    refuses(
        &site,
        &[
            (
                &["--gpu-mem=80G"],
                "--gpu-mem=80G: the largest card here has 79.0 GiB for a job (a100, 2 nodes); ask \
                 --gpu-mem=79G, or 2 whole cards with --gres=gpu:2",
            ),
            (
                &["--gpu-mem=400G"],
                "--gpu-mem=400G: the largest card here has 79.0 GiB for a job (a100, 2 nodes); ask --gpu-mem=79G\n",
            ),
            (&["--gpu-share=capped"], "--gpu-share=capped: how much of a card?"),
            (
                &["--gpu-share=mig", "--gpu-mem=1G"],
                "--gpu-mem=1G --gpu-share=mig: no node here has MIG slices",
            ),
            (&["--gpu-mem=2G", "--gres=gpu:1"], "--gpu-mem=2G together with --gres=gpu:1: "),
            (&["--gpu-mem=2G", "--gpus=a100:1"], "--gpu-mem=2G together with --gpus=a100:1: "),
            (&["--gpu-mem=2G", "--exclusive"], "--gpu-mem=2G: --exclusive wants whole nodes"),
            (
                &["--gres=shard:2", "--exclusive"],
                "--gres=shard:2: together with --exclusive this waits for ever",
            ),
            (
                &["--gres=shard:81"],
                "--gres=shard:81: shards are of one card, and the largest here has 80 (1015 MiB each); ask --gres=shard:80, or whole cards with --gres=gpu:2",
            ),
            (&["--gres=shard:a100:2"], "--gres=shard:a100:2: shards have no type that works"),
            (
                &["--gres=gpu:A100:1"],
                "--gres=gpu:A100:1: no node here has GPUs of type A100; the nearest is gpu:a100",
            ),
            (&["--gpus=shared:1"], "--gpus=shared:1: Slurm has no shared GPUs by that name"),
        ],
    );
}

#[test]
fn what_no_slice_has_is_refused_and_a_card_never_becomes_one() {
    let test = "what_no_slice_has_is_refused_and_a_card_never_becomes_one";
    let Some(site) = up(test, "optional", false) else { return };
    site.write("hotpot_site.lua", SITE_WITH_MIG);
    refuses(
        &site,
        &[
            (
                &["--gpu-share=mig", "--gpu-mem=50G"],
                "--gpu-mem=50G --gpu-share=mig: no MIG slice here has that; the largest, 3g.40gb, has 39.1 \
                 GiB for a job and 42.8% of a card's compute; ask no more than --gpu-mem=39G \
                 --gpu-compute=42.8%, or --gpu-share=capped",
            ),
            (
                &["--gres=gpu:1g.10g:1"],
                "--gres=gpu:1g.10g:1: no node here has GPUs of type 1g.10g; the nearest is gpu:1g.10gb (here are a100, 1g.10gb, 3g.40gb)",
            ),
        ],
    );
    let two = SITE_WITH_MIG.replace("cards = {", "cards = { { type = 'l4', memory_mib = 23034, context_mib = 300, shards = 20, per_node = 1, nodes = 1 },");
    site.write("hotpot_site.lua", &two);
    refuses(
        &site,
        &[(
            &["--gres=gpu:1"],
            "--gres=gpu:1: here this could be a slice of a card; say which card: gpu:l4, gpu:a100",
        )],
    );
    grants(
        &site,
        &[(
            &["--gpu-share=exclusive", "--gpu-mem=30G"],
            "gres:gpu:a100:1",
            "hotpot(gpu-mem=30720,gpu-share=exclusive)",
        )],
    );
    assert_eq!(site.does(&["squeue", "--noheader", "--format=%b"]), "gres:gpu:a100:1\n");
}

#[test]
fn sites_of_other_kinds_are_understood() {
    let Some(site) = up("sites_of_other_kinds_are_understood", "optional", false) else { return };
    let put = |cards: &str, mig: &str| {
        let text = format!(
            "return {{ shard_mib = 1015, sharing = 'mps', cards = {{ {cards} }}, mig = {{ {mig} }} }}"
        );
        site.write("hotpot_site.lua", &text);
    };
    let slice = "{ type = '1g.10gb', memory_mib = 9728, compute_milli = 142, count = 8 }";
    // Slurm's nodes say nothing of memory where cards are not shared.
    put(
        "{ type = 'a100', memory_mib = 0, context_mib = 324, shards = 0, per_node = 4, nodes = 2 }",
        "",
    );
    let whole = ("gres:gpu:1", "hotpot(gpu-mem=30720,gpu-share=exclusive)");
    grants(&site, &[(&["--gpu-share=exclusive", "--gpu-mem=30G"], whole.0, whole.1)]);
    refuses(&site, &[(&["--gpu-mem=2G"], "--gpu-mem=2G: cards here are not shared")]);
    put("", slice);
    refuses(&site, &[(&["--gpu-mem=2G"], "--gpu-mem=2G: cards here are not shared")]);
    refuses(
        &site,
        &[(&["--gpu-share=exclusive"], "--gpu-share=exclusive: no node here has whole cards")],
    );
    grants(&site, &[(&["--gpu-share=mig"], "gres:gpu:1g.10gb:1", "hotpot(gpu-share=mig)")]);
    grants(&site, &[(&["--gres=gpu:1"], "gres:gpu:1", "")]);
    // One type in nodes of two sizes is one type; cards without a type have none to be given.
    let small = "{ type = 'a100', memory_mib = 81200, context_mib = 324, shards = 80, per_node = 1, nodes = 1 }";
    put(&format!("{small}, {}", small.replace("per_node = 1", "per_node = 4")), slice);
    grants(&site, &[(&["--gres=gpu:1"], "gres:gpu:a100:1", "")]);
    refuses(
        &site,
        &[(
            &["--gpu-mem=80G"],
            "--gpu-mem=80G: the largest card here has 78.9 GiB for a job (a100, 1 node); ask --gpu-mem=78G, or 2 whole cards",
        )],
    );
    put(&small.replace("a100", ""), "");
    grants(&site, &[(&["--gpu-share=exclusive"], "gres:gpu:1", "hotpot(gpu-share=exclusive)")]);
    refuses(
        &site,
        &[(&["--gres=gpu:x:1"], "--gres=gpu:x:1: GPUs have no types here; ask --gres=gpu:1")],
    );
}

#[test]
fn asks_in_the_environment_count_where_there_are_no_options() {
    let test = "asks_in_the_environment_count_where_there_are_no_options";
    let Some(site) = up(test, "optional", false) else { return };
    grants(
        &site,
        &[
            (
                &["--export=HOTPOT_GPU_MEM=2G,HOTPOT_GPU_COMPUTE=50%,HOTPOT_GPU_SHARE=mps"],
                "gres:shard:40",
                "hotpot(gpu-mem=2048,gpu-compute=500,gpu-share=mps)",
            ),
            (
                &["--export=HOTPOT_GPU_MEM=2G", "--gpu-mem=4G"],
                "gres:shard:5",
                "hotpot(gpu-mem=4096)",
            ),
        ],
    );
    refuses(
        &site,
        &[
            (&["--export=HOTPOT_GPU_MEM=2X"], "HOTPOT_GPU_MEM=2X: not a size"),
            (&["--export=HOTPOT_GPU_MEM=0"], "HOTPOT_GPU_MEM=0: nothing can run"),
            (&["--export=HOTPOT_GPU_COMPUTE=101"], "HOTPOT_GPU_COMPUTE=101: not a percentage"),
            (&["--export=HOTPOT_GPU_SHARE=half"], "HOTPOT_GPU_SHARE=half: no such way"),
            (
                &["--export=HOTPOT_GPU_MEM=2G", "--gres=gpu:1"],
                "HOTPOT_GPU_MEM=2G together with --gres=gpu:1",
            ),
        ],
    );
}

/// A command line run by a user who administers nothing.
fn as_nobody<'a>(line: &[&'a str]) -> Vec<&'a str> {
    [&["runuser", "-u", "nobody", "--"], line].concat()
}

#[test]
fn a_share_stays_what_it_was_over_requeues_and_its_owners_wishes() {
    let test = "a_share_stays_what_it_was_over_requeues_and_its_owners_wishes";
    let Some(site) = up(test, "optional", false) else { return };
    let submit =
        ["sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", "--wrap=sleep 60"];
    let job = site.does(&as_nobody(&[&submit[..], &["--gpu-mem=2G"]].concat())).trim().to_string();
    let name = format!("jobid={job}");
    for change in ["gres=gpu:4", "gres=shard:9", "admincomment=hotpot(gpu-mem=1)"] {
        site.fails(&as_nobody(&["scontrol", "update", &name, change]));
    }
    site.does(&as_nobody(&["scontrol", "release", &job]));
    site.cluster
        .until("a running job", |_| (site.field(&job, "JobState") == "RUNNING").then_some(()))
        .unwrap();
    site.does(&["scontrol", "requeue", &job]);
    assert_eq!(site.field(&job, "Restarts"), "1");
    assert_eq!(site.field(&job, "AdminComment"), "hotpot(gpu-mem=2048)");
    assert_eq!(site.field(&job, "TresPerNode"), "gres:shard:3");
    let plain =
        site.does(&as_nobody(&[&submit[..], &["--gres=shard:2"]].concat())).trim().to_string();
    let name = format!("jobid={plain}");
    let said = site.fails(&as_nobody(&["scontrol", "update", &name, "gres=shard:81"]));
    assert!(said.contains("Invalid generic resource"), "{said}");
    site.does(&as_nobody(&["scontrol", "update", &name, "gres=shard:7"]));
    assert_eq!(site.field(&plain, "TresPerNode"), "gres:shard:7");
}

#[test]
fn without_the_sites_file_or_the_rules_only_asks_for_shares_are_refused() {
    let test = "without_the_sites_file_or_the_rules_only_asks_for_shares_are_refused";
    let Some(site) = up(test, "optional", false) else { return };
    let rules = support::shipped("hotpot.lua");
    let etc = site.cluster.etc();
    let passes = || grants(&site, &[(&["--gres=gpu:1"], "gres:gpu:1", ""), (&[], "", "")]);
    for broken in ["garbage(", "return 7", "return { shard_mib = 'x' }"] {
        site.write("hotpot_site.lua", broken);
        passes();
        refuses(
            &site,
            &[(
                &["--gpu-mem=2G"],
                "--gpu-mem=2G: shares of GPUs are not set up here; your administrator does that with 'hotpot slurm facts'",
            )],
        );
    }
    std::fs::remove_file(etc.join("hotpot_site.lua")).unwrap();
    passes();
    refuses(&site, &[(&["--gpu-mem=2G"], "--gpu-mem=2G: shares of GPUs are not set up here")]);
    site.write("hotpot_site.lua", SITE);
    for broken in ["garbage(", "error('x')", "return 7"] {
        site.write("hotpot.lua", broken);
        passes();
        refuses(
            &site,
            &[(&["--gpu-mem=2G"], "shares of GPUs cannot be had now; your administrator")],
        );
    }
    std::fs::remove_file(etc.join("hotpot.lua")).unwrap();
    passes();
    let shards = "local function shards(site, asks, d)";
    let faulty = rules.replace(shards, &format!("{shards} nonsense()"));
    site.write("hotpot.lua", &faulty);
    passes();
    refuses(&site, &[(&["--gpu-mem=2G"], "shares of GPUs cannot be had now; slurmctld's log")]);
    site.write("hotpot.lua", &rules);
    grants(&site, &[(&["--gpu-mem=2G"], "gres:shard:3", "hotpot(gpu-mem=2048)")]);
}
