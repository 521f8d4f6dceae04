//! Helpers of the kernel tests: values that are the same in every run, memory that shows when it was
//! accessed, and the ways to run a kernel.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod batch;
pub mod batches;
pub mod data;
pub mod errors;
pub mod gemm;
pub mod pruned_argmax;
#[cfg(target_os = "linux")]
pub mod stack;

#[allow(unused_imports)]
pub use data::*;
use simdformer_kernels::{
    Executor, Heads, HeadsMut, Isa, Matrix, MatrixMut, Parallelism, Team, ThreadPool,
};
#[allow(unused_imports)]
pub(crate) use simdformer_testing::effort::{brief, cases, full};

/// The unit roundoff of f32, `2^-24`.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// Every instruction set of this machine, which must include those that the environment requires.
pub fn all_isas() -> Vec<Isa> {
    let isas: Vec<Isa> = Isa::available().collect();
    if let Ok(required) = std::env::var("SIMDFORMER_REQUIRE_ISA") {
        for name in required.split(',').filter(|name| !name.is_empty()) {
            assert!(isas.iter().any(|isa| isa.name() == name), "{name} is required and missing");
        }
    }
    assert!(isas.contains(&Isa::SCALAR));
    isas
}

/// Whether case number `case` of a sweep runs on `isa`: each case on the best set, and every `share`-th
/// case on each other set, because all sets are compiled from the same source and the scalar one is many
/// times slower. In a full run every case runs on every set.
pub fn chosen(isa: Isa, case: usize, share: usize) -> bool {
    let place = Isa::available().position(|other| other.name() == isa.name());
    let place = place.expect("a set of this machine");
    full() || isa.name() == Isa::best().name() || (case + place).is_multiple_of(share)
}

/// The sets for which [`chosen`] is true.
pub fn isas_of(case: usize, share: usize) -> Vec<Isa> {
    all_isas().into_iter().filter(|&isa| chosen(isa, case, share)).collect()
}

/// The settings of a property that checks `usual` random cases, or 256 in a full run.
pub fn property(usual: u32) -> proptest::prelude::ProptestConfig {
    proptest::prelude::ProptestConfig {
        cases: simdformer_testing::effort::properties(usual),
        failure_persistence: None,
        ..Default::default()
    }
}

/// Where the elements of a [`Strided`] are.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// Contiguous rows with a gap before each and after the last.
    Gap(usize),
    /// The strides of rows and of columns.
    Strides(usize, usize),
}

impl From<usize> for Layout {
    fn from(gap: usize) -> Self {
        Self::Gap(gap)
    }
}

impl From<(usize, usize)> for Layout {
    fn from((row_stride, column_stride): (usize, usize)) -> Self {
        Self::Strides(row_stride, column_stride)
    }
}

/// A matrix in memory that holds [`POISON`] outside of the matrix.
#[derive(Clone, Debug)]
pub struct Strided {
    pub data: Vec<f32>,
    first: usize,
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl Strided {
    pub fn new(
        rows: usize,
        columns: usize,
        layout: impl Into<Layout>,
        mut element: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        let (first, row_stride, column_stride) = match layout.into() {
            Layout::Gap(gap) => (gap, columns + gap, 1),
            Layout::Strides(row_stride, column_stride) => (0, row_stride, column_stride),
        };
        // Rows without an element have a place, too.
        let reach = match rows {
            0 => 0,
            _ => (rows - 1) * row_stride + (columns.max(1) - 1) * column_stride + 1,
        };
        let data = poisoned(first + reach + 19);
        let mut matrix = Self { data, first, rows, columns, row_stride, column_stride };
        for i in 0..rows {
            for j in 0..columns {
                *matrix.at_mut(i, j) = element(i, j);
            }
        }
        matrix
    }

    /// A matrix of poison.
    pub fn nan(rows: usize, columns: usize, layout: impl Into<Layout>) -> Self {
        Self::new(rows, columns, layout, |_, _| POISON)
    }

    fn place(&self, row: usize, column: usize) -> usize {
        self.first + row * self.row_stride + column * self.column_stride
    }

    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.data[self.place(row, column)]
    }

    pub fn at_mut(&mut self, row: usize, column: usize) -> &mut f32 {
        let at = self.place(row, column);
        &mut self.data[at]
    }

