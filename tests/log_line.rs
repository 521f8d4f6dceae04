//! With the feature `log`, loading a model logs one line: the instruction set and the reason for it. This
//! is a program of its own, because the logger and the environment belong to the process.

use log::{LevelFilter, Log, Metadata, Record};
use simdformer::Model;
use simdformer::config::{Config, Dimensions};
use simdformer::kernels::{ISA_VARIABLE, Isa};
use std::process::Command;
use std::sync::Mutex;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{} {}: {}", record.level(), record.target(), record.args());
        SAID.lock().expect("the lock").push(line);
    }

    fn flush(&self) {}
}

fn said() -> Vec<String> {
    std::mem::take(&mut SAID.lock().expect("the lock"))
}

fn config() -> Config {
    Config::transformer(Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 12, vocabulary: 20 })
}

/// The test starts itself again in each environment.
#[test]
fn the_line_names_the_set_and_the_reason() {
    const CHILD: &str = "SIMDFORMER_TEST_EXPECTED";
    if let Ok(expected) = std::env::var(CHILD) {
        log::set_logger(&Recorder).expect("the first logger");
        log::set_max_level(LevelFilter::Trace);
        let model = Model::from_fn(config(), |_, _, _| Ok(())).expect("a model");
        let lines = said();
        let start = format!(
            "INFO simdformer::model: plain model of {} bytes, packed for {expected}",
            model.bytes()
        );
        let info: Vec<&String> = lines.iter().filter(|line| line.starts_with("INFO")).collect();
        assert!(info.len() == 1 && info[0].starts_with(&start), "{lines:?}, not {start}");
        let warned = lines.iter().any(|line| line.contains("without optimization"));
        assert_eq!(warned, simdformer::kernels::OPTIMIZED == Some(false), "{lines:?}");
        // Nothing else is logged.
        assert_eq!(lines.len(), 1 + usize::from(warned), "{lines:?}");
        println!("{model}");
        Model::from_fn_with(config(), Isa::SCALAR, |_, _, _| Ok(())).expect("a model");
        let lines = said();
        let info: Vec<&String> = lines.iter().filter(|line| line.starts_with("INFO")).collect();
        assert!(
            info.len() == 1 && info[0].contains("for scalar: named by the caller"),
            "{lines:?}"
        );
        return;
    }
    let run = |isa: Option<&str>, expected: String| {
        let mut child = Command::new(std::env::current_exe().expect("a program"));
        child.args(["--exact", "the_line_names_the_set_and_the_reason", "--nocapture"]);
        child.env(CHILD, &expected).env_remove(ISA_VARIABLE);
        if let Some(isa) = isa {
            child.env(ISA_VARIABLE, isa);
        }
        let output = child.output().expect("started");
        assert!(output.status.success(), "{isa:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(None, format!("{}: the best that was detected", Isa::best()));
    for isa in Isa::available() {
        run(Some(isa.name()), format!("{isa}: forced by SIMDFORMER_ISA"));
    }
}
