//! Policy files: what the shipped example becomes, and what is refused.

mod support;

use formats::policy;
use model::{Class, Owner, Placement, Policy, Preemption, Quota, SharingMode};
use support::{example, refused, source};

fn read_policy(text: &str) -> Result<Policy, String> {
    policy::read(&source("p.toml", text)).map_err(|error| error.to_string())
}

#[test]
fn policy_of_the_example() {
    let policy = policy::read(&example("policy.toml")).unwrap();
    let Placement::Weighted { memory_weight_milli, affinity_weight_milli, affinity } =
        &policy.placement
    else {
        panic!("{:?}", policy.placement)
    };
    assert_eq!((*memory_weight_milli, *affinity_weight_milli), (1000, 500));
    assert_eq!(affinity.between(Class::Service, Class::Training), 250);
    let modes = [
        SharingMode::Mps { tenants_max: 16 },
        SharingMode::Mig,
        SharingMode::MemoryCapped { tenants_max: 32 },
        SharingMode::Exclusive,
    ];
    assert_eq!(policy.modes, modes);
    let quota = policy.quota(&Owner::new("nlp"));
    let wanted = Quota { gpu_milli_max: Some(16_000), weight: 2, ..Quota::default() };
    assert_eq!(quota, wanted);
    assert_eq!(policy.quota(&Owner::new("search")).gpu_milli_max, Some(4500));
    assert_eq!((policy.backfill, policy.depth), (true, 512));
    let short = read_policy("placement = 'random'\nseed = 7\nbackfill = false\n").unwrap();
    assert_eq!((short.placement, short.backfill), (Placement::Random { seed: 7 }, false));
    assert_eq!(read_policy("placement = 'fgd'\n").unwrap(), Policy::new(Placement::Fgd));
    assert_eq!(short.preemption, None);
    let asking = read_policy("placement = 'fgd'\n[preemption]\ngrace = '1m30s'\n").unwrap();
    assert_eq!(asking.preemption, Some(Preemption { grace_ms: 90_000 }));
}

/// Keys of an entry, and how the message about them begins.
const KEYS_REFUSED: &[(&str, &str)] = &[
    ("backfil = true", "p.toml:2: backfil: is not a known key; did you mean backfill?"),
    ("backfill = 1", "p.toml:2: backfill: \"1\" is not a yes or no"),
    ("depth = 0", "p.toml:2: depth: 0 is out of range"),
    ("seed = 4", "p.toml:2: seed: counts for random placement only"),
    ("modes = []", "p.toml:2: modes: names no mode"),
    ("modes = ['mps', 'mps']", "p.toml:2: modes: names mps twice"),
    (
        "modes = [{ mode = 'mps', tenants_max = 49 }]",
        "p.toml:2: tenants_max: 49 is out of range; give 1 to 48",
    ),
    ("modes = [{ mode = 'mig', tenants_max = 2 }]", "p.toml:2: tenants_max: mig has no limit"),
    ("time_limit_default = '0h'", "p.toml:2: time_limit_default: leaves no time"),
    ("weighted = { memory_weight = 1e9 }", "p.toml:2: memory_weight: "),
    (
        "[weighted.affinity]\ntraining = { batch = 2 }",
        "p.toml:3: batch: \"2\" is out of range; give a number from -1 to 1",
    ),
    (
        "[weighted.affinity]\ntrain = { batch = 1 }",
        "p.toml:3: train: \"train\" is not a known class",
    ),
    (
        "[weighted.affinity]\nbatch = { service = 1 }\nservice = { batch = 0.5 }",
        "p.toml:4: batch: differs from the same pair",
    ),
    ("[quotas]\na = { gpus = -1 }", "p.toml:3: gpus: \"-1\" is not a number of GPUs"),
    ("[quotas]\na = { weight = 0 }", "p.toml:3: weight: 0 is out of range"),
    ("[preemption]", "p.toml:2: grace: is missing; add grace = \"30s\""),
    ("preemption = true", "p.toml:2: preemption: true is not a table"),
    ("[preemption]\ngrace = 30", "p.toml:3: grace: \"30\" has no unit"),
    ("[preemption]\ngraze = '30s'", "p.toml:3: graze: is not a known key; did you mean grace?"),
    ("[quotas]\na = 4", "p.toml:3: a: \"4\" is not a table"),
];

#[test]
fn policies_that_make_no_sense_are_refused_at_their_line() {
    let read = |keys: &str| read_policy(&format!("placement = 'weighted'\n{keys}\n"));
    refused(read, KEYS_REFUSED);
    refused(
        read_policy,
        &[
            ("depth = 3\n", "p.toml:1: placement: is missing"),
            (
                "placement = 'best_fit'\n",
                "p.toml:1: placement: \"best_fit\" is not a known placement; did you mean best-fit?",
            ),
            (
                "placement = 'fgd'\n[weighted]\n",
                "p.toml:2: weighted: counts for weighted placement only",
            ),
        ],
    );
}
