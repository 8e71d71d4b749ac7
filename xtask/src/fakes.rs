//! Do others believe the fake driver? The layouts of its structs are held against NVIDIA's header, and
//! programs from PyPI run on it as they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine, Process};

use crate::python::Python;
use crate::{Verdict, prototypes, shell};

const LIST: &str = include_str!("../../fakes/nvml/clients/list.py");
const MIG: &str = include_str!("../../fakes/nvml/clients/mig.py");
const LAYOUTS: &str = include_str!("../../fakes/nvml/clients/layouts.py");

pub(crate) fn run() -> Verdict {
    shell::cargo(&["build", "--quiet", "--package", "fake-nvml"])?;
    let python = Python::ready()?;
    let room = Room::make()?;
    layouts(&python, &room)?;
    signatures(&python, &room)?;
    mig(&python, &room)?;
    let running = Running::start()?;
    let machine = room.machine("h100-80gb,t4")?;
    let process = Process::compute(running.0.id(), 1500).busy(40);
    let edited = machine.edit(|state| {
        state.gpu_mut(0)?.add(process);
        Ok(())
    });
    edited.map_err(|error| error.to_string())?;
    list(&python, &room, &running)?;
    monitors(&python, &room, &running)
}

/// The folder that all checks use: the library under its real name, and a machine.
struct Room {
    folder: PathBuf,
}

impl Room {
    fn make() -> Result<Self, String> {
        let folder = shell::target().join("fakes");
        let library = folder.join("lib/libnvidia-ml.so.1");
        let made = fs::create_dir_all(folder.join("lib")).and_then(|()| {
            fs::copy(shell::target().join("debug/libhotpot_fake_nvml.so"), &library)
        });
        made.map_err(|error| format!("{}: {error}", library.display()))?;
        Ok(Self { folder })
    }

    fn library(&self) -> PathBuf {
        self.folder.join("lib/libnvidia-ml.so.1")
    }

    fn machine(&self, gpus: &str) -> Result<Machine, String> {
        let specs = GpuSpec::list(gpus).map_err(|error| error.to_string())?;
        Machine::create(self.folder.join("machine"), &specs).map_err(|error| error.to_string())
    }

    /// Lets a program find the fake driver as it finds the real one.
    fn on<'a>(&self, program: &'a mut Command) -> &'a mut Command {
        program
            .env("LD_LIBRARY_PATH", self.folder.join("lib"))
            .env(MACHINE_VARIABLE, self.folder.join("machine"))
    }
}

/// A process that lives as long as the check.
struct Running(Child);

impl Running {
    fn start() -> Result<Self, String> {
        let started = Command::new("sleep").arg("600").spawn();
        started.map(Self).map_err(|error| format!("cannot run sleep: {error}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sizes and offsets, as a C compiler reads the header.
fn layouts(python: &Python, room: &Room) -> Verdict {
    let mut claim = python.program("python");
    let ours = shell::output(claim.args(["-c", LAYOUTS]).arg(room.library()))?;
    let (source, program) = (room.folder.join("layouts.c"), room.folder.join("layouts"));
    fs::write(&source, c_program(&ours)).map_err(|error| error.to_string())?;
    let mut compile = Command::new("gcc");
    compile.arg("-I").arg(python.nvml_headers()?).arg("-o").args([&program, &source]);
    shell::output(&mut compile)?;
    let theirs = shell::output(&mut Command::new(&program))?;
    let differing = differences(&ours, &theirs);
    if !differing.is_empty() {
        return Err(format!("layouts differ from nvml.h:\n{}", differing.join("\n")));
    }
    println!("layouts: {} sizes and offsets as in nvml.h", ours.lines().count());
    Ok(())
}

/// Argument and result types, as a C compiler reads the header.
fn signatures(python: &Python, room: &Room) -> Verdict {
    let source = room.folder.join("prototypes.c");
    let (text, count) = prototypes::c_file()?;
    fs::write(&source, text).map_err(|error| error.to_string())?;
    let mut compile = Command::new("gcc");
    compile.arg("-fsyntax-only").arg("-I").arg(python.nvml_headers()?).arg(&source);
    shell::output(&mut compile)?;
    println!("signatures: {count} functions as in nvml.h");
    Ok(())
}

/// A program that prints what the claim claims, from the header.
fn c_program(claim: &str) -> String {
    let names = claim.lines().filter_map(|line| line.split(' ').next());
    let prints = names.map(|name| match name.split_once('.') {
        None => format!("printf(\"{name} %zu\\n\", sizeof({name}));"),
        Some((of, field)) => format!("printf(\"{name} %zu\\n\", offsetof({of}, {field}));"),
    });
    let prints: Vec<String> = prints.collect();
    let head = "#include <stddef.h>\n#include <stdio.h>\n#include <nvml.h>\n";
    format!("{head}int main(void) {{\n{}\nreturn 0;\n}}\n", prints.join("\n"))
}

/// Lines that say something else on the two sides.
fn differences(ours: &str, theirs: &str) -> Vec<String> {
    let read = |text: &str| -> BTreeMap<String, String> {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let (ours, theirs) = (read(ours), read(theirs));
    let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let differing = names.into_iter().filter(|name| ours.get(*name) != theirs.get(*name));
    differing
        .map(|name| format!("{name}: ours {:?}, theirs {:?}", ours.get(name), theirs.get(name)))
        .collect()
}

fn mig(python: &Python, room: &Room) -> Verdict {
    room.machine("a100-80gb:2")?;
    shell::output(room.on(python.program("python").args(["-c", MIG])))?;
    println!("nvidia-ml-py: makes, places, is refused and destroys MIG instances");
    Ok(())
}

fn list(python: &Python, room: &Room, running: &Running) -> Verdict {
    let mut program = python.program("python");
    program.args(["-c", LIST]).arg(running.0.id().to_string());
    shell::output(room.on(&mut program))?;
    println!("nvidia-ml-py: reads GPUs, memory, processes, counters, topology");
    Ok(())
}

fn monitors(python: &Python, room: &Room, running: &Running) -> Verdict {
    let pid = running.0.id().to_string();
    let seen = shell::output(room.on(python.program("nvitop").arg("--once")))?;
    for part in ["H100 80GB HBM3", "Tesla T4", "1500MiB", "615.71.05", "sleep 600", &pid] {
        contains("nvitop", &seen, part)?;
    }
    let seen = shell::output(room.on(python.program("gpustat").arg("--json")))?;
    let json = format!("\"pid\": {pid}");
    for part in
        ["\"memory.used\": 1500", "\"utilization.gpu\": 40", "\"command\": \"sleep\"", &json]
    {
        contains("gpustat", &seen, part)?;
    }
    let machine = room.machine("a100-80gb")?;
    let divided = machine.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        let instance = state.create_instance(0, 9, Some(4))?;
        let part = state.create_compute(0, instance, 2, None)?;
        state.gpu_mut(0)?.add(Process::compute(running.0.id(), 700).on(instance, part));
        Ok(())
    });
    divided.map_err(|error| error.to_string())?;
    let seen = shell::output(room.on(python.program("nvitop").arg("--once")))?;
    for part in ["Enabled", "0:0", "3g.40gb @ GI/CI: 1/0", "700.0MiB / 38.00GiB", &pid] {
        contains("nvitop", &seen, part)?;
    }
    println!("nvitop, gpustat: show the GPUs, the process and the MIG device");
    Ok(())
}

fn contains(program: &str, seen: &str, part: &str) -> Verdict {
    if seen.contains(part) {
        Ok(())
    } else {
        Err(format!("{program} does not show `{part}`; it shows:\n{seen}"))
    }
}
