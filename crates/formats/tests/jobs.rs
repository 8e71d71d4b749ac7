//! What files say about starting tasks: scripts, manifests, tables.

use formats::job::{Export, Program, Warning};
use formats::{DependencyKind, Job, ReadError, Source, jobs_of};
use model::{GpuAsk, ModeSet, SharingKind};

fn read(name: &str, text: &str) -> Result<Vec<Job>, ReadError> {
    jobs_of(&Source::from_bytes(name, text.as_bytes().to_vec())?, 1024)
}

fn script(directives: &str) -> Result<Job, ReadError> {
    let lines: String = directives.lines().map(|line| format!("#SBATCH {line}\n")).collect();
    Ok(read("j.sbatch", &format!("#!/bin/sh\n{lines}true\n"))?.remove(0))
}

#[test]
fn a_script_says_how_it_is_started() {
    let job = script(
        "--output=o-%A\n-e e\n--input=i\n--chdir=/work\n--open-mode=append\n--signal=B:SIGUSR1@90\n\
         --export=ALL,A=1,B=\n--dependency=afterok:1:prep,singleton\n--ntasks=4\n--partition=gpu",
    )
    .unwrap();
    let launch = &job.launch;
    assert_eq!(launch.output.as_deref(), Some("o-%A"));
    assert_eq!((launch.error.as_deref(), launch.input.as_deref()), (Some("e"), Some("i")));
    assert_eq!(launch.directory.as_deref(), Some(std::path::Path::new("/work")));
    assert!(launch.append && launch.processes == 4);
    assert_eq!(launch.export, Export::All);
    let env = [("A", "1"), ("B", "")].map(|(name, value)| (name.to_string(), value.to_string()));
    assert_eq!(launch.env, env);
    let warning = Warning { signal: "USR1".into(), before_ms: 90_000, to_script: true };
    assert_eq!(launch.warning, Some(warning));
    assert!(matches!(&launch.program, Program::Script(text) if text.ends_with("true\n")));
    let kinds: Vec<_> = job.after.iter().map(|after| (after.kind, after.jobs.len())).collect();
    assert_eq!(kinds, [(DependencyKind::AfterOk, 2), (DependencyKind::Singleton, 0)]);
    assert_eq!(job.ignored, ["--partition=gpu (line 11)"]);
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_line() {
    let cases = [
        ("--dependency=afterok", "names no job"),
        ("--dependency=sometime:3", "no kind of dependency"),
        ("--dependency=after:3+10", "asks for a delay"),
        ("--dependency=afterok:1,afterok:2?afterok:3", "mixes `,` (all) and `?` (any)"),
        ("--signal=KILLER@3", "is no signal"),
        ("--open-mode=x", "is no mode"),
        ("--export=1A=3", "is no variable"),
    ];
    for (directive, expected) in cases {
        let error = script(directive).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("2"), "{directive}: {error}");
    }
}

#[test]
fn exports_name_what_is_taken() {
    let export = |text: &str| script(&format!("--export={text}")).unwrap().launch.export;
    assert_eq!(export("NONE"), Export::Nothing);
    assert_eq!(export("A,B,C=3"), Export::Named(vec!["A".into(), "B".into()]));
    assert_eq!(export("C=3"), Export::Nothing);
    assert_eq!(script("-J x").unwrap().launch.export, Export::All);
}

