//! Processes that use a machine's GPUs as the tests tell them.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a part of tests")]

mod process;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fake_gpu::{Claim, Gpus, MemoryKind, Place, Queue, Ticket, Work};
use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine};

pub(crate) use process::Actor;

/// A machine in a folder of its own, which goes when this goes.
pub(crate) struct Scene {
    pub(crate) folder: PathBuf,
    #[allow(dead_code, reason = "each test program uses a part")]
    pub(crate) machine: Machine,
    pub(crate) gpus: Gpus,
}

impl Scene {
    pub(crate) fn new(test: &str, gpus: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("fake-gpu-{}-{test}", std::process::id()));
        let machine = Machine::create(&folder, &GpuSpec::list(gpus).unwrap()).unwrap();
        let gpus = Gpus::open(&machine).unwrap();
        Self { folder, machine, gpus }
    }

    /// The same, with time standing still at 0.
    #[allow(dead_code, reason = "each test program uses a part")]
    pub(crate) fn virtual_time(test: &str, gpus: &str) -> Self {
        let scene = Self::new(test, gpus);
        scene.gpus.set_virtual_ns(Some(0));
        scene
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::start(&self.folder)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The GPU with that index.
pub(crate) fn gpu(index: u32) -> Place {
    Place { gpu: index, instance: None }
}

impl Actor {
    #[allow(dead_code, reason = "each test program uses a part")]
    pub(crate) fn queue(&mut self, gpu: u32) -> Queue {
        Queue(self.ask(&format!("queue {gpu}")) as u32)
    }

    #[allow(dead_code, reason = "each test program uses a part")]
    pub(crate) fn submit(&mut self, queue: Queue, ns: u64, sms: u32) -> Ticket {
        let number = self.ask(&format!("submit {} {ns} {sms}", queue.0));
        Ticket { queue, number }
    }
}

/// The process: carries commands out until its input ends.
pub(crate) fn act() {
    let Some(folder) = std::env::var_os(MACHINE_VARIABLE) else { return };
    let gpus = Gpus::open(&Machine::open(folder).unwrap()).unwrap();
    let mut claims = BTreeMap::new();
    process::obey(|verb, numbers| carry_out(&gpus, &mut claims, verb, numbers));
}

fn carry_out(gpus: &Gpus, claims: &mut BTreeMap<u64, u64>, verb: &str, numbers: &[u64]) -> u64 {
    let queue = || Queue(numbers[0] as u32);
    match verb {
        "take" => match gpus.take(gpu(numbers[0] as u32), MemoryKind::Plain, numbers[1]) {
            Ok(claim) => claim.0,
            Err(_) => 0,
        },
        "fill" => fill(gpus, numbers[0] as u32, numbers[1]),
        "keep" => u64::from(gpus.keep(Claim(numbers[0]))),
        "give" => u64::from(gpus.give(Claim(numbers[0]))),
        "queue" => u64::from(gpus.queue(gpu(numbers[0] as u32)).unwrap().0),
        "submit" => {
            let work = Work { ns: numbers[1], sms: numbers[2] as u32 };
            gpus.submit(queue(), work).map_or(0, |ticket| ticket.number)
        }
        "after" => {
            let ticket = Ticket { queue: Queue(numbers[1] as u32), number: numbers[2] };
            gpus.after(queue(), ticket);
            0
        }
        "drop" => {
            gpus.drop_queue(queue());
            0
        }
        "fork" => u64::from(fork(gpus, numbers[0], numbers[1])),
        "share" => loop {
            gpus.keep(Claim(numbers[0]));
            gpus.give(Claim(numbers[0]));
        },
        "churn" => churn(gpus, claims, numbers[0], numbers[1]),
        "work" => work(gpus, numbers[0]),
        verb => panic!("no command {verb}"),
    }
}

/// Takes pieces of so many bytes until there is no more; returns how many.
fn fill(gpus: &Gpus, index: u32, bytes: u64) -> u64 {
    let mut pieces = 0;
    while gpus.take(gpu(index), MemoryKind::Plain, bytes).is_ok() {
        pieces += 1;
    }
    pieces
}

/// Makes a child, returns its pid. It gives back a claim of its parent's, which must fail, takes so much
/// memory of its own, and stays as long as its parent.
#[allow(unsafe_code, reason = "a process without a program of its own")]
fn fork(gpus: &Gpus, claim: u64, bytes: u64) -> u32 {
    // SAFETY: no other thread of this process uses the GPUs, and the child only calls what they offer.
    let child = unsafe { libc::fork() };
    if child != 0 {
        return child as u32;
    }
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if !gpus.give(Claim(claim)) {
        gpus.take(gpu(0), MemoryKind::Plain, bytes).unwrap();
    }
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

/// Takes and gives at random, so many times or without end; returns the bytes held after.
fn churn(gpus: &Gpus, claims: &mut BTreeMap<u64, u64>, times: u64, seed: u64) -> u64 {
    let mut random = seed;
    let mut done = 0;
    while times == 0 || done < times {
        // Knuth's MMIX generator.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (random >> 33) as usize;
        if pick.is_multiple_of(2) || claims.is_empty() {
            let bytes = (pick as u64 % 1000 + 1) << 10;
            let place = gpu(pick as u32 / 2 % 2);
            if let Ok(claim) = gpus.take(place, MemoryKind::Plain, bytes) {
                claims.insert(claim.0, bytes);
            }
        } else {
            let claim = *claims.keys().nth(pick % claims.len()).unwrap();
            assert!(gpus.give(Claim(claim)));
            claims.remove(&claim);
        }
        done += 1;
    }
    claims.values().sum()
}

/// Makes queues, fills them, waits across them and lets them go, so many times or without end.
fn work(gpus: &Gpus, times: u64) -> u64 {
    let mut done = 0;
    while times == 0 || done < times {
        let queues: Vec<Queue> = (0..4).map(|at| gpus.queue(gpu(at % 2)).unwrap()).collect();
        let mut last = gpus.last(queues[0]);
        for at in 0..40 {
            let queue = queues[at % 4];
            gpus.after(queue, last);
            last = gpus.submit(queue, Work { ns: 2_000, sms: 50 }).unwrap();
        }
        while !gpus.done(last) {}
        for queue in queues {
            gpus.drop_queue(queue);
        }
        done += 1;
    }
    done
}
