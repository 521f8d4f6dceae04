//! What a probe and `banned` may do in a session that runs on a pool: call rayon, panic, or sleep. A test
//! that hangs fails after 100 seconds.

use crate::random_model::{Dims, Random};
use rayon::ThreadPool;
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer::trace::{Probe, View};
use simdformer::{Limits, Model, Session, SourceId, StepRow, Threads};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const VOCABULARY: usize = 3001;
const STEPS: usize = 6;

/// The result of `work`. Fails when `work` does not end within 100 seconds.
fn within<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        let _ = send.send(work());
    });
    match receive.recv_timeout(Duration::from_secs(100)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it did not get to its end"))
        }
    }
}

fn pool(threads: usize) -> ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool")
}

/// Wide enough that every product is split into tasks.
fn model() -> Model {
    let dims = Dims {
        d_model: 96,
        ffn: [256, 256],
        vocabulary: VOCABULARY,
        ..Dims::small(Family::Marian)
    };
    Model::load(&dims.checkpoint(4), Isa::best()).expect("a model")
}

fn sources() -> Vec<Vec<u32>> {
    let mut random = Random(9);
    [14, 3, 20, 9].map(|len| random.ids(len, VOCABULARY - 1)).into()
}

fn limits() -> Limits {
    Limits::new(4, 24, STEPS + 2)
}

/// The tokens of all sentences: at each step the argmax of the tokens that are not banned.
fn decode(
    session: &mut Session<'_>,
    banned: &(dyn Fn(usize, u32) -> bool + Sync),
) -> Vec<Vec<u32>> {
    session.clear();
    let sources = sources();
    let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let mut sentences = [SourceId::default(); 4];
    session.encode(&borrowed, &mut sentences).expect("encoded");
    let rows = sentences.map(|sentence| session.start(sentence).expect("a row"));
    let mut tokens = vec![vec![1; 4]];
    for step in 0..STEPS {
        let request: Vec<StepRow> =
            rows.iter().zip(&tokens[step]).map(|(&row, &token)| StepRow::new(row, token)).collect();
        tokens.push(session.step_argmax(&request, banned).expect("stepped").to_vec());
    }
    tokens
}

/// Bans every third token.
fn third(_: usize, token: u32) -> bool {
    token.is_multiple_of(3)
}

/// A probe that calls `does` and records the bits of each view.
struct BitsProbe<'k> {
    bits: Vec<u32>,
    does: &'k (dyn Fn(usize) + Sync),
    views: usize,
}

impl<'k> BitsProbe<'k> {
    fn new(does: &'k (dyn Fn(usize) + Sync)) -> Self {
        Self { bits: Vec::new(), does, views: 0 }
    }
}

impl Probe for BitsProbe<'_> {
    fn look(&mut self, view: &View<'_>) {
        (self.does)(self.views);
        self.views += 1;
        self.bits.extend(view.iter().flatten().map(|x| x.to_bits()));
    }
}

/// The bits of all views of an encode and a step, and of the logits.
fn traced_bits(session: &mut Session<'_>, does: &(dyn Fn(usize) + Sync)) -> Vec<u32> {
    session.clear();
    let mut probe = BitsProbe::new(does);
    let mut scratch = vec![0.0; session.plan().trace_floats()];
    let sources = sources();
    let borrowed: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let mut sentences = [SourceId::default(); 4];
    let mut traced_bits = session.traced(&mut probe, &mut scratch).expect("space");
    traced_bits.encode(&borrowed, &mut sentences).expect("encoded");
    let rows = sentences.map(|sentence| session.start(sentence).expect("a row"));
    let mut traced_bits = session.traced(&mut probe, &mut scratch).expect("space");
    let logits = traced_bits.step(&rows.map(|row| StepRow::new(row, 7))).expect("stepped");
    let logits: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
    assert!(probe.views > 100, "{} views", probe.views);
    probe.bits.into_iter().chain(logits).collect()
}

/// A session on threads and a session on one thread.
fn pair(model: &Model) -> [Session<'_>; 2] {
    let mut threaded = Session::new(model, limits()).expect("a session");
    threaded.set_threads(Threads::Rayon);
    [threaded, Session::new(model, limits()).expect("a session")]
}

