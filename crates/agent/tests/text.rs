//! The text of a scrape: complete where everything was measured, silent where nothing was, and in
//! step with the documentation.

mod samples;
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use agent::{Format, MetricNames, Observation, dcgm_names, own_names, render};
use node::backend::Enforcement;
use node::inventory::Inventory;
use node::sample::{GpuSample, InstanceSample};
use node::tenant::Tenant;
use samples::{divided, given, observation, process, prometheus, whole};
use support::{shipped, value};

fn families(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

#[test]
fn every_family_is_written_once_and_documented() {
    let text = prometheus(&observation(vec![whole(), divided()]), MetricNames::Both);
    let both = dcgm_names().into_iter().flat_map(|(legacy, new)| [legacy, new]);
    let promised: BTreeSet<&str> = own_names().into_iter().chain(both).collect();
    assert_eq!(families(&text), promised);
    let headers = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(headers, promised.len(), "each family has one header");
    let documented = shipped("docs/metrics.md");
    for name in promised {
        assert!(documented.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
    }
}

#[test]
fn no_sample_is_written_twice() {
    let text = prometheus(&observation(vec![whole(), divided()]), MetricNames::Both);
    let samples: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let distinct: BTreeSet<&&str> = samples.iter().collect();
    assert_eq!(distinct.len(), samples.len());
    assert!(samples.len() > 100);
}

#[test]
fn what_was_not_measured_is_not_there() {
    let unknown = GpuSample { index: 0, uuid: "GPU-0".into(), ..GpuSample::default() };
    let lost = GpuSample { index: 1, uuid: "GPU-1".into(), lost: true, ..GpuSample::default() };
    let seen = Observation { given: Vec::new(), ..observation(vec![unknown, lost]) };
    let text = prometheus(&seen, MetricNames::Both);
    let about_gpus: BTreeSet<&str> = families(&text)
        .into_iter()
        .filter(|name| name.contains("gpu") || name.contains("DCGM"))
        .collect();
    let expected = ["hotpot_gpu_enforcement_info", "hotpot_gpu_info", "hotpot_gpu_lost"];
    assert_eq!(about_gpus, BTreeSet::from(expected));
    assert_eq!(value(&text, "hotpot_gpu_lost", &["GPU-1"]), Some(1.0));
}

#[test]
fn a_gpu_without_processes_has_none_and_one_that_does_not_tell_has_no_line() {
    let none = GpuSample { processes: Vec::new(), ..whole() };
    let untold = GpuSample { processes_listed: false, ..none.clone() };
    let processes = |gpu| {
        let text = prometheus(&observation(vec![gpu]), MetricNames::Both);
        value(&text, "hotpot_gpu_processes", &[])
    };
    assert_eq!((processes(none), processes(untold)), (Some(0.0), None));
}

#[test]
fn what_is_not_known_of_one_process_is_not_told_of_its_tenant() {
    let mut gpu = whole();
    gpu.processes[1].sm_ratio = None;
    gpu.processes[2].memory_bytes = None;
    let text = prometheus(&observation(vec![gpu]), MetricNames::Both);
    let of = |name: &str, kind: &str| value(&text, name, &[&format!("tenant_kind=\"{kind}\"")]);
    assert_eq!(of("hotpot_tenant_sm_ratio", "run"), None);
    assert_eq!(of("hotpot_tenant_memory_used_bytes", "run"), Some(2_147_483_648.0));
    assert_eq!(of("hotpot_tenant_memory_used_bytes", "slurm-job"), None);
    assert_eq!(of("hotpot_tenant_processes", "slurm-job"), Some(1.0));
}

#[test]
fn what_tasks_have_been_given_is_told_with_how_hard_it_is_held() {
    let mut seen = observation(vec![whole()]);
    let mut odd = given("r", "GPU-0", 512);
    odd.share.enforcement = "adamant".into();
    seen.given.extend([odd, given("r", "GPU-7", 512)]);
    seen.given.push(given("s", "GPU-0", 0));
    let text = prometheus(&seen, MetricNames::Both);
    let of = |name: &str, run: &str| {
        let run = format!("tenant=\"{run}\",sharing=\"mps\",enforcement=\"cooperative\"");
        value(&text, name, &[&run])
    };
    assert_eq!(of("hotpot_tenant_shares", "r"), Some(2.0));
    assert_eq!(of("hotpot_tenant_memory_granted_bytes", "r"), Some(3.0 * 1_073_741_824.0));
    assert_eq!(of("hotpot_tenant_shares", "s"), Some(1.0));
    assert_eq!(of("hotpot_tenant_memory_granted_bytes", "s"), None, "no cap");
    assert!(!text.contains("adamant") && !text.contains("GPU-7"));
}

#[test]
fn tenants_without_end_are_taken_together() {
    let mut gpu = whole();
    let job = |job: u32| process(100 + job, Tenant::SlurmJob(job.into()));
    gpu.processes = (0..1000).map(job).collect();
    let text = prometheus(&observation(vec![gpu]), MetricNames::Both);
    let lines = text.lines().filter(|line| line.starts_with("hotpot_tenant_processes{"));
    assert_eq!(lines.count(), 257);
    let other = ["tenant_kind=\"other\""];
    assert_eq!(value(&text, "hotpot_tenant_processes", &other), Some(744.0));
}

#[test]
fn backends_that_were_not_tried_are_unknown() {
    let mut seen = observation(vec![whole()]);
    let mut inventory = Inventory::clone(&seen.inventory);
    let why = "not tried".to_string();
    inventory.devices[0].backends.memory_limit = Enforcement::Unknown(why);
    seen.inventory = Arc::new(inventory);
    let text = prometheus(&seen, MetricNames::Both);
    let memory = ["gpu=\"0\"", "backend=\"memory-limit\",enforcement=\"unknown\""];
    assert_eq!(value(&text, "hotpot_gpu_enforcement_info", &memory), Some(1.0));
    let limiter = ["gpu=\"0\"", "backend=\"limiter\",enforcement=\"absent\""];
    assert_eq!(value(&text, "hotpot_gpu_enforcement_info", &limiter), Some(1.0));
}

#[test]
fn units_follow_the_scheme() {
    // What parts of a card have is told of each part.
    let alone = Observation { occupants: Vec::new(), ..observation(vec![whole()]) };
    let text = prometheus(&alone, MetricNames::Both);
    for (name, expected) in [
        ("DCGM_FI_DEV_SM_CLOCK", 1410.0),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.41e9),
        ("DCGM_FI_DEV_GPU_UTIL", 57.0),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.57),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1_234_500.0),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1234.5),
        ("DCGM_FI_DEV_FB_USED", 8192.0),
        ("DCGM_FI_DEV_FB_FREE", 71.0 * 1024.0),
        ("DCGM_FI_DEV_FB_FREE_BYTES", 71.0 * 1_073_741_824.0),
        ("hotpot_gpu_energy_joules_total", 1234.5),
        ("hotpot_gpu_busy_ratio", 0.57),
    ] {
        assert_eq!(value(&text, name, &[]), Some(expected), "{name}");
    }
    let legacy = prometheus(&observation(vec![whole()]), MetricNames::Legacy);
    assert!(legacy.contains("DCGM_FI_DEV_GPU_UTIL{") && !legacy.contains("_UTIL_RATIO"));
    assert!(legacy.contains(",Hostname=\"host\",DCGM_FI_DRIVER_VERSION=\"580.1\""));
    let new = prometheus(&observation(vec![whole()]), MetricNames::Dcgm49);
    assert!(!new.contains("DCGM_FI_DEV_GPU_UTIL{") && new.contains("_GPU_UTIL_RATIO{"));
    assert!(new.contains(",hostname=\"host\",DCGM_FI_SYSTEM_DRIVER_VERSION=\"580.1\""));
    assert!(new.contains("modelName=\"NVIDIA \\\"H100\\\"\""));
}

