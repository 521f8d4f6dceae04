//! Strided views of queries, keys and values as `[tokens, heads, head_dim]`. A fused `[tokens, 3 * heads * head_dim]`
//! buffer is read in place.

use crate::error::{Error, ViewShape};
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// The distances between the rows of a view, in elements.
#[derive(Clone, Copy)]
struct Layout {
    token_stride: usize,
    head_stride: usize,
    /// Tokens of a batch element and the distance to the next one; `usize::MAX` and 0 if there is only one.
    batch_tokens: usize,
    batch_stride: usize,
}

impl Layout {
    const fn strided([token_stride, head_stride]: [usize; 2]) -> Self {
        Self { token_stride, head_stride, batch_tokens: usize::MAX, batch_stride: 0 }
    }

    /// The layout of a dense `[batch, heads, tokens, head_dim]`. Its sizes do not overflow.
    const fn heads_first([batch, heads, tokens, head_dim]: [usize; 4]) -> Self {
        if batch == 0 || heads == 0 || tokens == 0 || head_dim == 0 {
            Self::strided([0, 0])
        } else if tokens == 1 && batch > 1 {
            Self::strided([heads * head_dim, head_dim])
        } else {
            let (token_stride, head_stride) = (head_dim, tokens * head_dim);
            match batch {
                1 => Self::strided([token_stride, head_stride]),
                _ => Self {
                    batch_tokens: tokens,
                    batch_stride: heads * head_stride,
                    ..Self::strided([token_stride, head_stride])
                },
            }
        }
    }

    /// Offset of `(token, head, 0)`. It divides only in views of several batch elements.
    const fn offset(&self, token: usize, head: usize) -> usize {
        let (batch, token) = if token < self.batch_tokens {
            (0, token)
        } else {
            (token / self.batch_tokens, token % self.batch_tokens)
        };
        batch * self.batch_stride + token * self.token_stride + head * self.head_stride
    }
}

/// Elements of a token of a dense tensor.
fn dense_token(shape: [usize; 3]) -> Result<usize, Error> {
    let view = ViewShape::Heads { shape, strides: [usize::MAX, shape[2]] };
    let overflows = Error::ShortView { view, expected: usize::MAX, found: 0 };
    shape[1].checked_mul(shape[2]).ok_or(overflows)
}

/// The shape and the strides of both views; `$view` is a [`Heads`].
macro_rules! sizes {
    ($self:ident => $view:expr) => {
        /// Number of tokens.
        pub const fn tokens(&$self) -> usize {
            $view.shape[0]
        }

        /// Number of heads.
        pub const fn heads(&$self) -> usize {
            $view.shape[1]
        }

        /// Elements of one head.
        pub const fn head_dim(&$self) -> usize {
            $view.shape[2]
        }

        /// Elements from one token to the next; with one token, the elements from its first to its last.
        pub const fn token_stride(&$self) -> usize {
            $view.layout.token_stride
        }

        /// Elements from one head to the next; with one head, its elements.
        pub const fn head_stride(&$self) -> usize {
            $view.layout.head_stride
        }
    };
}

/// A read-only `[tokens, heads, head_dim]`: element `(t, h, i)` is
/// `data[t * token_stride + h * head_stride + i]`.
///
/// ```
/// use simdformer_kernels::Heads;
///
/// // Two tokens of a fused query-key-value buffer, each with 3 queries, 3 keys and 3 values of 4 elements.
/// let fused = [0.0; 2 * 36];
/// let key = Heads::strided(&fused[12..], [2, 3, 4], 36, 4)?;
/// assert_eq!(key.tokens(), 2);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    first: NonNull<f32>,
    shape: [usize; 3],
    layout: Layout,
    lifetime: PhantomData<&'a [f32]>,
}

// SAFETY: the view is a shared borrow of floats.
unsafe impl Send for Heads<'_> {}
// SAFETY: the view is a shared borrow of floats. `&Heads` only reads them, and floats are `Sync`.
unsafe impl Sync for Heads<'_> {}

impl<'a> Heads<'a> {
    /// A dense view of `shape = [tokens, heads, head_dim]`.
    ///
    /// # Errors
    /// The slice is too short.
    pub fn new(data: &'a [f32], shape: [usize; 3]) -> Result<Self, Error> {
        Self::strided(data, shape, dense_token(shape)?, shape[2])
    }

