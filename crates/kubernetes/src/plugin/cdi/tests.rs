//! The file as the container runtime reads it.

use super::*;

fn edits() -> (Edits, Vec<Edits>) {
    let node = |path: &str, host: Option<&str>| DeviceNode {
        path: path.into(),
        host_path: host.map(str::to_owned),
        more: Map::new(),
    };
    let extra: Edits = serde_json::from_str(
        r#"{"env": ["SITE=lab"], "hooks": [{"hookName": "createContainer", "path": "/usr/bin/hook"}]}"#,
    )
    .unwrap();
    let mut claim = Edits {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
        device_nodes: vec![node("/dev/nvidiactl", Some("/run/driver/dev/nvidiactl"))],
        mounts: vec![
            Mount::read("/state/caps/kubernetes/u/caps", "/run/hotpot/caps"),
            Mount::write("/state/boards/GPU-1", "/state/boards/GPU-1"),
        ],
        ..Edits::default()
    };
    claim.extend(extra);
    let device = Edits { device_nodes: vec![node("/dev/nvidia0", None)], ..Edits::default() };
    (claim, vec![device, Edits::default()])
}

#[test]
fn a_claims_file_reads_as_the_specification_wants() {
    let (claim, devices) = edits();
    let text = text("0a1b2c3d-0000-1111-2222-333344445555", &claim, &devices);
    assert_eq!(text, include_str!("claim.json"));
    assert_eq!(id("0a1b", 1), "hotpot.dev/gpu=0a1b-1");
}

#[test]
fn files_come_and_go_and_what_is_said_already_is_not_written_again() {
    let place = std::env::temp_dir().join(format!("hotpot-cdi-{}", std::process::id()));
    let _left_over = fs::remove_dir_all(&place);
    let folder = Folder::new(&place.join("cdi"));
    folder.write("u-1", "one").unwrap();
    let written = || fs::metadata(place.join("cdi/hotpot-u-1.json")).unwrap().modified().unwrap();
    let first = written();
    folder.write("u-1", "one").unwrap();
    assert_eq!(written(), first);
    assert!(folder.has("u-1") && !folder.has("u-2"));
    fs::write(place.join("cdi/nvidia.json"), "").unwrap();
    assert_eq!(folder.claims(), ["u-1"]);
    folder.remove("u-1").unwrap();
    folder.remove("u-1").unwrap();
    assert!(folder.claims().is_empty());
    fs::write(place.join("cdi/hotpot-u-3.json"), "").unwrap();
    let blocked = Folder::new(&place.join("cdi/nvidia.json"));
    let error = blocked.write("u-1", "one").unwrap_err().to_string();
    assert!(error.contains("hotpot-u-1.json") && error.contains("container runtime"), "{error}");
    fs::remove_dir_all(&place).unwrap();
}
