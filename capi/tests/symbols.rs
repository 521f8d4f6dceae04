//! The symbols that the shared library exports are those of `symbols.txt`.

use std::path::Path;
use std::process::Command;

#[test]
fn the_exported_symbols_are_those_of_the_list() {
    let library = crate::c_programs::library("so");
    let nm =
        Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&library).output();
    let Ok(nm) = nm else {
        println!("SKIPPED: there is no nm");
        return;
    };
    assert!(nm.status.success(), "{}", String::from_utf8_lossy(&nm.stderr));
    let text = String::from_utf8(nm.stdout).unwrap();
    let mut found: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    // Only builds with debug assertions have it.
    found.retain(|name| *name != "sf_test_panic");
    found.sort_unstable();
    let listed = Path::new(env!("CARGO_MANIFEST_DIR")).join("symbols.txt");
    let listed = std::fs::read_to_string(listed).unwrap();
    let expected: Vec<&str> = listed.lines().collect();
    assert_eq!(found, expected, "symbols.txt is not what the library exports");
}

/// `wrong.c` calls every function.
#[test]
fn every_function_is_called_with_wrong_arguments() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::fs::read_to_string(here.join("tests/c/wrong.c")).unwrap();
    for name in std::fs::read_to_string(here.join("symbols.txt")).unwrap().lines() {
        assert!(program.contains(&format!("{name}(")), "{name}");
    }
}
