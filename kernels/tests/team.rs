//! What the callbacks of a kernel may do on a pool: panic, and call rayon. A test that hangs fails.
use crate::support::pruned_argmax::{Banned, Built, Operands};
use crate::support::*;
use simdformer_kernels::{Isa, Parallelism, Team};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `work`, and fails when it does not end in time.
fn within(what: &str, work: impl FnOnce() + Send + 'static) {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = send.send(());
    });
    match receive.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => (),
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it did not get to its end"))
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Rayon,
    Team,
}

impl Kind {
    fn run<R: Send>(self, work: impl FnOnce(Parallelism<'_>) -> R + Send) -> R {
        match self {
            Self::Rayon => work(Parallelism::Rayon),
            Self::Team => Team::form(|team| work(Parallelism::Team(team))),
        }
    }
}

const CREWS: [(Kind, usize); 7] = [
    (Kind::Rayon, 2),
    (Kind::Rayon, 3),
    (Kind::Rayon, 7),
    (Kind::Team, 1),
    (Kind::Team, 2),
    (Kind::Team, 3),
    (Kind::Team, 7),
];

/// The argmax of the columns that are not banned, and its bits.
fn largest(
    operands: &Operands,
    built: &Built,
    banned: Banned<'_>,
    parallelism: Parallelism<'_>,
) -> (Vec<u32>, Vec<u32>) {
    let (found, values) = built.argmax(operands.x.view(), banned, parallelism);
    (found, bits(&values))
}

fn operands() -> Operands {
    Operands::gaussian((9, 40, 900), 5)
}

/// Bans every seventh column.
fn seventh(_: usize, column: u32) -> bool {
    column.is_multiple_of(7)
}

#[test]
fn a_panic_in_banned_reaches_the_caller() {
    for (kind, threads) in CREWS {
        within(&format!("a panic in banned, {kind:?} of {threads}"), move || {
            let (operands, pool) = (operands(), rayon_pool(threads));
            let built = operands.build(Isa::best());
            let expected = largest(&operands, &built, &seventh, SERIAL);
            let panics: [Banned<'_>; 3] = [
                &|_, _| panic!("all rows"),
                &|row, _| {
                    assert!(row != 4, "row four");
                    false
                },
                &|row, column| {
                    assert!(row != 8 || column % 3 == 0, "some columns");
                    column % 3 == 1
                },
            ];
            for banned in panics {
                for _ in 0..cases(2, 5) {
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        pool.install(|| kind.run(|crew| largest(&operands, &built, banned, crew)))
                    }));
                    assert!(caught.is_err());
                    // Inside of the team, which continues afterwards.
                    let found = pool.install(|| {
                        kind.run(|crew| {
                            let caught = catch_unwind(AssertUnwindSafe(|| {
                                largest(&operands, &built, banned, crew)
                            }));
                            assert!(caught.is_err());
                            largest(&operands, &built, &seventh, crew)
                        })
                    });
                    assert_eq!(found, expected, "{kind:?} of {threads}");
                }
            }
        });
    }
}

#[test]
fn banned_may_enter_rayon() {
    for (kind, threads) in CREWS {
        for others in [1, 2] {
            within(&format!("banned in rayon, {kind:?} of {threads}"), move || {
                let (operands, pool, other) = (operands(), rayon_pool(threads), rayon_pool(others));
                let built = operands.build(Isa::best());
                let expected = largest(&operands, &built, &seventh, SERIAL);
                let banned = |row: usize, column: u32| {
                    if column.is_multiple_of(cases(45, 5)) {
                        // A whole kernel in the other pool, and a join in this one.
                        let found = other.install(|| {
                            Team::form(|team| {
                                largest(&operands, &built, &seventh, Parallelism::Team(team))
                            })
                        });
                        assert_eq!(found, expected);
                        rayon::join(|| (), || std::thread::sleep(Duration::from_micros(50)));
                    }
                    seventh(row, column)
                };
                for _ in 0..cases(2, 3) {
                    let found =
                        pool.install(|| kind.run(|crew| largest(&operands, &built, &banned, crew)));
                    assert_eq!(found, expected, "{kind:?} of {threads} beside {others}");
                }
            });
        }
    }
}

#[test]
fn a_kernel_may_be_called_while_a_thread_unwinds() {
    struct Ends<'e>(&'e (dyn Fn() + Sync));
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    for (kind, threads) in CREWS {
        within(&format!("a kernel in a drop, {kind:?} of {threads}"), move || {
            let (operands, pool) = (operands(), rayon_pool(threads));
            let built = operands.build(Isa::best());
            let expected = largest(&operands, &built, &seventh, SERIAL);
            let called = std::sync::atomic::AtomicUsize::new(0);
            let again = || {
                assert!(std::thread::panicking());
                let found = kind.run(|crew| largest(&operands, &built, &seventh, crew));
                assert_eq!(found, expected);
                called.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            };
            for _ in 0..5 {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    pool.install(|| {
                        let _ends = Ends(&again);
                        panic!("the first");
                    })
                }));
                let panic = caught.expect_err("a panic");
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"the first"));
            }
            assert_eq!(called.into_inner(), 5);
        });
    }
}