    /// A row of contiguous elements.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[self.place(row, 0)..][..self.columns]
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let start = self.place(row, 0);
        &mut self.data[start..][..self.columns]
    }

    /// The elements row by row, without the gaps.
    pub fn dense(&self) -> Vec<f32> {
        let row = |i| (0..self.columns).map(move |j| self.at(i, j));
        (0..self.rows).flat_map(row).collect()
    }

    pub fn view(&self) -> Matrix<'_> {
        let (data, strides) = (&self.data[self.first..], (self.row_stride, self.column_stride));
        Matrix::strided(data, self.rows, self.columns, strides.0, strides.1).expect("laid out")
    }

    pub fn view_mut(&mut self) -> MatrixMut<'_> {
        let (data, strides) = (&mut self.data[self.first..], (self.row_stride, self.column_stride));
        MatrixMut::strided(data, self.rows, self.columns, strides.0, strides.1).expect("laid out")
    }

    /// Panics if memory between the elements has changed.
    #[track_caller]
    pub fn assert_gaps_untouched(&self) {
        let mut gaps = self.clone();
        for (i, j) in (0..self.rows).flat_map(|i| (0..self.columns).map(move |j| (i, j))) {
            *gaps.at_mut(i, j) = POISON;
        }
        let written = gaps.data.iter().position(|x| x.to_bits() != POISON.to_bits());
        assert_eq!(written, None, "a float outside the matrix was written");
    }

    /// The same bits in every row, whatever the gaps hold.
    #[track_caller]
    pub fn assert_same_rows(&self, other: &Self) {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns));
        assert_eq!(difference(&self.dense(), &other.dense()), None);
    }
}

/// `[tokens, heads, head_dim]` in memory that holds [`POISON`] outside of the tensor, and in every token
/// that is not filled.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub data: Vec<f32>,
    pub shape: [usize; 3],
    pub token_stride: usize,
    pub head_stride: usize,
}

impl Tensor {
    /// Layout 0 is dense, 1 has gaps after heads and tokens, 2 has one head after the other, with gaps.
    pub fn new(shape: [usize; 3], layout: usize) -> Self {
        let [tokens, heads, head_dim] = shape;
        let (token_stride, head_stride) = match layout {
            0 => (heads * head_dim, head_dim),
            1 => (heads * (head_dim + 3) + 2, head_dim + 3),
            _ => (head_dim + 1, tokens * (head_dim + 1) + 5),
        };
        let reach = match tokens * heads * head_dim {
            0 => 0,
            _ => (tokens - 1) * token_stride + (heads - 1) * head_stride + head_dim,
        };
        Self { data: vec![POISON; reach], shape, token_stride, head_stride }
    }

    pub fn filled(shape: [usize; 3], layout: usize, random: &mut Random) -> Self {
        let mut tensor = Self::new(shape, layout);
        tensor.fill(0..shape[0], || random.value());
        tensor
    }

    pub fn start(&self, token: usize, head: usize) -> usize {
        token * self.token_stride + head * self.head_stride
    }

    pub fn row(&self, token: usize, head: usize) -> &[f32] {
        &self.data[self.start(token, head)..][..self.shape[2]]
    }

    pub fn row_mut(&mut self, token: usize, head: usize) -> &mut [f32] {
        let start = self.start(token, head);
        &mut self.data[start..][..self.shape[2]]
    }

    pub fn fill(&mut self, tokens: core::ops::Range<usize>, mut element: impl FnMut() -> f32) {
        for token in tokens {
            for head in 0..self.shape[1] {
                for x in self.row_mut(token, head) {
                    *x = element();
                }
            }
        }
    }

    pub fn view(&self) -> Heads<'_> {
        let Self { data, shape, token_stride, head_stride } = self;
        Heads::strided(data, *shape, *token_stride, *head_stride).expect("laid out")
    }

    pub fn view_mut(&mut self) -> HeadsMut<'_> {
        let Self { data, shape, token_stride, head_stride } = self;
        HeadsMut::strided(data, *shape, *token_stride, *head_stride).expect("laid out")
    }

    /// A dense copy of a view.
    pub fn copy_of(from: Heads<'_>) -> Self {
        let mut to = Self::new([from.tokens(), from.heads(), from.head_dim()], 0);
        for (token, head) in (0..from.tokens()).flat_map(|t| (0..from.heads()).map(move |h| (t, h)))
        {
            to.row_mut(token, head).copy_from_slice(from.row(token, head).expect("there"));
        }
        to
    }

    /// Tokens `tokens` as a dense tensor.
    pub fn tokens(&self, tokens: core::ops::Range<usize>) -> Self {
        let mut part = Self::new([tokens.len(), self.shape[1], self.shape[2]], 0);
        for (to, from) in tokens.enumerate() {
            for head in 0..self.shape[1] {
                part.row_mut(to, head).copy_from_slice(self.row(from, head));
            }
        }
        part
    }

    /// The elements in order, without the gaps.
    pub fn dense(&self) -> Vec<f32> {
        self.tokens(0..self.shape[0]).data
    }

    /// Panics if memory has changed outside of the tokens for which `inside` is true.
    pub fn check_untouched(&self, inside: impl Fn(usize) -> bool) {
        let mut touched = vec![false; self.data.len()];
        for token in (0..self.shape[0]).filter(|&token| inside(token)) {
            for head in 0..self.shape[1] {
                touched[self.start(token, head)..][..self.shape[2]].fill(true);
            }
        }
        for (at, (x, touched)) in self.data.iter().zip(touched).enumerate() {
            assert!(
                touched || x.to_bits() == POISON.to_bits(),
                "float {at}, outside the tensor, was written: {x}"
            );
        }
    }
}

