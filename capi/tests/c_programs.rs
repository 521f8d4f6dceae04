//! The programs in `tests/c`, as C99 and as C++17, with the static and with the shared library: what they print, and that
//! none of their checks fails. `SIMDFORMER_TESTS=full` makes all four of each.

use crate::effort;
use simdformer::search::{BeamOptions, Strategy};
use simdformer::{Engine, Generation, Request};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");

/// The library that cargo has made beside this test, with this ending.
pub fn library(ending: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name(format!("libsimdformer_capi.{ending}"))
}

/// How a program is made.
#[derive(Clone, Copy, Debug)]
struct Build {
    compiler: &'static str,
    standard: &'static str,
    shared: bool,
}

const fn build(compiler: &'static str, standard: &'static str, shared: bool) -> Build {
    Build { compiler, standard, shared }
}

/// The first two are made every day.
const BUILDS: [Build; 4] = [
    build("cc", "c99", false),
    build("c++", "c++17", true),
    build("cc", "c99", true),
    build("c++", "c++17", false),
];

/// What a static library needs of the system (`rustc --print native-static-libs`).
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

fn compile(build: Build, source: &Path, program: &Path) -> Option<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(build.compiler);
    command
        .arg(format!("-std={}", build.standard))
        .args(["-g", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"])
        .args(if build.compiler == "c++" { &["-x", "c++"][..] } else { &[] })
        .arg(source)
        .args(["-x", "none", "-I"])
        .arg(here.join("include"))
        .arg("-I")
        .arg(here.join("tests/c"))
        .arg("-o")
        .arg(program);
    let library = library(if build.shared { "so" } else { "a" });
    command.arg(&library);
    if build.shared {
        command.arg(format!("-Wl,-rpath,{}", library.parent()?.display()));
    }
    command.args(SYSTEM);
    let Ok(made) = command.output() else {
        println!("SKIPPED: there is no {}", build.compiler);
        return None;
    };
    let text = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{build:?} {}:\n{text}", source.display());
    Some(())
}

/// Makes and runs a program in every way. Its output must be `expected` without the last newline, if there is one to compare.
fn run(name: &str, expected: Option<&str>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    run_source(&source, expected);
}

fn run_source(source: &Path, expected: Option<&str>) {
    if !cfg!(target_os = "linux") {
        println!("SKIPPED: the programs are linked as on Linux");
        return;
    }
    let name = source.file_stem().unwrap().to_string_lossy();
    let folder = TemporaryFolder::new(&format!("c-{name}"));
    for (i, &build) in BUILDS[..effort::cases(2, 4)].iter().enumerate() {
        let program = folder.path().join(i.to_string());
        if compile(build, source, &program).is_none() {
            continue;
        }
        let ran = Command::new(&program).arg(MODEL).output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let shown = source.display();
        assert!(ran.status.success(), "{build:?} {shown}: {:?}\n{out}{err}", ran.status);
        if let Some(expected) = expected {
            assert_eq!(out.trim_end(), expected.trim_end(), "{build:?} {shown}");
        }
    }
}

/// A line as the programs print it.
fn line(name: &str, tokens: &[u32], score: f32) -> String {
    let ids: String = tokens.iter().map(|id| format!(" {id}")).collect();
    // As `%.9g` of C for numbers of this size.
    let digits = 8 - f64::from(score).abs().log10().floor() as i32;
    let score = format!("{:.*}", usize::try_from(digits).unwrap(), f64::from(score));
    let score = score.trim_end_matches('0').trim_end_matches('.');
    format!("{name}{ids} score {score}\n")
}

fn lines(name: &str, found: &Generation) -> String {
    found.hypotheses.iter().map(|(tokens, score)| line(name, tokens, *score)).collect()
}

#[test]
fn translate() {
    let engine = Engine::open(MODEL).unwrap();
    let config = engine.model().config();
    let (first, second) = ([6, 11, 0], [9, 14, 32, 0]);
    let one = engine.generate(&first).unwrap();
    let mut expected = format!(
        "d_model {}, vocabulary {}, layers {} and {}\n",
        config.d_model,
        config.target_vocab,
        config.encoder.layers,
        config.decoder.unwrap().layers
    );
    expected += &lines("default", &one);
    let found = engine.generate(&[vec![6, 11, 0], vec![6, 100_000, 0]]).unwrap();
    let refused = found[1].as_ref().unwrap_err();
    expected += &format!("default error token: {refused}\n");
    expected += &lines("default", &engine.generate(&second).unwrap());
    let mut options = engine.search_options();
    options.strategy = Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() });
    options.num_return_sequences = 2;
    expected += &lines("beams", &engine.generate_with(&first, &options).unwrap());
    let mut brief = engine.search_options();
    brief.max_new_tokens = Some(2);
    let request = Request { options: Some(brief), ..Request::new(second) };
    expected += &lines("brief", &engine.generate(&request).unwrap());
    expected += &lines("streamed", &one);
    let mut stopped = None;
    let score = std::sync::Mutex::new(&mut stopped);
    let sources = [simdformer::Source::new(&first)];
    let stop = |event: simdformer::Event<'_>| match event {
        simdformer::Event::Token { .. } => core::ops::ControlFlow::Break(simdformer::Stop::Source),
        simdformer::Event::Done(done) => {
            let found = done.hypotheses().next().map(|found| (found.tokens.to_vec(), found.score));
            **score.lock().unwrap() = found;
            core::ops::ControlFlow::Continue(())
        }
        _ => core::ops::ControlFlow::Continue(()),
    };
    engine.stream(&sources, &engine.search_options(), &stop).unwrap();
    let (tokens, score) = stopped.unwrap();
    expected += &line("stopped", &tokens, score);
    let text = refused.to_string();
    expected += &format!("refused token: {text} (1)\nrefused token: {text} (1)\n");
    run("translate.c", Some(&expected));
}

