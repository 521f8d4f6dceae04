//! Directories of runs: to which run they belong, which run may write there, and which checkpoints they
//! have.

use super::runs::{corpus, options};
use super::support::{OpenTrainer, limits};
use simdformer::Error;
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::train::{DropoutRates, Schedule, TrainLimits, Trainer};
use simdformer_testing::gradient_goldens::{Golden, goldens};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_train::{Corpus, Layout, Metric, OptionChange, RunOptions, TrainEvent, TrainingRun};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn short(steps: u64, save_every: u64, keep: usize) -> RunOptions {
    let schedule = Schedule::Constant { peak: 1e-3, warmup: 0 };
    RunOptions { steps: Some(steps), save_every, keep, schedule, validate_every: 0, ..options() }
}

fn faster(options: RunOptions) -> RunOptions {
    RunOptions { schedule: Schedule::Constant { peak: 5e-3, warmup: 0 }, ..options }
}

fn new<'c>(golden: &Golden, data: &'c Corpus, options: RunOptions) -> TrainingRun<'c> {
    TrainingRun::new(golden.trainer(Isa::best(), limits()), data, options).expect("a run")
}

fn set(run: &mut TrainingRun<'_>, golden: &Golden, folder: &Path) -> Result<(), Error> {
    run.set_directory(folder, Layout::from_directory(&golden.folder).expect("a layout"))
}

fn opened<'c>(save: &Path, data: &'c Corpus, options: RunOptions) -> TrainingRun<'c> {
    let checkpoint = Checkpoint::open(save).expect("a checkpoint");
    let trainer = Trainer::open(&checkpoint, Isa::best(), limits()).expect("a trainer");
    TrainingRun::new(trainer, data, options).expect("a run")
}

