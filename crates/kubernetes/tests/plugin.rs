//! The plugin as the kubelet sees it: over its sockets, on simulated GPUs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kubernetes::names;
use kubernetes::plugin::proto::health::NodeWatchResourcesRequest;
use kubernetes::plugin::proto::health::dra_resource_health_client::DraResourceHealthClient;
use kubernetes::plugin::proto::registration::InfoRequest;
use kubernetes::plugin::proto::registration::registration_client::RegistrationClient;
use kubernetes::plugin::proto::v1beta1;
use kubernetes::plugin::proto::v1beta1::dra_plugin_client::DraPluginClient as Older;
use model::Share;
use node::machine::{Machine, MachineOptions};
use serde_json::{Value, json};
use support::{NODE, Node, again, channel, mount, on_node, share, variable};

#[test]
fn a_claim_is_made_real_once_and_taken_back() {
    on_node("a_claim_is_made_real_once_and_taken_back", "t4:2", |node| async move {
        let plugin = node.plugin("p1").await;
        let mut kubelet = plugin.kubelet().await;
        let uid = node.claims.part("c", &node.card(1), 2048);
        let devices = kubelet.prepare("c", &uid).await.unwrap();
        let [device] = &devices[..] else { panic!("one device: {devices:?}") };
        assert_eq!((device.pool_name.as_str(), &device.device_name), (NODE, &node.card(1)));
        assert_eq!(device.request_names, ["gpu"]);
        assert_eq!(device.share_id.as_deref(), Some("s-c"));
        assert_eq!(device.cdi_device_ids, [format!("hotpot.dev/gpu={uid}-0")]);
        let holds = node.holds();
        let capped = Share::MemoryCapped { memory_mib: 2048, compute_milli: 0 };
        assert_eq!((holds.len(), holds[0].share), (1, Some(capped)));
        assert_eq!(holds[0].who, format!("kubernetes/{uid}"));
        let books = node.books(&uid);
        let written = fs::metadata(node.cdi_file(&uid)).unwrap().modified().unwrap();
        assert_eq!(kubelet.prepare("c", &uid).await.unwrap(), devices, "the same answer again");
        assert_eq!((node.holds(), node.books(&uid)), (holds, books), "and nothing held twice");
        assert_eq!(fs::metadata(node.cdi_file(&uid)).unwrap().modified().unwrap(), written);
        kubelet.unprepare("c", &uid).await.unwrap();
        assert!(node.holds().is_empty() && !node.cdi_file(&uid).exists());
        kubelet.unprepare("c", &uid).await.unwrap();
        kubelet.unprepare("never", "00000000-0000-0000-0000-00000000ffff").await.unwrap();
        plugin.end().await;
    });
}

#[test]
fn a_container_finds_its_caps_where_no_variable_leads_away() {
    on_node("a_container_finds_its_caps_where_no_variable_leads_away", "t4", |node| async move {
        let plugin = node.plugin("p1").await;
        let uid = node.claims.part("c", &node.card(0), 2048);
        plugin.kubelet().await.prepare("c", &uid).await.unwrap();
        let cdi = node.cdi(&uid);
        assert_eq!(variable(&cdi, "CUDA_VISIBLE_DEVICES"), Some(node.uuid(0)));
        assert_eq!(variable(&cdi, "NVIDIA_VISIBLE_DEVICES").as_deref(), Some("void"));
        assert_eq!(variable(&cdi, "LD_PRELOAD"), None);
        assert_eq!(variable(&cdi, "HOTPOT_CAPS"), None);
        let (caps, writable) = mount(&cdi, "/run/hotpot/caps").unwrap();
        assert!(!writable, "nobody raises his own caps");
        let text = fs::read_to_string(caps).unwrap();
        assert!(text.contains(&format!("memory = {}", 2048_u64 << 20)), "{text}");
        let (preload, writable) = mount(&cdi, "/etc/ld.so.preload").unwrap();
        let library = fs::read_to_string(preload).unwrap().trim().to_owned();
        let (there, library_writable) = mount(&cdi, &library).unwrap();
        assert!(!writable && !library_writable);
        let state = node.folder.join("state");
        assert!(there.starts_with(&state) && there.exists(), "{there:?}: the machine has it too");
        let lines = text.lines().filter_map(|line| line.split_once(" = "));
        let books =
            lines.filter(|(name, _)| ["ledger", "board"].contains(name)).map(|(_, path)| path);
        let books: Vec<&str> = books.collect();
        assert_eq!(books.len(), 2, "{text}");
        for book in books {
            let (path, writable) = mount(&cdi, book).unwrap();
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert!(writable && mode == 0o666, "{book}: whichever user the image has");
        }
        let smi = mount(&cdi, "/usr/bin/nvidia-smi").unwrap();
        assert_eq!(smi, ("/bin/nvidia-smi".into(), false), "as the machine has it");
        plugin.end().await;
    });
}

