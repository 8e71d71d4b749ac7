//! What is told of containers' shares on Kubernetes, and read again.

mod samples;
mod support;

use agent::MetricNames;
use agent::reading::{ShareReading, read};
use samples::{divided, observation, occupant, prometheus, whole};
use support::value;

#[test]
fn a_containers_share_is_told_by_its_names_and_read_again() {
    let text = prometheus(&observation(vec![whole(), divided()]), MetricNames::Both);
    let of =
        |name: &str, pod: &str| value(&text, name, &[&format!("pod=\"{pod}\",container=\"main\"")]);
    // 512 MiB and the context's 256.
    assert_eq!(of("hotpot_pod_memory_used_bytes", "web-1"), Some(805_306_368.0));
    assert_eq!(of("hotpot_pod_memory_cap_bytes", "web-1"), Some(2_147_483_648.0));
    assert_eq!(of("hotpot_pod_busy_ratio", "web-1"), Some(0.15));
    assert_eq!(of("hotpot_pod_memory_used_bytes", "train"), Some(2_147_483_648.0));
    assert_eq!(of("hotpot_pod_busy_ratio", "train"), Some(0.5));
    assert_eq!(of("hotpot_pod_throttled_seconds_total", "train"), None, "nobody measures it");
    let reading = read(&text).unwrap();
    let web = &reading[&("team".to_owned(), "web-1".to_owned())];
    let read = ShareReading {
        memory_used_bytes: Some(805_306_368.0),
        compute_cap_ratio: Some(0.3),
        busy_ratio: Some(0.15),
        gpu_seconds: Some(1.5),
        throttled_seconds: Some(0.25),
    };
    assert_eq!(web[&("GPU-0".to_owned(), "c1".to_owned())], read);
    assert_eq!(reading.len(), 2);
}

#[test]
fn in_dcgms_names_shares_are_told_in_the_place_of_their_card_and_whole_devices_have_names() {
    let mut seen = observation(vec![whole(), divided()]);
    let text = prometheus(&seen, MetricNames::Both);
    let lines = |name: &str, gpu: &str| -> Vec<String> {
        let of_gpu = format!("UUID=\"{gpu}\"");
        let all = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        all.filter(|line| line.contains(&of_gpu)).map(str::to_owned).collect()
    };
    let busy = lines("DCGM_FI_DEV_GPU_UTIL", "GPU-0");
    assert!(
        busy.len() == 1
            && busy[0].contains("namespace=\"team\",pod=\"web-1\",container=\"main\"} 15"),
        "{busy:?}"
    );
    let used = lines("DCGM_FI_DEV_FB_USED", "GPU-0");
    assert!(used.len() == 1 && used[0].ends_with("} 768"), "{used:?}");
    let power = lines("DCGM_FI_DEV_POWER_USAGE", "GPU-0");
    assert!(power.len() == 1 && !power[0].contains("pod="), "{power:?}");
    let of_mig = lines("DCGM_FI_DEV_FB_USED", "GPU-1");
    assert!(of_mig.len() == 1 && of_mig[0].contains("pod=\"train\""), "{of_mig:?}");
    seen.occupants = vec![occupant("c9", ("GPU-0", "GPU-0", "exclusive"), "alone")];
    let text = prometheus(&seen, MetricNames::Both);
    let of_pod = |name: &str| value(&text, name, &["pod=\"alone\""]);
    assert_eq!(of_pod("DCGM_FI_DEV_POWER_USAGE"), Some(321.5));
    assert_eq!(of_pod("DCGM_FI_DEV_GPU_UTIL"), Some(57.0));
    assert_eq!(of_pod("hotpot_pod_busy_ratio"), Some(0.57));
}
