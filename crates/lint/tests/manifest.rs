//! Pods and what makes them: what is found in them, what of it is mended, and what is no mistake.

mod support;

use lint::Kind::{self, Manifest};
use support::{assert_clean, assert_left, assert_mended, found};

/// A Deployment like those of users, with some lines at its pod and the resources of its container.
fn deployment(pod: &str, resources: &str) -> String {
    let lines = |text: &str, blanks: usize| -> String {
        text.lines().map(|line| format!("{}{line}\n", " ".repeat(blanks))).collect()
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web  # ours\nspec:\n  template:\n    metadata:\n      labels: {{app: web}}\n    spec:\n{}      containers:\n        - name: main\n          image: registry/web:1\n          resources:\n{}",
        lines(pod, 6),
        lines(resources, 12)
    )
}

fn becomes(resources: &str, names: &[&str], clean: &str) {
    assert_mended(Manifest, &deployment("", resources), names, &deployment("", clean));
}

fn stays(resources: &str, of_card: &str, names: &[&str]) {
    assert_left(Manifest, &deployment("", resources), of_card, names);
}

#[test]
fn cards_are_counted_whole() {
    becomes(
        "limits:\n  nvidia.com/gpu: \"0.5\"   # half\n  cpu: 500m",
        &["19 gpu-fraction"],
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpucores: 50   # half\n  cpu: 500m",
    );
    becomes(
        "limits: {cpu: 1, nvidia.com/gpu: 500m}",
        &["18 gpu-fraction"],
        "limits: {cpu: 1, nvidia.com/gpu: 1, nvidia.com/gpucores: 50}",
    );
    becomes(
        "limits:\n  nvidia.com/gpu: 0.25\n  nvidia.com/gpumem: 8000",
        &["19 gpu-fraction"],
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpumem: 8000",
    );
    becomes(
        "limits: {\n  nvidia.com/gpu: 0.5\n}",
        &["19 gpu-fraction"],
        "limits: {\n  nvidia.com/gpu: 1, nvidia.com/gpucores: 50\n}",
    );
    stays("limits:\n  nvidia.com/gpu: &half 0.5", "", &["19 gpu-fraction"]);
    stays("limits:\n  nvidia.com/gpu: 0.0005", "", &["19 gpu-fraction"]);
    stays("limits:\n  nvidia.com/gpu: 50%", "", &["19 gpus-no-number"]);
    stays("limits:\n  nvidia.com/gpu: 1/2", "", &["19 gpus-no-number"]);
    stays("limits:\n  nvidia.com/gpu: -1", "", &["19 gpus-no-number"]);
    stays("limits:\n  nvidia.com/gpu: 1.5", "", &["19 gpu-fraction"]);
    stays("limits:\n  nvidia.com/mig-1g.10gb: 0.5", "", &["19 gpu-fraction"]);
    for clean in ["1", "\"2\"", "1000m", "0"] {
        assert_clean(Manifest, &deployment("", &format!("limits:\n  nvidia.com/gpu: {clean}")), "");
    }
}

#[test]
fn requests_of_devices_are_their_limits() {
    becomes(
        "requests:\n  nvidia.com/gpu: 1\nlimits:\n  nvidia.com/gpu: 2",
        &["19 request-is-not-limit"],
        "requests:\n  nvidia.com/gpu: 2\nlimits:\n  nvidia.com/gpu: 2",
    );
    let whole = "requests:\n  nvidia.com/gpu: 1\nlimits:\n  nvidia.com/gpu: 1";
    let half = whole.replacen("gpu: 1", "gpu: 0.5", 1);
    becomes(&half, &["19 request-is-not-limit"], whole);
    becomes(
        "requests:\n  nvidia.com/gpu: 1\nlimits:\n  nvidia.com/gpu: 0.25",
        &["21 gpu-fraction"],
        "requests:\n  nvidia.com/gpu: 1\nlimits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpucores: 25",
    );
    stays("requests:\n  nvidia.com/gpu: 1", "", &["19 request-is-not-limit"]);
    stays("requests: {cpu: 1}\nlimits: {cpu: 2, nvidia.com/gpu: \"1\"}", "", &[]);
    stays("requests: {nvidia.com/gpu: 1}\nlimits: {nvidia.com/gpu: \"1\"}", "", &[]);
}

