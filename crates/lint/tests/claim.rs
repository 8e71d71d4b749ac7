//! Claims of devices: what is found in them, what of it is mended, and what is no mistake.

mod support;

use std::fs;

use lint::Kind::Manifest;
use support::{assert_clean, assert_left, assert_mended, found, mended};

/// The manifest that goes round as time slicing.
const FOLK: &str = "# GPU time slicing in Kubernetes 1.34
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata:
  name: two-a100   # ours
spec:
  count: 2
  gpu-type: A100-80GB
  sharing:
    strategy: time-slicing
    interval: 100ms
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  resourceClaims:
    - {name: gpus, resourceClaimName: two-a100}
  containers:
    - {name: main, image: x, resources: {claims: [{name: gpus}]}}
";

#[test]
fn the_manifest_that_goes_round_becomes_the_one_that_works() {
    let clean = "# GPU time slicing in Kubernetes 1.34
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: two-a100   # ours
spec:
  devices:
    requests:
      - name: gpus
        exactly:
          deviceClassName: gpu.hotpot.dev
          count: 2
    config:
      - requests: [gpus]
        opaque:
          driver: gpu.hotpot.dev
          parameters:
            apiVersion: hotpot.dev/v1
            kind: GpuShare
            sharing: time-slice
            models: [a100-80gb]
---
";
    let pod = &FOLK[FOLK.find("---\n").unwrap() + 4..];
    let names = ["2 api-version-gone", "7 invented-field"];
    assert_mended(Manifest, FOLK, &names, &format!("{clean}{pod}"));
    // It is what the shipped example says.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kubernetes/taking-turns.yaml");
    let example = fs::read_to_string(path).unwrap();
    let spec = &clean[clean.find("spec:\n").unwrap()..clean.find("---\n").unwrap()];
    assert!(example.contains(spec), "the example has\n{spec}");
}

#[test]
fn what_is_not_understood_is_left_to_people() {
    let names = ["2 api-version-gone", "7 invented-field"];
    assert_left(Manifest, &FOLK.replace("A100-80GB", "fastest"), "", &names);
    assert_left(Manifest, &FOLK.replace("count: 2", "count: two"), "", &names);
    assert_left(Manifest, &FOLK.replace("time-slicing", "magic"), "", &names);
    let more = "    strategy: time-slicing\n    replicas: 4\n";
    let more = FOLK.replace("    strategy: time-slicing\n", more);
    assert_left(Manifest, &more, "", &names);
    assert_left(Manifest, &FOLK.replace("count: 2", "count: &n 2"), "", &names);
    let flow = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {count: 2}\n";
    let (text, left) = mended(Manifest, flow, "");
    assert_eq!(left, Vec::<&str>::new(), "{text}");
    let open = flow.replace("{count: 2}", "{\n  count: 2\n}");
    assert_left(Manifest, &open, "", &["4 invented-field"]);
}

#[test]
fn comments_of_what_is_written_anew_are_kept() {
    let text = FOLK.replace("count: 2", "count: 2  # two of them\n  # and fast");
    let (text, left) = mended(Manifest, &text, "");
    assert_eq!(left, Vec::<&str>::new());
    assert!(text.contains("\n# two of them\n# and fast\nspec:\n"), "{text}");
}

#[test]
fn a_version_stays_where_what_stands_below_it_would_be_refused() {
    for request in ["{name: gpu, deviceClassName: a}", "deviceClassName: a\n      name: gpu"] {
        let text = format!(
            "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nspec:\n  devices:\n    requests:\n    - {request}\n"
        );
        assert_left(Manifest, &text, "", &["1 api-version-off"]);
    }
}

/// A template of claims with some lines for its request.
fn template(version: &str, request: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/{version}\nkind: ResourceClaimTemplate\nmetadata: {{name: card}}\nspec:\n  spec:\n    devices:\n      requests:\n{request}"
    )
}

const DEEP: &str = "        - name: gpu
          exactly:
            deviceClassName: gpu.hotpot.dev
            # a part
            capacity:
              requests: {memory: 10Gi}
        - name: other
          exactly:
            deviceClassName: gpu.hotpot.dev
";
const FLAT: &str = "        - name: gpu
          deviceClassName: gpu.hotpot.dev
          # a part
          capacity:
            requests: {memory: 10Gi}
        - name: other
          deviceClassName: gpu.hotpot.dev
