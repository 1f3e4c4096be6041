//! The examples as programs: what they answer, how they end, and with which library they refuse to work.

mod common;

use common::{model_folder, FRANCE};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap(); // target/debug/deps/programs-...
    let target = tests.parent().and_then(Path::parent).unwrap();
    Command::new(target.join("examples").join(name))
}

fn chat(arguments: &[&str], input: &str) -> Output {
    let mut child = example("chat")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn chat_answers_and_says_what_is_wrong() {
    let model = model_folder();
    let model = model.to_str().unwrap();
    let answered = chat(&[model, FRANCE], "");
    assert_eq!(answered.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&answered.stdout).contains("Paris"));
    let talked = chat(&[model], "Hello.\nWhat is the capital of Japan?\n");
    assert_eq!(talked.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&talked.stdout).contains("Tokyo"));
    assert_eq!(chat(&[], "").status.code(), Some(2));
    let failed = chat(&["/nowhere", "x"], "");
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("/nowhere"));
}

/// A library that calls itself another version takes the place of the real functions.
#[test]
#[cfg(target_os = "linux")]
fn another_library_is_refused_with_a_sentence() {
    let folder = std::env::temp_dir().join(format!("dsa-sdk-other-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let refused = |name: &str, source: &str| {
        let (file, library): (PathBuf, PathBuf) = (folder.join(name).with_extension("c"), folder.join(name));
        std::fs::write(&file, source).unwrap();
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status().unwrap();
        assert!(built.success());
        let model = model_folder();
        let done = example("chat").arg(model).arg(FRANCE).env("LD_PRELOAD", &library).output().unwrap();
        assert_eq!(done.status.code(), Some(1));
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let newer = refused(
        "newer.so",
        "unsigned dsa_version(void) { return 20000; }\nconst char *dsa_version_string(void) { return \"2.0.0\"; }\n",
    );
    let made_for = format!("this crate was made for {}, level", env!("CARGO_PKG_VERSION"));
    assert!(newer.contains("the library is DSA SDK 2.0.0, level") && newer.contains(&made_for), "{newer}");
    let older = refused("older.so", "unsigned dsa_api_level(void) { return 0; }\n");
    assert!(older.contains(&format!("level 0; {made_for}")), "{older}");
    std::fs::remove_dir_all(&folder).unwrap();
}
