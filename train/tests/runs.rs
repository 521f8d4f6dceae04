//! Runs that are interrupted and resumed, and the files that they write.

use super::support::{OpenTrainer, limits};
use simdformer::Model;
use simdformer::checkpoint::{Checkpoint, TensorId};
use simdformer::kernels::Isa;
use simdformer::train::{DropoutRates, Schedule, Smoothing, StepOptions, TrainLimits, Trainer};
use simdformer_testing::gradient_goldens::{Golden, goldens};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_train::{
    BatchSize, Batching, Corpus, Layout, Metric, Reason, RunOptions, StepRecord, TrainEvent,
    TrainingRun, Validation, average,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The sentences of a golden in other combinations.
pub(crate) fn corpus(golden: &Golden, count: usize, seed: usize) -> Corpus {
    let each = &golden.sentences;
    let mut corpus = Corpus::default();
    for i in 0..count {
        let (a, b) =
            (&each[(i * 7 + seed) % each.len()], &each[(i * 3 + seed * 5 + i / 5) % each.len()]);
        match a.features() {
            Some(features) => corpus.push_features(features, &b.target),
            None => corpus.push(&a.source, &b.target),
        }
    }
    corpus
}

pub(crate) fn options() -> RunOptions {
    RunOptions {
        step: StepOptions {
            smoothing: Smoothing { epsilon: 0.1, ..Smoothing::default() },
            ..StepOptions::default()
        },
        schedule: Schedule::Linear { peak: 3e-3, warmup: 5, steps: 40, last: 0.1 },
        batching: Batching::Shuffled { size: BatchSize::Sentences(6), pool: 0 },
        steps: Some(40),
        validate_every: 7,
        save_every: 20,
        seed: 7,
        ..RunOptions::default()
    }
}

fn with_average() -> TrainLimits {
    TrainLimits { average: true, ..limits() }
}

const DROPOUT: DropoutRates =
    DropoutRates { hidden: 0.1, attention: 0.1, activation: 0.1, seed: 5 };

/// All events of a run, and the files at its end.
#[derive(Debug, Default, PartialEq)]
struct Story {
    steps: Vec<StepRecord>,
    validations: Vec<Validation>,
    parameters: Vec<u32>,
    files: Vec<(String, Vec<u8>)>,
}

/// Runs to the end, or to step `until`.
fn follow(run: &mut TrainingRun<'_>, until: u64, story: &mut Story) {
    while run.step() < until || story.steps.last().is_none_or(|last| last.step == until) {
        match run.next().expect("an event") {
            TrainEvent::Step(step) => story.steps.push(step),
            TrainEvent::Validated(validation) => story.validations.push(validation),
            TrainEvent::Saved(_) => {}
            TrainEvent::OptionsChanged(changes) => panic!("{changes:?}"),
            TrainEvent::Finished(_) => break,
        }
        if until < 40 && run.step() == until {
            return;
        }
    }
}

fn ended(run: &TrainingRun<'_>, folder: &Path, mut story: Story) -> Story {
    let numbers = run.trainer().parameters().flat_map(|(_, _, numbers)| numbers);
    story.parameters = numbers.map(|x| x.to_bits()).collect();
    for file in
        ["model.safetensors", "best/model.safetensors", "checkpoints/step-40/trainer.safetensors"]
    {
        story.files.push((file.to_owned(), fs::read(folder.join(file)).expect(file)));
    }
    story
}

fn trainer(golden: &Golden, limits: TrainLimits, dropout: bool) -> Trainer<'static> {
    settings(golden.trainer(Isa::best(), limits), limits, dropout)
}

/// Settings that no file has.
fn settings<'t>(mut trainer: Trainer<'t>, limits: TrainLimits, dropout: bool) -> Trainer<'t> {
    if dropout {
        trainer.set_dropout(DROPOUT).expect("rates");
    }
    if limits.average {
        trainer.set_average(Some(0.9)).expect("a decay");
    }
    trainer
}

