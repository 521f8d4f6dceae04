//! Callbacks and threads that panic, parameters that are not finite, and trainers that do not belong to a
//! checkpoint: no data are lost, and the fault is reported.

use super::runs::{corpus, options};
use super::support::{OpenTrainer, limits};
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Dimensions};
use simdformer::kernels::{Executor, Isa};
use simdformer::train::{Initial, Schedule, TrainLimits, Trainer};
use simdformer::{Error, Threads};
use simdformer_testing::gradient_goldens::goldens;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_train::{Layout, Metric, RunOptions, TrainEvent, TrainingRun};
use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

fn bits(trainer: &Trainer<'_>) -> Vec<u32> {
    trainer.parameters().flat_map(|(_, _, numbers)| numbers).map(|x| x.to_bits()).collect()
}

/// The payload of a planned panic, which distinguishes it from a panic of the library.
struct Planned;

fn panics<R>(work: impl FnOnce() -> R) -> bool {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(_) => false,
        Err(payload) => {
            assert!(payload.is::<Planned>(), "another panic");
            true
        }
    }
}

fn panic_as_planned() -> ! {
    // Without the message of the panic hook.
    std::panic::resume_unwind(Box::new(Planned))
}

/// Runs everything on the calling thread and panics in the call that `panic_after` selects. Small products
/// make no tasks, but they ask for the number of threads.
struct Fragile {
    left: AtomicUsize,
}

impl Executor for Fragile {
    fn threads(&self) -> usize {
        if self.is_over() {
            panic_as_planned();
        }
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if self.is_over() {
            // In the middle of the work.
            (0..tasks / 2).for_each(task);
            panic_as_planned();
        }
        (0..tasks).for_each(task);
    }
}

impl Fragile {
    fn new() -> Self {
        Self { left: AtomicUsize::new(usize::MAX) }
    }

    fn is_over(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 0
    }

    fn panic_after(&self, calls: usize) {
        self.left.store(calls, Ordering::Relaxed);
    }
}

fn with_average() -> TrainLimits {
    TrainLimits { average: true, ..limits() }
}

fn short() -> RunOptions {
    let schedule = Schedule::Constant { peak: 1e-2, warmup: 0 };
    RunOptions { steps: Some(6), validate_every: 2, save_every: 2, keep: 1, schedule, ..options() }
}

/// In an earlier version the average stayed in place of the parameters.
#[test]
fn a_judge_or_a_thread_that_panics_leaves_the_parameters() {
    let golden = &goldens()[0];
    let (data, held_out) = (corpus(golden, 30, 1), corpus(golden, 5, 2));
    let executor = Fragile::new();
    let story = |faults: bool| {
        let judge_panics = Cell::new(false);
        let mut trainer = golden.trainer(Isa::best(), with_average());
        trainer.set_average(Some(0.5)).expect("a decay");
        trainer.set_threads(Threads::Executor(&executor));
        let mut run = TrainingRun::new(trainer, &data, short()).expect("a run");
        run.set_held_out(&held_out);
        run.set_judge(|_| if judge_panics.get() { panic_as_planned() } else { Ok(0.0) });
        let (mut events, mut panicked) = (Vec::new(), 0);
        loop {
            if faults && run.step().is_multiple_of(2) && run.step() > 0 {
                // A validation is due, which calls the judge. Many calls of the executor
                // panic before the validation is complete.
                let before = bits(run.trainer());
                judge_panics.set(true);
                panicked += usize::from(panics(|| run.next()));
                assert!(before == bits(run.trainer()), "after step {}", run.step());
                judge_panics.set(false);
                for calls in [0, 1, 7, 30, 80] {
                    executor.panic_after(calls);
                    let panicked_now = panics(|| run.next().map(|event| events.push(event)));
                    executor.panic_after(usize::MAX);
                    panicked += usize::from(panicked_now);
                    if !panicked_now {
                        break;
                    }
                    assert!(before == bits(run.trainer()), "step {}, {calls}", run.step());
                }
            }
            match run.next().expect("an event") {
                TrainEvent::Finished(_) => break,
                event => events.push(event),
            }
        }
        (events, bits(run.trainer()), panicked)
    };
    let (events, parameters, none) = story(false);
    let (found, after, panicked) = story(true);
    assert!(none == 0 && panicked > 8, "{panicked} panics");
    assert_eq!(events, found);
    assert!(parameters == after);
}

/// A step in which threads panic has one of two results. Either nothing has changed, and the same step
/// gives the same bits. Or the trainer reports from then on that it cannot be used, and nothing is saved.
#[test]
fn after_a_panic_in_a_step_a_trainer_is_unchanged_or_unusable() {
    // Enough parameters for several tasks.
    let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 4096 };
    let mut config = Config::transformer(small);
    config.tokens.decoder_start = Some(1);
    let golden = &goldens()[0];
    let data = corpus(golden, 6, 1);
    let folder = TemporaryFolder::new("fragile");
    let executor = Fragile::new();
    let start = || {
        let weights = Initial::Glorot.weights(&config, 1);
        let mut trainer = Trainer::new(config.clone(), limits(), weights).expect("a trainer");
        trainer.set_threads(Threads::Executor(&executor));
        TrainingRun::new(trainer, &data, short()).expect("a run")
    };
    let mut run = start();
    run.next().expect("a step");
    let expected = bits(run.trainer());
    let count = || {
        executor.panic_after(usize::MAX);
        start().next().expect("a step");
        usize::MAX - executor.left.load(Ordering::Relaxed)
    };
    let calls = count();
    assert!(calls >= 10, "{calls}");
    let (mut whole, mut interrupted) = (0, 0);
    for call in 0..calls {
        let mut run = start();
        executor.panic_after(call);
        let panicked = panics(|| run.next());
        executor.panic_after(usize::MAX);
        assert!(panicked, "{call} of {calls}");
        match run.next() {
            Ok(event) => {
                whole += 1;
                assert!(matches!(event, TrainEvent::Step(_)), "{event:?}");
                assert!(bits(run.trainer()) == expected, "{call} of {calls}");
            }
            Err(error) => {
                interrupted += 1;
                let is_it = |error: &Error| error.to_string().contains("partly updated");
                assert!(is_it(&error), "{error}");
                let layout = || Layout::from_directory(&golden.folder).expect("a layout");
                run.set_directory(folder.path(), layout()).expect("an empty directory");
                assert!(is_it(&run.save().expect_err("it is not whole")));
                let written = layout().write(run.trainer(), &folder.path().join("model"));
                assert!(is_it(&written.expect_err("it is not whole")));
            }
        }
    }
    assert!(
        whole >= 7 && interrupted >= 3 && whole + interrupted == calls,
        "{whole} {interrupted} of {calls}"
    );
    // Only the lock file.
    assert_eq!(fs::read_dir(folder.path()).expect("files").count(), 1);
}