#[test]
fn two_share_a_card_and_what_is_taken_is_refused() {
    on_node("two_share_a_card_and_what_is_taken_is_refused", "t4", |node| async move {
        let plugin = node.plugin("p1").await;
        let mut kubelet = plugin.kubelet().await;
        let [one, two, three] =
            ["one", "two", "three"].map(|name| node.claims.part(name, &node.card(0), 6000));
        kubelet.prepare("one", &one).await.unwrap();
        kubelet.prepare("two", &two).await.unwrap();
        let error = kubelet.prepare("three", &three).await.unwrap_err();
        assert!(error.contains(&format!("held by kubernetes/{one}")), "{error}");
        assert_eq!(node.holds().len(), 2);
        assert!(!node.cdi_file(&three).exists());
        kubelet.unprepare("one", &one).await.unwrap();
        kubelet.prepare("three", &three).await.unwrap();
        let exclusive = share(json!({"sharing": "exclusive"}));
        let whole = node.claims.given("whole", &node.card(0), &Value::Null, &exclusive);
        let error = kubelet.prepare("whole", &whole).await.unwrap_err();
        assert!(error.contains("held by"), "{error}");
        plugin.end().await;
    });
}

#[test]
fn what_is_prepared_outlives_the_plugin_and_what_the_machine_forgot_is_made_again() {
    let test = "what_is_prepared_outlives_the_plugin_and_what_the_machine_forgot_is_made_again";
    on_node(test, "t4", |node| async move {
        let plugin = node.plugin("p1").await;
        let uid = node.claims.part("c", &node.card(0), 2048);
        let first = plugin.kubelet().await.prepare("c", &uid).await.unwrap();
        let (holds, books) = (node.holds(), node.books(&uid));
        plugin.end().await;
        assert_eq!(node.holds(), holds, "a tenant goes on without the plugin");
        fs::remove_file(node.cdi_file(&uid)).unwrap();
        let plugin = node.plugin("p2").await;
        let mut kubelet = plugin.kubelet().await;
        assert_eq!(kubelet.prepare("c", &uid).await.unwrap(), first);
        assert_eq!((node.holds(), node.books(&uid)), (holds, books));
        assert!(node.cdi_file(&uid).exists());
        plugin.end().await;
        // As the journal does when the machine has started anew; its folder in /run is empty then.
        open(&node).release_all(&format!("kubernetes/{uid}")).unwrap();
        fs::remove_dir_all(node.folder.join("cdi")).unwrap();
        let plugin = node.plugin("p3").await;
        let mut kubelet = plugin.kubelet().await;
        assert!(node.holds().is_empty(), "only when the kubelet asks");
        assert_eq!(kubelet.prepare("c", &uid).await.unwrap(), first);
        assert_eq!(node.holds().len(), 1);
        let (caps, _) = mount(&node.cdi(&uid), "/run/hotpot/caps").unwrap();
        assert!(caps.exists());
        kubelet.unprepare("c", &uid).await.unwrap();
        assert!(node.holds().is_empty() && !caps.exists());
        plugin.end().await;
    });
}