const MANIFEST: &str = "# two documents
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: lab
spec:
  completions: 4
  parallelism: 2
  activeDeadlineSeconds: 60
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: pytorch
        command: [python3, -c]
        args: ['print($(X), $$(X), $(Y))']
        env:
        - {name: X, value: '1'}
        resources:
          requests: {cpu: 500m, memory: 2Gi}
          limits: {nvidia.com/mig-1g.10gb.me: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers:
  - {name: main, command: [sleep, '1'], resources: {limits: {nvidia.com/gpu: 2, cpu: 3}}}
";

#[test]
fn a_manifest_says_what_is_run_and_what_it_needs() {
    let jobs = read("m.yaml", MANIFEST).unwrap();
    let [train, pod] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((train.pattern.name.as_str(), train.pattern.owner.as_str()), ("train", "lab"));
    assert_eq!(train.pattern.time_limit_ms, Some(60_000));
    let demand = &train.pattern.demand;
    assert_eq!((demand.cpu_milli, demand.memory_mib), (500, 2048));
    let gpus = demand.gpus.as_ref().unwrap();
    assert_eq!(gpus.each, GpuAsk::Profile("1g.10gb+me".into()));
    assert_eq!(gpus.modes, ModeSet::of(&[SharingKind::Mig]));
    let array = train.array.as_ref().unwrap();
    assert_eq!((array.indices.as_slice(), array.at_once_max), (&[0, 1, 2, 3][..], 2));
    assert_eq!(train.launch.index_variable.as_deref(), Some("JOB_COMPLETION_INDEX"));
    let words = ["python3", "-c", "print(1, $(X), $(Y))"].map(str::to_string).to_vec();
    assert_eq!(train.launch.program, Program::Command(words));
    assert!(train.warnings[0].contains("image pytorch is not used"));
    assert_eq!(train.ignored, ["pod.restartPolicy"]);
    let gpus = pod.pattern.demand.gpus.as_ref().unwrap();
    assert_eq!((gpus.count, &gpus.each, pod.pattern.demand.cpu_milli), (2, &GpuAsk::Whole, 3000));
    assert!(pod.array.is_none() && pod.warnings.is_empty());
}

#[test]
fn a_manifest_that_needs_a_cluster_is_refused_with_its_line() {
    let change = |from: &str, to: &str| read("m.yaml", &MANIFEST.replacen(from, to, 1));
    let cases = [
        ("kind: Pod", "kind: Deployment", 26, "\"Deployment\" is not run here"),
        ("command: [python3, -c]", "tty: true", 15, "leaves its command to image pytorch"),
        ("restartPolicy: Never", "initContainers: []", 13, "are not run here"),
        ("value: '1'", "valueFrom: {}", 20, "needs a cluster"),
        ("nvidia.com/gpu: 2", "amd.com/gpu: 2", 30, "is not offered here"),
        ("command: [sleep, '1']", "command: []", 30, "names no program"),
    ];
    for (from, to, line, expected) in cases {
        let error = change(from, to).unwrap_err().to_string();
        let place = format!("m.yaml:{line}:");
        assert!(error.contains(expected) && error.contains(&place), "{to}: {error}");
    }
}

#[test]
fn a_table_needs_a_command_to_be_run() {
    let table = "[[workload]]\nname = \"a\"\ncount = 2\ncommand = \"echo hi\"\nafter = [\"b\", \"afterany:c\"]\n\
                 env = { N = 3 }\noutput = \"x\"\n";
    let jobs = read("w.toml", table).unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job.pattern.name.as_str()).collect();
    assert_eq!(names, ["a-0", "a-1"]);
    let shell = ["/bin/sh", "-c", "echo hi"].map(str::to_string).to_vec();
    assert_eq!(jobs[0].launch.program, Program::Command(shell));
    assert_eq!(jobs[0].launch.env, [("N".to_string(), "3".to_string())]);
    let kinds: Vec<_> = jobs[1].after.iter().map(|after| after.kind).collect();
    assert_eq!(kinds, [DependencyKind::AfterOk, DependencyKind::AfterAny]);
    let error = read("w.toml", "[[workload]]\nname = \"a\"\n").unwrap_err().to_string();
    assert!(error.contains("command") && error.contains("is missing"), "{error}");
    let error = read("t.csv", "jobid,gpu_num\n1,2\n").unwrap_err().to_string();
    assert!(error.contains("t.csv"), "{error}");
}
