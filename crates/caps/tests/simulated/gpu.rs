//! A GPU without MPS in virtual time: one process at a time runs, in time slices; a running kernel pauses
//! at the end of a slice and goes on in the next one.

use std::collections::VecDeque;

/// How long a process runs while others have work too. Drivers use 1 to 6 ms.
const SLICE_NS: u64 = 2_000_000;
/// Time in which nobody runs when processes change.
const SWITCH_NS: u64 = 20_000;

#[derive(Debug)]
enum Item {
    /// A kernel: ns left, its kind if it is measured, when it was launched and began.
    Kernel { left: u64, kind: Option<u64>, launched: u64, began: Option<u64> },
    /// An event.
    Mark(u32),
}

#[derive(Debug, Default)]
struct Process {
    queue: VecDeque<Item>,
    used: u64,
    /// Events that are done, newest last.
    done: Vec<u32>,
    /// Measured kernels: kind, when launched, and ns.
    samples: Vec<(u64, u64, u64)>,
}

impl Process {
    /// Events at the head of the queue take no time.
    fn pass_marks(&mut self) {
        while let Some(Item::Mark(mark)) = self.queue.front() {
            self.done.push(*mark);
            self.queue.pop_front();
        }
    }
}

/// The GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    now: u64,
    processes: Vec<Process>,
    running: usize,
    slice_end: u64,
}

impl Gpu {
    pub(crate) fn new(processes: usize) -> Self {
        let processes = (0..processes).map(|_| Process::default()).collect();
        Self { now: 0, processes, running: 0, slice_end: 0 }
    }

    pub(crate) fn kernel(&mut self, process: usize, ns: u64, kind: Option<u64>, now: u64) {
        self.advance(now);
        self.processes[process].queue.push_back(Item::Kernel {
            left: ns,
            kind,
            launched: now,
            began: None,
        });
    }

    pub(crate) fn mark(&mut self, process: usize, mark: u32, now: u64) {
        self.advance(now);
        self.processes[process].queue.push_back(Item::Mark(mark));
        self.settle();
    }

    /// Whether an event is done; each is told once.
    pub(crate) fn is_done(&mut self, process: usize, mark: u32, now: u64) -> bool {
        self.advance(now);
        let done = &mut self.processes[process].done;
        let found = done.iter().position(|known| *known == mark);
        if let Some(at) = found {
            done.swap_remove(at);
        }
        found.is_some()
    }

    pub(crate) fn is_empty(&mut self, process: usize, now: u64) -> bool {
        self.advance(now);
        self.processes[process].queue.is_empty()
    }

    pub(crate) fn samples(&mut self, process: usize) -> Vec<(u64, u64, u64)> {
        std::mem::take(&mut self.processes[process].samples)
    }

    /// GPU time that a process has had, in ns.
    pub(crate) fn used(&mut self, process: usize, now: u64) -> u64 {
        self.advance(now);
        self.processes[process].used
    }

    /// The process dies, its work vanishes.
    pub(crate) fn kill(&mut self, process: usize, now: u64) {
        self.advance(now);
        self.processes[process].queue.clear();
    }

    fn settle(&mut self) {
        self.processes.iter_mut().for_each(Process::pass_marks);
    }

    fn advance(&mut self, to: u64) {
        while self.now < to {
            self.settle();
            if self.processes[self.running].queue.is_empty() || self.now >= self.slice_end {
                self.change();
            }
            if self.processes[self.running].queue.is_empty() {
                self.now = to;
                return;
            }
            if self.now < to {
                self.run(to);
            }
        }
    }

    /// The next process with work, in turn.
    fn change(&mut self) {
        let count = self.processes.len();
        let others = (1..=count).map(|step| (self.running + step) % count);
        let Some(next) = others.into_iter().find(|at| !self.processes[*at].queue.is_empty()) else {
            return;
        };
        if next != self.running {
            self.now += SWITCH_NS;
            self.running = next;
        }
        self.slice_end = self.now + SLICE_NS;
    }

    /// Runs kernels of the running process until `to`, or until its slice is over.
    fn run(&mut self, to: u64) {
        let end = to.min(self.slice_end.max(self.now + 1));
        let process = &mut self.processes[self.running];
        while self.now < end {
            match process.queue.front_mut() {
                Some(Item::Kernel { left, kind, launched, began }) => {
                    let began = *began.get_or_insert(self.now);
                    let step = (*left).min(end - self.now);
                    *left -= step;
                    self.now += step;
                    process.used += step;
                    if *left == 0 {
                        let (kind, launched) = (*kind, *launched);
                        process.queue.pop_front();
                        if let Some(kind) = kind {
                            process.samples.push((kind, launched, self.now - began));
                        }
                    }
                }
                Some(Item::Mark(_)) => process.pass_marks(),
                None => return,
            }
        }
        // Events right behind a kernel that has just ended.
        process.pass_marks();
    }
}
