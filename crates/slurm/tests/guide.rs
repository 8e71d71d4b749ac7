//! deploy/slurm/README.md, followed to the letter on a real cluster: its shell blocks in order, with other paths. What it
//! promises must come true, and after its "Uninstall" all is as before.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use slurm_lab::{Cluster, Daemon, Options};

const NODES: [&str; 2] = ["n1", "n2"];
/// First line of blocks that are for each kind of node; here each node is a kind.
const EACH_KIND: &str = "# on a node of each kind";
/// What a block that has the first must print.
const PRINTED: [(&str, &str); 2] =
    [("conf --part node", ",shard:1268\n"), ("hotpot slurm check", "\nall is in place\n")];

/// A fenced block: `sh` or `console`, its text, and under which heading it stands.
struct Block {
    kind: String,
    text: String,
    heading: String,
}

fn blocks() -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm/README.md");
    let (mut blocks, mut heading, mut open) = (Vec::new(), String::new(), None::<Block>);
    for line in fs::read_to_string(path).unwrap().lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                let (kind, heading) = (kind.to_owned(), heading.clone());
                open = Some(Block { kind, text: String::new(), heading });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.push_str(&format!("{line}\n")),
            (None, None) => {
                heading = line.strip_prefix("## ").map_or(heading, str::to_owned);
            }
        }
    }
    blocks
}