    /// A view with any strides, in elements. The elements of one head are contiguous. The stride of a dimension of size
    /// 1 is ignored.
    ///
    /// # Errors
    /// The last element would lie outside `data`.
    pub fn strided(
        data: &'a [f32],
        shape: [usize; 3],
        token_stride: usize,
        head_stride: usize,
    ) -> Result<Self, Error> {
        // SAFETY: the slice is borrowed for `'a`.
        unsafe { Self::place(data.as_ptr(), data.len(), shape, [token_stride, head_stride]) }
    }

    /// A dense `[batch, heads, tokens, head_dim]` as `[batch * tokens, heads, head_dim]`: token `t` of batch element
    /// `b` is token `b * tokens + t` of the view. Sequences may have different lengths; each is in one batch element.
    ///
    /// # Errors
    /// The slice is too short.
    ///
    /// ```
    /// use simdformer_kernels::Heads;
    ///
    /// // Two batch elements with two heads of three tokens.
    /// let data = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.];
    /// let keys = Heads::heads_first(&data, [2, 2, 3, 1])?;
    /// assert_eq!((keys.tokens(), keys.heads()), (6, 2));
    /// assert_eq!(keys.row(3, 1), Some(&[9.0][..]));
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn heads_first(data: &'a [f32], shape: [usize; 4]) -> Result<Self, Error> {
        // SAFETY: the slice is borrowed for `'a`.
        unsafe { Self::place_heads_first(data.as_ptr(), data.len(), shape) }
    }

    /// The view of `shape = [tokens, heads, head_dim]` whose element `(t, h, i)` is
    /// `*data.add(t * token_stride + h * head_stride + i)`, strides in elements. It is for memory that cannot be
    /// borrowed as a slice. Memory between the elements is never read.
    ///
    /// # Errors
    /// Shape times strides overflows; `data` is null and the view has elements.
    ///
    /// # Safety
    /// For the lifetime `'a`, for every element of the view:
    ///
    /// * its address, and that of each element before it, is in the allocation of `data`;
    /// * it has the alignment of `f32`, is initialized and may be read;
    /// * no code writes it.
    ///
    /// A view without elements has no requirements, and the gaps between elements have none.
    ///
    /// ```
    /// use simdformer_kernels::Heads;
    ///
    /// // Layout `[heads, tokens, head_dim]`, as in some other engines.
    /// let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    /// // SAFETY: the last element is `data[7]`, and the array is borrowed for as long as the view.
    /// let keys = unsafe { Heads::from_raw_parts(data.as_ptr(), [2, 2, 2], 2, 4)? };
    /// assert_eq!(keys.row(1, 0), Some(&[3.0, 4.0][..]));
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub unsafe fn from_raw_parts(
        data: *const f32,
        shape: [usize; 3],
        token_stride: usize,
        head_stride: usize,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        unsafe { Self::place(data, usize::MAX, shape, [token_stride, head_stride]) }
    }

    /// The view of the tensor at `data`, which has `len` elements.
    ///
    /// # Safety
    /// As [`Heads::from_raw_parts`], if the last element is among the `len` elements.
    unsafe fn place(
        data: *const f32,
        len: usize,
        shape: [usize; 3],
        strides: [usize; 2],
    ) -> Result<Self, Error> {
        let (first, strides) = ViewShape::Heads { shape, strides }.place(data, len)?;
        Ok(Self { first, shape, layout: Layout::strided(strides), lifetime: PhantomData })
    }

    /// [`Heads::heads_first`] of the tensor at `data`, which has `len` elements.
    ///
    /// # Safety
    /// As [`Heads::from_raw_parts`], if the last element is among the `len` elements.
    unsafe fn place_heads_first(
        data: *const f32,
        len: usize,
        dense: [usize; 4],
    ) -> Result<Self, Error> {
        let [batch, heads, tokens, head_dim] = dense;
        let shape = [batch.saturating_mul(tokens), heads, head_dim];
        let reach = dense.into_iter().try_fold(1usize, usize::checked_mul);
        let reach = reach.filter(|&n| n <= isize::MAX as usize / 4);
        let reach = reach.filter(|_| batch.checked_mul(tokens).is_some());
        let layout = match reach {
            Some(_) => Layout::heads_first(dense),
            None => Layout::strided([head_dim, tokens.saturating_mul(head_dim)]),
        };
        let strides = [layout.token_stride, layout.head_stride];
        let first = ViewShape::Heads { shape, strides }.first(data, len, reach)?;
        Ok(Self { first, shape, layout, lifetime: PhantomData })
    }

