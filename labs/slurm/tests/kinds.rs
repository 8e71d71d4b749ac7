//! Clusters of other kinds: with cgroups, dynamic nodes, other devices, preemption, accounting and REST.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;

use slurm_lab::{Cluster, Daemon, Options};
use support::{Folder, processes_of, seen, submit, tell, until_state, up};

#[test]
fn with_cgroups_a_job_opens_only_its_own_devices() {
    let test = "with_cgroups_a_job_opens_only_its_own_devices";
    if !Path::new("/sys/fs/cgroup/devices/devices.list").exists() {
        eprintln!("skipped: {test}: no cgroup v1 controller `devices`");
        return;
    }
    let folder = Folder::new("cgroup");
    let options = Options { cgroup: true, ..Options::default() };
    let Some(mut cluster) = up(test, &folder, &options) else { return };
    let devices = cluster.machine("n1").join("dev");
    // An open device has no driver (ENXIO); one that is forbidden is not even looked for (EPERM).
    let told = format!(
        "$SLURM_JOB_GPUS $(for d in {}/nvidia0 {0}/nvidia1; do (: <$d) 2>&1 | sed 's/.*: //'; done)",
        devices.display()
    );
    let first = seen(&cluster, &["--nodelist=n1", "--gres=gpu:1"], &told);
    assert_eq!(first, "0 No such device or address Operation not permitted");
    let second = seen(&cluster, &["--nodelist=n1", "--gres=gpu:1"], &told);
    assert_eq!(second, "1 Operation not permitted No such device or address");
    assert!(Path::new("/sys/fs/cgroup/devices/slurm_n1").exists());
    cluster.down().unwrap();
    assert_eq!(processes_of(&folder.0), Vec::<String>::new());
    for entry in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        assert!(!entry.path().join("slurm_n1").exists(), "{entry:?}");
    }
}

#[test]
fn dynamic_nodes_get_work_and_other_devices_while_the_rest_runs_on() {
    let test = "dynamic_nodes_get_work_and_other_devices_while_the_rest_runs_on";
    let folder = Folder::new("dynamic");
    let options = Options { nodes: 1, dynamic: 2, ..Options::default() };
    let Some(cluster) = up(test, &folder, &options) else { return };
    let told = "$SLURMD_NODENAME $SLURM_JOB_GPUS $(basename $(dirname $HOTPOT_FAKE_MACHINE))";
    for node in ["n1", "d1"] {
        let read = seen(&cluster, &[&format!("--nodelist={node}"), "--gres=gpu:1"], told);
        assert_eq!(read, format!("{node} 0 {node}"));
    }
    let step = ["srun", "--nodelist=d2", "--mem=16", "--gres=gpu:2", "printenv", "SLURM_STEP_GPUS"];
    assert_eq!(cluster.run(&step).unwrap().trim(), "0,1");

    let slurmd = Daemon::Slurmd("d2".into());
    cluster
        .until("d2 to be idle", |it| it.run(&["scontrol", "delete", "nodename=d2"]).ok())
        .unwrap();
    cluster.stop(&slurmd);
    let etc = cluster.etc().join("d2");
    let device = cluster.machine("d2").join("dev/nvidia0");
    let gres = format!("NodeName=d2 Name=gpu Type=3g.40gb File={}\n", device.display());
    std::fs::write(etc.join("gres.conf"), gres).unwrap();
    std::fs::write(etc.join("gres"), "gpu:3g.40gb:1").unwrap();
    cluster.start(&slurmd).unwrap();
    // Slurm refuses a type that no node has yet.
    let file = cluster.folder().join("seen");
    std::fs::remove_file(&file).unwrap();
    let script = format!("--wrap={}", tell(&file, "$SLURMD_NODENAME $SLURM_JOB_GPUS"));
    let words = ["sbatch", "--mem=16", "--gres=gpu:3g.40gb:1", "--output=/dev/null", &script];
    cluster.until("the new device", |it| it.run(&words).ok()).unwrap();
    let read = cluster.until("its job", |_| std::fs::read_to_string(&file).ok()).unwrap();
    assert_eq!(read, "d2 0\n");
    assert_eq!(cluster.run(&["squeue", "--noheader"]).unwrap().lines().count(), 3);
}

#[test]
fn devices_preemption_and_files_are_as_asked_for() {
    let test = "devices_preemption_and_files_are_as_asked_for";
    let folder = Folder::new("asked");
    let mig = "\
NodeName=@NODE@ Name=gpu Type=1g.10gb MultipleFiles=@DEV@/nvidia0,@DEV@/cap1
NodeName=@NODE@ Name=gpu Type=a100 File=@DEV@/nvidia1";
    let reject = "\
function slurm_job_submit(job, parts, uid)
    if job.comment == 'no' then slurm.log_user('never') return slurm.ERROR end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS";
    let options = Options {
        nodes: 1,
        gpus: 2,
        gres: Some("gpu:1g.10gb:1,gpu:a100:1".into()),
        gres_conf: Some(mig.into()),
        preempt: true,
        slurm_conf: "JobSubmitPlugins=lua".into(),
        files: vec![("job_submit.lua".into(), reject.into())],
        ..Options::default()
    };
    let Some(cluster) = up(test, &folder, &options) else { return };
    let refused = cluster.run(&["sbatch", "--comment=no", "--wrap=true"]).unwrap_err().to_string();
    assert!(refused.contains("never"), "{refused}");
    assert_eq!(seen(&cluster, &["--gres=gpu:1g.10gb:1"], "$SLURM_JOB_GPUS"), "0");
    let victim = submit(&cluster, &["--gres=gpu:a100:1"], "sleep 600");
    until_state(&cluster, &victim, "RUNNING");
    let urgent = submit(&cluster, &["--partition=online", "--gres=gpu:a100:1"], "sleep 600");
    until_state(&cluster, &urgent, "RUNNING");
    until_state(&cluster, &victim, "PENDING");
}

#[test]
fn accounting_and_rest_answer() {
    let test = "accounting_and_rest_answer";
    let folder = Folder::new("whole");
    let options = Options { accounting: true, rest: true, ..Options::default() };
    let Some(mut cluster) = up(test, &folder, &options) else { return };
    let job = submit(&cluster, &["--gres=gpu:2"], "true");
    let words =
        ["sacct", "--noheader", "--parsable2", "--allocations", "--format=State,AllocTRES", "-j"];
    let line = [&words[..], &[&job]].concat();
    let look = |it: &Cluster| it.run(&line).ok().filter(|text| text.starts_with("COMPLETED"));
    let text = cluster.until("the job's account", look).unwrap();
    assert!(text.contains("gres/gpu=2"), "{text}");

    let token = cluster.run(&["scontrol", "token", "username=root", "lifespan=600"]).unwrap();
    let token = token.trim().trim_start_matches("SLURM_JWT=");
    let answer = get(&cluster, "/slurm/v0.0.38/ping", token);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"UP\""), "{answer}");
    cluster.down().unwrap();
    assert_eq!(processes_of(&folder.0), Vec::<String>::new());
}

/// Asks slurmrestd, as root.
fn get(cluster: &Cluster, path: &str, token: &str) -> String {
    use std::io::{Read, Write};
    let variables = cluster.environment();
    let url = variables.iter().find(|(name, _)| name == "SLURM_LAB_REST_URL").unwrap();
    let address = url.1.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-SLURM-USER-NAME: root\r\n\
         X-SLURM-USER-TOKEN: {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