";

#[test]
fn betas_become_v1() {
    let off = ["1 api-version-off"];
    assert_mended(Manifest, &template("v1beta2", DEEP), &off, &template("v1", DEEP));
    assert_mended(Manifest, &template("v1beta1", FLAT), &off, &template("v1", DEEP));
    let flat = ["9 request-without-exactly", "14 request-without-exactly"];
    assert_mended(Manifest, &template("v1", FLAT), &flat, &template("v1", DEEP));
    let class =
        "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: a}\nspec: {}\n";
    assert_mended(Manifest, class, &off, &class.replace("v1beta1", "v1"));
    assert_left(
        Manifest,
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClass\ndriverName: gpu.x\n",
        "",
        &["1 api-version-gone"],
    );
    assert_clean(
        Manifest,
        "apiVersion: resource.k8s.io/v1alpha3\nkind: DeviceTaintRule\nspec: {}\n",
        "",
    );
}

#[test]
fn fields_are_those_of_the_api() {
    let wrong = DEEP.replace(
        "deviceClassName: gpu.hotpot.dev\n            #",
        "deviceClassname: gpu.hotpot.dev\n            #",
    );
    assert_mended(Manifest, &template("v1", &wrong), &["10 unknown-field"], &template("v1", DEEP));
    let strange = DEEP.replace("          exactly:\n            deviceClassName: gpu.hotpot.dev\n            #", "          sharing: mps\n          exactly:\n            deviceClassName: gpu.hotpot.dev\n            #");
    assert_left(Manifest, &template("v1", &strange), "", &["9 unknown-field"]);
    let class = DEEP.replacen("gpu.hotpot.dev", "gpus.hotpot.dev", 1);
    assert_mended(Manifest, &template("v1", &class), &["10 hotpot-name"], &template("v1", DEEP));
    for other in ["gpu.nvidia.com", "small.hotpot.dev", "hotpot-small"] {
        assert_clean(Manifest, &template("v1", &DEEP.replace("gpu.hotpot.dev", other)), "");
    }
}

/// A claim with hotpot's configuration.
fn share(lines: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: a}}\nspec:\n  devices:\n    requests: [{{name: gpu, exactly: {{deviceClassName: gpu.hotpot.dev}}}}]\n    config:\n      - opaque:\n          driver: gpu.hotpot.dev\n          parameters:\n            apiVersion: hotpot.dev/v1\n            kind: GpuShare\n{lines}"
    )
}

#[test]
fn a_share_says_what_it_can_say() {
    let one = |wrong: &str, names: &[&str], clean: &str| {
        let line = |text: &str| share(&format!("            {text}\n"));
        assert_mended(Manifest, &line(wrong), names, &line(clean));
    };
    one("sharing: time-slicing", &["13 share-value"], "sharing: time-slice");
    one("memoryMib: 10240", &["13 unknown-field"], "memoryMiB: 10240");
    one("profile: 1G.10GB", &["13 mig-unknown"], "profile: 1g.10gb");
    assert_left(Manifest, &share("            interval: 100ms\n"), "", &["13 unknown-field"]);
    assert_left(Manifest, &share("            sharing: fair\n"), "", &["13 share-value"]);
    let version = share("").replace("hotpot.dev/v1\n", "hotpot.dev/v2\n");
    assert_mended(Manifest, &version, &["11 share-value"], &share(""));
}

#[test]
fn turns_of_nvidias_driver_have_names() {
    let of = |interval: &str| {
        share("").replace("gpu.hotpot.dev\n          parameters:\n            apiVersion: hotpot.dev/v1\n            kind: GpuShare\n", &format!("gpu.nvidia.com\n          parameters:\n            apiVersion: resource.nvidia.com/v1beta1\n            kind: GpuConfig\n            sharing: {{strategy: TimeSlicing, timeSlicingConfig: {{interval: {interval}}}}}\n"))
    };
    assert_left(Manifest, &of("100ms"), "", &["13 turn-in-time"]);
    assert_clean(Manifest, &of("Medium"), "");
}

#[test]
fn nothing_is_wrong_in_the_shipped_examples() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kubernetes");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(found(Manifest, &text, "a100-80gb"), Vec::<String>::new(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 6, "the examples are there");
}
