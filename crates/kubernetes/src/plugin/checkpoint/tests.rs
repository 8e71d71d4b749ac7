//! The file is whole or not there, and one that cannot be understood is left alone.

use model::Share;
use node::backend::Enforcement;

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("hotpot-claims-{}-{name}", std::process::id()));
    let _left_over = fs::remove_dir_all(&folder);
    folder
}

fn prepared() -> Prepared {
    let given = Given {
        request: "gpu".into(),
        device: "gpu-1".into(),
        share_id: Some("s-1".into()),
        share: Some(crate::share::GpuShare::new()),
        memory_bytes: Some(1 << 31),
        compute_milli: Some(250),
        booked: true,
        admin: false,
    };
    let grant = Grant {
        gpu: "GPU-1".into(),
        share: Share::MemoryCapped { memory_mib: 2048, compute_milli: 250 },
        device: "GPU-1".into(),
        env: vec![("A".into(), "b".into())],
        cgroup: None,
        ledger: Some("/l".into()),
        hold: 7,
        memory: Enforcement::Cooperative,
        compute: Enforcement::Absent("so".into()),
    };
    Prepared {
        name: "team/c".into(),
        given: vec![given],
        holds: vec![Hold { of: vec![0], grant: Some(grant) }, Hold { of: vec![1], grant: None }],
    }
}

#[test]
fn what_is_written_is_read_again() {
    let folder = folder("round");
    let checkpoint = Checkpoint::new(&folder).unwrap();
    let locked = checkpoint.lock().unwrap();
    assert_eq!(locked.read().unwrap(), Claims::new());
    let claims = Claims::from([("u-1".to_owned(), prepared()), ("u-2".to_owned(), prepared())]);
    locked.write(&claims).unwrap();
    assert_eq!(locked.read().unwrap(), claims);
    let others = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name());
    let others: Vec<_> = others.filter(|name| name != FILE && name != LOCK).collect();
    assert!(others.is_empty(), "{others:?}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_write_that_was_cut_off_leaves_what_was_there() {
    let folder = folder("cut");
    let checkpoint = Checkpoint::new(&folder).unwrap();
    let locked = checkpoint.lock().unwrap();
    let claims = Claims::from([("u-1".to_owned(), prepared())]);
    locked.write(&claims).unwrap();
    fs::write(folder.join(".claims.json.new-1"), "{\"version\":1,\"cla").unwrap();
    assert_eq!(locked.read().unwrap(), claims);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn torn_and_newer_files_are_refused_with_a_way_out() {
    let folder = folder("torn");
    let checkpoint = Checkpoint::new(&folder).unwrap();
    let locked = checkpoint.lock().unwrap();
    locked.write(&Claims::from([("u-1".to_owned(), prepared())])).unwrap();
    let whole = fs::read_to_string(folder.join(FILE)).unwrap();
    for end in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(folder.join(FILE), &whole[..end]).unwrap();
        let error = locked.read().unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{end}: {error}");
        assert!(error.to_string().contains("drain the node"), "{error}");
    }
    fs::write(folder.join(FILE), whole.replace("\"version\":1", "\"version\":2")).unwrap();
    let error = locked.read().unwrap_err().to_string();
    assert!(error.contains("written by a later release (version 2"), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn one_at_a_time_has_the_lock() {
    let folder = folder("lock");
    let checkpoint = Checkpoint::new(&folder).unwrap();
    let first = checkpoint.lock().unwrap();
    let other = Checkpoint::new(&folder).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let _second = other.lock().unwrap();
        told.send(()).unwrap();
    });
    assert!(heard.recv_timeout(std::time::Duration::from_millis(50)).is_err());
    drop(first);
    heard.recv().unwrap();
    waiter.join().unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
