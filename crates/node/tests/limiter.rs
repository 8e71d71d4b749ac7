//! Shares that the limiter holds: what their tenants are told, where their accounts lie, and that
//! nothing of it stays.

mod simulated;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fake_machine::Machine as Simulated;
use model::{Share, SharingKind};
use node::backend::Enforcement;
use node::grant::{Grant, Holder};
use node::machine::{Machine, MachineOptions};
use simulated::{Scratch, on_machine};

const CAPPED: Share = Share::MemoryCapped { memory_mib: 2048, compute_milli: 0 };
const BOTH: Share = Share::MemoryCapped { memory_mib: 1024, compute_milli: 300 };

/// Any library of this machine will do, as nobody starts a process here: one that this program has
/// loaded.
fn options() -> MachineOptions {
    let maps = fs::read_to_string("/proc/self/maps").expect("a list");
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = paths.into_iter().find(|path| path.contains("libgcc_s")).map(PathBuf::from);
    MachineOptions { limiter: Some(library.expect("it is linked")), ..MachineOptions::default() }
}

fn open() -> Machine {
    Machine::open(options()).expect("the machine opens")
}

fn uuid(simulated: &Simulated, gpu: u32) -> String {
    simulated.read().gpu(gpu).expect("a GPU").uuid.clone()
}

fn variable(grant: &Grant, name: &str) -> Option<String> {
    let found = grant.env.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone())
}

