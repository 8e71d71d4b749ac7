//! Files are written whole or not at all: full disk, missing folder, links and devices.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use simulator::report::write_whole;

/// A fresh folder under the target folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-write").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the last run's folder goes");
    }
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_created_and_replaced() {
    let folder = folder("replace");
    let path = folder.join("report.html");
    write_whole(&path, b"old").expect("created");
    write_whole(&path, b"new").expect("replaced");
    assert_eq!(fs::read(&path).expect("readable"), b"new");
    assert_eq!(names(&folder), ["report.html"]);
}

#[test]
fn a_missing_folder_is_named_with_the_way_out() {
    let folder = folder("missing");
    let path = folder.join("no/such/report.html");
    let error = write_whole(&path, b"x").expect_err("there is no such folder");
    assert_eq!(error.source.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot write {}: ", path.display())), "{text}");
    assert!(text.contains("No such file or directory") && text.contains("mkdir -p"), "{text}");
    assert!(names(&folder).is_empty());
}

#[test]
fn a_folder_and_a_file_as_folder_are_refused() {
    let folder = folder("folder");
    let error = write_whole(&folder, b"x").expect_err("a folder");
    assert!(error.to_string().contains("name a file inside it"), "{error}");
    fs::write(folder.join("file"), "kept").expect("a file");
    let error = write_whole(&folder.join("file/report.html"), b"x").expect_err("not a folder");
    assert!(error.to_string().contains("a part of the path is a file"), "{error}");
    assert!(write_whole(Path::new(".."), b"x").is_err());
    assert!(write_whole(Path::new(""), b"x").is_err());
    assert_eq!(fs::read(folder.join("file")).expect("readable"), b"kept");
}

#[test]
fn a_name_too_long_leaves_nothing() {
    let folder = folder("long");
    let error = write_whole(&folder.join("x".repeat(255)), b"x").expect_err("too long");
    assert!(error.to_string().contains("shorter"), "{error}");
    assert!(names(&folder).is_empty());
}

#[cfg(unix)]
#[test]
fn a_link_is_followed_and_permissions_are_kept() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = folder("link");
    let (target, link) = (folder.join("target"), folder.join("link"));
    fs::write(&target, "old").expect("a file");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink("target", &link).expect("a link");
    write_whole(&link, b"new").expect("written");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fs::read(&target).expect("readable"), b"new");
    assert_eq!(fs::metadata(&target).expect("there").permissions().mode() & 0o777, 0o640);
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_is_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt as _;
    write_whole(Path::new("/dev/null"), b"x").expect("taken");
    let error = write_whole(Path::new("/dev/full"), b"x").expect_err("always full");
    assert_eq!(error.source.kind(), ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(text.contains("/dev/full") && text.contains("free some space"), "{text}");
    for device in ["/dev/null", "/dev/full"] {
        assert!(fs::metadata(device).expect("there").file_type().is_char_device());
    }
}

/// A disk of 64 KiB, unmounted when dropped.
#[cfg(target_os = "linux")]
struct TinyDisk(PathBuf);

#[cfg(target_os = "linux")]
impl TinyDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&at);
        mount.output().is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

#[cfg(target_os = "linux")]
impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _left_mounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_the_old_file_and_nothing_else() {
    let Some(disk) = TinyDisk::mount(folder("disk")) else {
        println!("skipped: mounting a tiny disk needs root");
        return;
    };
    let path = disk.0.join("report.html");
    write_whole(&path, b"old").expect("there is room for this");
    let error = write_whole(&path, &[b'x'; 200 * 1024]).expect_err("larger than the disk");
    assert_eq!(error.source.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("free some space"), "{error}");
    assert_eq!(fs::read(&path).expect("readable"), b"old");
    assert_eq!(names(&disk.0), ["report.html"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_disk_is_said_to_be_one() {
    let Some(disk) = TinyDisk::mount(folder("read-only")) else {
        println!("skipped: mounting a tiny disk needs root");
        return;
    };
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(remounted.expect("mount runs").success());
    let error = write_whole(&disk.0.join("report.html"), b"x").expect_err("read-only");
    assert!(error.to_string().contains("a disk that can be written"), "{error}");
}
