//! Tables of processes made up on disk, and whose their processes are.

use std::fs;

use super::*;
use crate::live::{LiveRun, LiveTask};

/// A table of processes and a state folder, both on disk.
struct World(PathBuf);

impl World {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("tenant-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Self(root)
    }

    /// Adds a process: pid, parent, session, start.
    fn process(&self, pid: u32, parent: u32, session: u32, start: u64) -> &Self {
        self.owned(pid, parent, session, start, nix::unistd::getuid().as_raw())
    }

    fn owned(&self, pid: u32, parent: u32, session: u32, start: u64, user: u32) -> &Self {
        let folder = self.0.join("proc").join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let zeros = "0 ".repeat(15);
        let stat = format!("{pid} (a b) S {parent} {pid} {session} {zeros}{start} 0 0");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("status"), format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n")).unwrap();
        fs::write(folder.join("cgroup"), "0::/user.slice\n").unwrap();
        self
    }

    /// Puts a process into a cgroup.
    fn within(&self, pid: u32, cgroup: &str) -> &Self {
        let file = self.0.join("proc").join(pid.to_string()).join("cgroup");
        fs::write(file, format!("0::{cgroup}\n")).unwrap();
        self
    }

    fn task(&self, pid: u32, start_ticks: u64) -> &Self {
        let task = LiveTask { task: "t".into(), pid, start_ticks, shares: Vec::new() };
        let run = LiveRun {
            run: "r".into(),
            pid: 1,
            start_ticks: 1,
            tasks: vec![task],
            ..LiveRun::default()
        };
        run.publish(&live::folder(&self.0)).unwrap();
        self
    }

    fn of(&self, pid: u32) -> Tenant {
        let procfs = Procfs::at(&self.0.join("proc"));
        let mut tenants = Tenants::with_processes(procfs, &self.0);
        tenants.refresh();
        tenants.of(pid)
    }
}

fn task() -> Tenant {
    Tenant::Task { run: "r".into(), task: "t".into() }
}

fn user() -> Tenant {
    Tenant::User(nix::unistd::getuid().as_raw())
}

#[test]
fn a_grandchild_of_a_task_is_the_tasks() {
    let world = World::new("grandchild");
    world.process(1, 0, 1, 0).process(10, 1, 10, 50).process(11, 10, 10, 60);
    world.process(12, 11, 12, 70).process(20, 1, 20, 55).task(10, 50);
    assert_eq!((world.of(10), world.of(12)), (task(), task()));
    assert_eq!(world.of(20), user());
}

#[test]
fn a_child_that_outlived_its_parents_is_known_by_its_session() {
    let world = World::new("orphan");
    world.process(1, 0, 1, 0).process(12, 1, 10, 70).task(10, 50);
    assert_eq!(world.of(12), task());
}

#[test]
fn a_pid_that_was_given_anew_is_not_the_task() {
    let world = World::new("reuse");
    // The task 10 started at 50; the process that has the number now started at 90.
    world.process(1, 0, 1, 0).process(10, 1, 10, 90).process(11, 10, 10, 95).task(10, 50);
    assert_eq!((world.of(10), world.of(11)), (user(), user()));
    // A parent younger than its child is not its parent.
    let world = World::new("younger");
    world.process(1, 0, 1, 0).process(10, 1, 1, 90).process(11, 10, 1, 60).task(10, 90);
    assert_eq!(world.of(11), user());
}

#[test]
fn nobody_vouches_for_another_users_processes() {
    let world = World::new("posed");
    let (own, other) = (nix::unistd::getuid(), nix::unistd::getuid().as_raw() + 1);
    world.process(1, 0, 1, 0).owned(10, 1, 10, 50, other).task(10, 50);
    if own.is_root() {
        // Root's word counts for all; a third user's does not.
        assert_eq!(world.of(10), task());
        let file = live::folder(&world.0).join("r.json");
        std::os::unix::fs::chown(file, Some(other + 1), None).unwrap();
    }
    assert_eq!(world.of(10), Tenant::User(other));
}

#[test]
fn a_cgroup_of_ours_counts_only_for_runs_that_are_published() {
    let (world, own) = (World::new("cgroup"), nix::unistd::getuid().as_raw());
    world.process(1, 0, 1, 0).process(10, 1, 10, 50).process(11, 1, 11, 60).task(99, 1);
    let below = "/user.slice/user-7.slice/hotpot";
    world.within(10, &format!("{below}/r/4")).within(11, &format!("{below}/posed/4"));
    assert_eq!(world.of(10), Tenant::Task { run: "r".into(), task: "4".into() });
    assert_eq!(world.of(11), user());
    world.owned(12, 1, 12, 70, own + 1).within(12, "/hotpot/r/4");
    let another = world.of(12);
    // Root's word counts for all.
    if own == 0 {
        assert_eq!(another, Tenant::Task { run: "r".into(), task: "4".into() });
        let file = live::folder(&world.0).join("r.json");
        std::os::unix::fs::chown(file, Some(own + 2), None).unwrap();
    }
    assert_eq!(world.of(12), Tenant::User(own + 1));
}

#[test]
fn what_running_tasks_have_been_given_and_ended_ones_have_had_is_told() {
    let world = World::new("given");
    let share = LiveShare {
        gpu: "GPU-1".into(),
        kind: "mps".into(),
        memory_mib: 512,
        enforcement: "cooperative".into(),
        ..LiveShare::default()
    };
    world.process(10, 1, 10, 50).process(11, 1, 11, 60);
    let task = |name: &str, pid, start_ticks| LiveTask {
        task: name.into(),
        pid,
        start_ticks,
        shares: vec![share.clone()],
    };
    // The second started at another time than the process that has its number now.
    let tasks = vec![task("t", 10, 50), task("gone", 11, 59), task("never", 12, 70)];
    let ended = [("GPU-1".to_owned(), Counts { launches: 3, ..Counts::default() })].into();
    let run = LiveRun { run: "r".into(), pid: 1, start_ticks: 1, tasks, ended };
    run.publish(&live::folder(&world.0)).unwrap();
    let procfs = Procfs::at(&world.0.join("proc"));
    let mut tenants = Tenants::with_processes(procfs, &world.0);
    tenants.refresh();
    assert_eq!(tenants.given(), [Given { tenant: self::task(), share: share.clone() }]);
    assert_eq!(
        tenants.booked().len(),
        1,
        "the runner is gone: only the task that lives has an account"
    );
    assert!(tenants.ended().is_empty());
    // While the runner lives, a task that has just ended is still in its books.
    world.process(1, 0, 1, 1);
    tenants.refresh();
    assert_eq!((tenants.given().len(), tenants.booked().len()), (1, 3));
    assert_eq!((tenants.ended()[0].run.as_str(), tenants.ended()[0].counts.launches), ("r", 3));
}

#[test]
fn who_has_gone_is_unknown_and_circles_end() {
    let world = World::new("gone");
    world.process(10, 11, 1, 50).process(11, 10, 1, 50).task(99, 1);
    assert_eq!(world.of(5), Tenant::Unknown);
    assert_eq!(world.of(10), user());
}

#[test]
fn a_real_child_of_this_process_is_found() {
    let world = World::new("real");
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let own = std::process::id();
    world.task(own, Procfs::default().facts(own).unwrap().start_ticks);
    let mut tenants = Tenants::new(&world.0);
    tenants.refresh();
    let found = tenants.by_ancestry(child.id(), Procfs::default().facts(child.id()).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, Some(task()));
    assert_eq!(tenants.of(child.id()), Tenant::Unknown);
}