    /// The `N` parts of the fused tensor `[tokens, N, heads, head_dim]` at `data`, which has `len` elements.
    ///
    /// # Safety
    /// As [`Heads::from_raw_parts`], if the last element of the fused tensor is among the `len` elements.
    unsafe fn side_by_side<const N: usize>(
        data: *const f32,
        len: usize,
        shape: [usize; 3],
    ) -> Result<[Self; N], Error> {
        let width = dense_token(shape)?;
        let stride = width.checked_mul(N);
        let reach = stride.and_then(|stride| shape[0].checked_mul(stride));
        let strides = [stride.filter(|_| reach.is_some()).unwrap_or(usize::MAX), shape[2]];
        let view = ViewShape::Heads { shape, strides };
        let first = view.first(data, len, reach)?;
        let layout = Layout::strided(view.stepped());
        Ok(core::array::from_fn(|part| {
            // SAFETY: if there are elements, part `part` begins within the first token.
            let first = if reach == Some(0) { first } else { unsafe { first.add(part * width) } };
            Self { first, shape, layout, lifetime: PhantomData }
        }))
    }

    /// Tokens `first..first + count`, with all of their heads.
    ///
    /// # Errors
    /// There are fewer than `first + count` tokens, or the block is in two batch elements of [`Heads::heads_first`].
    pub fn block(self, first: usize, count: usize) -> Result<Self, Error> {
        let [tokens, heads, head_dim] = self.shape;
        Error::check_end("end", "a block of tokens", None, (first, count), tokens)?;
        self.check_within("a block of tokens", None, (first, count))?;
        let first = if count == 0 || heads == 0 || head_dim == 0 {
            self.first
        } else {
            // SAFETY: token `first` has an element, because `count`, `heads` and `head_dim` are not 0 here.
            unsafe { self.first.add(self.layout.offset(first, 0)) }
        };
        let Layout { token_stride, head_stride, .. } = self.layout;
        let layout = Layout::strided([token_stride, head_stride]);
        Ok(Self { first, shape: [count, heads, head_dim], layout, ..self })
    }

    /// `Err` unless tokens `start..start + len` are in one batch element, where they are a token stride apart. The
    /// tokens are `index` of `operand`.
    pub(super) fn check_within(
        &self,
        operand: &'static str,
        index: Option<usize>,
        (start, len): (usize, usize),
    ) -> Result<(), Error> {
        let tokens = self.layout.batch_tokens;
        if len == 0 || tokens == usize::MAX {
            return Ok(());
        }
        Error::check_end("end in a batch element", operand, index, (start % tokens, len), tokens)
    }

    /// Tokens, heads and head size.
    pub(crate) const fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// `Err` unless the tensor, `operand` of a call, has the shape `expected`.
    pub(crate) fn check_shape(
        &self,
        operand: &'static str,
        expected: [usize; 3],
    ) -> Result<(), Error> {
        let found = self.shape;
        if found == expected { Ok(()) } else { Err(Error::HeadsShape { operand, expected, found }) }
    }

    sizes!(self => self);

    /// The address of `(token, head, 0)`, `token <= tokens` and `head <= heads`. It may be outside the buffer if there
    /// is no such element.
    pub(crate) const fn at(&self, token: usize, head: usize) -> *const f32 {
        self.first.as_ptr().cast_const().wrapping_add(self.layout.offset(token, head))
    }

    /// The rows of a head from `token` on, in its batch element.
    pub(super) const fn rows(&self, token: usize, head: usize) -> HeadRows {
        HeadRows { at: self.at(token, head), stride: self.layout.token_stride }
    }

    /// The elements of head `head` of token `token`; `None` if the token or the head does not exist.
    pub fn row(&self, token: usize, head: usize) -> Option<&'a [f32]> {
        if token >= self.tokens() || head >= self.heads() {
            return None;
        }
        // SAFETY: token and head were checked above, and the elements of a head are contiguous. A view without elements
        // gives an empty slice.
        Some(unsafe { core::slice::from_raw_parts(self.at(token, head), self.head_dim()) })
    }

    /// The `Debug` output of a view called `name`.
    fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [tokens, heads, head_dim] = self.shape;
        let Layout { token_stride, head_stride, .. } = self.layout;
        write!(f, "{name}({tokens} x {heads} x {head_dim}, ")?;
        write!(f, "strides {token_stride} and {head_stride})")
    }
}

impl fmt::Debug for Heads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Heads", f)
    }
}