#[test]
fn a_part_is_a_part_of_a_card() {
    becomes(
        "limits:\n  nvidia.com/gpumem: 10240",
        &["19 part-without-card"],
        "limits:\n  nvidia.com/gpumem: 10240\n  nvidia.com/gpu: 1",
    );
    becomes(
        "limits:\n  nvidia.com/gpu: 0\n  nvidia.com/gpucores: 30",
        &["19 part-of-no-card"],
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpucores: 30",
    );
    becomes(
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpumem: 10Gi",
        &["20 amount-out-of-range"],
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpumem: 10240",
    );
    becomes(
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpumem: 8G",
        &["20 amount-out-of-range"],
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpumem: 7629",
    );
    stays(
        "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpucores: 300",
        "",
        &["20 amount-out-of-range"],
    );
    let large = "limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpumem: 40000";
    stays(large, "t4", &["20 more-than-a-card"]);
    stays(large, "a100-80gb", &[]);
}

#[test]
fn cards_and_instances_are_two_kinds() {
    stays("limits:\n  nvidia.com/gpu: 1\n  nvidia.com/mig-1g.10gb: 1", "", &["20 gpu-beside-mig"]);
    stays("limits:\n  nvidia.com/gpu: 0\n  nvidia.com/mig-1g.10gb: 1", "", &[]);
}

#[test]
fn profiles_are_those_of_the_card() {
    becomes(
        "limits:\n  nvidia.com/mig-1g10gb: 1",
        &["19 mig-unknown"],
        "limits:\n  nvidia.com/mig-1g.10gb: 1",
    );
    stays("limits:\n  nvidia.com/mig-2g.30gb: 1", "", &["19 mig-unknown"]);
    let two = "limits:\n  nvidia.com/mig-2g.20gb: 1";
    stays(two, "a100-40gb", &["19 mig-not-on-card"]);
    stays(two, "a100-80gb", &[]);
    stays("limits:\n  nvidia.com/mig-1g.10gb.me: 1", "h100-80gb", &[]);
}

#[test]
fn the_node_selector_names_the_card() {
    let on = |product: &str| {
        let pod = format!("nodeSelector:\n  nvidia.com/gpu.product: {product}");
        found(Manifest, &deployment(&pod, "limits:\n  nvidia.com/mig-2g.20gb: 1"), "")
    };
    assert_eq!(on("NVIDIA-A100-SXM4-40GB"), ["21 mig-not-on-card"]);
    assert_eq!(on("Tesla-T4"), ["21 mig-not-on-card"]);
    for has in [
        "NVIDIA-A100-SXM4-80GB",
        "NVIDIA-A100-80GB-PCIe-MIG-2g.20gb",
        "NVIDIA-H100-80GB-HBM3",
        "Made-up-1",
    ] {
        assert!(on(has).is_empty(), "{has}: {:?}", on(has));
    }
}

#[test]
fn instances_of_a_pod_fit_on_the_cards_of_a_node() {
    let four = "limits:\n  nvidia.com/mig-2g.20gb: 4";
    stays(four, "a100-80gb", &["19 mig-too-many"]);
    stays(four, "a100-80gb:2", &[]);
    stays("limits:\n  nvidia.com/mig-2g.20gb: 3", "a100-80gb", &[]);
    stays(
        "limits:\n  nvidia.com/mig-4g.40gb: 1\n  nvidia.com/mig-2g.20gb: 2",
        "a100-80gb",
        &["20 mig-too-many"],
    );
    stays("limits:\n  nvidia.com/mig-4g.40gb: 1\n  nvidia.com/mig-2g.20gb: 1", "a100-80gb", &[]);
    let pod = "nodeSelector:\n  nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB\n  nvidia.com/gpu.count: \"1\"";
    assert_left(Manifest, &deployment(pod, four), "", &["22 mig-too-many"]);
    let huge = "limits:\n  nvidia.com/mig-2g.20gb: 18446744073709551615";
    stays(huge, "a100-80gb", &["19 mig-too-many"]);
}

