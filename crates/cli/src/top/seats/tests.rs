//! What is drawn of the cluster that `crates/slurm/tests/seeing` has recorded: three nodes, each with two a100 of 317
//! shards and two MIG instances; n3 is drained.

use slurm::queue_view::Told as Text;

use super::super::print;
use super::super::view::{Sort, View};
use super::*;

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../../../slurm/tests/seeing/", $name))
    };
}

fn view_with(replaced: &[(&str, &str)]) -> QueueView {
    let change = |text: &str| {
        replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    let (nodes, jobs) = (change(recorded!("nodes.txt")), change(recorded!("jobs.txt")));
    let now = recorded!("now.txt").trim().parse().unwrap();
    QueueView::of(&Text { nodes: &nodes, jobs: &jobs, ..Text::default() }, now, 256)
}

fn seen(replaced: &[(&str, &str)]) -> Picture {
    picture(&view_with(replaced), &Site::default(), None, None)
}

fn pot<'a>(picture: &'a Picture, place: &str) -> &'a Pot {
    picture.pots.iter().find(|pot| pot.place() == place).unwrap()
}

/// What the agents of n1 and n2 tell; n3's is silent.
fn told() -> BTreeMap<String, Told> {
    let text = "hotpot_up 1\n\
        hotpot_gpu_memory_size_bytes{gpu=\"0\",uuid=\"GPU-a\"} 85899345920\n\
        hotpot_gpu_memory_used_bytes{gpu=\"0\",uuid=\"GPU-a\"} 1073741824\n\
        hotpot_gpu_busy_ratio{gpu=\"0\",uuid=\"GPU-a\"} 0.5\n\
        hotpot_gpu_busy_ratio{gpu=\"1\",uuid=\"GPU-b\"} 0.75\n\
        hotpot_tenant_memory_used_bytes{gpu=\"0\",tenant_kind=\"slurm-job\",tenant=\"1\"} 1000000000\n";
    let n1 = Figures::parse(text);
    let n2 = Figures::parse("hotpot_up 0\n");
    [("n1".to_owned(), n1), ("n2".to_owned(), n2)].into()
}

const GOLDEN: &str = include_str!("recorded.golden");

#[test]
fn the_recorded_cluster_is_drawn() {
    let (view, site) = (view_with(&[]), Site::default());
    let text = print::table(&picture(&view, &site, Some(&told()), None), 100);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/seats/recorded.golden");
        std::fs::write(path, &text).unwrap();
        return;
    }
    assert_eq!(text, GOLDEN);
}

#[test]
fn shares_are_to_scale_and_the_rest_is_free() {
    let picture = seen(&[]);
    let ratio = 284.0 / 317.0;
    let shared = pot(&picture, "n1/1");
    let part = &shared.parts[0];
    assert!((part.to - ratio).abs() < 1e-9 && part.from == 0.0, "{part:?}");
    assert_eq!((shared.free_bytes(), part.room_bytes), (Some(33 << 28), Some(284 << 28)));
    assert_eq!((shared.sharing, part.compute_milli), (Sharing::MemoryCapped, Some(800)));
    let job = part.job.as_ref().unwrap();
    assert_eq!((job.id.as_str(), job.user.as_str(), job.amount), ("2", "nobody", 284));
    let whole = pot(&picture, "n1/0");
    assert_eq!((whole.sharing, whole.free_bytes()), (Sharing::Exclusive, Some(0)));
    let instance = pot(&picture, "n1/3");
    assert_eq!((instance.sharing, instance.parts.len()), (Sharing::Mig, 0));
    assert_eq!(instance.free_bytes(), Some(9595 << 20));
    // A drained node has nothing to give.
    assert_eq!(pot(&picture, "n3/0").free_bytes(), Some(0));
    assert!(picture.pots.iter().all(|pot| pot.busy_ratio.is_none() && pot.uuid.is_empty()));
}

