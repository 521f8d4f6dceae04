//! Helpers of the kernel tests: values that are the same in every run, memory that shows when it was
//! accessed, and the ways to run a kernel.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod batch;
#[path = "../../src/test_effort.rs"]
mod effort;
pub mod errors;
pub mod gemm;
pub mod pruned_argmax;
#[cfg(target_os = "linux")]
pub mod stack;

#[allow(unused_imports)]
pub(crate) use effort::{brief, cases, full};
use simdformer_kernels::{Isa, Parallelism, Team, ThreadPool};

/// The unit roundoff of f32, `2^-24`.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// A NaN with a payload that no kernel computes. Memory that still has it was not written.
pub const POISON: f32 = f32::from_bits(0x7fc0_dead);

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
        cases: effort::properties(usual),
        failure_persistence: None,
        ..Default::default()
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `0..n`
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// `-1.0..1.0`
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// An integer of `-bound..=bound`.
    pub fn integer(&mut self, bound: usize) -> f32 {
        self.below(2 * bound + 1) as f32 - bound as f32
    }

    pub fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    pub fn integers(&mut self, n: usize, bound: usize) -> Vec<f32> {
        (0..n).map(|_| self.integer(bound)).collect()
    }
}

/// A matrix in memory that holds [`POISON`] outside of the matrix.
#[derive(Clone, Debug)]
pub struct Strided {
    pub data: Vec<f32>,
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl Strided {
    pub fn new(
        rows: usize,
        columns: usize,
        (row_stride, column_stride): (usize, usize),
        mut element: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        let reach = if rows == 0 || columns == 0 {
            0
        } else {
            (rows - 1) * row_stride + (columns - 1) * column_stride + 1
        };
        let mut data = vec![POISON; reach + 19];
        for i in 0..rows {
            for j in 0..columns {
                data[i * row_stride + j * column_stride] = element(i, j);
            }
        }
        Self { data, rows, columns, row_stride, column_stride }
    }

    pub fn view(&self) -> simdformer_kernels::Matrix<'_> {
        simdformer_kernels::Matrix::strided(
            &self.data,
            self.rows,
            self.columns,
            self.row_stride,
            self.column_stride,
        )
        .expect("a view of a matrix that was laid out for it")
    }

    pub fn view_mut(&mut self) -> simdformer_kernels::MatrixMut<'_> {
        simdformer_kernels::MatrixMut::strided(
            &mut self.data,
            self.rows,
            self.columns,
            self.row_stride,
            self.column_stride,
        )
        .expect("a view of a matrix that was laid out for it")
    }

    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.data[row * self.row_stride + column * self.column_stride]
    }

    /// Panics if memory between the elements has changed.
    pub fn check_gaps(&self) {
        let mut inside = vec![false; self.data.len()];
        for i in 0..self.rows {
            for j in 0..self.columns {
                inside[i * self.row_stride + j * self.column_stride] = true;
            }
        }
        for (at, (x, inside)) in self.data.iter().zip(inside).enumerate() {
            assert!(
                inside || x.to_bits() == POISON.to_bits(),
                "float {at}, outside the matrix, was written: {x}"
            );
        }
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

    pub fn view(&self) -> simdformer_kernels::Heads<'_> {
        simdformer_kernels::Heads::strided(
            &self.data,
            self.shape,
            self.token_stride,
            self.head_stride,
        )
        .expect("a view of a tensor that was laid out for it")
    }

    pub fn view_mut(&mut self) -> simdformer_kernels::HeadsMut<'_> {
        simdformer_kernels::HeadsMut::strided(
            &mut self.data,
            self.shape,
            self.token_stride,
            self.head_stride,
        )
        .expect("a view of a tensor that was laid out for it")
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

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// The first difference in bits, as readable text.
pub fn difference(left: &[f32], right: &[f32]) -> Option<String> {
    if left.len() != right.len() {
        return Some(format!("{} floats and {}", left.len(), right.len()));
    }
    let at = left.iter().zip(right).position(|(l, r)| l.to_bits() != r.to_bits())?;
    Some(format!("at {at} of {}: {:e} and {:e}", left.len(), left[at], right[at]))
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

pub const CREWS: [Crew; 13] = [
    Crew::Serial,
    Crew::Rayon(1),
    Crew::Rayon(2),
    Crew::Rayon(3),
    Crew::Rayon(7),
    Crew::Team(1),
    Crew::Team(2),
    Crew::Team(3),
    Crew::Team(7),
    Crew::Pool(1),
    Crew::Pool(2),
    Crew::Pool(3),
    Crew::Pool(7),
];

/// The ways to run call number `call` on `isa`: all on the best set, else one of each kind, a different one
/// in each call. In a full run all of them on every set.
pub fn crews_of(isa: Isa, call: usize) -> Vec<Crew> {
    if full() || isa == Isa::best() {
        return CREWS.to_vec();
    }
    [1, 5, 9].map(|first| CREWS[first + (call + first / 4) % 4]).to_vec()
}

impl Crew {
    pub fn run<R: Send>(self, work: impl FnOnce(Parallelism<'_>) -> R + Send) -> R {
        let pool = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool")
        };
        match self {
            Self::Serial => work(Parallelism::Serial),
            Self::Rayon(threads) => pool(threads).install(|| work(Parallelism::Rayon)),
            Self::Team(threads) => {
                pool(threads).install(|| Team::run(|team| work(Parallelism::Team(team))))
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