#[test]
fn instances_do_not_reach_each_other() {
    let nccl = "limits:\n  nvidia.com/mig-1g.10gb: N";
    let with = |count: &str, pod: &str, more: &str| {
        let text = deployment(pod, &nccl.replace('N', count));
        found(Manifest, &format!("{text}{more}"), "")
    };
    let torchrun = "          command: [torchrun, --nproc-per-node=2, train.py]\n";
    let env = "          env:\n            - {name: NCCL_DEBUG, value: INFO}\n";
    assert_eq!(with("2", "", torchrun), ["20 mig-without-peers"]);
    assert_eq!(with("2", "", env), ["21 mig-without-peers"]);
    assert_eq!(with("2", "hostIPC: true", ""), ["14 mig-without-peers"]);
    for (count, pod, more) in
        [("1", "hostIPC: true", torchrun), ("2", "hostIPC: false", ""), ("2", "", "")]
    {
        assert!(with(count, pod, more).is_empty(), "{count} {pod} {more}");
    }
}

/// A pod of a gang, by its labels and its gate.
fn member(labels: &str, gate: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: train-0\n  labels:\n{labels}spec:\n  schedulingGates:\n    - name: {gate}\n  containers:\n    - name: main\n      image: x\n      resources: {{limits: {{nvidia.com/gpu: 1}}}}\n"
    )
}

#[test]
fn names_of_hotpot_are_spelt_right() {
    let labels = "    hotpot.dev/gang: train\n    hotpot.dev/gang-size: \"4\"\n";
    let clean = member(labels, "hotpot.dev/placement");
    let wrong = clean.replace("gang-size", "gang_size").replace("placement", "placment");
    assert_mended(Manifest, &wrong, &["7 hotpot-name", "10 hotpot-gate"], &clean);
    let number = clean.replace("\"4\"", "4");
    assert_mended(Manifest, &number, &["7 label-not-text"], &clean);
    let strange = clean.replace("hotpot.dev/gang:", "hotpot.dev/team:");
    assert_left(Manifest, &strange, "", &["6 hotpot-name"]);
    let annotation = clean.replace("  labels:", "  annotations:");
    assert_left(Manifest, &annotation, "", &["6 hotpot-name", "7 hotpot-name"]);
    let others = member("    example.com/gang: 7x\n    team: placement\n", "example.com/placement");
    assert_clean(Manifest, &others, "");
}

#[test]
fn a_claim_of_a_pod_has_no_source() {
    let pod = |claim: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  resourceClaims:\n    - name: gpu\n{claim}  containers:\n    - name: main\n      image: x\n      resources:\n        claims: [{{name: gpu}}]\n"
        )
    };
    let old = "      source:\n        resourceClaimTemplateName: whole-card\n";
    let new = "      resourceClaimTemplateName: whole-card\n";
    assert_mended(Manifest, &pod(old), &["7 claim-source"], &pod(new));
}

