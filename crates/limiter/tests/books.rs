//! Several processes of one tenant do anything in any order, fork and are killed; after every step the
//! books say what the GPUs say, and never more than the cap.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use model::SplitMix;
use support::{Client, MIB, OUT_OF_MEMORY, Stage};

/// The cap, in MiB.
const CAP_MIB: u64 = 1024;
/// Processes at once.
const CLIENTS: usize = 3;
/// Slots that each process uses.
const SLOTS: usize = 12;

/// The slot of a pool that keeps all that it has had, and the first of those for mappings.
const POOL: usize = 200;
const MAPPINGS: usize = 100;

/// A process, and by slot how what lies there is given back.
struct One {
    client: Client,
    slots: [Option<String>; SLOTS],
}

impl One {
    /// A new process; `None` if its context does not fit.
    fn begun(stage: &Stage) -> Option<Self> {
        let mut client = stage.client();
        let code = client.ask("begin").0;
        assert!(code == 0 || code == OUT_OF_MEMORY, "begin gave {code}");
        if code == 0 {
            client.does(&format!("pool {POOL}"));
        }
        (code == 0).then_some(Self { client, slots: [const { None }; SLOTS] })
    }

    /// One step: takes something into a free slot, or gives back what lies there.
    fn step(&mut self, numbers: &mut SplitMix) -> String {
        let slot = numbers.position(SLOTS);
        if let Some(undo) = self.slots[slot].take() {
            self.client.does(&undo);
            if undo.starts_with("free-async") {
                self.client.does("wait");
            }
            return undo;
        }
        let mib = 1 + numbers.below(150);
        let bytes = mib * MIB + numbers.below(2) * 12_345;
        let (what, undo) = match numbers.below(9) {
            0 | 1 => (format!("alloc {slot} {bytes}"), "free"),
            2 => (format!("alloc-managed {slot} {bytes}"), "free"),
            3 => (format!("alloc-pitch {slot} 1100 {}", mib * 1024), "free"),
            4 => (format!("alloc-async {slot} {bytes}"), "free-async"),
            5 => (format!("alloc-pool {slot} {POOL} {bytes}"), "free-async"),
            6 => (format!("create {slot} {} 1 0", mib * 2 * MIB), "end-piece"),
            7 => (format!("create {slot} {} 1 0", mib * 2 * MIB), "unmap"),
            _ => (format!("array {slot} 4096 {}", mib * 64), "end-array"),
        };
        let code = self.client.ask(&what).0;
        assert!(code == 0 || code == OUT_OF_MEMORY, "{what} gave {code}");
        if code == 0 && undo == "unmap" {
            // The handle goes at once, the memory with the mapping.
            self.client.does(&format!("map {slot} {}", MAPPINGS + slot));
            self.client.does(&format!("end-piece {slot}"));
            self.slots[slot] = Some(format!("unmap {}", MAPPINGS + slot));
        } else if code == 0 {
            self.slots[slot] = Some(format!("{undo} {slot}"));
        }
        format!("{what} -> {code}")
    }
}

/// Runs one history of so many steps.
fn history(seed: u64, steps: usize) {
    let stage = Stage::new(&format!("books-{seed}"), CAP_MIB);
    let mut numbers = SplitMix::new(seed);
    let mut clients: Vec<Option<One>> = (0..CLIENTS).map(|_| None).collect();
    let mut done = Vec::new();
    let mut refused = 0;
    for _ in 0..steps {
        let at = numbers.position(CLIENTS);
        let said = match (&mut clients[at], numbers.below(40)) {
            (Some(one), 0) => {
                one.client.kill();
                clients[at] = None;
                "killed".to_owned()
            }
            (Some(one), 1) => {
                one.client.does(&format!("fork {MIB}"));
                "forked".to_owned()
            }
            (Some(one), _) => one.step(&mut numbers),
            (none, _) => {
                *none = One::begun(&stage);
                "begun".to_owned()
            }
        };
        refused += u32::from(said.ends_with("-> 2"));
        done.push(format!("{at}: {said}"));
        let (booked, truly) = (stage.booked_mib(), stage.true_mib());
        let account = stage.account();
        let history = done.join("\n");
        assert_eq!(booked, truly, "seed {seed}: {account:?} after:\n{history}");
        assert!(truly <= CAP_MIB, "seed {seed}, {truly} MiB are held after:\n{}", done.join("\n"));
    }
    assert!(refused > 0, "seed {seed} never came to the cap");
    for one in clients.iter_mut().flatten() {
        one.client.kill();
    }
    assert_eq!((stage.booked_mib(), stage.true_mib()), (0, 0), "seed {seed} left something behind");
}

#[test]
fn books_and_gpus_agree_after_every_step() {
    for seed in 1..=12 {
        history(seed, 150);
    }
}
