//! The operands of a product, the same for all crates.

/// Rows of A, columns of W, rows of W.
#[derive(Clone, Copy)]
pub(crate) struct Shape(pub(crate) usize, pub(crate) usize, pub(crate) usize);

impl Shape {
    pub(crate) fn name(self) -> String {
        format!("{}x{}x{}", self.0, self.1, self.2)
    }

    /// `MxNxK`, none of them 0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut sizes = text.split('x').map(|part| part.parse().ok().filter(|&size| size > 0));
        let shape = Self(sizes.next()??, sizes.next()??, sizes.next()??);
        sizes.next().is_none().then_some(shape)
    }
}

/// `A [m, k]` and `W [k, n]`, in f32 and in int8, all row-major.
pub(crate) struct Operands {
    pub(crate) shape: Shape,
    pub(crate) a: Vec<f32>,
    pub(crate) w: Vec<f32>,
    pub(crate) a_int8: Vec<i8>,
    pub(crate) w_int8: Vec<i8>,
}

impl Operands {
    /// f32 values in [-1, 1), and the integers next to 127 times them.
    pub(crate) fn random(shape: Shape) -> Self {
        let Shape(m, n, k) = shape;
        let (a, w) = (random(m * k, 1), random(k * n, 2));
        let integers = |values: &[f32]| values.iter().map(|x| (127.0 * x).round() as i8).collect();
        let (a_int8, w_int8) = (integers(&a), integers(&w));
        Self { shape, a, w, a_int8, w_int8 }
    }

    /// Element `(row, column)` of the product, in f64.
    pub(crate) fn expected(&self, row: usize, column: usize) -> f64 {
        let Shape(_, n, k) = self.shape;
        let products =
            (0..k).map(|p| f64::from(self.a[row * k + p]) * f64::from(self.w[p * n + column]));
        products.sum()
    }

    /// Element `(row, column)` of the product of the integers.
    pub(crate) fn expected_int8(&self, row: usize, column: usize) -> i32 {
        let Shape(_, n, k) = self.shape;
        let products = (0..k)
            .map(|p| i32::from(self.a_int8[row * k + p]) * i32::from(self.w_int8[p * n + column]));
        products.sum()
    }
}

/// The upper bits of a linear congruential generator (Knuth, MMIX).
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
