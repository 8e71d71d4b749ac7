//! Whose a cgroup is, by its path: Slurm's jobs, Kubernetes' pods, hotpot's own tasks.
//!
//! The outermost name decides. What a tenant makes inside its own cgroup is under its control and
//! says nothing.

use super::Tenant;

/// The tenant that `/proc/PID/cgroup` names: one line a hierarchy (v1) or one in all (v2), each
/// `NUMBER:CONTROLLERS:PATH`.
pub(super) fn tenant(text: &str) -> Option<Tenant> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.into_iter().find_map(of_path)
}

fn of_path(path: &str) -> Option<Tenant> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    // A user may have cgroups of any name below its own; only hotpot's mean something there, since
    // hotpot runs for users too.
    let of_user = names.first() == Some(&"user.slice");
    (0..names.len()).find_map(|at| {
        let (before, here) = (&names[..at], &names[at..]);
        let outside = if of_user { None } else { slurm(before, here[0]).or_else(|| pod(here[0])) };
        outside.or_else(|| hotpot(here))
    })
}

/// `slurm/uid_1000/job_123` (v1) and `slurmstepd.scope/job_123` (v2), also with a node's name behind
/// `slurm` or before `slurmstepd`, where several nodes are simulated on one machine.
fn slurm(before: &[&str], name: &str) -> Option<Tenant> {
    let job = name.strip_prefix("job_")?.parse().ok()?;
    let of_slurm = |name: &&str| name.starts_with("slurm") || name.ends_with("_slurmstepd.scope");
    before.iter().any(of_slurm).then_some(Tenant::SlurmJob(job))
}

/// `pod<uid>` below `kubepods` (cgroupfs) and `kubepods-burstable-pod<uid>.slice` (systemd, where
/// the dashes of the UID are underscores).
fn pod(name: &str) -> Option<Tenant> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = match name.rsplit_once("-pod") {
        Some((above, uid)) if above.contains("kubepods") => uid,
        Some(_) => return None,
        None => name.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    // A UUID, or the hash of a static pod's manifest.
    let plausible = matches!(uid.len(), 32 | 36);
    (plausible && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'))
        .then_some(Tenant::Pod(uid))
}

/// `hotpot/<run>/<task>`.
fn hotpot(here: &[&str]) -> Option<Tenant> {
    match here {
        ["hotpot", run, task, ..] => {
            Some(Tenant::Task { run: (*run).to_string(), task: (*task).to_string() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b2a6b0e-5e4c-4d47-9d5f-6a1d5d6a7f10";

    #[test]
    fn slurm_jobs() {
        for text in [
            "9:memory:/slurm/uid_1000/job_123/step_0/task_0\n0::/",
            "0::/system.slice/slurmstepd.scope/job_123/step_batch/user/task_0",
            "0::/system.slice/node7_slurmstepd.scope/job_123",
            "1:cpu:/slurm_node7/uid_1/job_123",
        ] {
            assert_eq!(tenant(text), Some(Tenant::SlurmJob(123)), "{text}");
        }
        assert_eq!(tenant("0::/system.slice/job_123"), None);
        assert_eq!(tenant("0::/slurm/uid_1000/job_x"), None);
    }

    #[test]
    fn pods_in_both_spellings() {
        let systemd = UID.replace('-', "_");
        for text in [
            format!("4:devices:/kubepods/besteffort/pod{UID}/0123abcd"),
            format!("0::/kubepods/pod{UID}/0123abcd"),
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/\
                 cri-containerd-0123.scope"
            ),
            format!("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{systemd}.slice"),
        ] {
            assert_eq!(tenant(&text), Some(Tenant::Pod(UID.to_string())), "{text}");
        }
        assert_eq!(tenant("0::/machine.slice/podman-123.scope"), None);
        assert_eq!(tenant(&format!("0::/machine.slice/x-pod{systemd}.slice")), None);
    }

    #[test]
    fn hotpots_own_tasks() {
        let task = Tenant::Task { run: "r7".into(), task: "3".into() };
        for text in [
            "0::/hotpot/r7/3",
            "0::/user.slice/user-1000.slice/user@1000.service/hotpot/r7/3/inner",
        ] {
            assert_eq!(tenant(text), Some(task.clone()), "{text}");
        }
        assert_eq!(tenant("0::/hotpot/r7"), None);
    }

    #[test]
    fn the_outermost_name_decides_and_users_cannot_pose_as_jobs() {
        let inner = "0::/system.slice/slurmstepd.scope/job_5/step_0/hotpot/r/1";
        assert_eq!(tenant(inner), Some(Tenant::SlurmJob(5)));
        let posed = "0::/user.slice/user-1000.slice/user@1000.service/slurm/job_5";
        assert_eq!(tenant(posed), None);
        let posed = format!("0::/user.slice/user-1000.slice/kubepods/pod{UID}");
        assert_eq!(tenant(&posed), None);
    }

    #[test]
    fn nonsense_names_nobody() {
        for text in ["", "::", "0::", "0::/", "x", "0::/init.scope", "\u{fffd}:::/"] {
            assert_eq!(tenant(text), None, "{text}");
        }
    }
}