#[test]
fn a_divided_gpus_memory_is_told_once_in_dcgms_names() {
    let text = prometheus(&observation(vec![divided()]), MetricNames::Legacy);
    let mig = ["GPU_I_PROFILE=\"1g.10gb\"", "GPU_I_ID=\"9\""];
    assert_eq!(value(&text, "DCGM_FI_DEV_FB_USED", &mig), Some(2048.0));
    assert_eq!(value(&text, "DCGM_FI_DEV_FB_USED", &[]), Some(2048.0), "and no other line");
    assert_eq!(value(&text, "DCGM_FI_PROF_SM_ACTIVE", &mig), Some(0.25));
    assert_eq!(value(&text, "hotpot_mig_info", &["MIG-9", "start=\"2\""]), Some(1.0));
}

#[test]
fn two_mig_devices_in_one_instance_are_one_to_dcgm() {
    let mut gpu = divided();
    gpu.instances.push(InstanceSample { uuid: "MIG-10".into(), ..gpu.instances[0].clone() });
    let text = prometheus(&observation(vec![gpu]), MetricNames::Legacy);
    assert_eq!(value(&text, "DCGM_FI_DEV_FB_USED", &["GPU_I_ID=\"9\""]), Some(2048.0));
    for uuid in ["MIG-9", "MIG-10"] {
        assert!(value(&text, "hotpot_mig_memory_used_bytes", &[&format!("\"{uuid}\"")]).is_some());
    }
}