/// Runs to the end and returns the reported saves. Each save exists when it is reported, and is the one
/// from which a run would resume.
fn follow(run: &mut TrainingRun<'_>, folder: &Path) -> Vec<PathBuf> {
    let mut saves = Vec::new();
    loop {
        match run.next().expect("an event") {
            TrainEvent::Saved(save) => {
                assert_eq!(
                    TrainingRun::last_save(folder).expect("a whole one").as_ref(),
                    Some(&save)
                );
                saves.push(save);
            }
            TrainEvent::Finished(_) => return saves,
            _ => {}
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("checkpoints")).expect("checkpoints");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("files") {
        let path = entry.expect("a file").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

/// In an earlier version the checkpoints of the new run were removed as the oldest ones, and the last
/// checkpoint was that of the other run.
#[test]
fn a_new_run_rejects_a_directory_with_checkpoints() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let folder = TemporaryFolder::new("taken");
    let mut first = new(golden, &data, short(10, 0, 1));
    set(&mut first, golden, folder.path()).expect("an empty directory");
    follow(&mut first, folder.path());
    drop(first);
    // A run with the same options is a new run, too. It does not overwrite checkpoints without a request.
    for options in [short(6, 2, 1), short(10, 0, 1)] {
        let mut second = new(golden, &data, options);
        let error = set(&mut second, golden, folder.path()).expect_err("it has step-10");
        assert!(matches!(&error, Error::Conflict { .. }));
        let text = error.to_string();
        for part in [&folder.path().display().to_string(), "found step-10", "resume from step-10"] {
            assert!(text.contains(part), "{text}");
        }
        // Without a directory the run continues and writes nothing.
        while !matches!(second.next().expect("an event"), TrainEvent::Finished(_)) {}
    }
    assert_eq!(names(folder.path()), ["step-10"]);
    // A run that resumed from another directory is rejected as well.
    let other = TemporaryFolder::new("taken-other");
    let mut third = new(golden, &data, short(4, 2, 3));
    set(&mut third, golden, other.path()).expect("an empty directory");
    let saves = follow(&mut third, other.path());
    let mut third = opened(&saves[0], &data, short(6, 2, 1));
    third.resume(&saves[0]).expect("a save");
    let error = set(&mut third, golden, folder.path()).expect_err("it is of another run");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
}

/// In an earlier version each of these saves was reported, and none was written.
#[test]
fn a_run_resumes_only_from_its_latest_checkpoint() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let folder = TemporaryFolder::new("later");
    let mut run = new(golden, &data, short(8, 2, 9));
    set(&mut run, golden, folder.path()).expect("an empty directory");
    let saves = follow(&mut run, folder.path());
    drop(run);
    let weights = |save: &Path| fs::read(save.join("model.safetensors")).expect("weights");
    let before: Vec<_> = saves.iter().map(|save| weights(save)).collect();

    let mut run = opened(&saves[0], &data, faster(short(8, 2, 9)));
    let changes = run.resume(&saves[0]).expect("a save");
    let change = OptionChange {
        option: "schedule".to_owned(),
        saved: "Constant { peak: 0.001, warmup: 0 }".to_owned(),
        given: "Constant { peak: 0.005, warmup: 0 }".to_owned(),
    };
    assert_eq!(changes, [change]);
    let error = set(&mut run, golden, folder.path()).expect_err("there are later ones");
    assert!(
        matches!(&error, Error::Conflict { expected, .. } if expected.starts_with("step-2,")),
        "{error}"
    );
    assert!(error.to_string().contains("step-4, step-6, step-8"), "{error}");
    assert_eq!(names(folder.path()), ["step-2", "step-4", "step-6", "step-8"]);
    for later in &saves[1..] {
        fs::remove_dir_all(later).expect("removed");
    }
    set(&mut run, golden, folder.path()).expect("the latest one");
    assert_eq!(run.next().expect("an event"), TrainEvent::OptionsChanged(changes));
    assert_eq!(follow(&mut run, folder.path()), saves[1..]);
    for (save, before) in saves.iter().zip(&before).skip(1) {
        assert!(weights(save) != *before, "{}", save.display());
    }
    // An existing checkpoint is replaced, not skipped. Here a run with another option wrote it.
    drop(run);
    let last = TrainingRun::last_save(folder.path()).expect("a save").expect("one");
    let mut run = opened(&last, &data, RunOptions { patience: Some(3), ..faster(short(9, 2, 9)) });
    let changes = run.resume(&last).expect("a save");
    let options: Vec<_> = changes.iter().map(|change| change.option.as_str()).collect();
    assert_eq!(options, ["patience", "steps"]);
    set(&mut run, golden, folder.path()).expect("the latest one");
    let state = || fs::read(last.join("trainer.json")).expect("a state");
    let before = state();
    assert_eq!(run.save().expect("written").as_ref(), Some(&last));
    assert!(state() != before);
    assert_eq!(names(folder.path()), ["step-2", "step-4", "step-6", "step-8"]);
    assert_eq!(TrainingRun::last_save(folder.path()).expect("a whole one"), Some(last));
    // The directory may be set again for the same run.
    set(&mut run, golden, folder.path()).expect("its own");
    follow(&mut run, folder.path());
}

/// A second run in the same process is an error, and so is one in another process until that process ends.
#[test]
fn one_run_at_a_time_has_a_directory() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let folder = TemporaryFolder::new("locked");
    let mut first = new(golden, &data, short(2, 2, 1));
    set(&mut first, golden, folder.path()).expect("an empty directory");
    let mut second = new(golden, &data, short(2, 2, 1));
    let error = set(&mut second, golden, folder.path()).expect_err("it is locked");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    let file = folder.path().join("train.lock");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    drop(first);
    set(&mut second, golden, folder.path()).expect("it is free");
    drop(second);

    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "directories::holds_a_directory", "--nocapture"])
        .env(HELD, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    assert!(lines.any(|line| line.expect("a line").contains("holds it")), "it has ended");
    let mut third = new(golden, &data, short(2, 2, 1));
    let error = set(&mut third, golden, folder.path()).expect_err("it is locked");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    child.kill().expect("killed");
    child.wait().expect("its end");
    set(&mut third, golden, folder.path()).expect("a process that is dead holds nothing");
}

/// The directory that another process holds.
const HELD: &str = "SIMDFORMER_TEST_HELD";

