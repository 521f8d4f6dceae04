//! The command line of `roofline`.

use crate::clock::Clock;
use crate::matmul::Shape;
use simdformer_kernels::Isa;

/// What to measure, and how.
pub(crate) struct Options {
    pub(crate) filters: Vec<String>,
    pub(crate) json: bool,
    pub(crate) list: bool,
    /// Once through everything, to see that it runs.
    pub(crate) smoke: bool,
    /// Set when a set was asked for by name.
    pub(crate) forced: bool,
    pub(crate) isa: Isa,
    pub(crate) threads: usize,
    pub(crate) clock: Clock,
    pub(crate) rounds: usize,
    pub(crate) slice: f64,
    pub(crate) footprints: Vec<usize>,
    pub(crate) shapes: Vec<Shape>,
}

impl Options {
    pub(crate) fn from_arguments(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, String> {
        let mut options = Self {
            filters: Vec::new(),
            json: false,
            list: false,
            // `cargo test --benches` builds with assertions, and its numbers would mean nothing.
            smoke: cfg!(debug_assertions),
            forced: false,
            isa: Isa::from_environment().map_err(|e| e.to_string())?.unwrap_or_else(Isa::best),
            threads: 1,
            clock: Clock::Wall,
            rounds: 11,
            slice: 0.02,
            footprints: Vec::new(),
            shapes: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let (flag, attached) = match argument.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let mut value = || {
                attached
                    .clone()
                    .or_else(|| arguments.next())
                    .ok_or_else(|| format!("{flag} needs a value"))
            };
            match flag {
                "--json" => options.json = true,
                "--list" => options.list = true,
                "--test" => options.smoke = true,
                "--cpu-time" => options.clock = Clock::Thread,
                "--isa" => {
                    options.isa = Isa::from_name(&value()?).map_err(|e| e.to_string())?;
                    options.forced = true;
                }
                "--threads" => options.threads = positive(flag, &value()?)?,
                "--rounds" => options.rounds = positive(flag, &value()?)?,
                "--slice" => {
                    let text = value()?;
                    let slice = text.parse().ok().filter(|s| (0.0..=60.0).contains(s));
                    options.slice = slice.ok_or_else(|| {
                        format!("--slice must be 0 to 60 seconds; found {text:?}")
                    })?;
                }
                "--footprint" => options.footprints.push(positive(flag, &value()?)?),
                "--shape" => options.shapes.push(shape(&value()?)?),
                // What cargo and its users pass to any bench.
                "--bench" | "--nocapture" | "--exact" => {}
                _ if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                _ => options.filters.push(argument),
            }
        }
        if options.clock == Clock::Thread && options.threads > 1 {
            return Err("--cpu-time counts one thread; with --threads 1 only".to_owned());
        }
        if options.smoke {
            options.rounds = 1;
            options.slice = 0.0;
        }
        Ok(options)
    }

    /// Whether every filter occurs in the kernel's name or shape.
    pub(crate) fn wants(&self, kernel: &str, shape: &str) -> bool {
        self.filters.iter().all(|filter| kernel.contains(filter) || shape.contains(filter))
    }
}

fn positive(flag: &str, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&n| n > 0);
    number.ok_or_else(|| format!("{flag} must be a whole number above 0; found {text:?}"))
}

fn shape(text: &str) -> Result<Shape, String> {
    let numbers: Option<Vec<usize>> =
        text.split('x').map(|n| n.parse().ok().filter(|&n| n > 0)).collect();
    match numbers.as_deref() {
        Some(&[m, n, k]) => Ok(Shape(m, n, k)),
        _ => Err(format!("--shape must be MxNxK; found {text:?}")),
    }
}
