//! The rules of MIG against brute force over the table: every layout that the table allows can be
//! reached, nothing else can, and remaining capacity is what can really still be made.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use fake_machine::{
    Code, GpuInstance, GpuSpec, InstanceProfile, Machine, Process, State, instance_profiles,
};

const TABLE: &str = include_str!("../../../data/mig_profiles.csv");

/// One profile, read from the table on its own: id, compute slices, memory slices, most, starts.
type Row = (u32, u32, u32, u32, Vec<u32>);

fn table(product: &str) -> Vec<Row> {
    let rows = TABLE.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let rows = rows.filter(|row| row[0] == product && !row[1].contains('+'));
    let number = |text: &str| text.parse::<u32>().unwrap();
    rows.map(|row| {
        let starts = row[7].split(' ').map(number).collect();
        (number(row[2]), number(row[3]), number(row[4]), number(row[6]), starts)
    })
    .collect()
}

type Layout = BTreeSet<(u32, u32)>;

/// Whether a set of (profile, start) obeys the table.
fn is_legal(rows: &[Row], whole: u32, layout: &Layout) -> bool {
    let row = |id: u32| rows.iter().find(|row| row.0 == id).unwrap();
    let mut slices = [0; 16];
    for (id, start) in layout {
        for slice in *start..start + row(*id).2 {
            slices[slice as usize] += 1;
        }
    }
    let compute: u32 = layout.iter().map(|(id, _)| row(*id).1).sum();
    let counts = rows
        .iter()
        .all(|row| layout.iter().filter(|(id, _)| *id == row.0).count() <= row.3 as usize);
    compute <= whole && counts && slices.iter().all(|count| *count <= 1)
}