#[test]
fn tenants_are_summed_and_tasks_taken_together() {
    let text = prometheus(&observation(vec![whole()]), MetricNames::Both);
    let run = ["tenant_kind=\"run\",tenant=\"r\"", "gpu=\"0\",uuid=\"GPU-0\""];
    assert_eq!(value(&text, "hotpot_tenant_memory_used_bytes", &run), Some(2_147_483_648.0));
    assert_eq!(value(&text, "hotpot_tenant_sm_ratio", &run), Some(0.2));
    assert_eq!(value(&text, "hotpot_tenant_processes", &run), Some(2.0));
    for kind in ["slurm-job\",tenant=\"9", "pod\",tenant=\"0b2a", "user\",tenant=\"1000", "unknown"]
    {
        let kind = format!("tenant_kind=\"{kind}\"");
        assert_eq!(value(&text, "hotpot_tenant_processes", &[&kind]), Some(1.0), "{kind}");
    }
}

#[test]
fn accounts_are_summed_and_what_ended_tasks_had_stays() {
    let mut gpu = whole();
    let of = |gpu: &GpuSample, name: &str, more: &str| {
        let text = prometheus(&observation(vec![gpu.clone()]), MetricNames::Both);
        value(&text, name, &["gpu=\"0\"", "tenant_kind=\"run\",tenant=\"r\"", more])
    };
    let plain = 1_073_741_824.0 + 1_048_576.0;
    assert_eq!(of(&gpu, "hotpot_tenant_memory_booked_bytes", "kind=\"plain\""), Some(plain));
    assert_eq!(of(&gpu, "hotpot_tenant_memory_cap_bytes", ""), Some(4.0 * 1_073_741_824.0));
    assert_eq!(of(&gpu, "hotpot_tenant_memory_peak_bytes", ""), Some(2_147_483_648.0));
    assert_eq!(of(&gpu, "hotpot_tenant_compute_cap_ratio", ""), Some(0.6));
    assert_eq!(of(&gpu, "hotpot_tenant_gpu_seconds_total", ""), Some(3.5));
    assert_eq!(of(&gpu, "hotpot_tenant_launches_total", ""), Some(30.0));
    assert_eq!(of(&gpu, "hotpot_tenant_throttled_seconds_total", ""), Some(0.75));
    assert_eq!(of(&gpu, "hotpot_tenant_refused_allocations_total", "by=\"cap\""), Some(6.0));
    assert_eq!(of(&gpu, "hotpot_tenant_refused_allocations_total", "by=\"card\""), Some(3.0));
    gpu.accounts[1].compute_milli = None;
    assert_eq!(of(&gpu, "hotpot_tenant_compute_cap_ratio", ""), None, "one has no cap");
    gpu.accounts.clear();
    assert_eq!(of(&gpu, "hotpot_tenant_memory_cap_bytes", ""), None, "nobody runs");
    assert_eq!(of(&gpu, "hotpot_tenant_launches_total", ""), Some(10.0));
}

#[test]
fn openmetrics_has_our_own_names_and_an_end() {
    let seen = observation(vec![whole(), divided()]);
    let text = render(Some(&seen), MetricNames::Both, Format::OpenMetrics, "host");
    assert!(text.ends_with("\n# EOF\n") && !text.contains("DCGM_"));
    assert!(text.contains("# TYPE hotpot_gpu_energy_joules counter\n"));
    assert!(text.contains("# TYPE hotpot_gpu info\n"));
    let down = render(None, MetricNames::Both, Format::OpenMetrics, "host");
    assert_eq!(value(&down, "hotpot_up", &[]), Some(0.0));
}
