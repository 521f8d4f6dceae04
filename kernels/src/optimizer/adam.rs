//! Adam and AdamW in one pass over memory.

use crate::error::Error;
use crate::float_mode::in_default_mode;
use crate::parallel::Exec;
use crate::row_tasks::for_rows;
use crate::rows::{RowVector, map_row};
use crate::simd::{SimdF32, simd_op};
use crate::sync_ptr::SharedMut;
use core::fmt;

/// Gradients with a smaller magnitude count as 0, so that neither they nor their squares in a moment are subnormal.
const SMALLEST_GRADIENT: f32 = power_of_two(-50);
/// First moments with a smaller magnitude become 0.
const SMALLEST_FIRST: f32 = power_of_two(-100);
/// Second moments below this value, the smallest normal number, become 0.
const SMALLEST_SECOND: f32 = f32::MIN_POSITIVE;

const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// The settings of an update by Adam, with weight decay decoupled from the gradient (AdamW).
///
/// ```
/// use simdformer_kernels::train::Adam;
///
/// // The settings of the paper in the first step.
/// let adam = Adam { rate: 1.7e-7, beta2: 0.98, epsilon: 1e-9, ..Adam::default() };
/// assert_eq!((adam.step, adam.weight_decay, adam.clip), (1, 0.0, 1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// The learning rate of this step, not negative.
    pub rate: f64,
    /// The decay factor of the first moment, in `0..1`.
    pub beta1: f64,
    /// The decay factor of the second moment, in `0..1`.
    pub beta2: f64,
    /// Added to the square root of the corrected second moment; more than 0.
    pub epsilon: f64,
    /// Each step reduces a parameter by the fraction `rate * weight_decay`.
    pub weight_decay: f64,
    /// The number of the update, from 1.
    pub step: u64,
    /// The factor of every gradient: [`clip_factor`](super::clip_factor).
    pub clip: f64,
}

/// PyTorch's defaults: a rate of 1e-3, betas 0.9 and 0.999, epsilon 1e-8, at step 1; no weight decay, no clipping.
impl Default for Adam {
    fn default() -> Self {
        Self {
            rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            step: 1,
            clip: 1.0,
        }
    }
}

impl Adam {
    fn check(&self) -> Result<(), Error> {
        let size = |name, x: f64| {
            Error::check_setting(name, x, x.is_finite() && x >= 0.0, "finite and not negative")
        };
        size("the rate", self.rate)?;
        size("the weight decay", self.weight_decay)?;
        size("the clip factor", self.clip)?;
        let part = |name, x: f64| Error::check_setting(name, x, (0.0..1.0).contains(&x), "in 0..1");
        part("beta1", self.beta1)?;
        part("beta2", self.beta2)?;
        // It must also be normal in f32, in which it is added.
        let fits = self.epsilon.is_finite() && self.epsilon as f32 >= f32::MIN_POSITIVE;
        Error::check_setting("epsilon", self.epsilon, fits, "finite and more than 2^-126")?;
        Error::check_setting("the step", self.step as f64, self.step > 0, "at least 1")
    }
}

/// The moments of each parameter, which an update changes: running averages of its gradient and of the square of its
/// gradient, both 0 before the first update.
pub struct Moments<'a> {
    /// The first moments.
    pub first: &'a mut [f32],
    /// The second moments.
    pub second: &'a mut [f32],
}

impl fmt::Debug for Moments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moments({} and {} elements)", self.first.len(), self.second.len())
    }
}

/// The constants of a step in f32, each rounded once.
#[derive(Clone, Copy)]
struct StepConstants {
    clip: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// 1 / sqrt(1 - beta2^step)
    correction: f32,
    epsilon: f32,
    /// rate / (1 - beta1^step)
    rate: f32,
    /// 1 - rate * weight_decay
    keep: f32,
}

impl StepConstants {
    fn from_adam(adam: &Adam) -> Self {
        let step = adam.step as f64;
        let [first, second] = [adam.beta1, adam.beta2].map(|beta| 1.0 - libm::pow(beta, step));
        Self {
            clip: adam.clip as f32,
            beta1: adam.beta1 as f32,
            rest1: (1.0 - adam.beta1) as f32,
            beta2: adam.beta2 as f32,
            rest2: (1.0 - adam.beta2) as f32,
            correction: (1.0 / libm::sqrt(second)) as f32,
            epsilon: adam.epsilon as f32,
            rate: (adam.rate / first) as f32,
            keep: (1.0 - adam.rate * adam.weight_decay) as f32,
        }
    }
}

impl StepConstants {
    /// The new parameters, first and second moments of one vector; `old` are the rows of the old ones.
    ///
    /// # Safety
    /// The rows are valid for reads of as many floats as the row has that is walked over.
    #[inline(always)]
    unsafe fn update<S: SimdF32>(
        &self,
        s: S,
        at: RowVector,
        gradients: *const f32,
        old: [*mut f32; 3],
    ) -> [S::F32; 3] {
        let zero = s.splat(0.0);
        // SAFETY: the caller's contract.
        let (gradient, [parameter, first, second]) = unsafe {
            (at.load(s, gradients), [at.load(s, old[0]), at.load(s, old[1]), at.load(s, old[2])])
        };
        let small = |x: S::F32, least: f32| s.less(s.abs(x), s.splat(least));
        let gradient = s.mul(gradient, s.splat(self.clip));
        let gradient = s.select(small(gradient, SMALLEST_GRADIENT), zero, gradient);
        let first = s.add(s.mul(first, s.splat(self.beta1)), s.mul(gradient, s.splat(self.rest1)));
        let first = s.select(small(first, SMALLEST_FIRST), zero, first);
        let square = s.mul(s.mul(gradient, gradient), s.splat(self.rest2));
        let second = s.add(s.mul(second, s.splat(self.beta2)), square);
        let second = s.select(small(second, SMALLEST_SECOND), zero, second);
        let root = s.mul(s.sqrt(second), s.splat(self.correction));
        let step = s.div(first, s.add(root, s.splat(self.epsilon)));
        let decayed = s.mul(parameter, s.splat(self.keep));
        [s.sub(decayed, s.mul(step, s.splat(self.rate))), first, second]
    }
}

