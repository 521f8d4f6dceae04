//! The environment variable that selects an instruction set. Each case runs in a child process, because the
//! environment belongs to the process.

use simdformer_kernels::{ISA_NAMES, ISA_VARIABLE, Isa};
use std::process::Command;

/// In a child process: prints the result of `Isa::detect`. In the parent it has nothing to check.
#[test]
fn print_detected() {
    match Isa::detect() {
        Ok(isa) => println!("detected {isa}"),
        Err(error) => println!("refused: {error}"),
    }
}

/// The output of the test above with the variable set to `value`.
fn detected(value: Option<&std::ffi::OsStr>) -> String {
    let program = std::env::current_exe().expect("this program");
    // An emulator starts programs of another machine.
    let mut child = match std::env::var_os("SIMDFORMER_TEST_RUNNER") {
        None => Command::new(program),
        Some(runner) => {
            let mut child = Command::new(runner);
            child.arg(program);
            child
        }
    };
    child.args(["--exact", "environment::print_detected", "--nocapture"]).env_remove(ISA_VARIABLE);
    if let Some(value) = value {
        child.env(ISA_VARIABLE, value);
    }
    let output = child.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let found = ["detected ", "refused: "].iter().filter_map(|start| text.find(start)).min();
    text[found.expect("a line")..].lines().next().expect("a line").to_string()
}

#[test]
fn detection_obeys_the_environment_or_is_an_error() {
    assert_eq!(detected(None), format!("detected {}", Isa::best()));
    for name in ISA_NAMES {
        let expected = match Isa::from_name(name) {
            Ok(isa) => format!("detected {isa}"),
            Err(error) => format!("refused: {error}"),
        };
        assert_eq!(detected(Some(name.as_ref())), expected);
    }
    for wrong in ["avx51", "AVX512", " avx2", ""] {
        let expected =
            format!("refused: unknown instruction set {wrong:?}: expected one of {ISA_NAMES:?}");
        assert_eq!(detected(Some(wrong.as_ref())), expected);
    }
}

/// A value that is not Unicode is the name of no set.
#[test]
#[cfg(unix)]
fn a_value_that_is_not_unicode_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let found = detected(Some(std::ffi::OsStr::from_bytes(b"avx\xff")));
    assert!(found.starts_with("refused: unknown instruction set \"avx\u{fffd}\""), "{found}");
}