/// 40 steps, and 40 steps that were stopped after `stop` and resumed by another trainer.
fn interrupted(
    golden: &Golden,
    limits: TrainLimits,
    options: &RunOptions,
    dropout: bool,
    stop: u64,
) {
    let (data, held_out) = (corpus(golden, 50, 1), corpus(golden, 11, 2));
    let start = |folder: &Path, trainer| {
        let mut run = TrainingRun::new(trainer, &data, options.clone()).expect("a run");
        run.set_held_out(&held_out);
        run.set_directory(folder, Layout::from_directory(&golden.folder).expect("a layout"))
            .expect("a lock");
        run
    };
    let [whole, parts] = ["whole", "parts"]
        .map(|name| TemporaryFolder::new(&format!("{}-{name}-{stop}", golden.name)));
    let mut run = start(whole.path(), trainer(golden, limits, dropout));
    let mut expected = Story::default();
    follow(&mut run, 40, &mut expected);
    let expected = ended(&run, whole.path(), expected);
    assert_eq!(expected.steps.len(), 40);

    let mut found = Story::default();
    {
        let mut run = start(parts.path(), trainer(golden, limits, dropout));
        follow(&mut run, stop, &mut found);
        run.save().expect("a save");
    }
    let save = TrainingRun::last_save(parts.path()).expect("a save").expect("one");
    let checkpoint = Checkpoint::open(&save).expect("a checkpoint");
    let again = Trainer::open(&checkpoint, Isa::best(), limits).expect("a trainer");
    let again = settings(again, limits, dropout);
    let mut run = TrainingRun::new(again, &data, options.clone()).expect("a run");
    run.set_held_out(&held_out);
    assert_eq!(run.resume(&save).expect("where it was"), []);
    run.set_directory(parts.path(), Layout::from_directory(&save).expect("a layout"))
        .expect("a lock");
    follow(&mut run, 40, &mut found);
    let found = ended(&run, parts.path(), found);
    assert!(found == expected, "{} stopped after {stop}", golden.name);
}

/// 40 = 20 + save + load + 20. An epoch has 9 batches, so the stop is inside of an epoch and at the end of
/// one.
#[test]
fn trap_20_a_run_that_was_interrupted_is_one_that_was_not() {
    let goldens = goldens();
    for golden in goldens.iter().step_by(3) {
        interrupted(golden, limits(), &options(), false, 20);
    }
    let of_features = goldens.iter().find(|golden| golden.name == "whisper").expect("a golden");
    interrupted(of_features, limits(), &options(), true, 13);
    let golden = &goldens[0];
    // The end of an epoch; a step with a validation that is due; dropout, average and sorted pools.
    interrupted(golden, limits(), &options(), false, 18);
    interrupted(golden, limits(), &options(), false, 14);
    interrupted(golden, with_average(), &options(), true, 20);
    let batching = Batching::Shuffled { size: BatchSize::Tokens(40), pool: 20 };
    let sorted = RunOptions { batching, accumulate: 2, patience: Some(100), ..options() };
    interrupted(golden, with_average(), &sorted, true, 17);
}