fn open(node: &Node) -> Machine {
    let state = Some(node.folder.join("state"));
    Machine::open(MachineOptions { state, ..MachineOptions::default() }).unwrap()
}

/// In a process of its own: grants a share as a plugin does, and is gone before it has noted or told it.
#[test]
#[ignore = "a part of the next test"]
fn killed_after_a_grant() {
    if std::env::var_os("HOTPOT_TEST_KILLED").is_none() {
        return;
    }
    on_node("killed_after_a_grant", "", |node| async move {
        let mut machine = open(&node);
        let inventory = machine.look().unwrap();
        let capped = Share::MemoryCapped { memory_mib: 9000, compute_milli: 0 };
        let who = "kubernetes/00000000-0000-0000-0000-00000000dead";
        machine.seat(&inventory, &node.uuid(0), capped, who).unwrap();
        std::process::abort();
    });
}

#[test]
fn what_a_killed_plugin_has_left_is_taken_back_when_one_starts() {
    on_node(
        "what_a_killed_plugin_has_left_is_taken_back_when_one_starts",
        "t4",
        |node| async move {
            let mut killed = again("killed_after_a_grant", &node.folder);
            assert!(!killed.env("HOTPOT_TEST_KILLED", "1").output().unwrap().status.success());
            assert_eq!(node.holds().len(), 1);
            let dead = "00000000-0000-0000-0000-00000000dead";
            let other = node.folder.join("cdi/hotpot-nothing-of-ours.json");
            fs::create_dir_all(other.parent().unwrap()).unwrap();
            fs::write(node.cdi_file(dead), "{}").unwrap();
            fs::write(&other, "{}").unwrap();
            let stale = node.folder.join("kubelet/plugins_registry/gpu.hotpot.dev-dead-reg.sock");
            fs::create_dir_all(stale.parent().unwrap()).unwrap();
            drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
            let plugin = node.plugin("p1").await;
            assert!(node.holds().is_empty());
            assert!(!node.cdi_file(dead).exists() && other.exists() && !stale.exists());
            let uid = node.claims.part("c", &node.card(0), 12_000);
            plugin.kubelet().await.prepare("c", &uid).await.unwrap();
            plugin.end().await;
        },
    );
}

#[test]
fn a_claim_that_cannot_be_made_real_says_why_and_keeps_no_other_from_starting() {
    let test = "a_claim_that_cannot_be_made_real_says_why_and_keeps_no_other_from_starting";
    on_node(test, "t4", |node| async move {
        let plugin = node.plugin("p1").await;
        let mut kubelet = plugin.kubelet().await;
        let forged = json!([{"request": "gpu", "driver": names::DRIVER, "pool": NODE, "device": node.card(0)}]);
        let forged = node.claims.allocate("forged", forged, json!([]));
        let elsewhere =
            json!([{"request": "gpu", "driver": names::DRIVER, "pool": "n2", "device": "gpu-1"}]);
        let elsewhere = node.claims.allocate("elsewhere", elsewhere, json!([]));
        let unknown = node.claims.part("unknown", "gpu-0", 1024);
        let good = node.claims.part("good", &node.card(0), 1024);
        for (name, uid, part) in [
            ("forged", forged.as_str(), "nothing says which share"),
            ("elsewhere", &elsewhere, "is of node n2, and this is n1"),
            ("unknown", &unknown, "this node has no device gpu-0"),
            ("good", "00000000-0000-0000-0000-00000000aaaa", "deleted and made anew"),
            ("absent", "00000000-0000-0000-0000-00000000bbbb", "claim team/absent is not there"),
        ] {
            let error = kubelet.prepare(name, uid).await.unwrap_err();
            assert!(error.contains(part), "{name}: {error}");
        }
        let error = kubelet.unprepare("c", "../../etc/passwd").await.unwrap_err();
        assert!(error.contains("is no UID"), "{error}");
        kubelet.prepare("good", &good).await.unwrap();
        node.claims.is_down(true);
        kubelet
            .prepare("good", &good)
            .await
            .expect("what runs goes on while the API server is down");
        let error = kubelet.prepare("unknown", &unknown).await.unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
        plugin.end().await;
    });
}

