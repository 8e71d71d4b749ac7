//! Files changed at random: nothing panics, mending twice is mending once, and lines without a finding stay.

mod support;

use std::fs;

use lint::{Card, Input, Kind};
use proptest::prelude::*;

/// Files of each kind with much that can be found in them.
fn seeds() -> Vec<(Kind, String)> {
    let example = |path: &str| {
        let path = format!("{}/../../examples/{path}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).expect("an example")
    };
    let folk = "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaim\nmetadata: {name: a}\nspec:\n  count: 2\n  gpu-type: a100-80gb\n  sharing:\n    strategy: time-slicing\n    interval: 100ms\n---\napiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaimTemplate\nmetadata: {name: b}\nspec:\n  spec:\n    devices:\n      requests:\n        - name: gpu\n          deviceClassName: gpus.hotpot.dev\n          count: 1\n";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    hotpot.dev/gang: x\n    hotpot.dev/gang_size: 4\nspec:\n  hostIPC: true\n  nodeSelector:\n    nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB\n  resourceClaims:\n    - name: gpu\n      source:\n        resourceClaimName: a\n  containers:\n    - name: main\n      image: x\n      command: [torchrun, train.py]\n      resources:\n        requests:\n          nvidia.com/gpu: 1\n        limits:\n          nvidia.com/gpu: \"0.5\"\n          nvidia.com/gpumem: 10Gi\n          nvidia.com/mig-1g10gb: 4\n    - name: side\n      image: x\n      resources: {limits: {nvidia.com/gpucores: 30, nvidia.com/mig-2g.20gb: 4}}\n";
    let script = "#!/bin/bash\n#SBATCH --job-name=\"a b\" -N 2\n#SBATCH --gpus=1:shared\n#SBATCH --gres=gpu:2:a100,shard:a100:2,mps:300 --exclusive\n#SBATCH --gpu-profile=1g.11gb\n# SBATCH --gpus=2\n\nexport GPUSHARED=1\nsrun a # ü\n";
    let gres = "# gpus\nNodeName=n[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]\nNodeName=n[1-2] Name=shard Count=10\nNodeName=n[3-4] Name=mps Count=400 File=/dev/nvidia9\nNodeName=n3 Name=shard Count=4 \\\n  File=/dev/nvidia0\n";
    let conf = "ClusterName=c\nSelectType=select/linear\nGresTypes=gpu,shard,mps\nTaskPlugin=task/none\nNodeName=n[1-2] CPUs=8 Gres=gpu:a100:4(S:0-1),shard:10\nPartitionName=p Nodes=ALL\n";
    let json = "{\n  \"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n    {\"kind\": \"Pod\", \"metadata\": {\"labels\": {\n      \"hotpot.dev/gang-size\": 4\n    }}, \"spec\": {\"containers\": [{\"resources\": {\n      \"limits\": {\n        \"nvidia.com/gpu\": \"0.5\",\n        \"nvidia.com/gpumem\": 10\n      }\n    }}]}},\n    {\"apiVersion\": \"resource.k8s.io/v1beta1\", \"kind\": \"ResourceClaim\",\n     \"spec\": {\n       \"count\": 2\n     }\n    }\n  ]\n}\n";
    let flow = "apiVersion: v1\nkind: PodList\nitems:\n- spec:\n    resourceClaims:\n    - name: a\n      source: {\n        resourceClaimName: b\n      }\n    containers:\n    - resources: &r\n        limits: {\n          nvidia.com/gpumem: &n 10, # ten\n        }\n    - resources: *r\n    - resources:\n        limits:\n          nvidia.com/gpu:\n            0.5\n        requests:\n          nvidia.com/gpu: *n\n";
    let parts = "#!/bin/bash\n#SBATCH --gres='gpu:1:shared'\n#SBATCH hetjob\n#SBATCH --gpus=2:a100 --gres=gpus:1\ncat <<A >b\n#SBATCH --gpus=1:shared\nA\nB=1 srun --gres=\"shard:1\" \\\n  -G 1:shared a\n";
    let written = [
        (Kind::Manifest, json.to_owned()),
        (Kind::Manifest, flow.to_owned()),
        (Kind::Sbatch, parts.to_owned()),
        (Kind::Sbatch, script.to_owned()),
        (Kind::Sbatch, script.replace('\n', "\r\n")),
        (Kind::Sbatch, example("embed.sbatch")),
        (Kind::GresConf, gres.to_owned()),
        (Kind::SlurmConf, conf.to_owned()),
        (Kind::Manifest, folk.to_owned()),
        (Kind::Manifest, pod.to_owned()),
    ];
    let shipped = ["taking-turns", "gang", "mig", "names", "service", "share"];
    let shipped = shipped.map(|name| (Kind::Manifest, example(&format!("kubernetes/{name}.yaml"))));
    written.into_iter().chain(shipped).collect()
}

/// One change: at a place of a thousand, what.
#[derive(Clone, Debug)]
enum Change {
    Put(usize, String),
    Cut(usize, usize),
    Swap(usize, usize),
    Double(usize),
    Line(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let words = prop_oneof![
        "[ -~\u{e9}\n\t\\[\\]{}\"'#:,=-]{1,6}",
        Just("\r\n".to_owned()),
        Just("---\n".to_owned()),
        Just("#SBATCH --gres=gpu:1:shared\n".to_owned()),
        Just("nvidia.com/gpu: 0.5".to_owned()),
        Just("*a &a".to_owned()),
        Just("\u{0}".to_owned()),
    ];
    prop_oneof![
        (0..1000_usize, words).prop_map(|(at, text)| Change::Put(at, text)),
        (0..1000_usize, 1..30_usize).prop_map(|(at, count)| Change::Cut(at, count)),
        (0..1000_usize, 0..1000_usize).prop_map(|(one, other)| Change::Swap(one, other)),
        (0..1000_usize).prop_map(Change::Double),
        (0..1000_usize).prop_map(Change::Line),
    ]
}

fn changed(text: &str, change: &Change) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = |of: usize, count: usize| of * count.max(1) / 1000;
    match change {
        Change::Put(of, word) => {
            let (before, after) = chars.split_at(at(*of, chars.len()));
            before.iter().chain(&word.chars().collect::<Vec<_>>()).chain(after).collect()
        }
        Change::Cut(of, count) => {
            let from = at(*of, chars.len());
            chars.iter().take(from).chain(chars.iter().skip(from + count)).collect()
        }
        Change::Swap(one, other) if !lines.is_empty() => {
            let (one, other) = (at(*one, lines.len()), at(*other, lines.len()));
            lines.swap(one, other);
            lines.concat()
        }
        Change::Double(of) if !lines.is_empty() => {
            lines.insert(at(*of, lines.len()), lines[at(*of, lines.len())]);
            lines.concat()
        }
        Change::Line(of) if !lines.is_empty() => {
            lines.remove(at(*of, lines.len()));
            lines.concat()
        }
        Change::Swap(..) | Change::Double(_) | Change::Line(_) => text.to_owned(),
    }
}

/// The lines, zero-based, that a finding and its edits are about.
fn lines_of(text: &str, finding: &lint::Finding) -> std::ops::RangeInclusive<usize> {
    let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count();
    let ends = finding.edits.iter().map(|edit| edit.span.end).max();
    let starts = finding.edits.iter().map(|edit| edit.span.start).min();
    let first = starts.unwrap_or(finding.span.start).min(finding.span.start);
    line(first)..=line(ends.unwrap_or(0).max(finding.span.end))
}

/// The lines that no finding is about are all there, in their order.
fn kept(text: &str, findings: &[lint::Finding], mended: &str) -> bool {
    let touched: Vec<_> = findings.iter().map(|finding| lines_of(text, finding)).collect();
    let lines = text.lines().enumerate();
    let mut all = mended.lines();
    let mut others = lines.filter(|(at, _)| !touched.iter().any(|lines| lines.contains(at)));
    others.all(|(_, line)| all.any(|other| other == line))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_file_says_it_is_answered_and_mended_once(
        seed in 0..16_usize, changes in proptest::collection::vec(change(), 0..6), card in 0..3_usize,
    ) {
        let (kind, text) = seeds().swap_remove(seed);
        let text = changes.iter().fold(text, |text, change| changed(&text, change));
        let card = ["", "a100-80gb", "t4:4"][card];
        let card = (!card.is_empty()).then(|| Card::parse(card).expect("a card"));
        let Ok(input) = Input::new("file", text.clone().into_bytes(), Some(kind)) else {
            return Ok(());
        };
        let inputs = [input];
        let Ok(found) = lint::check(&inputs, card.as_ref()) else { return Ok(()) };
        let found = &found[0];
        let _ = lint::shown("file", inputs[0].text(), found);
        let once = lint::mend(&inputs, 0, card.as_ref());
        let once = once.map_err(|error| TestCaseError::fail(format!("mended, it cannot be read:\n{text}\n{error}")))?;
        let Ok(twice) = lint::mend(std::slice::from_ref(&once.input), 0, card.as_ref()) else {
            return Err(TestCaseError::fail(format!("mended, and not to be read any more:\n{text}\n=>\n{}", once.input.text())));
        };
        prop_assert!(twice.done.is_empty(), "of\n{}\n=>\n{}\nnot at rest: {:?}", text, once.input.text(), twice.done);
        prop_assert_eq!(once.input.text(), twice.input.text());
        let mendable = found.iter().filter(|finding| !finding.edits.is_empty()).count();
        if once.done.len() == mendable {
            prop_assert!(kept(inputs[0].text(), found, once.input.text()), "of\n{}\n=>\n{}", text, once.input.text());
        }
        if mendable == 0 {
            prop_assert_eq!(inputs[0].text(), once.input.text());
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..5_usize) {
        let kinds = [None, Some(Kind::Sbatch), Some(Kind::GresConf), Some(Kind::SlurmConf), Some(Kind::Manifest)];
        if let Ok(input) = Input::new("file", bytes, kinds[kind]) {
            let _ = lint::check(&[input], None);
        }
    }
}

#[test]
fn files_that_cannot_be_checked_are_told_why() {
    let said = |bytes: &[u8]| Input::new("file", bytes.to_vec(), None).unwrap_err().to_string();
    assert!(said(b"").contains("is empty"));
    assert!(said(b"#!/bin/bash\n#SBATCH \xff\n").contains("file:2: byte 0xff"));
    assert!(said(b"hello\n").contains("is of no kind that is checked"));
    assert!(said(&[0x1f, 0x8b, 8, 0]).contains("is packed"));
    assert!(said(&vec![b'#'; 100 << 20]).contains("is longer than"));
}

#[test]
fn long_files_are_checked_in_time() {
    // A quarter of what is taken: enough to see that time does not grow with the square of it.
    let size = lint::SIZE_MAX_BYTES as usize / 4;
    let many = |line: &str| line.repeat(size / line.len());
    let begun = std::time::Instant::now();
    for (kind, text) in [
        (Kind::Sbatch, many("#SBATCH --gres=gpu:1:shared\r\n")),
        (Kind::GresConf, many("NodeName=n[1-9] Name=shard Count=3\nName=gpu Count=2\n")),
        (Kind::SlurmConf, many("NodeName=n1 Gres=gpu:2,shard:3\n")),
        (Kind::Manifest, many("a: gpu\n---\n")),
        (Kind::Manifest, format!("a: gpu\nb: [{}]", many("1,"))),
    ] {
        let input = support::input(kind, &text);
        if let Ok(found) = lint::check(std::slice::from_ref(&input), None) {
            let _ = lint::shown("file", input.text(), &found[0]);
            let _ = lint::mend(&[input], 0, None);
        }
    }
    assert!(begun.elapsed().as_secs() < 120, "{:?}", begun.elapsed());
}
