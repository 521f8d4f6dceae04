//! The random numbers of the grammar: a function of the seed, the sentence, and the number of earlier draws in it.

/// The step of SplitMix64's counter (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's output of a counter.
fn mixed(counter: u64) -> u64 {
    let mut z = counter;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The draws of one sentence. They do not depend on other sentences, so sentences may be generated in any order.
pub(super) struct Draws {
    counter: u64,
}

impl Draws {
    /// The draws of sentence `sentence` under `seed`.
    pub(super) fn new(seed: u64, sentence: u64) -> Self {
        let stream = mixed(seed.wrapping_add(STEP)).wrapping_add(sentence.wrapping_mul(STEP));
        Self { counter: mixed(stream.wrapping_add(STEP)) }
    }

    /// Uniform in [0, 1), 53 bits.
    pub(super) fn uniform(&mut self) -> f64 {
        self.counter = self.counter.wrapping_add(STEP);
        (mixed(self.counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with `probability`.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A number below `count`, which is not 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        ((self.uniform() * count as f64) as usize).min(count - 1)
    }

    /// One of `items`, which must not be empty.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// An index, with a probability proportional to its weight.
    pub(super) fn weighted(&mut self, weights: &[u32]) -> usize {
        let goal = self.uniform() * f64::from(weights.iter().sum::<u32>());
        let mut sum = 0;
        for (i, weight) in weights.iter().enumerate() {
            sum += weight;
            if goal < f64::from(sum) {
                return i;
            }
        }
        weights.len() - 1
    }

    /// Two different numbers below `count`, in the order of drawing.
    pub(super) fn two_below(&mut self, count: usize) -> (usize, usize) {
        let (one, two) = (self.below(count), self.below(count - 1));
        (one, two + usize::from(two >= one))
    }
}