#[test]
fn a_probe_may_enter_rayon() {
    for threads in [1, 2, 3, 7] {
        within(&format!("a probe on a pool of {threads}"), move || {
            let (model, pool, other) = (model(), pool(threads), pool(2));
            let [mut session, mut alone] = pair(&model);
            let expected = traced_bits(&mut alone, &|_| ());
            let enters = |view: usize| match view % 4 {
                0 => other.install(|| std::thread::sleep(Duration::from_micros(100))),
                1 => {
                    rayon::join(|| (), || std::thread::sleep(Duration::from_micros(100)));
                }
                _ => (),
            };
            for _ in 0..3 {
                let found = pool.install(|| traced_bits(&mut session, &enters));
                assert!(found == expected, "other bits on {threads} threads");
            }
            // Another session runs in the other pool, called from the probe.
            let inner = |view: usize| {
                if view == 5 {
                    let [mut session, _] = pair(&model);
                    assert!(other.install(|| traced_bits(&mut session, &|_| ())) == expected);
                    // A second session runs in this pool.
                    assert!(traced_bits(&mut session, &|_| ()) == expected);
                }
            };
            assert!(pool.install(|| traced_bits(&mut session, &inner)) == expected);
        });
    }
}

#[test]
fn banned_may_enter_rayon() {
    for threads in [1, 2, 3, 7] {
        within(&format!("banned on a pool of {threads}"), move || {
            let (model, pool, other) = (model(), pool(threads), pool(2));
            let [mut session, mut alone] = pair(&model);
            let expected = decode(&mut alone, &third);
            let enters = |row: usize, token: u32| {
                if token.is_multiple_of(5) {
                    other.install(|| rayon::join(|| (), || ()));
                    rayon::join(|| (), || std::thread::sleep(Duration::from_micros(50)));
                }
                third(row, token)
            };
            for _ in 0..3 {
                let found = pool.install(|| decode(&mut session, &enters));
                assert_eq!(found, expected, "{threads} threads");
            }
        });
    }
}

#[test]
fn panics_reach_the_caller_and_the_session_goes_on() {
    for threads in [1, 2, 3, 7] {
        within(&format!("a panic on a pool of {threads}"), move || {
            let (model, pool) = (model(), pool(threads));
            let [mut session, mut alone] = pair(&model);
            let (tokens, bits) = (decode(&mut alone, &third), traced_bits(&mut alone, &|_| ()));
            for round in 0..5 {
                let panics = |row: usize, token: u32| {
                    assert!(round > 0 && row != round, "row {row}");
                    third(row, token)
                };
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    pool.install(|| decode(&mut session, &panics))
                }));
                assert_eq!(caught.is_err(), round < 4);
                assert_eq!(pool.install(|| decode(&mut session, &third)), tokens);
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    pool.install(|| traced_bits(&mut session, &|view| assert!(view != 13 * round)))
                }));
                assert!(caught.is_err());
                assert!(pool.install(|| traced_bits(&mut session, &|_| ())) == bits);
            }
        });
    }
}

#[test]
fn many_sessions_share_a_pool() {
    for threads in [2, 3] {
        within(&format!("sessions on a pool of {threads}"), move || {
            use rayon::prelude::*;
            let (model, pool) = (model(), pool(threads));
            let [_, mut alone] = pair(&model);
            let expected = decode(&mut alone, &third);
            let found: Vec<_> = pool.install(|| {
                (0..16)
                    .into_par_iter()
                    .map(|_| {
                        let [mut session, _] = pair(&model);
                        decode(&mut session, &third)
                    })
                    .collect()
            });
            assert!(found.iter().all(|found| *found == expected));
        });
    }
}

/// The CPU time that this thread has used.
#[cfg(target_os = "linux")]
fn thread_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = stat.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("nanoseconds on a core"))
}

#[cfg(target_os = "linux")]
#[test]
fn threads_sleep_while_a_probe_sleeps() {
    within("a probe that sleeps", || {
        const ASLEEP: Duration = Duration::from_millis(300);
        let (model, pool) = (model(), pool(3));
        let [mut session, _] = pair(&model);
        let total = || pool.broadcast(|_| thread_time()).into_iter().sum::<Duration>();
        let used = |session: &mut Session<'_>, does: &(dyn Fn(usize) + Sync)| {
            let before = total();
            pool.install(|| traced_bits(session, does));
            total() - before
        };
        let base = used(&mut session, &|_| ()).max(used(&mut session, &|_| ()));
        let slow = used(&mut session, &|view| {
            if view == 40 {
                std::thread::sleep(ASLEEP);
            }
        });
        assert!(slow < base + ASLEEP / 3, "{slow:?} with a probe that sleeps, {base:?} without");
    });
}