#[test]
fn a_claim_that_was_given_something_else_meanwhile_gets_that() {
    on_node(
        "a_claim_that_was_given_something_else_meanwhile_gets_that",
        "t4:2",
        |node| async move {
            let plugin = node.plugin("p1").await;
            let mut kubelet = plugin.kubelet().await;
            let uid = node.claims.part("c", &node.card(0), 2048);
            kubelet.prepare("c", &uid).await.unwrap();
            assert_eq!(node.claims.part("c", &node.card(1), 1024), uid);
            let devices = kubelet.prepare("c", &uid).await.unwrap();
            assert_eq!(devices[0].device_name, node.card(1));
            let holds = node.holds();
            assert_eq!((holds.len(), &holds[0].gpu), (1, &node.uuid(1)));
            assert_eq!(variable(&node.cdi(&uid), "CUDA_VISIBLE_DEVICES"), Some(node.uuid(1)));
            plugin.end().await;
        },
    );
}

#[test]
fn an_instance_is_made_where_its_device_says() {
    on_node("an_instance_is_made_where_its_device_says", "h100-80gb", |node| async move {
        let plugin = node.plugin("p1").await;
        let mut kubelet = plugin.kubelet().await;
        let place = |profile, start| names::instance(&node.uuid(0), profile, start);
        let claim = |name: &str, device: String| {
            let result = json!([{"request": "gpu", "driver": names::DRIVER, "pool": NODE, "device": device}]);
            node.claims.allocate(name, result, json!([]))
        };
        let big = claim("big", place("3g.40gb", 4));
        kubelet.prepare("big", &big).await.unwrap();
        let visible = variable(&node.cdi(&big), "CUDA_VISIBLE_DEVICES").unwrap();
        assert!(visible.starts_with("MIG-"), "{visible}");
        let small = claim("small", place("1g.10gb", 0));
        kubelet.prepare("small", &small).await.unwrap();
        let over = claim("over", place("2g.20gb", 4));
        let error = kubelet.prepare("over", &over).await.unwrap_err();
        assert!(error.contains("held by"), "{error}");
        assert_eq!(node.simulated.read().gpu(0).unwrap().instances.len(), 2);
        kubelet.unprepare("big", &big).await.unwrap();
        kubelet.prepare("over", &over).await.unwrap();
        for (name, uid) in [("small", &small), ("over", &over)] {
            kubelet.unprepare(name, uid).await.unwrap();
        }
        assert!(node.simulated.read().gpu(0).unwrap().mig.current, "the next one may want it");
        let exclusive = share(json!({"sharing": "exclusive"}));
        let whole = node.claims.given("whole", &node.card(0), &Value::Null, &exclusive);
        kubelet.prepare("whole", &whole).await.unwrap();
        assert!(!node.simulated.read().gpu(0).unwrap().mig.current);
        plugin.end().await;
    });
}

