//! The shipped openb sample, filled to 130 %: the policies come out in the published order, and ours
//! above them. The whole comparison is `cargo xtask compare`.

use std::path::{Path, PathBuf};

use formats::{Source, openb};
use model::{Catalogue, Placement, Policy};
use simulator::outcome::{Outcome, Size};
use simulator::{Protocol, Yardstick, arrivals, simulate};

fn sample(name: &str) -> Source {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/openb");
    Source::open(&folder.join(name)).expect("the sample is part of the repository")
}

fn filled(policy: &str) -> Outcome {
    let trace = openb::tasks(&sample("openb_pod_list_default.csv.gz")).expect("sound");
    let rows = openb::node_rows(&sample("openb_node_list_gpu_node.csv.gz")).expect("sound");
    let mut catalogue = Catalogue::shipped().expect("the tables are compiled in");
    let fleet = openb::fleet(&rows, &mut catalogue);
    let mix = engine::mix::of(trace.arrivals.iter().map(|arrival| &arrival.workload));
    let arrivals = arrivals::fill(&trace, &Yardstick::of(&fleet), 1.3, 42);
    let placement = Placement::parse(policy).expect("a known policy");
    let policy = Policy { mix, ..Policy::new(placement) };
    simulate(&fleet, &arrivals, policy, Protocol::Fill, &(), &mut ()).expect("legal plans")
}

#[test]
fn hotpot_allocates_more_than_fgd_and_fgd_more_than_best_fit() {
    let [best_fit, fgd, hotpot] = ["best-fit", "fgd", "hotpot"].map(filled);
    let allocated = |outcome: &Outcome| outcome.totals.allocated_pct;
    assert!(allocated(&fgd) > allocated(&best_fit) + 1.0);
    assert!(allocated(&hotpot) > allocated(&fgd) + 0.4);
    let eight = |outcome: &Outcome| outcome.totals.by_size[Size::EightGpus as usize].rejected;
    assert!(eight(&hotpot) <= eight(&fgd), "not bought by turning the large away");
}
