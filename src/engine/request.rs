//! What an engine is asked for, and what it gives back: one source or many, owned results.

use crate::error::Error;
use crate::generate::Source;
use crate::search::{Finish, Hypothesis, SearchOptions};

/// A source that owns its tokens, and how its target is searched: what a service keeps of a request.
///
/// ```
/// use simdformer::{Engine, Request};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let engine = Engine::open("models/fr-en")?;
/// let mut short = engine.search_options();
/// short.max_new_tokens = Some(2);
/// let requests = [
///     Request::new([6, 11, 0]),
///     Request { options: Some(short), ..Request::new([9, 14, 32, 0]) },
/// ];
/// let found = engine.generate(&requests)?;
/// assert_eq!(found[1].as_ref().map(|found| found.tokens().len()), Ok(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// As [`Source::tokens`].
    pub tokens: Vec<u32>,
    /// As [`Source::prefix`].
    pub prefix: Vec<u32>,
    /// The options of its search; `None` for those of the call.
    pub options: Option<SearchOptions>,
    /// As [`Source::stream`].
    pub stream: u64,
    /// As [`Source::forced_bos`].
    pub forced_bos: Option<u32>,
}

impl Request {
    /// A request of token ids; all other fields have their defaults.
    pub fn new(tokens: impl Into<Vec<u32>>) -> Self {
        Self { tokens: tokens.into(), ..Self::default() }
    }
}

/// The target of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Why it ended.
    pub finish: Finish,
    /// The tokens of each hypothesis and its score, as in [`Hypothesis`]: best first, samples in the order of their
    /// numbers. At least one, unless a request was cancelled before it began.
    pub hypotheses: Vec<(Vec<u32>, f32)>,
}

impl Generation {
    pub(super) fn new<'h>(
        finish: Finish,
        hypotheses: impl Iterator<Item = Hypothesis<'h>>,
    ) -> Self {
        let hypotheses = hypotheses.map(|one| (one.tokens.to_vec(), one.score)).collect();
        Self { finish, hypotheses }
    }

    /// The tokens of the best hypothesis, or of the first sample.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        self.hypotheses.first().map_or(&[], |(tokens, _)| tokens)
    }

    /// The score of the best hypothesis, or of the first sample; NaN if scores were not asked for.
    #[must_use]
    pub fn score(&self) -> f32 {
        self.hypotheses.first().map_or(f32::NAN, |&(_, score)| score)
    }
}

impl Request {
    pub(super) fn source(&self) -> Source<'_> {
        let Self { tokens, prefix, options, stream, forced_bos } = self;
        let (stream, forced_bos) = (*stream, *forced_bos);
        let options = options.as_ref();
        Source { prefix, stream, forced_bos, options, ..Source::new(tokens) }
    }
}

/// The input of [`Engine::generate`](crate::Engine::generate) and [`Engine::encode`](crate::Engine::encode).
///
/// - One source: a slice, an array or a vector of token ids, a [`Source`], a [`Request`]. The output is its result.
/// - Many: a slice, an array or a vector of these, or of references to them. The output is a vector with the result of
///   each, in their order; a source that failed is an error in its place.
pub trait Input {
    /// What a call gives, if each source gives an `R`.
    type Output<R>;

    /// The sources.
    fn sources(&self) -> Vec<Source<'_>>;

    /// The output of a call, from the result of each source in their order.
    ///
    /// # Errors
    /// That of one source.
    fn output<R>(results: Vec<Result<R, Error>>) -> Result<Self::Output<R>, Error>;
}

impl<T: Input + ?Sized> Input for &T {
    type Output<R> = T::Output<R>;

    fn sources(&self) -> Vec<Source<'_>> {
        T::sources(self)
    }

    fn output<R>(results: Vec<Result<R, Error>>) -> Result<Self::Output<R>, Error> {
        T::output(results)
    }
}

macro_rules! one {
    ($([$($generic:tt)*] $input:ty, |$self:ident| $source:expr;)*) => {$(
        impl<$($generic)*> Input for $input {
            type Output<R> = R;

            fn sources(&self) -> Vec<Source<'_>> {
                let $self = self;
                vec![$source]
            }

            fn output<R>(results: Vec<Result<R, Error>>) -> Result<R, Error> {
                results.into_iter().next().expect("the result of one source")
            }
        }
    )*};
}

one! {
    [] [u32], |tokens| Source::new(tokens);
    [const N: usize] [u32; N], |tokens| Source::new(tokens);
    [] Vec<u32>, |tokens| Source::new(tokens);
    [] Source<'_>, |source| *source;
    [] Request, |request| request.source();
}

macro_rules! many {
    ($([$($generic:tt)*] $input:ty;)*) => {$(
        impl<T: Input $($generic)*> Input for $input {
            type Output<R> = Vec<Result<R, Error>>;

            fn sources(&self) -> Vec<Source<'_>> {
                self.iter().flat_map(Input::sources).collect()
            }

            fn output<R>(results: Vec<Result<R, Error>>) -> Result<Self::Output<R>, Error> {
                Ok(results)
            }
        }
    )*};
}

many! {
    [] [T];
    [, const N: usize] [T; N];
    [] Vec<T>;
}
