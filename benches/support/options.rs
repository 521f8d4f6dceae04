//! The command line of `roofline`.

use crate::clock::Clock;
use crate::matmul::Shape;
use simdformer_kernels::Isa;

/// What is measured, and how.
pub(crate) struct Options {
    pub(crate) filters: Vec<String>,
    pub(crate) json: bool,
    pub(crate) list: bool,
    /// A filter must equal a name or a shape.
    pub(crate) exact: bool,
    /// Runs every kernel once, to check that it works.
    pub(crate) smoke: bool,
    /// Whether the instruction set was selected by name.
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
            exact: false,
            // `cargo test --benches` builds with debug assertions, so its numbers would be
            // useless.
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
                "--exact" => options.exact = true,
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
                // Arguments that cargo passes to every bench.
                "--bench" | "--nocapture" => {}
                _ if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                _ => options.filters.push(argument),
            }
        }
        if options.clock == Clock::Thread && !cfg!(unix) {
            return Err("--cpu-time needs the CPU clock of a Unix".to_owned());
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

    /// Whether the kernel's name or shape contains, or equals, one alternative of every filter.
    pub(crate) fn wants(&self, kernel: &str, shape: &str) -> bool {
        let fits = |word: &str| {
            if self.exact {
                word == kernel || word == shape
            } else {
                kernel.contains(word) || shape.contains(word)
            }
        };
        self.filters.iter().all(|filter| filter.split('|').any(fits))
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
