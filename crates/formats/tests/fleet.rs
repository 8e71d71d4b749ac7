//! Fleet files: what the shipped examples become, and what is refused.

mod support;

use formats::{Source, fleet};
use model::{Catalogue, Fleet, ModeSet, SharingKind};
use support::{example, refused, source};

fn read_fleet(source: &Source) -> Result<Fleet, String> {
    let mut catalogue = Catalogue::shipped().expect("the shipped tables");
    fleet::read(source, &mut catalogue).map_err(|error| error.to_string())
}

#[test]
fn fleet_of_the_examples() {
    let toml = read_fleet(&example("fleet.toml")).unwrap();
    let names: Vec<_> = toml.nodes().iter().map(|node| node.name()).collect();
    assert_eq!(names, ["train-0", "train-1", "train-2", "train-3", "serve", "login"]);
    assert_eq!((toml.gpu_count(), toml.cpu_milli()), (36, 592_000));
    let train = &toml.nodes()[0];
    assert_eq!((train.memory_mib(), train.gpus().len()), (1 << 20, 8));
    let offers = ModeSet::of(&[SharingKind::Exclusive, SharingKind::Mps, SharingKind::Mig]);
    assert_eq!(train.gpus()[0].offers(), offers);
    let own = toml.nodes()[4].gpus()[3].model();
    assert_eq!((own.name.as_str(), own.memory_mib, own.context_mib), ("rtx-4090", 24_114, 300));
    let yaml = read_fleet(&example("fleet.yaml")).unwrap();
    assert_eq!(format!("{yaml:?}"), format!("{toml:?}"));
}

/// Keys of an entry, and how the message about them begins.
const KEYS_REFUSED: &[(&str, &str)] = &[
    ("gpu = []", "f.toml:5: gpu: is not a known key; did you mean gpus?"),
    (
        "gpus = [{ model = 'a100' }]",
        "f.toml:5: model: \"a100\" is not a known GPU model; give a100-40gb or a100-80gb or a10 or p100, or add [[gpu_model]]",
    ),
    ("gpus = [{ model = 'zz' }]", "f.toml:5: model: \"zz\" is not a known GPU model; give add"),
    ("gpus = [{ count = 2 }]", "f.toml:5: model: is missing"),
    ("gpus = [{ model = 't4', count = 0 }]", "f.toml:5: count: 0 is out of range"),
    (
        "gpus = [{ model = 't4', count = 200 }, { model = 't4', count = 200 }]",
        "f.toml:5: gpus: makes more than 255",
    ),
    (
        "gpus = [{ model = 't4', modes = ['mig'] }]",
        "f.toml:5: modes: t4 cannot do mig; it can do exclusive",
    ),
    ("count = 100001", "f.toml:5: count: 100001 is out of range"),
    (
        "[[node]]\nname = 'n'\ncpus = 1\nmemory = '1G'",
        "f.toml:5: node: \"n\" is the name of two nodes",
    ),
    ("[[gpu_model]]\nname = 'x'", "f.toml:5: memory: is missing; add memory = \"24GiB\""),
    (
        "[[gpu_model]]\nname = 'x'\nmemory = '1G'\nreserved = '2G'",
        "f.toml:7: memory: leaves nothing",
    ),
    (
        "[[gpu_model]]\nname = 'x'\nmemory = '1G'\nmodes = ['mig']",
        "f.toml:8: modes: needs the instance profiles",
    ),
    (
        "[[gpu_model]]\nname = 'x'\nmemory = '1G'\nmig_like = 't4'",
        "f.toml:8: mig_like: \"t4\" is not a known GPU model with MIG",
    ),
];

#[test]
fn fleets_that_make_no_sense_are_refused_at_their_line() {
    let read = |keys: &str| {
        let text = format!("[[node]]\nname = 'n'\ncpus = 4\nmemory = '8GiB'\n{keys}\n");
        read_fleet(&source("f.toml", &text))
    };
    refused(read, KEYS_REFUSED);
    let message = read_fleet(&source("f.toml", "[[node]]\nname = 'n'\n")).unwrap_err();
    assert!(message.starts_with("f.toml:1: cpus: is missing; add cpus = 64"), "{message}");
}

#[test]
fn a_gpu_model_of_ones_own_can_have_mig() {
    let text = "[[gpu_model]]\nname = 'X1'\nmemory = '80GiB'\nmig_like = 'a100-80gb'\n\
                [[node]]\nname = 'n'\ncpus = 4\nmemory = '8GiB'\ngpus = [{ model = 'x1' }]\n";
    let fleet = read_fleet(&source("f.toml", text)).unwrap();
    let gpu = &fleet.nodes()[0].gpus()[0];
    assert!(gpu.offers().contains(SharingKind::Mig) && gpu.model().mig.is_some());
}