/// A cluster without hotpot, and a place for its programs; gone at the end.
struct Site {
    cluster: Cluster,
    folder: PathBuf,
    /// What becomes of `/usr`.
    prefix: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.cluster.down();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// `None`, said by the test's name, where real Slurm cannot be had.
fn up(test: &str) -> Option<Site> {
    let options = Options { shards: 0, ..Options::default() };
    if !slurm_lab::can_be_had(test, &options) {
        return None;
    }
    let folder = std::env::temp_dir().join(format!("guide-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("bin")).unwrap();
    let cluster = Cluster::up(&folder.join("lab"), &options).unwrap_or_else(|e| panic!("{e}"));
    let site = Site { cluster, prefix: folder.join("usr"), folder };
    // The guide has to say it.
    let conf = site.cluster.etc().join("slurm.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text.replace("PrologFlags=Alloc\n", "")).unwrap();
    ["slurmctld", "slurmd"].iter().for_each(|unit| site.restart(unit));
    site.stand_in("cargo", &site.cargo());
    // The test restarts what is asked for here and takes the wish away.
    let asked = site.asked().display().to_string();
    let wait = format!("while [ -e {asked} ]; do sleep 0.02; done");
    let text =
        format!("[ $1 = restart ] && echo $2 >{asked}.new && mv {asked}.new {asked}\n{wait}");
    site.stand_in("systemctl", &text);
    Some(site)
}

impl Site {
    /// A program that takes the place of one of the same name.
    fn stand_in(&self, name: &str, text: &str) {
        let path = self.folder.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\nset -e\n{text}\n")).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn asked(&self) -> PathBuf {
        self.folder.join("asked")
    }

    /// Where a node's own files lie, for all nodes at once.
    fn of_each(&self, pattern: &str) -> String {
        self.cluster.machine(pattern).display().to_string()
    }

    /// What `cargo xtask install PREFIX` does, with the programs that tests are built with. hotpot sees the GPUs of
    /// its node, which are a folder here.
    fn cargo(&self) -> String {
        let parts = ["build", "-q", "-p", "cli", "-p", "limiter", "-p", "spank"];
        assert!(Command::new(env!("CARGO")).args(parts).status().unwrap().success(), "it builds");
        let program = std::env::current_exe().unwrap();
        let built = program.ancestors().nth(2).unwrap().display();
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm");
        let (deploy, node) = (deploy.display(), self.of_each("%n"));
        let env = self.of_each("${SLURMD_NODENAME:-n1}");
        format!(
            "[ \"$1 $2\" = \"xtask install\" ]\n\
             lib=$3/lib/hotpot\n\
             mkdir -p $3/bin $lib/slurm\n\
             ln {built}/hotpot {built}/libhotpot_limiter.so {built}/libhotpot_spank.so $lib\n\
             cp {deploy}/* $lib/slurm\n\
             sed -i \"s,/usr/lib/hotpot,$lib,; s,/run/hotpot/slurm,{node}/jobs,\" $lib/slurm/spank.conf\n\
             echo Devices={node}/dev >>$lib/slurm/hotpot.conf\n\
             echo Jobs={node}/jobs >>$lib/slurm/hotpot.conf\n\
             echo '#!/bin/sh' >$3/bin/hotpot\n\
             echo '. {env}/env' >>$3/bin/hotpot\n\
             echo exec $lib/hotpot '\"$@\"' >>$3/bin/hotpot\n\
             chmod 755 $3/bin/hotpot"
        )
    }

    /// The guide's words with this place's names.
    fn here(&self, text: &str, node: &str) -> String {
        let (etc, prefix) = (self.cluster.etc(), self.prefix.display().to_string());
        let changes = [
            ("/etc/slurm", etc.display().to_string()),
            ("/usr", prefix),
            ("/run/hotpot", self.of_each("*/jobs")),
            ("/var/lib/hotpot", self.of_each("*/state")),
            ("gpu[01-16]", node.to_owned()),
            ("16 nodes", format!("{} nodes", NODES.len())),
        ];
        changes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Runs lines as an administrator would, who waits for daemons that were restarted.
    fn run(&self, lines: &str, node: &str) -> Output {
        let lines = self.here(lines, node);
        let path = std::env::var("PATH").unwrap();
        let own =
            [self.folder.join("bin"), self.prefix.join("bin")].map(|it| it.display().to_string());
        let mut command = self.cluster.command("bash");
        command.args(["-e", "-o", "pipefail", "-c", &lines]).current_dir(&self.folder);
        command.env("PATH", format!("{}:{path}", own.join(":"))).env("SLURMD_NODENAME", node);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            if let Ok(unit) = fs::read_to_string(self.asked()) {
                self.restart(unit.trim());
                fs::remove_file(self.asked()).unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }

    fn restart(&self, unit: &str) {
        let daemons = match unit {
            "slurmctld" => vec![Daemon::Slurmctld],
            "slurmd" => NODES.map(|node| Daemon::Slurmd(node.into())).to_vec(),
            other => panic!("what is {other}?"),
        };
        for daemon in &daemons {
            self.cluster.stop(daemon);
            self.cluster.start(daemon).unwrap_or_else(|error| panic!("{error}"));
        }
        if unit == "slurmd" {
            self.until_nodes_are_there();
        }
    }

    fn until_nodes_are_there(&self) {
        let words = ["sinfo", "--noheader", "--Node", "--partition=batch", "--format=%T"];
        let look = |cluster: &Cluster| {
            let states = cluster.run(&words).ok()?;
            let count = states.lines().filter(|it| ["idle", "mixed"].contains(it)).count();
            (count == NODES.len()).then_some(())
        };
        self.cluster.until("nodes to be there", look).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs a `sh` block, which must do without a word of complaint.
    fn follow(&self, block: &Block) {
        let each = block.text.starts_with(EACH_KIND);
        for node in if each { &NODES[..] } else { &NODES[..1] } {
            let output = self.run(&block.text, node);
            let (said, printed) = (text(&output.stderr), text(&output.stdout));
            let shown = format!("{}\n{printed}{said}", block.text);
            assert!(output.status.success() && said.is_empty(), "on {node}: {shown}");
            for (_, wanted) in PRINTED.iter().filter(|(call, _)| block.text.contains(call)) {
                assert!(
                    printed.ends_with(wanted) || printed.contains(wanted),
                    "on {node}: {shown}"
                );
            }
        }
    }

    /// Runs the commands of a `console` block, which must answer as it says.
    fn try_out(&self, block: &Block) {
        for part in block.text.split("$ ").filter(|part| !part.is_empty()) {
            let (line, expected) = part.split_once('\n').unwrap();
            let output = self.run(&format!("{{ {line}; }} 2>&1 || true"), NODES[0]);
            let printed = text(&output.stdout);
            let mut lines = printed.lines().map(plain);
            for wanted in self.here(expected, NODES[0]).lines().map(plain) {
                let there = lines.any(|line| is_like(&line, &wanted));
                assert!(there, "$ {line}\nlacks: {wanted}\n{printed}");
            }
            let is_all = lines.next().is_none() || expected.contains('…');
            assert!(is_all, "$ {line}\nsays more than the guide:\n{printed}");
        }
    }

    /// All files of `etc`, with their rights.
    fn etc(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let read = |entry: fs::DirEntry| {
            let mode = entry.metadata().unwrap().permissions().mode();
            (entry.path(), (mode, fs::read(entry.path()).unwrap()))
        };
        fs::read_dir(self.cluster.etc()).unwrap().flatten().map(read).collect()
    }

    /// Runs a command that must succeed and say nothing on standard error.
    fn quietly(&self, line: &str) -> String {
        let output = self.run(line, NODES[0]);
        let said = text(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line}: {said}");
        text(&output.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A line with single blanks.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `…` stands for anything.
fn is_like(line: &str, wanted: &str) -> bool {
    let mut rest = line;
    let found = |part: &str| {
        let (_, after) = rest.split_once(part.trim())?;
        rest = after;
        Some(())
    };
    if wanted.contains('…') {
        wanted.split('…').map(found).all(|it| it.is_some())
    } else {
        line == wanted
    }
}

#[test]
fn the_guide_installs_and_uninstalls_to_the_letter() {
    let Some(site) = up("the_guide_installs_and_uninstalls_to_the_letter") else { return };
    let (before, blocks) = (site.etc(), blocks());
    let job = site.quietly("sbatch --parsable --gres=gpu:1 -o /dev/null --wrap='sleep 600'");
    let state = format!("squeue -h -o %T -j {}", job.trim());
    let is_running = |cluster: &Cluster| {
        let shown = cluster.run(&["squeue", "-h", "-o", "%T", "-j", job.trim()]);
        shown.is_ok_and(|shown| shown.trim() == "RUNNING").then_some(())
    };
    site.cluster.until("a job that ran before", is_running).unwrap();
    let under = |heading: &'static str, kind: &'static str| {
        blocks.iter().filter(move |it| it.heading == heading && it.kind == kind)
    };
    for (call, _) in PRINTED {
        assert!(under("Install", "sh").any(|block| block.text.contains(call)), "{call}");
    }
    under("Install", "sh").for_each(|block| site.follow(block));
    assert_eq!(site.quietly(&state).trim(), "RUNNING", "jobs that run meanwhile go on");
    assert_ne!(site.etc(), before);
    assert_eq!(under("Try it", "console").count(), 1);
    under("Try it", "console").for_each(|block| site.try_out(block));
    site.quietly("sbatch -o /dev/null --wrap=true && srun true");

    site.quietly(&format!("scancel {}", job.trim()));
    under("Uninstall", "sh").for_each(|block| site.follow(block));
    assert!(site.etc() == before, "{:?}", site.etc().keys().collect::<Vec<_>>());
    assert!(!site.prefix.join("bin/hotpot").exists() && !site.prefix.join("lib/hotpot").exists());
    site.quietly("sbatch -o /dev/null --wrap=true && srun --gres=gpu:1 true");
    let gone = site.run("srun --gpu-mem=1G true", NODES[0]);
    assert!(text(&gone.stderr).contains("unrecognized option"), "{gone:?}");
    site.until_nodes_are_there();
}