/// A save is a checkpoint of the same values under the same names, and has nothing else.
#[test]
fn what_is_saved_is_a_checkpoint_of_the_same_bits() {
    for golden in goldens() {
        let folder = TemporaryFolder::new(&format!("saved-{}", golden.name));
        let data = corpus(&golden, 12, 1);
        let mut trainer = golden.trainer(Isa::best(), limits());
        let step = StepOptions::default();
        let pairs: Vec<_> = data.pairs().collect();
        trainer.step(&pairs, &step).expect("a step");
        let layout = Layout::from_directory(&golden.folder).expect("a layout");
        layout.write(&trainer, folder.path()).expect("files");
        let model = Model::open(folder.path()).expect("a model");
        assert_eq!(model.config().family, trainer.model().config().family);
        let again = Trainer::open(
            &Checkpoint::open(folder.path()).expect("a checkpoint"),
            Isa::best(),
            limits(),
        )
        .expect("a trainer");
        for role in TensorId::all(trainer.model().config()) {
            let bits = |trainer: &Trainer<'_>| {
                let numbers = trainer.parameter(role).expect("numbers");
                numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            assert!(bits(&again) == bits(&trainer), "{} {role}", golden.name);
        }
        let names = |folder: &Path| {
            let bytes = fs::read(folder.join("model.safetensors")).expect("weights");
            let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
            let mut names: Vec<_> = tensors
                .iter()
                .map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec(), tensor.dtype()))
                .collect();
            names.sort_by(|a, b| a.0.cmp(&b.0));
            names
        };
        assert_eq!(names(folder.path()), names(&golden.folder), "{}", golden.name);
        let files = |folder: &Path| fs::read_to_string(folder.join("config.json")).expect("a text");
        assert_eq!(files(folder.path()), files(&golden.folder));
    }
}

/// A run that was saved after two steps.
fn saved(golden: &Golden, folder: &Path, data: &Corpus) -> PathBuf {
    let options = RunOptions { steps: Some(2), save_every: 1, validate_every: 0, ..options() };
    let mut run =
        TrainingRun::new(golden.trainer(Isa::best(), limits()), data, options).expect("a run");
    run.set_directory(folder, Layout::from_directory(&golden.folder).expect("a layout"))
        .expect("a lock");
    loop {
        if let TrainEvent::Finished(_) = run.next().expect("an event") {
            break;
        }
    }
    TrainingRun::last_save(folder).expect("a save").expect("one")
}

fn goes_on(golden: &Golden, folder: &Path, data: &Corpus) -> Result<(), simdformer::Error> {
    let save = TrainingRun::last_save(folder)?.expect("a save");
    let checkpoint = Checkpoint::open(&save)?;
    let trainer = Trainer::open(&checkpoint, Isa::best(), limits())?;
    let mut run = TrainingRun::new(trainer, data, RunOptions { steps: Some(2), ..options() })?;
    assert_eq!(golden.sentences.is_empty(), data.is_empty());
    run.resume(&save).map(|_| ())
}

/// Every file of a save, with a changed byte or truncated anywhere, is an error that names the file, and no
/// save is lost.
#[test]
fn broken_saves_are_named_and_lose_nothing() {
    let golden = &goldens()[0];
    let data = corpus(golden, 12, 1);
    let folder = TemporaryFolder::new("broken");
    let save = saved(golden, folder.path(), &data);
    goes_on(golden, folder.path(), &data).expect("nothing is broken");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&save).expect("files").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    for name in ["config.json", "model.safetensors", "trainer.json", "trainer.safetensors"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let mut broken = 0;
    for file in &files {
        let whole = fs::read(file).expect("bytes");
        let name = file.display().to_string();
        let mut check = |bytes: &[u8], how: String| {
            fs::write(file, bytes).expect("written");
            let error = goes_on(golden, folder.path(), &data).expect_err(&how).to_string();
            assert!(error.contains(&name), "{how}: {error}");
            broken += 1;
        };
        // Of a large file only some positions are tried.
        let stride = 97 * (whole.len() / 20_000).max(1);
        for at in (0..whole.len()).step_by(stride) {
            let mut other = whole.clone();
            other[at] ^= 1 << (at % 8);
            check(&other, format!("{name}, byte {at}"));
            check(&whole[..at], format!("{name}, {at} bytes"));
        }
        check(&[&whole[..], b" "].concat(), format!("{name}, longer"));
        fs::remove_file(file).expect("removed");
        let error = goes_on(golden, folder.path(), &data).expect_err("a file is missing");
        assert!(error.to_string().contains(&name), "{error}");
        fs::write(file, &whole).expect("written");
    }
    assert!(broken > 300, "{broken}");
    // No file is missing, and the older save can be opened.
    goes_on(golden, folder.path(), &data).expect("nothing is broken");
    assert!(folder.path().join("checkpoints/step-1/trainer.json").exists());
}