#[test]
fn clients_of_mps_find_their_daemon_and_it_ends_with_the_last() {
    on_node(
        "clients_of_mps_find_their_daemon_and_it_ends_with_the_last",
        "t4",
        |node| async move {
            let plugin = node.plugin("p1").await;
            let mut kubelet = plugin.kubelet().await;
            let booked = json!({"memory": "2Gi", "compute": "300m"});
            let given = share(json!({"sharing": "mps"}));
            let uid = node.claims.given("c", &node.card(0), &booked, &given);
            kubelet.prepare("c", &uid).await.unwrap();
            let cdi = node.cdi(&uid);
            let pipes = variable(&cdi, "CUDA_MPS_PIPE_DIRECTORY").unwrap();
            assert!(fs::metadata(&pipes).unwrap().is_dir());
            assert_eq!(mount(&cdi, &pipes), Some((pipes.clone().into(), true)));
            assert_eq!(mount(&cdi, "/dev/shm"), Some(("/dev/shm".into(), true)));
            assert_eq!(variable(&cdi, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").as_deref(), Some("30"));
            assert_eq!(variable(&cdi, "CUDA_MPS_LOG_DIRECTORY"), None);
            kubelet.unprepare("c", &uid).await.unwrap();
            assert!(!fs::exists(&pipes).unwrap(), "the card is as it was");
            plugin.end().await;
        },
    );
}

#[test]
fn two_plugins_serve_at_once_during_an_upgrade() {
    on_node("two_plugins_serve_at_once_during_an_upgrade", "t4", |node| async move {
        let old = node.plugin("old").await;
        let uid = node.claims.part("c", &node.card(0), 6000);
        old.kubelet().await.prepare("c", &uid).await.unwrap();
        let new = node.plugin("new").await;
        let mut client = RegistrationClient::new(channel(&new.door).await);
        let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", names::DRIVER));
        assert_eq!(info.endpoint, new.socket.display().to_string());
        assert_eq!(info.supported_versions[..2], ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
        let (mut first, mut second) = (old.kubelet().await, new.kubelet().await);
        let [a, b] = ["a", "b"].map(|name| node.claims.part(name, &node.card(0), 3000));
        let both = tokio::join!(first.prepare("a", &a), second.prepare("b", &b));
        both.0.unwrap();
        both.1.unwrap();
        assert_eq!(node.holds().len(), 3);
        old.end().await;
        for (name, uid) in [("a", &a), ("b", &b), ("c", &uid)] {
            second.prepare(name, uid).await.unwrap();
        }
        assert_eq!(node.holds().len(), 3);
        for (name, uid) in [("a", &a), ("b", &b), ("c", &uid)] {
            second.unprepare(name, uid).await.unwrap();
        }
        assert!(node.holds().is_empty());
        new.end().await;
    });
}

#[test]
fn older_kubelets_are_answered_the_same() {
    on_node("older_kubelets_are_answered_the_same", "t4", |node| async move {
        let plugin = node.plugin("p1").await;
        let uid = node.claims.part("c", &node.card(0), 2048);
        let newer = plugin.kubelet().await.prepare("c", &uid).await.unwrap();
        let mut older = Older::new(channel(&plugin.socket).await);
        let claim = v1beta1::Claim { namespace: "team".into(), uid: uid.clone(), name: "c".into() };
        let request = v1beta1::NodePrepareResourcesRequest { claims: vec![claim.clone()] };
        let answer = older.node_prepare_resources(request).await.unwrap().into_inner();
        let device = &answer.claims[&uid].devices[0];
        assert_eq!(device.cdi_device_ids, newer[0].cdi_device_ids);
        let request = v1beta1::NodeUnprepareResourcesRequest { claims: vec![claim] };
        older.node_unprepare_resources(request).await.unwrap();
        assert!(node.holds().is_empty());
        plugin.end().await;
    });
}

#[test]
fn a_lost_card_is_told_to_the_kubelet_and_others_stay_well() {
    on_node("a_lost_card_is_told_to_the_kubelet_and_others_stay_well", "t4:2", |node| async move {
        let plugin = node.plugin("p1").await;
        let mut client = DraResourceHealthClient::new(channel(&plugin.socket).await);
        let stream = client.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap();
        let mut stream = stream.into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!(first.devices.len(), 2);
        assert!(first.devices.iter().all(|device| device.health == 1 && device.message.is_empty()));
        node.lose(0);
        let told = async {
            loop {
                let devices = stream.message().await.unwrap().unwrap().devices;
                let ill: Vec<_> = devices.iter().filter(|device| device.health == 2).collect();
                if let [ill] = ill[..] {
                    let name = ill.device.as_ref().unwrap().device_name.clone();
                    return (name, ill.message.clone(), devices.len());
                }
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(10), told).await.unwrap();
        assert_eq!((&told.0, told.2), (&node.card(0), 2));
        assert!(!told.1.is_empty(), "and why");
        drop(stream);
        plugin.end().await;
    });
}