/// The other process of [`one_run_at_a_time_has_a_directory`]. Without the environment variable it does
/// nothing.
#[test]
fn holds_a_directory() {
    let Some(folder) = std::env::var_os(HELD) else { return };
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let mut run = new(golden, &data, short(2, 2, 1));
    set(&mut run, golden, Path::new(&folder)).expect("an empty directory");
    println!("holds it");
    // Until the process is killed, or until its parent has ended.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Wherever a process stops while it replaces or removes a checkpoint, a whole checkpoint exists, and the
/// next run cleans up.
#[test]
fn replacing_a_checkpoint_may_stop_anywhere() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let folder = TemporaryFolder::new("stopped");
    let mut run = new(golden, &data, short(4, 2, 9));
    set(&mut run, golden, folder.path()).expect("an empty directory");
    let saves = follow(&mut run, folder.path());
    drop(run);
    let place = |suffix: &str| {
        let name = format!("step-4{suffix}");
        folder.path().join("checkpoints").join(name)
    };
    let whole = TemporaryFolder::new("stopped-whole");
    copy(&saves[1], whole.path());
    // Which of the three names exist, and which of them are complete.
    for (plain, old, unfinished) in [
        (true, false, Some(false)),
        (true, false, Some(true)),
        (false, true, Some(true)),
        (false, true, None),
        (true, true, None),
    ] {
        let how = format!("{plain} {old} {unfinished:?}");
        for suffix in ["", ".old", ".tmp"] {
            let _ = fs::remove_dir_all(place(suffix));
        }
        if plain {
            copy(whole.path(), &place(""));
        }
        if old {
            copy(whole.path(), &place(".old"));
        }
        if let Some(is_whole) = unfinished {
            copy(whole.path(), &place(".tmp"));
            if !is_whole {
                fs::remove_file(place(".tmp").join("trainer.json")).expect("removed");
            }
        }
        let save = TrainingRun::last_save(folder.path()).expect(&how).expect("one");
        assert_eq!(save, place(if plain { "" } else { ".old" }), "{how}");
        let mut run = opened(&save, &data, short(4, 2, 9));
        assert_eq!(run.resume(&save).expect(&how), [], "{how}");
        run.set_directory(folder.path(), Layout::from_directory(&save).expect("a layout"))
            .expect(&how);
        assert_eq!(names(folder.path()), ["step-2", "step-4"], "{how}");
        // A folder whose name is not that of a checkpoint is left alone and is not counted.
        fs::create_dir_all(place("-mine")).expect("a directory");
        fs::create_dir_all(saves[0].with_file_name("step-+9")).expect("a directory");
        assert_eq!(run.save().expect(&how), Some(place("")));
        assert_eq!(TrainingRun::last_save(folder.path()).expect(&how), Some(place("")));
        assert_eq!(names(folder.path()), ["step-+9", "step-2", "step-4", "step-4-mine"], "{how}");
        for foreign in ["step-+9", "step-4-mine"] {
            fs::remove_dir(saves[0].with_file_name(foreign)).expect("it was left alone");
        }
    }
}

/// Checkpoints of two runs in one directory.
#[test]
fn checkpoints_of_two_runs_are_distinguished() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let [one, two] = ["one", "two"].map(|name| TemporaryFolder::new(&format!("mixed-runs-{name}")));
    let mut saves = Vec::new();
    for (folder, options) in [(&one, short(2, 2, 9)), (&two, faster(short(4, 2, 9)))] {
        let mut run = new(golden, &data, options);
        set(&mut run, golden, folder.path()).expect("an empty directory");
        saves.push(follow(&mut run, folder.path()));
    }
    let foreign = saves[0][0].with_file_name("step-4");
    copy(&saves[1][1], &foreign);
    let error = TrainingRun::last_save(one.path()).expect_err("two runs");
    assert!(error.to_string().contains("another identity"), "{error}");
    let mut run = opened(&foreign, &data, faster(short(6, 2, 1)));
    run.resume(&foreign).expect("by itself it is whole");
    let error = set(&mut run, golden, one.path()).expect_err("two runs");
    assert!(
        matches!(&error, Error::Conflict { found, .. } if found.contains("another identity")),
        "{error}"
    );
    // A checkpoint that appears during a run does not replace the checkpoints of the run.
    fs::remove_dir_all(&foreign).expect("removed");
    let mut run = opened(&saves[0][0], &data, short(3, 1, 1));
    run.resume(&saves[0][0]).expect("a save");
    set(&mut run, golden, one.path()).expect("its own");
    copy(&saves[1][1], &foreign);
    loop {
        match run.next().expect("an event") {
            TrainEvent::Saved(save) => {
                assert!(save.join("trainer.json").exists(), "{}", save.display())
            }
            TrainEvent::Finished(_) => break,
            _ => {}
        }
    }
    assert_eq!(names(one.path()), ["step-3", "step-4"]);
}

/// A run that resumes in another directory writes everything there, the best model too.
#[test]
fn a_run_resumes_in_another_directory() {
    let golden = &goldens()[0];
    let (data, held_out) = (corpus(golden, 30, 1), corpus(golden, 5, 2));
    let [from, to] = ["from", "to"].map(|name| TemporaryFolder::new(&format!("moved-{name}")));
    let with = |steps| RunOptions { validate_every: 2, ..short(steps, 2, 9) };
    let mut run = new(golden, &data, with(2));
    run.set_held_out(&held_out);
    set(&mut run, golden, from.path()).expect("an empty directory");
    let saves = follow(&mut run, from.path());
    assert!(run.best().is_some());
    drop(run);
    // In either order.
    for directory_first in [false, true] {
        let _ = fs::remove_dir_all(to.path());
        // A best model of another run is not taken for that of this run.
        copy(&golden.folder, &to.path().join("best"));
        let mut run = opened(&saves[0], &data, with(4));
        run.set_held_out(&held_out);
        if directory_first {
            set(&mut run, golden, to.path()).expect("an empty directory");
        }
        run.resume(&saves[0]).expect("a save");
        if !directory_first {
            set(&mut run, golden, to.path()).expect("an empty directory");
        }
        assert_eq!(run.best(), None);
        follow(&mut run, to.path());
        assert_eq!(names(to.path()), ["step-2", "step-4"]);
        let best = run.best().expect("a best").0;
        assert_eq!(best, 4);
        let weights =
            |folder: PathBuf| fs::read(folder.join("model.safetensors")).expect("weights");
        let last = weights(to.path().join("checkpoints/step-4"));
        assert!(last == weights(to.path().join("best")) && last == weights(to.path().to_owned()));
    }
    assert_eq!(names(from.path()), ["step-2"]);
}