/// In an earlier version the moments of one run were combined with the weights of another run.
#[test]
fn the_parameters_and_the_checkpoint_of_a_run_belong_together() {
    let golden = &goldens()[0];
    let data = corpus(golden, 30, 1);
    let folder = TemporaryFolder::new("belong");
    let mut run =
        TrainingRun::new(golden.trainer(Isa::best(), limits()), &data, short()).expect("a run");
    run.set_directory(folder.path(), Layout::from_directory(&golden.folder).expect("a layout"))
        .expect("an empty directory");
    let save = loop {
        match run.next().expect("an event") {
            TrainEvent::Saved(save) => break save,
            TrainEvent::Finished(_) => panic!("no save"),
            _ => {}
        }
    };
    let mut other =
        TrainingRun::new(golden.trainer(Isa::best(), limits()), &data, short()).expect("a run");
    let before = bits(other.trainer());
    let error = other.resume(&save).expect_err("first weights, and moments of two steps");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("trainer.json"), "{error}");
    // The run is a new one, as before.
    assert_eq!(other.step(), 0);
    assert!(bits(other.trainer()) == before);
    // One different bit of one parameter is an error.
    let checkpoint = Checkpoint::open(&save).expect("a checkpoint");
    for differs in [false, true] {
        let mut last = None;
        for role in simdformer::checkpoint::TensorId::all(checkpoint.config()) {
            last = checkpoint.optional(role).expect("a tensor").map(|_| role).or(last);
        }
        let trainer = Trainer::new(checkpoint.config().clone(), limits(), |role, _, out| {
            if let Some(tensor) = checkpoint.optional(role)? {
                tensor.read_into(out)?;
            }
            if differs && Some(role) == last {
                out[0] = out[0].next_up();
            }
            Ok(())
        });
        let mut run = TrainingRun::new(trainer.expect("a trainer"), &data, short()).expect("a run");
        assert_eq!(run.resume(&save).is_err(), differs);
    }
}

/// In an earlier version weights that were not finite replaced the last valid checkpoint, and no program
/// could open them.
#[test]
fn parameters_that_are_not_finite_replace_no_checkpoint() {
    let golden = &goldens()[0];
    let (data, held_out) = (corpus(golden, 30, 1), corpus(golden, 5, 2));
    let folder = TemporaryFolder::new("not-finite");
    let layout = || Layout::from_directory(&golden.folder).expect("a layout");
    let mut run = TrainingRun::new(
        golden.trainer(Isa::best(), limits()),
        &data,
        RunOptions { steps: Some(2), ..short() },
    )
    .expect("a run");
    run.set_held_out(&held_out);
    run.set_directory(folder.path(), layout()).expect("an empty directory");
    while !matches!(run.next().expect("an event"), TrainEvent::Finished(_)) {}
    drop(run);
    let files = || {
        ["checkpoints/step-2", "best", ""].map(|place| {
            fs::read(folder.path().join(place).join("model.safetensors")).expect("weights")
        })
    };
    let good = files();

    // A learning rate that overflows f32.
    let schedule = Schedule::Constant { peak: 1e39, warmup: 0 };
    for metric in [Metric::Loss, Metric::Judged] {
        // This judge rates every model better than the last one.
        let mut said = 0.0;
        let save = TrainingRun::last_save(folder.path()).expect("a save").expect("one");
        assert!(save.ends_with("step-2"));
        let checkpoint = Checkpoint::open(&save).expect("a checkpoint");
        let trainer = Trainer::open(&checkpoint, Isa::best(), limits()).expect("a trainer");
        let mut run = TrainingRun::new(trainer, &data, RunOptions { schedule, metric, ..short() })
            .expect("a run");
        run.set_held_out(&held_out);
        run.set_judge(|_| {
            said += 1.0;
            Ok(said)
        });
        run.resume(&save).expect("a save");
        run.set_directory(folder.path(), layout()).expect("its own");
        let error = loop {
            match run.next() {
                Ok(TrainEvent::Saved(save)) => panic!("{}", save.display()),
                Ok(TrainEvent::Finished(_)) => panic!("it has ended"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let Error::NotFinite { operand, found, .. } = &error else { panic!("{error}") };
        assert!(
            found.is_some_and(|x| !x.is_finite()) && operand.contains("weight, to be saved"),
            "{error}"
        );
        assert!(error.to_string().contains(&**operand), "{error}");
        run.save().expect_err("still");
        layout().write(run.trainer(), folder.path()).expect_err("by hand neither");
        assert!(files() == good, "{metric:?}");
        let entries = fs::read_dir(folder.path().join("checkpoints")).expect("checkpoints");
        assert_eq!(entries.count(), 1);
    }
}