fn caps_of(grant: &Grant) -> (PathBuf, caps::Caps) {
    let path = PathBuf::from(variable(grant, "HOTPOT_CAPS").expect("it is told of its caps"));
    let text = fs::read_to_string(&path).expect("the file is there before the process");
    (path, caps::Caps::parse(&text).expect("a caps file"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// All files and folders below one.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.flat_map(|entry| [vec![entry.path()], below(&entry.path())].concat()).collect()
}

#[test]
fn a_tenant_is_told_of_all_its_gpus_and_of_no_others() {
    on_machine("a_tenant_is_told_of_all_its_gpus_and_of_no_others", "t4:3", |simulated, _| {
        let mut machine = open();
        let (first, second, third) = (uuid(simulated, 0), uuid(simulated, 1), uuid(simulated, 2));
        let backends = &machine.inventory().expect("it answers").devices[0].backends.clone();
        assert_eq!(backends.limiter, Enforcement::Cooperative);
        let holder = Holder { who: "run.1/7", priority: 2, user: None };
        let one = machine.grant(&first, CAPPED, holder).expect("it holds");
        assert_eq!(
            (&one.memory, one.kind()),
            (&Enforcement::Cooperative, SharingKind::MemoryCapped)
        );
        assert!(!one.compute.holds(), "no cap of compute was asked for");
        let two = machine.grant(&second, BOTH, holder).expect("it holds");
        assert_eq!(two.compute, Enforcement::Cooperative);
        let three =
            machine.grant(&third, Share::TimeSlice { memory_mib: 1 }, holder).expect("a turn");
        machine.grant(&third, Share::TimeSlice { memory_mib: 1 }, "run.1/8").expect("a turn");
        assert!(three.env.is_empty() && three.ledger.is_none());
        let (path, caps) = caps_of(&one);
        assert_eq!(path, caps_of(&two).0, "one file for one tenant");
        assert_eq!(path, machine.state().join("caps/run.1/7/caps"));
        assert_eq!((mode(&path), caps.tenant.as_str(), caps.closed), (0o444, "run.1/7", true));
        let [a, b, c] = caps.gpus.as_slice() else { panic!("{caps:?}") };
        assert_eq!(a.gpu, caps::Which::Uuid(first.clone()));
        assert_eq!((a.memory_bytes, a.compute), (Some(2048 << 20), None));
        let compute = caps::ComputeCap { priority: 2, ..caps::ComputeCap::of(300) };
        assert_eq!((b.memory_bytes, b.compute), (Some(1024 << 20), Some(compute)));
        assert_eq!((c.memory_bytes, c.compute, &c.board), (None, None, &None));
        assert_eq!(a.board, Some(machine.state().join("boards").join(&first)));
        let board = a.board.as_ref().expect("where tenants meet");
        assert!(mode(board) == 0o600 && caps::Mapped::<caps::turns::Board>::open(board).is_ok());
        for given in &caps.gpus {
            assert_eq!(mode(&given.ledger), 0o600);
            assert!(caps::Account::read(&given.ledger).is_ok());
        }
        assert_eq!(one.ledger.as_ref(), Some(&a.ledger));
        assert_eq!(machine.account(&one).map(|account| account.held_bytes()), Some(0));
        assert_eq!(machine.account(&three), None);
    });
}

#[test]
fn a_tenants_files_go_with_its_last_capped_share() {
    on_machine("a_tenants_files_go_with_its_last_capped_share", "t4:2", |simulated, _| {
        let mut machine = open();
        let (first, second) = (uuid(simulated, 0), uuid(simulated, 1));
        let whole = machine.grant(&second, Share::Exclusive, "r/1").expect("the whole GPU");
        assert!(below(machine.state()).iter().all(|path| !path.ends_with("caps")));
        let one = machine.grant(&first, CAPPED, "r/1").expect("it holds");
        let neighbour = machine.grant(&first, BOTH, "r/2").expect("it holds");
        let board = caps_of(&neighbour).1.gpus[0].board.clone();
        assert_eq!(board, caps_of(&one).1.gpus[1].board, "neighbours meet");
        assert_eq!(caps_of(&one).1.gpus.len(), 2, "the whole GPU was granted before");
        let path = caps_of(&one).0;
        machine.revoke(&one).expect("given back");
        assert!(!path.exists(), "nothing of what is left is capped");
        assert_eq!(caps_of(&neighbour).1.gpus.len(), 1);
        machine.revoke(&whole).expect("given back");
        machine.revoke(&neighbour).expect("given back");
        machine.revoke(&neighbour).expect("a second time is fine");
        let left = below(&machine.state().join("caps"));
        assert!(left.is_empty() && below(&machine.state().join("boards")).is_empty(), "{left:?}");
    });
}

#[test]
fn what_a_killed_process_has_left_is_removed() {
    on_machine("what_a_killed_process_has_left_is_removed", "t4:1", |simulated, _| {
        let mut machine = open();
        let gpu = uuid(simulated, 0);
        let grants = ["r.1/1", "r.1/2", "alone"]
            .map(|who| machine.grant(&gpu, BOTH, who).expect("it holds"));
        let files = grants.each_ref().map(|grant| caps_of(grant).0);
        drop(machine);
        let machine = open();
        assert!(files.iter().all(|file| file.exists()), "holders that are known keep theirs");
        assert_eq!(machine.release_all("r.1/1").expect("written"), 1);
        assert_eq!(files.each_ref().map(|file| file.exists()), [false, true, true]);
        // As after a start of the machine: nobody holds anything any more.
        for who in ["r.1/2", "alone"] {
            machine.journal().release_all(who).expect("written");
        }
        drop(machine);
        let machine = open();
        assert!(below(&machine.state().join("caps")).is_empty());
        // A board that is new may be that of a process which is about to write its caps.
        let boards = below(&machine.state().join("boards"));
        assert_eq!(boards.len(), 1);
        let board = fs::File::options().write(true).open(&boards[0]).expect("it is there");
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        board.set_modified(long_ago).expect("its owner may");
        drop(machine);
        let machine = open();
        assert!(below(&machine.state().join("boards")).is_empty());
    });
}

#[test]
fn memory_by_the_driver_and_compute_by_the_limiter() {
    on_machine("memory_by_the_driver_and_compute_by_the_limiter", "a100-80gb:1", |simulated, _| {
        let parent = Scratch::new("limiter-parent");
        let gpu = uuid(simulated, 0);
        let cgroup_parent = Some(parent.path().to_owned());
        let with = MachineOptions { cgroup_parent, ..options() };
        let mut machine = Machine::open(with.clone()).expect("the machine opens");
        let plain = machine.grant(&gpu, CAPPED, "r/1").expect("it holds");
        assert_eq!(
            (&plain.memory, plain.env.len()),
            (&Enforcement::Hard, 2),
            "it must not take the time of neighbours that have a cap"
        );
        let both = machine.grant(&gpu, BOTH, "r/2").expect("it holds");
        assert_eq!((&both.memory, &both.compute), (&Enforcement::Hard, &Enforcement::Cooperative));
        assert!(both.cgroup.is_some());
        assert_eq!(caps_of(&both).1.gpus[0].memory_bytes, Some(1024 << 20), "programs see the cap");
        drop(machine);
        let without = MachineOptions { limiter: Some("/nowhere".into()), ..with };
        let mut machine = Machine::open(without).expect("the machine opens");
        let third = machine.grant(&gpu, BOTH, "r/3").expect_err("nobody holds compute").to_string();
        assert!(
            third.contains("do not cap compute") && third.contains("limiter library"),
            "{third}"
        );
        let memory = machine.grant(&gpu, CAPPED, "r/4").expect("memory holds");
        assert_eq!(memory.memory, Enforcement::Hard);
    });
}