/// The rows of one head, `stride` floats apart, from the row at `at`.
#[derive(Clone, Copy)]
pub(super) struct HeadRows {
    pub(super) at: *const f32,
    pub(super) stride: usize,
}

/// The operands of attention: queries `[tokens, heads, head_dim]`, keys and values
/// `[key tokens, kv_heads, head_dim]`.
#[derive(Clone, Copy, Debug)]
pub struct Qkv<'a> {
    /// The queries.
    pub query: Heads<'a>,
    /// The keys.
    pub key: Heads<'a>,
    /// The values.
    pub value: Heads<'a>,
}

impl<'a> Qkv<'a> {
    /// The three parts of one fused projection, `[tokens, (query, key, value), heads, head_dim]`,
    /// each `shape = [tokens, heads, head_dim]`.
    ///
    /// # Errors
    /// The slice is shorter than `3 * tokens * heads * head_dim`.
    ///
    /// ```
    /// use simdformer_kernels::Qkv;
    ///
    /// let fused = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // One token, one head of 2.
    /// let Qkv { query, key, value } = Qkv::fused(&fused, [1, 1, 2])?;
    /// assert_eq!([query, key, value].map(|part| part.row(0, 0)), [
    ///     Some(&[1.0, 2.0][..]),
    ///     Some(&[3.0, 4.0][..]),
    ///     Some(&[5.0, 6.0][..]),
    /// ]);
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn fused(data: &'a [f32], shape: [usize; 3]) -> Result<Self, Error> {
        // SAFETY: the slice is borrowed for `'a`.
        let [query, key, value] = unsafe { Heads::side_by_side(data.as_ptr(), data.len(), shape)? };
        Ok(Self { query, key, value })
    }
}

/// A writable `[tokens, heads, head_dim]`; no two elements share memory.
///
/// ```
/// use simdformer_kernels::HeadsMut;
///
/// // Layout `[heads, tokens, head_dim]`: the heads of a token are 3 * 4 elements apart.
/// let mut data = [0.0; 2 * 3 * 4];
/// let mut out = HeadsMut::strided(&mut data, [3, 2, 4], 4, 12)?;
/// let last = out.reborrow().block(2, 1)?;
/// assert_eq!((last.tokens(), last.heads(), last.head_dim()), (1, 2, 4));
/// assert_eq!(out.as_view().row(0, 1), Some(&[0.0; 4][..]));
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
pub struct HeadsMut<'a> {
    /// The elements. Only methods that take `self` or `&mut self` return a pointer for writing, and only those that take
    /// `self` return a view for all of `'a`.
    view: Heads<'a>,
    lifetime: PhantomData<&'a mut [f32]>,
}

impl<'a> HeadsMut<'a> {
    /// A dense view of `shape = [tokens, heads, head_dim]`.
    ///
    /// # Errors
    /// The slice is too short.
    pub fn new(data: &'a mut [f32], shape: [usize; 3]) -> Result<Self, Error> {
        Self::strided(data, shape, dense_token(shape)?, shape[2])
    }

    /// A view with strides in elements. Either the heads are inside a token, or the tokens are inside a head.
    ///
    /// # Errors
    /// The last element would be outside `data`, or elements would overlap.
    pub fn strided(
        data: &'a mut [f32],
        shape: [usize; 3],
        token_stride: usize,
        head_stride: usize,
    ) -> Result<Self, Error> {
        let strides = [token_stride, head_stride];
        // SAFETY: the slice is borrowed exclusively for `'a`.
        unsafe { Self::exclusive(Heads::place(data.as_mut_ptr(), data.len(), shape, strides)?) }
    }

    /// [`Heads::heads_first`], writable.
    ///
    /// # Errors
    /// The slice is too short.
    pub fn heads_first(data: &'a mut [f32], shape: [usize; 4]) -> Result<Self, Error> {
        // SAFETY: the slice is borrowed exclusively for `'a`. A dense tensor has no element twice.
        let view = unsafe { Heads::place_heads_first(data.as_mut_ptr(), data.len(), shape)? };
        Ok(Self { view, lifetime: PhantomData })
    }