/// Every option that may differ is reported when it differs, even in the last bit.
#[test]
fn options_that_differ_are_reported() {
    let golden = &goldens()[0];
    let (data, held_out, other) =
        (corpus(golden, 30, 1), corpus(golden, 5, 2), corpus(golden, 5, 3));
    let folder = TemporaryFolder::new("told");
    let limits = TrainLimits { average: true, ..limits() };
    let trainer = || golden.trainer(Isa::best(), limits);
    let mut run = TrainingRun::new(trainer(), &data, short(2, 2, 9)).expect("a run");
    run.set_held_out(&held_out);
    set(&mut run, golden, folder.path()).expect("an empty directory");
    let save = follow(&mut run, folder.path()).remove(0);
    let changes = |change: &dyn Fn(&mut RunOptions, &mut Trainer<'_>), held_out| {
        let checkpoint = Checkpoint::open(&save).expect("a checkpoint");
        let mut trainer = Trainer::open(&checkpoint, Isa::best(), limits).expect("a trainer");
        let mut options = short(2, 2, 9);
        change(&mut options, &mut trainer);
        let mut run = TrainingRun::new(trainer, &data, options).expect("a run");
        run.set_held_out(held_out);
        let changes = run.resume(&save).expect("a save");
        match changes.is_empty() {
            true => assert!(!matches!(run.next(), Ok(TrainEvent::OptionsChanged(_)))),
            false => {
                assert_eq!(run.next().expect("it"), TrainEvent::OptionsChanged(changes.clone()))
            }
        }
        changes.into_iter().map(|change| change.option).collect::<Vec<_>>()
    };
    assert_eq!(changes(&|_, _| (), &held_out), [""; 0]);
    assert_eq!(changes(&|_, _| (), &other), ["held_out"]);
    type Change<'c> = (&'c str, &'c dyn Fn(&mut RunOptions, &mut Trainer<'_>));
    let all: [Change<'_>; 18] = [
        ("step.smoothing.epsilon", &|options, _| options.step.smoothing.epsilon = 0.2),
        ("step.adam.beta1", &|options, _| options.step.adam.beta1 = 0.9f64.next_up()),
        ("step.adam.beta2", &|options, _| options.step.adam.beta2 = 0.9),
        ("step.adam.epsilon", &|options, _| options.step.adam.epsilon = 1e-8),
        ("step.adam.weight_decay", &|options, _| options.step.adam.weight_decay = 0.1),
        ("step.clip_norm", &|options, _| options.step.clip_norm = None),
        ("schedule", &|options, _| {
            options.schedule = Schedule::Constant { peak: 1e-3f64.next_up(), warmup: 0 };
        }),
        ("steps", &|options, _| options.steps = Some(3)),
        ("epochs", &|options, _| options.epochs = Some(7)),
        ("validate_every", &|options, _| options.validate_every = 3),
        ("save_every", &|options, _| options.save_every = 3),
        ("keep", &|options, _| options.keep = 3),
        ("metric", &|options, _| options.metric = Metric::Nll),
        ("patience", &|options, _| options.patience = Some(3)),
        ("dropout.hidden", &|_, trainer| {
            let rates = DropoutRates { hidden: 0.1, ..DropoutRates::default() };
            trainer.set_dropout(rates).expect("a rate");
        }),
        ("dropout.seed", &|_, trainer| {
            let rates = DropoutRates { seed: 1, ..DropoutRates::default() };
            trainer.set_dropout(rates).expect("a seed");
        }),
        ("average", &|_, trainer| trainer.set_average(Some(0.9)).expect("a decay")),
        ("learned", &|_, trainer| {
            trainer.set_learned(|role| !role.to_string().ends_with("norm.bias"));
        }),
    ];
    for (option, change) in all {
        assert_eq!(changes(change, &held_out), [option]);
    }
}