fn ids(name: &str, tokens: &[u32]) -> String {
    let ids: String = tokens.iter().map(|id| format!(" {id}")).collect();
    format!("{name}{ids}\n")
}

#[test]
fn steps() {
    let engine = Engine::open(MODEL).unwrap();
    let sources = [&[6, 11, 0][..], &[9, 14, 32, 0]].map(simdformer::Source::new);
    let found = engine.generate(&sources).unwrap();
    let tokens = [0, 1].map(|source: usize| found[source].as_ref().unwrap().tokens().to_vec());
    let mut expected = ids("stepped 0", &tokens[0]) + &ids("stepped 1", &tokens[1]);
    // The second sentence may end first.
    let shorter = usize::from(tokens[1].len() < tokens[0].len());
    for source in [shorter, 1 - shorter] {
        expected += &ids(&format!("generated {source}"), &tokens[source]);
    }
    run("steps.c", Some(&expected));
}

#[test]
fn memory() {
    let counted = if cfg!(target_env = "gnu") { "counted" } else { "not counted" };
    run("memory.c", Some(&format!("bytes planned\ncalls of malloc {counted}")));
}

#[test]
fn threads() {
    run("threads.c", None);
}

#[test]
fn forked() {
    run("forked.c", None);
}

#[test]
fn panic() {
    if !cfg!(debug_assertions) {
        println!("SKIPPED: only builds with debug assertions can be asked to panic");
        return;
    }
    let text = "a panic, which is a bug of the library:";
    run("panic.c", Some(&format!("{text} the call panics\n{text} task 2 panics")));
}

#[test]
fn version() {
    let version = env!("CARGO_PKG_VERSION");
    let best = simdformer::kernels::Isa::detect().unwrap().name();
    run("version.c", Some(&format!("version {version}\nbest {best}")));
}

#[test]
fn kernels() {
    run("kernels.c", None);
}

#[test]
fn wrong() {
    run("wrong.c", None);
}

/// The program of README.md, after which the page says: "It prints `...`".
#[test]
fn the_program_of_the_page_prints_what_the_page_shows() {
    let (_, rest) = include_str!("../README.md").split_once("\n```c\n").unwrap();
    let (program, rest) = rest.split_once("\n```\n").unwrap();
    let printed = rest.split('`').nth(1).unwrap();
    assert!(program.lines().count() <= 40, "{program}");
    let folder = TemporaryFolder::new("page");
    let source = folder.path().join("page.c");
    // The page opens the model by its path in the repository.
    let path = "\"models/fr-en\", NULL, &model";
    assert!(program.contains(path), "{program}");
    let program = program.replace(path, &format!("\"{MODEL}\", NULL, &model")) + "\n";
    std::fs::write(&source, program).unwrap();
    run_source(&source, Some(printed));
}