/// The first difference in bits, as readable text.
pub fn difference(left: &[f32], right: &[f32]) -> Option<String> {
    if left.len() != right.len() {
        return Some(format!("{} floats and {}", left.len(), right.len()));
    }
    let at = left.iter().zip(right).position(|(l, r)| l.to_bits() != r.to_bits())?;
    Some(format!("at {at} of {}: {:e} and {:e}", left.len(), left[at], right[at]))
}

/// `|found - exact| <= bound`, false for NaN.
#[track_caller]
pub fn assert_close(found: f32, exact: f64, bound: f64, what: impl core::fmt::Display) {
    let error = (f64::from(found) - exact).abs();
    assert!(error <= bound, "{what}: {found:e} for {exact:e}, off by {error:e}, bound {bound:e}");
}

/// The threads that an executor reports, and what it does with its tasks.
pub struct Runs<F>(pub usize, pub F);

impl<F: Fn(usize, &(dyn Fn(usize) + Sync)) + Sync> Executor for Runs<F> {
    fn threads(&self) -> usize {
        self.0
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (self.1)(tasks, task);
    }
}

#[cfg(feature = "rayon")]
/// Rayon pools of 1, 2, 3 and 7 threads.
pub fn pools() -> Vec<rayon::ThreadPool> {
    [1, 2, 3, 7].map(rayon_pool).into()
}

#[cfg(feature = "rayon")]
pub fn rayon_pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool")
}

/// Where the tasks of a kernel run.
#[derive(Clone, Copy, Debug)]
pub enum Crew {
    Serial,
    Rayon(usize),
    Team(usize),
    /// A [`ThreadPool`].
    Pool(usize),
}

pub const CREWS: [Crew; 13] = {
    use Crew::{Pool, Rayon, Serial, Team};
    [
        Serial,
        Rayon(1),
        Rayon(2),
        Rayon(3),
        Rayon(7),
        Team(1),
        Team(2),
        Team(3),
        Team(7),
        Pool(1),
        Pool(2),
        Pool(3),
        Pool(7),
    ]
};

/// The ways to run call number `call` on `isa`: all on the best set, else one of each kind, a different one
/// in each call. In a full run all of them on every set.
pub fn crews_of(isa: Isa, call: usize) -> Vec<Crew> {
    if full() || isa == Isa::best() {
        return CREWS.to_vec();
    }
    [1, 5, 9].map(|first| CREWS[first + (call + first / 4) % 4]).to_vec()
}

impl Crew {
    pub fn with_parallelism<R: Send>(self, work: impl FnOnce(Parallelism<'_>) -> R + Send) -> R {
        match self {
            Self::Serial => work(SERIAL),
            Self::Rayon(threads) => rayon_pool(threads).install(|| work(Parallelism::Rayon)),
            Self::Team(threads) => {
                rayon_pool(threads).install(|| Team::form(|team| work(Parallelism::Team(team))))
            }
            Self::Pool(threads) => {
                let pool = ThreadPool::new(threads).expect("threads");
                work(Parallelism::Executor(&pool))
            }
        }
    }
}

/// Floats directly between inaccessible pages, if they fill whole pages; else directly before one
/// (`Guarded::at_end`) or directly after one (`Guarded::at_start`).
#[cfg(unix)]
pub struct Guarded {
    map: *mut libc::c_void,
    bytes: usize,
    start: *mut f32,
    len: usize,
}

#[cfg(unix)]
impl Guarded {
    /// `values` with the last float directly before an inaccessible page.
    pub fn at_end(values: &[f32]) -> Self {
        Self::new(values, true)
    }

    /// `values` with the first float directly after an inaccessible page.
    pub fn at_start(values: &[f32]) -> Self {
        Self::new(values, false)
    }

    fn new(values: &[f32], end: bool) -> Self {
        // SAFETY: an anonymous mapping of its own pages. The inner ones are made accessible before
        // they are written, and the pointer stays inside of them.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let inner = (values.len() * 4).next_multiple_of(page);
            let bytes = inner + 2 * page;
            let map = libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            let first = map.cast::<u8>().add(page);
            if inner > 0 {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                assert_eq!(libc::mprotect(first.cast(), inner, access), 0);
            }
            let offset = if end { inner - values.len() * 4 } else { 0 };
            let start = first.add(offset).cast::<f32>();
            core::ptr::copy_nonoverlapping(values.as_ptr(), start, values.len());
            Self { map, bytes, start, len: values.len() }
        }
    }
}

#[cfg(unix)]
impl core::ops::Deref for Guarded {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` floats from `start` are initialized and belong to this value.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

#[cfg(unix)]
impl core::ops::DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

#[cfg(unix)]
impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nothing borrows it any more.
        unsafe { libc::munmap(self.map, self.bytes) };
    }
}