/// Every legal layout, by adding to legal ones whatever keeps them legal.
fn legal_layouts(rows: &[Row], whole: u32) -> BTreeSet<Layout> {
    let mut found = BTreeSet::from([Layout::new()]);
    let mut open = vec![Layout::new()];
    while let Some(layout) = open.pop() {
        for (id, _, _, _, starts) in rows {
            for start in starts {
                let mut next = layout.clone();
                next.insert((*id, *start));
                if is_legal(rows, whole, &next) && found.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    found
}

/// A machine of one GPU with MIG on.
fn divided(name: &str, model: &str) -> (Machine, PathBuf) {
    let folder = std::env::temp_dir().join(format!("mig-{}-{name}", std::process::id()));
    let machine = Machine::create(&folder, &GpuSpec::list(model).unwrap()).unwrap();
    machine.edit(|state| state.gpu_mut(0)?.set_mig(true)).unwrap();
    (machine, folder)
}

fn layout_of(instances: &[GpuInstance]) -> Layout {
    instances.iter().map(|instance| (instance.profile_id, instance.start)).collect()
}

/// The state with just these instances, made one after the other.
fn made(empty: &State, layout: &Layout) -> State {
    let mut state = empty.clone();
    for (id, start) in layout {
        state.create_instance(0, *id, Some(*start)).unwrap();
    }
    state
}

fn check_rules(product: &str, model: &str, layouts: usize) {
    let rows = table(product);
    let whole = rows.iter().map(|row| row.1).max().unwrap();
    let legal = legal_layouts(&rows, whole);
    assert_eq!(legal.len(), layouts, "layouts of {model}");
    let (machine, folder) = divided(model, model);
    let empty = State::clone(&machine.read());
    for layout in &legal {
        let state = made(&empty, layout);
        let gpu = state.gpu(0).unwrap();
        let ids: BTreeSet<u32> = gpu.instances.iter().map(|instance| instance.id).collect();
        assert_eq!(ids.len(), layout.len(), "two instances with one number in {layout:?}");
        for (id, _, memory_slices, _, starts) in &rows {
            let fits = |start: &&u32| {
                let mut next = layout.clone();
                next.insert((*id, **start)) && is_legal(&rows, whole, &next)
            };
            let possible: Vec<u32> = starts.iter().filter(fits).copied().collect();
            for start in 0..8 {
                let mut trial = state.clone();
                let answer = trial.create_instance(0, *id, Some(start)).map(|_| ());
                let expected = match (starts.contains(&start), possible.contains(&start)) {
                    (false, _) => Err(Code::InvalidArgument),
                    (true, false) => Err(Code::InsufficientResources),
                    (true, true) => Ok(()),
                };
                assert_eq!(answer, expected, "{id} at {start} (+{memory_slices}) in {layout:?}");
            }
            let mut trial = state.clone();
            let mut count = 0;
            while trial.create_instance(0, *id, None).is_ok() {
                count += 1;
            }
            assert_eq!(gpu.remaining(*id), Ok(count), "room for {id} in {layout:?}");
            let after = layout_of(&trial.gpu(0).unwrap().instances);
            assert!(is_legal(&rows, whole, &after), "driver's choice in {layout:?}: {after:?}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_a100_has_all_layouts_of_the_table_and_no_other() {
    // 723 with the double-memory 1g: the count that the table's users rely on.
    check_rules("A100-80GB", "a100-80gb", 723);
}

#[test]
fn an_a30_has_all_layouts_of_the_table_and_no_other() {
    check_rules("A30-24GB", "a30", 26);
}

#[test]
fn media_variants_take_part_once() {
    let (machine, folder) = divided("media", "h100-80gb");
    let mut state = State::clone(&machine.read());
    state.create_instance(0, 20, Some(0)).unwrap();
    assert_eq!(state.create_instance(0, 20, None), Err(Code::InsufficientResources));
    assert_eq!(state.gpu(0).unwrap().remaining(19), Ok(6));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn compute_instances_share_the_slices_of_their_gpu_instance() {
    let (machine, folder) = divided("compute", "a100-80gb");
    let mut state = State::clone(&machine.read());
    let id = state.create_instance(0, 9, None).unwrap();
    assert_eq!(state.create_compute(0, id, 1, Some(0)), Ok(0), "2c.3g");
    assert_eq!(state.create_compute(0, id, 2, None), Err(Code::InsufficientResources), "3g");
    assert_eq!(state.create_compute(0, id, 0, None), Ok(1), "1c.3g");
    assert_eq!(state.create_compute(0, id, 0, None), Err(Code::InsufficientResources));
    assert_eq!(state.create_compute(0, id, 4, None), Err(Code::NotSupported), "7g in a 3g");
    let first = state.gpu(0).unwrap().mig_devices()[0].1.clone();
    assert_eq!(state.destroy_instance(0, id), Err(Code::InUse));
    state.destroy_compute(0, id, 0).unwrap();
    assert_eq!(state.create_compute(0, id, 1, None), Ok(0), "the number is given again");
    let again = state.gpu(0).unwrap().mig_devices()[0].1.clone();
    assert_eq!(again.uuid, first.uuid, "and with it the name");
    assert_ne!(again.serial, first.serial, "but it is another");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_in_use_stays() {
    let (machine, folder) = divided("use", "a100-80gb");
    let mut state = State::clone(&machine.read());
    let id = state.create_instance(0, 19, None).unwrap();
    let part = state.create_compute(0, id, 0, None).unwrap();
    state.gpu_mut(0).unwrap().add(Process::compute(1, 100).on(id, part).phantom());
    assert_eq!(state.destroy_compute(0, id, part), Err(Code::InUse));
    assert_eq!(state.destroy_instance(0, id), Err(Code::InUse));
    assert_eq!(state.gpu_mut(0).unwrap().set_mig(false), Err(Code::InUse));
    assert_eq!(state.gpu_mut(0).unwrap().reset(), Err(Code::InUse));
    state.gpu_mut(0).unwrap().processes.clear();
    state.destroy_compute(0, id, part).unwrap();
    state.destroy_instance(0, id).unwrap();
    assert_eq!(state.gpu_mut(0).unwrap().set_mig(false), Ok(None));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn mig_mode_of_a_busy_gpu_waits_for_a_reset() {
    let folder = std::env::temp_dir().join(format!("mig-{}-pending", std::process::id()));
    let machine = Machine::create(&folder, &GpuSpec::list("a100-40gb,t4").unwrap()).unwrap();
    let mut state = State::clone(&machine.read());
    assert_eq!(state.gpu_mut(1).unwrap().set_mig(true), Err(Code::NotSupported));
    let gpu = state.gpu_mut(0).unwrap();
    gpu.add(Process::compute(1, 100).phantom());
    assert_eq!(gpu.set_mig(true), Ok(Some(Code::InUse)));
    assert_eq!((gpu.mig.current, gpu.mig.pending), (false, true));
    gpu.processes.clear();
    gpu.reset().unwrap();
    assert!(gpu.mig.current);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_first_half_leaves_the_place_where_four_slices_fit() {
    let (machine, folder) = divided("choice", "a100-80gb");
    let mut state = State::clone(&machine.read());
    let profile = |name: &str| -> &InstanceProfile {
        instance_profiles("a100-80gb").iter().find(|profile| profile.name == name).unwrap()
    };
    state.create_instance(0, profile("3g.40gb").id, None).unwrap();
    assert_eq!(state.gpu(0).unwrap().instances[0].start, 4);
    assert_eq!(state.gpu(0).unwrap().remaining(profile("4g.40gb").id), Ok(1));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn instances_get_the_places_and_numbers_that_a_real_a100_gives() {
    // github.com/rapidsai/dask-cuda, issue 583: seven times `-cgi 19`; and three times `-cgi 14`.
    for (profile, numbers, starts) in [
        (19, vec![9, 7, 8, 11, 12, 13, 14], vec![6, 4, 5, 0, 1, 2, 3]),
        (14, vec![3, 5, 6], vec![4, 0, 2]),
        (9, vec![1, 2], vec![4, 0]),
    ] {
        let (machine, folder) = divided(&format!("numbers-{profile}"), "a100-40gb");
        let mut state = State::clone(&machine.read());
        let made: Vec<u32> =
            (0..numbers.len()).map(|_| state.create_instance(0, profile, None).unwrap()).collect();
        let places: Vec<u32> = state.gpus[0].instances.iter().map(|made| made.start).collect();
        assert_eq!((made, places), (numbers, starts));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