    /// The writable view of `shape = [tokens, heads, head_dim]` whose element `(t, h, i)` is
    /// `*data.add(t * token_stride + h * head_stride + i)`, strides in elements. Memory between the elements is neither
    /// read nor written. So several threads may write interleaved views, for example different heads of one tensor.
    ///
    /// # Errors
    /// Shape times strides overflows; elements would overlap, as in [`HeadsMut::strided`]; `data` is null and the view
    /// has elements.
    ///
    /// # Safety
    /// For the lifetime `'a`, for every element of the view:
    ///
    /// * its address, and that of each element before it, is in the allocation of `data`;
    /// * it has the alignment of `f32`, is initialized, and may be read and written through `data`;
    /// * no code reads or writes it except through this view.
    ///
    /// A view without elements has no requirements, and the gaps between elements have none.
    pub unsafe fn from_raw_parts(
        data: *mut f32,
        shape: [usize; 3],
        token_stride: usize,
        head_stride: usize,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        unsafe { Self::exclusive(Heads::from_raw_parts(data, shape, token_stride, head_stride)?) }
    }

    /// The writable tensor with the elements of `view`, which is not one of [`Heads::heads_first`].
    ///
    /// # Safety
    /// As [`HeadsMut::from_raw_parts`] for the pointer that `view` was made from.
    unsafe fn exclusive(view: Heads<'a>) -> Result<Self, Error> {
        let Layout { token_stride, head_stride, .. } = view.layout;
        let strides = [token_stride, head_stride];
        ViewShape::Heads { shape: view.shape, strides }.check_disjoint()?;
        Ok(Self { view, lifetime: PhantomData })
    }

    /// The `N` parts of one fused tensor, `[tokens, N, heads, head_dim]`, each `shape = [tokens, heads, head_dim]`: for
    /// example the gradients of keys and values that one matrix product computed.
    ///
    /// # Errors
    /// The slice is shorter than `N * tokens * heads * head_dim`.
    ///
    /// ```
    /// use simdformer_kernels::HeadsMut;
    ///
    /// let mut fused = [1.0, 2.0, 3.0, 4.0]; // Two tokens, a key and a value of one element each.
    /// let [key, value] = HeadsMut::side_by_side(&mut fused, [2, 1, 1])?;
    /// assert_eq!(key.as_view().row(1, 0), Some(&[3.0][..]));
    /// assert_eq!(value.as_view().row(0, 0), Some(&[2.0][..]));
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn side_by_side<const N: usize>(
        data: &'a mut [f32],
        shape: [usize; 3],
    ) -> Result<[Self; N], Error> {
        // SAFETY: the slice is borrowed exclusively for `'a`, and each part has its own elements.
        let parts = unsafe { Heads::side_by_side(data.as_mut_ptr(), data.len(), shape)? };
        Ok(parts.map(|view| Self { view, lifetime: PhantomData }))
    }

    /// A read-only view of the same elements.
    pub const fn as_view(&self) -> Heads<'_> {
        self.view
    }

    /// A view of the same elements with a shorter lifetime.
    pub const fn reborrow(&mut self) -> HeadsMut<'_> {
        HeadsMut { view: self.view, lifetime: PhantomData }
    }

    /// Tokens `first..first + count`, with all of their heads.
    ///
    /// # Errors
    /// There are fewer than `first + count` tokens.
    pub fn block(self, first: usize, count: usize) -> Result<Self, Error> {
        Ok(Self { view: self.view.block(first, count)?, ..self })
    }

    sizes!(self => self.view);

    /// Pointers to the rows that threads can share; each thread writes its own rows.
    pub(super) const fn shared(&mut self) -> HeadPtrs<'_> {
        HeadPtrs { first: SharedMut::from_first(self.view.first), layout: self.view.layout }
    }
}

/// The rows of a tensor of which each task writes its own: as [`RowPtrs`](crate::row_tasks::RowPtrs), for tokens and
/// heads.
#[derive(Clone, Copy)]
pub(super) struct HeadPtrs<'a> {
    first: SharedMut<'a>,
    layout: Layout,
}

impl HeadPtrs<'_> {
    /// The address of the row of a token in a head.
    pub(super) fn at(&self, token: usize, head: usize) -> *mut f32 {
        self.first.as_ptr().wrapping_add(self.layout.offset(token, head))
    }

    /// Elements from one token to the next of the same batch element.
    pub(super) const fn token_stride(&self) -> usize {
        self.layout.token_stride
    }

    /// [`Heads::rows`], to prefetch them.
    #[cfg(feature = "train")]
    pub(super) fn rows(&self, token: usize, head: usize) -> HeadRows {
        HeadRows { at: self.at(token, head).cast_const(), stride: self.layout.token_stride }
    }
}

impl fmt::Debug for HeadsMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.describe("HeadsMut", f)
    }
}