#[test]
fn every_kind_that_makes_pods_is_looked_at() {
    let container =
        "{containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1.5}}}]}";
    let template = format!("{{template: {{spec: {container}}}}}");
    let job = format!("{{jobTemplate: {{spec: {template}}}}}");
    for (kind, spec) in
        [("Pod", container), ("Job", &template), ("StatefulSet", &template), ("CronJob", &job)]
    {
        let text = format!("apiVersion: v1\nkind: {kind}\nspec: {spec}\n");
        assert_eq!(found(Manifest, &text, ""), ["3 gpu-fraction"], "{kind}");
        let list =
            format!("apiVersion: v1\nkind: List\nitems:\n  - {{kind: {kind}, spec: {spec}}}\n");
        assert_eq!(found(Manifest, &list, ""), ["4 gpu-fraction"], "{kind}");
    }
    let replicas = format!("{{pytorchReplicaSpecs: {{Worker: {template}}}}}");
    let text = format!("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {replicas}\n");
    assert_eq!(found(Manifest, &text, ""), ["3 gpu-fraction"]);
    let text = format!("apiVersion: v1\nkind: PodList\nitems:\n  - {{spec: {container}}}\n");
    assert_eq!(found(Manifest, &text, ""), ["4 gpu-fraction"]);
    let other = format!("apiVersion: example.com/v1\nkind: Thing\nspec: {container}\n");
    assert_clean(Manifest, &other, "");
    let json = format!("{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {container}}}");
    assert_eq!(Kind::of(&json), Some(Manifest));
    assert_eq!(found(Manifest, &json, ""), ["1 gpu-fraction"]);
}

#[test]
fn json_stays_json() {
    let of = |limits: &str| {
        format!(
            "{{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Pod\",\n  \"spec\": {{\n    \"containers\": [\n      {{\"resources\": {{\"limits\": {{\n        {limits}\n      }}}}}}\n    ]\n  }}\n}}\n"
        )
    };
    let (text, clean) = (
        of("\"nvidia.com/gpu\": \"0.5\""),
        of("\"nvidia.com/gpu\": 1, \"nvidia.com/gpucores\": 50"),
    );
    assert_mended(Manifest, &text, &["7 gpu-fraction"], &clean);
    let claim = "{\n  \"apiVersion\": \"resource.k8s.io/v1alpha2\",\n  \"kind\": \"ResourceClaim\",\n  \"spec\": {\n    \"count\": 2\n  }\n}\n";
    assert_left(Manifest, claim, "", &["2 api-version-gone", "5 invented-field"]);
}

#[test]
fn new_lines_end_as_the_others_do() {
    let dos = |limits: &str| deployment("", limits).replace('\n', "\r\n");
    let (text, clean) = (
        dos("limits:\n  nvidia.com/gpu: 0.5"),
        dos("limits:\n  nvidia.com/gpu: 1\n  nvidia.com/gpucores: 50"),
    );
    assert_mended(Manifest, &text, &["19 gpu-fraction"], &clean);
}

#[test]
fn counts_beyond_all_bounds_are_answered() {
    let most = u64::MAX;
    let text =
        format!("limits:\n  nvidia.com/mig-1g.10gb: {most}\n  nvidia.com/mig-2g.20gb: {most}");
    stays(&text, "", &[]);
}

#[test]
fn a_manifest_that_carries_a_script_is_a_manifest() {
    let text = "apiVersion: v1\nkind: ConfigMap\ndata:\n  a.sh: |\n    #!/bin/bash\n    #SBATCH --gpus=1:shared\n";
    assert_eq!(Kind::of(text), Some(Manifest));
}

#[test]
fn a_file_that_is_no_yaml_is_an_error_with_its_line() {
    let text =
        "apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Pod\nspec: [nvidia.com/gpu\n";
    let error = lint::check(&[support::input(Manifest, text)], None).unwrap_err();
    assert!(error.line.is_some_and(|line| line >= 6), "{error}");
    let text = "apiVersion: v1\nkind: Pod\nspec: {{ .Values.gpus }}\n";
    let error = lint::check(&[support::input(Manifest, text)], None).unwrap_err();
    assert!(error.way_out.contains("helm template"), "{error}");
    // What has nothing to do with GPUs is not looked at.
    assert_clean(Manifest, "apiVersion: v1\nkind: Service\nspec: {{ .Values.spec }}\n", "");
}