#[test]
fn figures_come_from_the_agents_that_answer() {
    let picture = picture(&view_with(&[]), &Site::default(), Some(&told()), None);
    let first = pot(&picture, "n1/0");
    assert_eq!((first.busy_ratio, first.memory_used_bytes), (Some(0.5), Some(1 << 30)));
    assert_eq!(first.memory_total_bytes, Some(80 << 30));
    assert_eq!(first.parts[0].used_bytes, Some(1_000_000_000));
    assert_eq!(pot(&picture, "n1/1").busy_ratio, Some(0.75));
    assert_eq!(pot(&picture, "n2/0").busy_ratio, None);
    let json: serde_json::Value = serde_json::from_str(&print::json(&picture)).unwrap();
    assert_eq!(json["agents"], serde_json::json!({"answered": 1, "of": 3}));
    assert_eq!(json["nodes"][0]["agent"], "answers");
    assert!(json["nodes"][1]["agent"]["silent"].as_str().unwrap().contains("driver"), "{json}");
    assert_eq!(json["nodes"][0]["gpus"][0]["parts"][0]["job"]["id"], "1");
    assert!(json["nodes"][1]["gpus"][0]["busy_ratio"].is_null());
}

#[test]
fn what_slurm_does_not_show_is_in_use_all_the_same() {
    let picture = seen(&[("JobState=RUNNING", "JobState=COMPLETED")]);
    let of = |place| pot(&picture, place);
    let labels = |place| of(place).parts.iter().map(|it| it.label.clone()).collect::<Vec<_>>();
    assert_eq!((labels("n1/0"), of("n1/0").free_bytes()), (vec![NOT_SHOWN.into()], Some(0)));
    assert_eq!((labels("n1/1"), of("n1/1").free_bytes()), (vec![NOT_SHOWN.into()], None));
    assert_eq!((labels("n1/3").len(), of("n1/3").sharing), (0, Sharing::Mig));
}

#[test]
fn cards_without_shards_have_the_memory_of_their_model() {
    let picture = seen(&[(":a100", ":a100_80gb"), (",shard:a100_80gb:634", "")]);
    assert_eq!(pot(&picture, "n2/0").memory_total_bytes, Some(81_280 << 20));
    assert_eq!(pot(&seen(&[(",shard:a100:634", "")]), "n3/0").memory_total_bytes, None);
}

/// By percent of the card; where nobody knows its memory, only they are known.
#[test]
fn shares_by_mps_are_percent() {
    let nodes = "NodeName=n1 State=MIXED Gres=gpu:a100_80gb:1,mps:100";
    let job = "JobId=7 JobName=x\nUserId=ann(1000)\nPriority=1\nJobState=RUNNING\nRequeue=1 BatchFlag=1\nNodeList=n1\nSocks/Node=*\nNodes=n1 \
               CPU_IDs=0 Mem=16 GRES=mps:30(IDX:0)";
    let seen = |nodes: &str| {
        let told = Text { nodes, jobs: job, ..Text::default() };
        picture(&QueueView::of(&told, 0, 256), &Site::default(), None, None).pots.remove(0)
    };
    let known = seen(nodes);
    assert_eq!((known.sharing, known.parts[0].to), (Sharing::Mps, 0.3));
    assert_eq!(known.free_bytes(), Some((81_280 << 20) / 100 * 70));
    assert_eq!(seen(&nodes.replace("_80gb", "")).free_bytes(), None);
}

#[test]
fn names_of_jobs_steer_no_terminal() {
    let picture = seen(&[("JobName=train", "JobName=\u{1b}[2Jx")]);
    assert!(!print::table(&picture, 80).contains('\u{1b}'));
}

#[test]
fn sorting_goes_over_all_nodes() {
    let picture = picture(&view_with(&[]), &Site::default(), Some(&told()), None);
    let first = |sort| View { sort, ..View::default() }.ordered(&picture.pots)[0].place();
    assert_eq!(first(Sort::Index), "n1/0");
    assert_eq!(first(Sort::Busy), "n1/1");
    assert_eq!(first(Sort::Free), "n2/0");
}

/// All that the view says of families is what the agent writes.
#[test]
fn the_agent_has_all_families_that_are_read() {
    let written = agent::own_names();
    let missing: Vec<_> =
        slurm::agents::NAMES.iter().filter(|name| !written.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
