//! What goes wrong on Slurm with shared GPUs, and what hotpot makes of it: on real Slurm, with simulated GPUs.
//! Other tests show more of it: `spank/tests/rules.rs` what would wait for ever, `loading.rs` there a plugin whose
//! file is gone, `tasks.rs` tasks to which Slurm tells no GPU, `enforcing_devices.rs` numbers that mean another GPU.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use slurm_lab::{Cluster, Options};
use support::site::{Site, built};

fn cards(gpus: u32) -> Options {
    Options { nodes: 1, gpus, ..Options::default() }
}

impl Site {
    fn state_of_node(&self) -> String {
        self.does(&["sinfo", "-hN", "-o", "%T", "-p", "batch"]).trim().to_owned()
    }
}

#[test]
fn a_node_without_the_plugin_runs_whole_cards_and_no_shares() {
    let test = "a_node_without_the_plugin_runs_whole_cards_and_no_shares";
    // hotpot and its limiter as they are installed, and not what tells tasks of their caps.
    let folder = std::env::temp_dir().join(format!("hotpot-part-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    for part in ["hotpot", "libhotpot_limiter.so"] {
        let (from, to) = (built().join(part), folder.join(part));
        let linked = fs::hard_link(&from, &to);
        linked.or_else(|_| fs::copy(&from, &to).map(drop)).unwrap();
    }
    if let Some(site) = Site::up_with(test, cards(1), &folder, "") {
        let whole = site.submit(&["--gres=gpu:1"], "@ alloc 256");
        assert!(site.finish(&whole).contains("alloc 256 0"), "{}", site.out(&whole));
        let share = site.submit(&["--gres=shard:8"], "echo it ran");
        site.until("the node to be taken out", |_| {
            site.state_of_node().contains("drain").then_some(())
        });
        site.until_is(&share, &["PENDING"]);
        assert_eq!(site.out(&share), "");
        let log = fs::read_to_string(site.cluster.folder().join("log/hotpot.n1.log")).unwrap();
        assert!(log.contains("the plugin is missing"), "{log}");
        site.until_undone("n1", &share);
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn shares_are_capped_where_slurm_runs_no_prolog() {
    let test = "shares_are_capped_where_slurm_runs_no_prolog";
    let Some(site) = Site::up(test, cards(1)) else { return };
    let path = site.cluster.etc().join("slurm.conf");
    let conf = fs::read_to_string(&path).unwrap();
    let is_prolog = |line: &&str| line.starts_with("Prolog=");
    let prolog = conf.lines().find(is_prolog).unwrap().to_owned();
    fs::write(&path, conf.replace(&prolog, "Prolog=/bin/true")).unwrap();
    site.does(&["scontrol", "reconfigure"]);
    let shown = |cluster: &Cluster| {
        let conf = cluster.run(&["scontrol", "show", "config"]).ok()?;
        conf.lines()
            .any(|line| line.starts_with("Prolog ") && line.ends_with("/bin/true"))
            .then_some(())
    };
    site.until("another Prolog", shown);
    site.restart_slurmd("n1", || ());
    let job = site.submit(&["--gpu-mem=2G"], "@ alloc 1024 alloc 4096; srun @ alloc 4000");
    let out = site.finish(&job);
    assert_eq!(out, "alloc 1024 0\nalloc 4096 2\nalloc 4000 2\n");
    site.until_undone("n1", &job);
}

#[test]
fn a_share_has_its_card_where_slurm_tells_none() {
    let test = "a_share_has_its_card_where_slurm_tells_none";
    // With shards and mps of the same cards, 22.05 gives jobs with shards no CUDA_VISIBLE_DEVICES at all.
    let conf = "NodeName=@NODE@ Name=gpu Type=a100 File=@DEV@/nvidia0\n\
                NodeName=@NODE@ Name=gpu Type=a100 File=@DEV@/nvidia1\n\
                NodeName=@NODE@ Name=shard Count=634\nNodeName=@NODE@ Name=mps Count=200";
    let options = Options {
        gres: Some("gpu:a100:2,shard:634,mps:200".into()),
        gres_conf: Some(conf.into()),
        ..cards(2)
    };
    let Some(site) = Site::up(test, options) else { return };
    let job =
        site.submit(&["--gpu-mem=2G"], "echo sees $CUDA_VISIBLE_DEVICES; @ devices alloc 4096");
    let out = site.finish(&job);
    let card = site.machine("n1").read().gpus[0].uuid.clone();
    assert!(
        out.starts_with(&format!("sees {card}\ndevices 1 {}\n", card.trim_start_matches("GPU-"))),
        "{out}"
    );
    assert!(out.ends_with("alloc 4096 2\n"), "{out}");
}

#[test]
fn a_job_that_was_started_without_its_gpus_goes_back() {
    let test = "a_job_that_was_started_without_its_gpus_goes_back";
    let Some(site) = Site::up(test, cards(1)) else { return };
    // As 22.05 does after changes of a node's types: nothing is booked. Said here by what hotpot asks.
    let scontrol = site.does(&["sh", "-c", "command -v scontrol"]);
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in show*job*) [ -e {} ] && {{ {real} \"$@\" | sed 's/ GRES=[^ ]*/ GRES=/'; exit; }} ;; \
         esac\nexec {real} \"$@\"\n",
        site.flag("none"),
        real = scontrol.trim(),
    );
    let path = site.cluster.machine("n1").join("bin/scontrol");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    site.raise("none");
    let job = site.submit(&["--gpu-mem=2G"], "echo it ran; @ devices");
    let told = site.until("a reason", |_: &Cluster| {
        Some(site.comment(&job)).filter(|comment| comment.contains("hotpot-sent-back("))
    });
    assert!(told.contains("without the GPUs that it asked for"), "{told}");
    // Who asks for none is left alone.
    let plain = site.submit(&[], "echo it ran");
    assert_eq!(site.finish(&plain), "it ran\n");
    fs::remove_file(site.flag("none")).unwrap();
    site.until_is(&job, &["COMPLETED"]);
    assert_eq!(site.out(&job).matches("it ran\ndevices 1 ").count(), 1, "{}", site.out(&job));
}

#[test]
fn a_suspended_job_keeps_its_share() {
    let test = "a_suspended_job_keeps_its_share";
    let Some(site) = Site::up(test, cards(1)) else { return };
    let leave = site.flag("leave");
    let job = site
        .submit(&["--gpu-mem=70G"], &format!("@ alloc 256 touch {} wait {leave}", site.flag("up")));
    site.until_raised("up");
    site.does(&["scontrol", "suspend", &job]);
    site.until_is(&job, &["SUSPENDED"]);
    let tidied = site.script("hotpot-tidy", "n1", None);
    assert!(tidied.status.success(), "{tidied:?}");
    assert_eq!(site.held("n1", &job).len(), 1);
    let task = site.cluster.machine("n1").join(format!("jobs/{job}.task"));
    assert!(Path::new(&task).exists());
    site.does(&["scontrol", "resume", &job]);
    site.raise("leave");
    assert_eq!(site.finish(&job), "alloc 256 0\n");
    site.until_undone("n1", &job);
}
