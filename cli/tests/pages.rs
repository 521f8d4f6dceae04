//! The `console` blocks of the pages: each command prints what the page shows.

use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the commands of a block, its lines after `$ `, in a folder with the models of the repository, and compares what
/// each prints with the lines that follow it. A file that `cat` shows is written first. Returns how many commands there
/// are.
fn check_block(page: &str, block: &str, root: &Path) -> usize {
    let place = TemporaryFolder::new("page");
    std::os::unix::fs::symlink(root.join("models"), place.0.join("models")).unwrap();
    let binaries = Path::new(env!("CARGO_BIN_EXE_simdformer")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let block = format!("\n{block}");
    let commands: Vec<&str> = block.split("\n$ ").skip(1).collect();
    for command in &commands {
        let (command, shown) = command.split_once('\n').unwrap_or((command, ""));
        if let Some(file) = command.strip_prefix("cat ") {
            place.write(file, format!("{shown}\n"));
        }
        let both = format!("exec 2>&1; {command}");
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &both]).current_dir(&place.0).env("PATH", &path).output();
        let printed = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(printed.trim_end_matches('\n'), shown, "{page}: {command}");
    }
    commands.len()
}

#[test]
fn commands_print_what_the_pages_show() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut commands = 0;
    for page in docs.chain([root.join("README.md"), root.join("cli/README.md")]) {
        let name = page.display().to_string();
        if name.ends_with(".md") {
            let text = fs::read_to_string(&page).unwrap();
            for block in text.split("\n```console\n").skip(1) {
                let block = block.split("\n```").next().unwrap();
                commands += check_block(&name, block, &root);
            }
        }
    }
    assert!(commands >= 10, "{commands} commands");
}