/// The files of two saves do not fit each other. Another corpus, seed or length limit is another run.
#[test]
fn saves_of_other_runs_are_errors() {
    let golden = &goldens()[0];
    let data = corpus(golden, 12, 1);
    let folder = TemporaryFolder::new("mixed");
    let save = saved(golden, folder.path(), &data);
    let other = corpus(golden, 12, 2);
    let error = goes_on(golden, folder.path(), &other).expect_err("another corpus");
    assert!(error.to_string().contains("another corpus"), "{error}");
    let checkpoint = Checkpoint::open(&save).expect("a checkpoint");
    for (options, setting) in [
        (RunOptions { seed: 8, ..options() }, "seed"),
        (RunOptions { accumulate: 2, ..options() }, "number of batches"),
        (
            RunOptions {
                batching: Batching::InOrder { size: BatchSize::Sentences(6) },
                ..options()
            },
            "cut",
        ),
    ] {
        let trainer = Trainer::open(&checkpoint, Isa::best(), limits()).expect("a trainer");
        let mut run = TrainingRun::new(trainer, &data, options).expect("a run");
        let error = run.resume(&save).expect_err("another run").to_string();
        assert!(error.contains(setting), "{error}");
    }
    let one = save.with_file_name("step-1");
    for file in ["model.safetensors", "trainer.safetensors", "trainer.json"] {
        let kept = fs::read(save.join(file)).expect("bytes");
        fs::copy(one.join(file), save.join(file)).expect("mixed");
        let error =
            goes_on(golden, folder.path(), &data).expect_err("two saves in one").to_string();
        assert!(error.contains("is broken"), "{error}");
        fs::write(save.join(file), kept).expect("written");
    }
    // Of an earlier version, whose checksums were others.
    let state = save.join("trainer.json");
    let kept = fs::read_to_string(&state).expect("text");
    fs::write(&state, kept.replacen("\"version\": 3", "\"version\": 2", 1)).expect("written");
    let error = goes_on(golden, folder.path(), &data).expect_err("a version").to_string();
    assert!(
        error.contains("the state of a run, version 3") && error.contains("version 2"),
        "{error}"
    );
    fs::write(&state, kept).expect("written");
    // An unfinished directory is not a save.
    fs::create_dir_all(save.with_file_name("step-3.tmp")).expect("a directory");
    goes_on(golden, folder.path(), &data).expect("the last whole one");
}

/// The newest saves stay.
#[test]
fn old_saves_are_removed() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let folder = TemporaryFolder::new("kept");
    let options = RunOptions { steps: Some(9), save_every: 2, keep: 3, ..options() };
    let mut run =
        TrainingRun::new(golden.trainer(Isa::best(), limits()), &data, options).expect("a run");
    run.set_directory(folder.path(), Layout::from_directory(&golden.folder).expect("a layout"))
        .expect("a lock");
    while !matches!(run.next().expect("an event"), TrainEvent::Finished(_)) {}
    let mut names: Vec<_> = fs::read_dir(folder.path().join("checkpoints"))
        .expect("saves")
        .map(|entry| entry.expect("a save").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["step-6", "step-8", "step-9"]);
    Model::open(folder.path()).expect("the last model");

    let means = folder.path().join("mean");
    let saves = names.iter().map(|name| folder.path().join("checkpoints").join(name));
    let saves: Vec<_> = saves.collect();
    average(&saves, &means).expect("a mean");
    let read = |folder: &Path| {
        let checkpoint = Checkpoint::open(folder).expect("a checkpoint");
        checkpoint.tensor(TensorId::SourceEmbedding).expect("a tensor").to_vec().expect("numbers")
    };
    let (mean, parts) = (read(&means), saves.iter().map(|save| read(save)).collect::<Vec<_>>());
    for (i, mean) in mean.iter().enumerate() {
        let sum: f64 = parts.iter().map(|part| f64::from(part[i])).sum();
        assert_eq!(*mean, (sum / 3.0) as f32);
    }
}