simd_op!(
    /// Updates parameters with their gradients, the first and the second moments, and the average with its factor.
    fn update<S: SimdF32>(
        s: S,
        constants: StepConstants,
        gradients: &[f32],
        parameters_and_moments: [&mut [f32]; 3],
        average: Option<(&mut [f32], f32)>,
    ) {
        let (len, gradients) = (gradients.len(), gradients.as_ptr());
        let old = parameters_and_moments.map(|row| row.as_mut_ptr());
        // SAFETY: `adam` passes slices of `len` elements.
        unsafe {
            match average {
                None => map_row::<S, 3, 1>(
                    s,
                    len,
                    old,
                    &[],
                    #[inline(always)]
                    |at| constants.update(s, at, gradients, old),
                ),
                Some((average, rest)) => {
                    let (average, rest) = (average.as_mut_ptr(), s.splat(rest));
                    let [parameters, first, second] = old;
                    map_row::<S, 4, 1>(
                        s,
                        len,
                        [parameters, first, second, average],
                        &[],
                        #[inline(always)]
                        |at| {
                            let [parameter, first, second] =
                                constants.update(s, at, gradients, old);
                            let before = at.load(s, average);
                            let way = s.mul(s.sub(parameter, before), rest);
                            [parameter, first, second, s.add(before, way)]
                        },
                    );
                }
            }
        }
    }
);

/// One update of parameters by their gradients. With `g` the gradient times `clip`:
///
/// * `first = beta1 first + (1 - beta1) g`, `second = beta2 second + (1 - beta2) g^2`;
/// * `parameter = (1 - rate weight_decay) parameter
///   - rate / (1 - beta1^step) * first / (sqrt(second) / sqrt(1 - beta2^step) + epsilon)`;
/// * `average = average + (1 - decay) (parameter - average)`, if an average with its `decay` is given.
///
/// This is PyTorch's AdamW, and PyTorch's Adam without weight decay. Values that depend only on the step are computed
/// in f64. The update is elementwise: call it separately for parameters with and without weight decay. Both moments
/// start at 0.
///
/// Gradients below 2^-50 count as 0; first moments below 2^-100 and second moments below 2^-126 become 0. Otherwise
/// the rows of tokens that do not occur would have subnormal moments after some hundred updates, with which CPUs are
/// many times slower. This changes a parameter by less than `2^-50 rate / epsilon` per step.
///
/// Error: `first` and `second` accumulate 4 and 6 roundings per step, the change of the parameter has 15 more, and
/// each sum is rounded. NaN and infinity propagate as in the formula; if the norm of the gradients is not finite, skip
/// the update ([`clip_factor`](super::clip_factor)). The bits are the same on every instruction set and with any
/// number of threads.
///
/// # Errors
/// A slice differs in length from the parameters, or a setting is not in its range.
///
/// ```
/// use simdformer_kernels::train::{Adam, Moments, adam};
/// use simdformer_kernels::{Exec, Isa};
///
/// let (mut parameters, gradients) = ([1.0, 1.0], [0.5, 0.0]);
/// let (mut first, mut second) = ([0.0; 2], [0.0; 2]);
/// let settings = Adam { rate: 0.01, ..Adam::default() };
/// let moments = Moments { first: &mut first, second: &mut second };
/// adam(Exec::serial(Isa::best()), &settings, &mut parameters, &gradients, moments, None)?;
/// // The first step has the length of the rate, whatever the gradient.
/// assert!((parameters[0] - 0.99).abs() < 1e-6);
/// assert_eq!(parameters[1], 1.0);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
pub fn adam(
    exec: Exec<'_>,
    adam: &Adam,
    parameters: &mut [f32],
    gradients: &[f32],
    moments: Moments<'_>,
    average: Option<(&mut [f32], f32)>,
) -> Result<(), Error> {
    let Moments { first, second } = moments;
    let len = parameters.len();
    Error::check_len("gradients", len, gradients)?;
    Error::check_len("moments.first", len, first)?;
    Error::check_len("moments.second", len, second)?;
    if let Some((average, decay)) = &average {
        Error::check_len("average", len, average)?;
        let fits = (0.0..=1.0).contains(decay);
        Error::check_setting("the decay of the average", f64::from(*decay), fits, "from 0 to 1")?;
    }
    adam.check()?;
    let constants = in_default_mode(|| StepConstants::from_adam(adam));
    let old = [parameters, first, second].map(SharedMut::new);
    let average = average.map(|(average, decay)| {
        (SharedMut::new(average), in_default_mode(|| (1.0 - f64::from(decay)) as f32))
    });
    for_rows(exec, [len, 1], |range| {
        let (start, count) = (range.start, range.len());
        // SAFETY: every slice is as long as the parameters (`check_len`), and each task has its own elements.
        let (old, average) = unsafe {
            let average =
                average.as_ref().map(|(average, rest)| (average.part(start, count), *rest));
            (old.each_ref().map(|old| old.part(start, count)), average)
        };
        update(constants, &gradients[range], old, average)
    });
    Ok(())
}
