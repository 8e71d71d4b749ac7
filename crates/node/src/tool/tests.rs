//! Tools of all kinds: those that answer, fail, hang, print much, or are not there.

use super::*;

fn shell(script: &str, input: &str) -> Result<String, ToolError> {
    let tool = Tool::at("/bin/sh").within(Duration::from_secs(5));
    let mut command = tool.command();
    command.args(["-c", script]);
    tool.run(command, input)
}

#[test]
fn output_comes_back_and_failure_is_told() {
    assert_eq!(shell("cat", "in\n").unwrap(), "in\n");
    let failed = shell("echo why >&2; exit 3", "").unwrap_err().to_string();
    assert!(failed.contains("exit status: 3") && failed.ends_with(": why"), "{failed}");
    let missing = Tool::find("no-such-tool", "HOTPOT_NO_SUCH").unwrap_err().to_string();
    assert!(missing.contains("named by HOTPOT_NO_SUCH"), "{missing}");
}

#[test]
fn a_tool_that_hangs_is_an_error() {
    let tool = Tool::at("/bin/sh").within(Duration::from_millis(300));
    let mut command = tool.command();
    command.args(["-c", "exec sleep 60"]);
    let begun = Instant::now();
    assert!(matches!(tool.run(command, ""), Err(ToolError::Silent { .. })));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// As a daemon does that forgets to close its output.
#[test]
fn a_child_that_keeps_the_pipe_does_not_hold_us() {
    let tool = Tool::at("/bin/sh").within(Duration::from_secs(20));
    let mut command = tool.command();
    command.args(["-c", "sleep 30 & exit 0"]);
    let begun = Instant::now();
    tool.launch(command).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn an_answer_that_does_not_come_is_no_empty_answer() {
    let tool = Tool::at("/bin/sh").within(Duration::from_millis(300));
    let mut command = tool.command();
    command.args(["-c", "sleep 3 & exit 0"]);
    assert!(matches!(tool.run(command, ""), Err(ToolError::Silent { .. })));
}

#[test]
fn a_tool_that_prints_much_comes_to_its_end() {
    let tool = Tool::at("/bin/sh").keeping(4 << 20);
    let prints = |script: &str| {
        let mut command = tool.command();
        command.args(["-c", script]);
        tool.run(command, "")
    };
    let long = prints("echo a; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo b").unwrap();
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!((lines[0], lines[1].len(), lines[2]), ("a", LINE_MAX, "b"));
    let many = prints("yes | head -c 9000000 && echo end >&2 && exit 0");
    assert!(matches!(many, Err(ToolError::TooMuch { .. })), "{many:?}");
    let failed = prints("yes | head -c 9000000; exit 3").unwrap_err().to_string();
    assert!(failed.contains("exit status: 3") && failed.len() < 3000, "{failed}");
}

#[test]
fn only_what_can_be_run_by_its_full_path_is_found() {
    let folder = std::env::temp_dir().join(format!("hotpot-tool-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("a-tool");
    std::fs::write(&file, "").unwrap();
    let set = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    set(0o644);
    assert_eq!(in_path("a-tool", folder.as_os_str()), None);
    set(0o755);
    assert_eq!(in_path("a-tool", folder.as_os_str()), Some(file.clone()));
    assert_eq!(in_path("stat", OsStr::new("self:.:")), None);
    std::fs::remove_dir_all(&folder).unwrap();
}