/// The file of the best model has the score that was reported, also with an average.
#[test]
fn trap_24_the_saved_model_is_the_validated_one() {
    let golden = &goldens()[0];
    let (data, held_out) = (corpus(golden, 50, 1), corpus(golden, 11, 2));
    for limits in [limits(), with_average()] {
        let folder = TemporaryFolder::new(&format!("score-{}", limits.average));
        let mut trainer = golden.trainer(Isa::best(), limits);
        if limits.average {
            trainer.set_average(Some(0.9)).expect("a decay");
        }
        let mut run = TrainingRun::new(trainer, &data, options()).expect("a run");
        run.set_held_out(&held_out);
        run.set_directory(folder.path(), Layout::from_directory(&golden.folder).expect("a layout"))
            .expect("a lock");
        let mut best = None;
        loop {
            match run.next().expect("an event") {
                TrainEvent::Validated(validation) if validation.best => best = Some(validation),
                TrainEvent::Finished(_) => break,
                _ => {}
            }
        }
        let best = best.expect("a best");
        let held_out: Vec<_> = held_out.pairs().collect();
        for directory in [folder.path().join("best"), folder.path().to_owned()] {
            let checkpoint = Checkpoint::open(directory).expect("a checkpoint");
            let mut trainer = Trainer::open(&checkpoint, Isa::best(), limits).expect("a trainer");
            let totals = trainer.evaluate(&held_out, options().step.smoothing).expect("losses");
            assert_eq!(totals, best.totals);
        }
        // With an average, the trained weights differ from the validated ones.
        let mut trainer = golden.trainer(Isa::best(), limits);
        let last = folder.path().join("checkpoints/step-40");
        let checkpoint = Checkpoint::open(last).expect("a checkpoint");
        let mut learned = Trainer::open(&checkpoint, Isa::best(), limits).expect("a trainer");
        let a = trainer.evaluate(&held_out, options().step.smoothing).expect("losses");
        let b = learned.evaluate(&held_out, options().step.smoothing).expect("losses");
        assert!(a != b);
        if limits.average && best.step == 40 {
            assert!(b != best.totals);
        }
    }
}

/// Patience ends a run. With `Metric::Judged` the value of the judge decides.
#[test]
fn a_run_without_improvement_ends() {
    let golden = &goldens()[0];
    let (data, held_out) = (corpus(golden, 50, 1), corpus(golden, 11, 2));
    let scores = [0.1, 0.5, 0.4, 0.5, 0.2, 0.9];
    let mut asked = 0;
    let options =
        RunOptions { metric: Metric::Judged, patience: Some(3), validate_every: 2, ..options() };
    let mut run =
        TrainingRun::new(golden.trainer(Isa::best(), limits()), &data, options).expect("a run");
    run.set_held_out(&held_out);
    run.set_judge(|model| {
        assert!(model.bytes() > 0);
        asked += 1;
        Ok(scores[asked - 1])
    });
    let mut said = Vec::new();
    let reason = loop {
        match run.next().expect("an event") {
            TrainEvent::Validated(validation) => said.push((validation.judged, validation.best)),
            TrainEvent::Finished(reason) => break reason,
            _ => {}
        }
    };
    assert_eq!(reason, Reason::Patience);
    assert_eq!(run.best(), Some((8, 0.5)));
    let expected = [(0.1, true), (0.5, true), (0.4, false), (0.5, true), (0.2, false)];
    assert_eq!(said, expected.map(|(score, best)| (Some(score), best)));
}
