//! Requests as nobody should send them.

use k8s_openapi::api::core::v1::PodResourceClaim;
use model::Placement;
use proptest::prelude::*;
use serde_json::json;
use tokio::runtime::Runtime;

use super::*;
use crate::webhook::claims::Read;

/// No claims at all.
struct Nothing;

impl Claims for Nothing {
    async fn read(&self, _namespace: &str, _named: &PodResourceClaim) -> Option<Read> {
        None
    }
}

fn door() -> Door<Nothing> {
    let (_, keys) = watch::channel(None);
    Door { known: Known::whole(), cluster: Nothing, policy: Policy::new(Placement::Hotpot), keys }
}

fn ask(door: &Door<Nothing>, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
    let runtime: Runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    runtime.block_on(async {
        let response = door.answer(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    })
}

fn review(object: serde_json::Value) -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE", "userInfo": {}, "object": object,
        },
    });
    serde_json::to_vec(&review).unwrap()
}

#[test]
fn what_is_no_review_is_told_so() {
    let door = door();
    for (method, path, body, status, part) in [
        ("GET", "/healthz", &b""[..], 200, "ok"),
        ("GET", "/", b"", 404, "/pods"),
        ("GET", "/pods", b"", 405, "POST"),
        ("POST", "/pods", b"", 400, "no AdmissionReview"),
        ("POST", "/pods", b"{}", 400, "no AdmissionReview"),
        ("POST", "/pods", b"\xff\xfe", 400, "no AdmissionReview"),
        ("POST", "/claims", b"[[[[", 400, "no AdmissionReview"),
        (
            "POST",
            "/pods",
            b"{\"apiVersion\": \"admission.k8s.io/v1\", \"kind\": \"AdmissionReview\"}",
            400,
            "no request",
        ),
    ] {
        let (code, text) = ask(&door, method, path, body.to_vec());
        assert_eq!(code, status, "{method} {path}: {text}");
        assert!(text.contains(part), "{text}");
    }
    let deep = [b"{\"a\":".repeat(100_000), b"1".to_vec()].concat();
    assert_eq!(ask(&door, "POST", "/pods", deep).0, 400);
    assert_eq!(ask(&door, "POST", "/pods", vec![b' '; BODY_MAX]).0, 400);
    assert_eq!(ask(&door, "POST", "/pods", vec![b' '; BODY_MAX + 1]).0, 413);
    assert_eq!(ask(&door, "POST", "/pods", review(json!(null))).0, 200);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let words = "metadata|spec|containers|initContainers|resources|limits|requests|nvidia.com/gpu|nvidia.com/gpumem|name|claims|labels";
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|it| json!(it)),
        any::<i64>().prop_map(|it| json!(it)),
        "[a-z0-9.-]{0,12}".prop_map(|it| json!(it)),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|all| json!(all)),
            prop::collection::btree_map(words, inner, 0..5).prop_map(|all| json!(all)),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_ends_the_server(spec in any_json(), object in any_json()) {
        let door = door();
        for path in ["/pods", "/claims"] {
            for object in [object.clone(), json!({"metadata": {"name": "p"}, "spec": spec})] {
                let (status, _) = ask(&door, "POST", path, review(object));
                prop_assert!(status == 200 || status == 400);
            }
        }
    }
}
