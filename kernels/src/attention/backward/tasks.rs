//! The gradients of one key-value head of one sequence: blocks of keys, and for each of them the query heads
//! that read it, block by block of their queries. So a key's gradient is one chain of additions, over heads
//! and then over queries, and a query's is one over keys.

use super::block::{Block, Rows};
use super::copy::{Strided, clear, copy, dot, into_panels};
use super::dkv::{Gradient, Keys};
use super::dq::Queries;
use super::masked;
use super::prefetch::{DISTANCE, MOST_ASKED, PARTS, Prefetch};
use super::workspace::{QUERY_ROWS, ROW_SUMS, WEIGHTS_ROW, Workspace};
use crate::attention::head_params::HeadParams;
use crate::attention::heads::{Heads, Qkv};
use crate::attention::online_softmax::KEY_BLOCK;
use crate::attention::options::Sequence;
use crate::attention::params::{AttentionParams, KvHead};
use crate::gemm::MAX_MR;
use crate::mask::FullyMasked;
use crate::parallel::share;
use crate::shared::SharedMut;
use crate::simd::{SimdF32, SimdOp, TileOp};
use core::ops::Range;

/// Most queries or keys that are read where they are.
const FEW: usize = 32;

/// Whether `rows` rows of `elements` floats, `stride` apart, are read where they are: if they are whole vectors, and so
/// few that they do not drive each other from the first-level cache, whose sets repeat every `AROUND` floats.
fn in_place(rows: usize, stride: usize, elements: usize, row: usize) -> bool {
    const AROUND: usize = 1024;
    const WAYS: usize = 8;
    let apart = (stride & stride.wrapping_neg()).min(AROUND);
    elements == row && rows <= FEW && rows * apart <= WAYS * AROUND
}

/// Rows of a tile of two vectors on CPUs with 32 registers.
const TALL: usize = 8;

/// A gradient that tasks write, each its own rows.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) data: SharedMut<'a>,
    pub(super) token_stride: usize,
    pub(super) head_stride: usize,
}

impl Target<'_> {
    fn at(&self, token: usize, head: usize) -> *mut f32 {
        self.data.as_ptr().wrapping_add(token * self.token_stride + head * self.head_stride)
    }
}

/// One call, checked; no tensor is empty.
pub(super) struct Backward<'a> {
    /// Its output is the gradient of the query.
    pub(super) call: &'a AttentionParams<'a>,
    pub(super) qkv: Qkv<'a>,
    pub(super) context: Heads<'a>,
    pub(super) d_context: Heads<'a>,
    pub(super) sums: &'a [f32],
    pub(super) sequences: &'a [Sequence],
    pub(super) fully_masked: FullyMasked,
    /// Whether there is a bias that may hide keys.
    pub(super) hides: bool,
    pub(super) d_key: Target<'a>,
    pub(super) d_value: Target<'a>,
    pub(super) room: Workspace,
    /// Where the gradients of the bias go: for each sequence and head, one of each distance from key to
    /// query, farthest behind first.
    pub(super) tables: Option<SharedMut<'a>>,
}

/// A range of sequences times key-value heads, one after the other in one room.
pub(super) struct Tasks<'a> {
    pub(super) backward: &'a Backward<'a>,
    pub(super) range: Range<usize>,
    pub(super) room: *mut f32,
}

impl SimdOp for Tasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        s.with_tile_width(self);
    }
}

impl TileOp for Tasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32, const NV: usize>(self, s: S) {
        let Self { backward, range, room } = self;
        let kv_heads = backward.qkv.key.heads();
        for index in range.clone() {
            let task = |index| {
                let (index, kv_head) = (index / kv_heads, index % kv_heads);
                Task { backward, index, kv_head, room }
            };
            let mut next = Prefetch::NOTHING;
            if index + DISTANCE < range.end {
                next = task(index + DISTANCE).ahead();
            }
            let task = task(index);
            // SAFETY: views, ranges and the room were checked; this task alone writes the keys of this sequence
            // and head, and the queries of the heads that read them.
            unsafe { task.run::<S, NV>(s, &mut next) };
            next.ask_all(s);
        }
    }
}

/// Floats of the gradient of the bias for one head of a sequence.
pub(super) fn table_len(sequence: &Sequence) -> usize {
    match (sequence.query_len, sequence.key_len) {
        (0, _) | (_, 0) => 0,
        (queries, keys) => queries.saturating_add(keys - 1),
    }
}

struct Task<'a> {
    backward: &'a Backward<'a>,
    index: usize,
    kv_head: usize,
    room: *mut f32,
}

impl Task<'_> {
    fn sequence(&self) -> Sequence {
        self.backward.sequences[self.index]
    }

    /// Query heads that read this head.
    fn group(&self) -> Range<usize> {
        let Qkv { query, key, .. } = self.backward.qkv;
        let group = query.heads() / key.heads();
        self.kv_head * group..(self.kv_head + 1) * group
    }

    /// The maximum and one over the sum of the weights of query `query` of the sequence.
    #[inline(always)]
    fn kept(&self, query: usize, head: usize) -> (f32, f32) {
        let heads = self.backward.qkv.query.heads();
        let first = 2 * ((self.sequence().query_start + query) * heads + head);
        match self.backward.sums.get(first..first + 2) {
            Some(&[base, inverse]) => (base, inverse),
            _ => (0.0, 0.0),
        }
    }

    /// Puts what the softmax gave each query of a block into the room, and returns whether one of them had nothing to
    /// weigh.
    ///
    /// # Safety
    /// As [`Task::run`]; the room has a place for each of these queries.
    #[inline(always)]
    unsafe fn keep(&self, queries: Range<usize>, head: usize) -> bool {
        let sums = self.place(self.backward.room.sums);
        let mut masked = false;
        for (local, query) in queries.enumerate() {
            let (base, inverse) = self.kept(query, head);
            masked |= inverse == 0.0;
            // SAFETY: the caller's contract.
            unsafe {
                let to = sums.add(local * ROW_SUMS);
                to.write(base);
                to.add(1).write(inverse);
            }
        }
        masked
    }

    /// Where the gradient of the bias begins for a head, farthest key behind first; null if nobody asked.
    fn table(&self, head: usize) -> *mut f32 {
        let Some(tables) = self.backward.tables else { return core::ptr::null_mut() };
        let heads = self.backward.qkv.query.heads();
        let before: usize = self.backward.sequences[..self.index].iter().map(table_len).sum();
        tables.as_ptr().wrapping_add(before * heads + head * table_len(&self.sequence()))
    }

    fn place(&self, at: usize) -> *mut f32 {
        self.room.wrapping_add(at)
    }

    /// Rows of gradients from key `key` of the sequence on.
    fn gradients(&self, key: usize) -> (Gradient, Gradient) {
        let Backward { d_key, d_value, call, .. } = self.backward;
        let token = self.sequence().key_start + key;
        let rows = |target: &Target<'_>, factor| Gradient {
            at: target.at(token, self.kv_head),
            stride: target.token_stride,
            factor,
        };
        (rows(d_key, call.scale()), rows(d_value, 1.0))
    }

    /// What it will read and write, if that is little.
    fn ahead(&self) -> Prefetch {
        let Backward { qkv, context, d_context, call, d_key, d_value, .. } = self.backward;
        let Sequence { query_start, query_len, key_start, key_len, .. } = self.sequence();
        let head = self.group().start;
        if query_len.max(key_len) > MOST_ASKED {
            return Prefetch::NOTHING;
        }
        let rows = |view: &Heads<'_>, start, head| (view.at(start, head), view.token_stride());
        let target = |target: &Target<'_>| {
            (target.at(key_start, self.kv_head).cast_const(), target.token_stride)
        };
        let (out, out_row) = call.out(query_start, head);
        const { assert!(MOST_ASKED <= KEY_BLOCK, "no task that asks reads contexts") };
        let parts: [_; PARTS] = [
            rows(&qkv.key, key_start, self.kv_head),
            rows(&qkv.value, key_start, self.kv_head),
            rows(&qkv.query, query_start, head),
            rows(d_context, query_start, head),
            (out.cast_const(), out_row),
            target(d_key),
            target(d_value),
        ];
        Prefetch {
            parts,
            rows: query_len.max(key_len),
            elements: context.head_dim(),
            part: 0,
            row: 0,
        }
    }

    /// # Safety
    /// The call was checked, the room is this task's, and so are the gradients of its keys and queries.
    #[inline(always)]
    unsafe fn run<S: SimdF32, const NV: usize>(&self, s: S, next: &mut Prefetch) {
        let backward = self.backward;
        let Sequence { query_len, key_len, padded_len, .. } = self.sequence();
        let head_dim = backward.qkv.key.head_dim();
        // SAFETY: the caller's contract.
        unsafe {
            if backward.tables.is_some() {
                for head in self.group() {
                    clear(s, self.table(head), table_len(&self.sequence()));
                }
            }
            // Some query sees each valid key if there is one: causality is aligned to the end.
            let reached = if query_len == 0 { 0 } else { key_len };
            let (d_key, d_value) = self.gradients(0);
            for key in reached..padded_len {
                clear(s, d_key.at.wrapping_add(key * d_key.stride), head_dim);
                clear(s, d_value.at.wrapping_add(key * d_value.stride), head_dim);
            }
            // Without a key nobody has looked at the queries.
            let mut masked = reached == 0;
            let mut key = 0;
            while key < reached {
                let keys = (reached - key).min(KEY_BLOCK);
                masked |= self.block_of_keys::<S, NV>(s, key, keys, next);
                key += keys;
            }
            if masked {
                self.finish(s, d_value);
            }
        }
    }

    /// The forward's view of a head.
    fn head(&self, head: usize) -> HeadParams {
        let Sequence { query_start, query_len, key_len, padded_len, .. } = self.sequence();
        let source = KvHead {
            query_start,
            query_len,
            key_len,
            padded_len,
            keys: core::ptr::null(),
            next_keys: core::ptr::null(),
            values: core::ptr::null(),
            value_row: 0,
        };
        self.backward.call.head(&source, head)
    }

    /// All that a block of keys gives and gets. Whether a query had nothing to weigh, of all if it is the first block.
    ///
    /// # Safety
    /// As [`Task::run`].
    #[inline(always)]
    unsafe fn block_of_keys<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        key: usize,
        keys: usize,
        next: &mut Prefetch,
    ) -> bool {
        let Backward { qkv, room, hides, .. } = self.backward;
        let Sequence { query_len, key_start, .. } = self.sequence();
        let rows_of = |view: &Heads<'_>| Strided {
            at: view.at(key_start + key, self.kv_head),
            stride: view.token_stride(),
            elements: view.head_dim(),
        };
        let (row, padded) = (room.row, keys.next_multiple_of(S::LANES));
        let (d_key, d_value) = (self.place(room.d_key), self.place(room.d_value));
        let (from_key, from_value) = (rows_of(&qkv.key), rows_of(&qkv.value));
        let in_place = in_place(keys, from_key.stride, from_key.elements, row);
        let key_rows = match in_place {
            true => Rows { at: from_key.at, stride: from_key.stride },
            false => Rows { at: self.place(room.key_rows), stride: row },
        };
        // SAFETY: the keys exist, and the room has places for a block of them.
        unsafe {
            if !in_place {
                copy(s, from_key, (keys, keys), self.place(room.key_rows), row);
                next.issue(s);
            }
            let from_key = Strided { at: key_rows.at, stride: key_rows.stride, elements: row };
            // What is summed up begins later.
            into_panels(s, from_key, (keys, padded), self.place(room.key_panels), row, d_key);
            next.issue(s);
            into_panels(s, from_value, (keys, padded), self.place(room.value_panels), row, d_value);
            next.issue(s);
            if *hides {
                masked::start(s, d_key, keys, row);
                masked::start(s, d_value, keys, row);
            }
        }
        let blocks = query_len.div_ceil(QUERY_ROWS);
        let group = self.group();
        let mut any = false;
        for index in group.clone() {
            let head = self.head(index);
            for part in 0..blocks {
                let queries = share(query_len, blocks, part);
                // The first block of keys writes every query, seen or not.
                if key > 0 && head.limit(queries.end - 1) <= key {
                    continue;
                }
                // SAFETY: the caller's contract.
                let masked = unsafe { self.keep(queries.clone(), index) };
                any |= masked;
                let (query_rows, d_context) = self.rows_of_queries(index, queries.clone(), masked);
                let block = Block {
                    head,
                    key,
                    keys,
                    query: queries.start,
                    queries: queries.len(),
                    row,
                    key_panels: self.place(room.key_panels),
                    value_panels: self.place(room.value_panels),
                    key_rows,
                    query_rows,
                    d_context,
                    weights: self.place(room.weights),
                    d_scores: self.place(room.d_scores),
                    sums: self.place(room.sums),
                    d_key,
                    d_value,
                    table: match self.table(index) {
                        table if table.is_null() => table,
                        table => table.wrapping_add(query_len - 1),
                    },
                };
                let last = index + 1 == group.end && part + 1 == blocks;
                // SAFETY: the caller's contract; the block's operands are in the room.
                unsafe {
                    self.block_of_queries(s, &block, index, masked);
                    next.issue(s);
                    self.gradients_of_queries::<S, NV>(s, &block, next);
                    let last = last.then(|| self.gradients(key));
                    let first_head = index == group.start;
                    self.gradients_of_keys::<S, NV>(s, &block, first_head, last, next);
                }
            }
        }
        if *hides {
            let (to_key, to_value) = self.gradients(key);
            let shape = (keys, row, qkv.key.head_dim());
            // SAFETY: the sums of all queries; the gradients' rows exist.
            unsafe {
                masked::end(s, d_key, shape, to_key);
                masked::end(s, d_value, shape, to_value);
            }
        }
        any
    }

    /// Where a block of queries has their rows and those of their contexts' gradients: where they are, or in copies in
    /// the room. Of a query that weighed nothing there are to be zeros.
    fn rows_of_queries(&self, head: usize, queries: Range<usize>, masked: bool) -> (Rows, Rows) {
        let Backward { qkv, d_context, room, .. } = self.backward;
        let start = self.sequence().query_start + queries.start;
        let rows = |view: &Heads<'_>, at: usize| {
            let stride = view.token_stride();
            match !masked && in_place(queries.len(), stride, view.head_dim(), room.row) {
                true => Rows { at: view.at(start, head), stride },
                false => Rows { at: self.place(at), stride: room.row },
            }
        };
        (rows(&qkv.query, room.query), rows(d_context, room.d_context))
    }

    /// Copies the rows of a block of queries that are not read where they are, and takes their contexts' products.
    /// Copied rows of a query that weighed nothing are zeros.
    ///
    /// # Safety
    /// As [`Task::run`]; [`Task::keep`] was called for these queries.
    #[inline(always)]
    unsafe fn block_of_queries<S: SimdF32>(&self, s: S, block: &Block, head: usize, masked: bool) {
        let Backward { qkv, context, d_context, room, .. } = self.backward;
        let start = self.sequence().query_start + block.query;
        let head_dim = context.head_dim();
        for (view, rows, to) in [
            (&qkv.query, block.query_rows, self.place(room.query)),
            (d_context, block.d_context, self.place(room.d_context)),
        ] {
            if rows.at != to {
                continue;
            }
            let from = Strided {
                at: view.at(start, head),
                stride: view.token_stride(),
                elements: head_dim,
            };
            // SAFETY: the queries exist, and the scratch has places for a block of them.
            unsafe { copy(s, from, (block.queries, block.queries), to, block.row) };
            for local in 0..if masked { block.queries } else { 0 } {
                // SAFETY: `local < block.queries`: the scratch has `block.row` floats at `to` for each
                // query of a block, and no other task uses that scratch.
                unsafe {
                    if block.row_sums(local).inverse == 0.0 {
                        clear(s, to.add(local * block.row), block.row);
                    }
                }
            }
        }
        if block.sees_all(block.queries - 1) {
            return;
        }
        let sums = self.place(room.sums);
        for local in 0..block.queries {
            // SAFETY: `local < block.queries`: `block_of_queries` requires that these queries
            // exist, `block.d_context` has a row for each, and the sums have `ROW_SUMS` places for
            // each.
            unsafe {
                let row = block.d_context.at.wrapping_add(local * block.d_context.stride);
                let product = dot(s, row, context.at(start + local, head), head_dim);
                sums.add(local * ROW_SUMS + 2).write(product);
            }
        }
    }

    /// # Safety
    /// As [`Task::run`]; the block's operands are in the room.
    #[inline(always)]
    unsafe fn gradients_of_queries<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        block: &Block,
        next: &mut Prefetch,
    ) {
        let hides = self.backward.hides;
        // One vector of keys leaves registers for more queries, and needs them: each is one chain of additions.
        let tallest = if S::REGISTERS >= 32 && block.keys <= S::LANES { TALL } else { MAX_MR };
        let tiles = block.queries.div_ceil(tallest);
        for index in 0..tiles {
            next.issue(s);
            let local = share(block.queries, tiles, index);
            let first = local.start;
            match local.len() {
                7 if S::REGISTERS >= 32 => s.call_noinline(Queries::<7, 2> { block, first, hides }),
                8 if S::REGISTERS >= 32 => s.call_noinline(Queries::<8, 2> { block, first, hides }),
                1 => s.call_noinline(Queries::<1, NV> { block, first, hides }),
                2 => s.call_noinline(Queries::<2, NV> { block, first, hides }),
                3 => s.call_noinline(Queries::<3, NV> { block, first, hides }),
                4 => s.call_noinline(Queries::<4, NV> { block, first, hides }),
                5 => s.call_noinline(Queries::<5, NV> { block, first, hides }),
                rows => {
                    const { assert!(MAX_MR == 6 && TALL == 8, "an arm for each height of a tile") };
                    debug_assert_eq!(rows, MAX_MR);
                    s.call_noinline(Queries::<MAX_MR, NV> { block, first, hides });
                }
            }
            if hides {
                for local in local {
                    // SAFETY: the caller's contract; without a bias nothing hides.
                    unsafe { block.query_where_seen(s, local) };
                }
            }
        }
    }

    /// # Safety
    /// As [`Task::run`]; the block's operands are in the room.
    #[inline(always)]
    unsafe fn gradients_of_keys<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        block: &Block,
        first_head: bool,
        last: Option<(Gradient, Gradient)>,
        next: &mut Prefetch,
    ) {
        let seen = block.seen(block.queries - 1);
        if self.backward.hides {
            for key in 0..seen {
                // SAFETY: the caller's contract; without a bias nothing hides.
                unsafe { block.key_where_seen(s, key) };
            }
            return;
        }
        // How many keys an earlier block of queries has seen.
        let before = match (first_head, block.query) {
            (true, 0) => 0,
            (true, query) => block.head.limit(query - 1).saturating_sub(block.key),
            (false, _) => block.keys,
        };
        // As above.
        let few = block.head.head_dim <= 2 * S::LANES;
        let tallest = if S::REGISTERS >= 32 && few { TALL } else { MAX_MR };
        let tiles = block.keys.div_ceil(tallest);
        for index in 0..tiles {
            next.issue(s);
            let local = share(block.keys, tiles, index);
            let first = local.start;
            if first >= seen {
                break;
            }
            let fresh = first >= before;
            match local.len() {
                7 if S::REGISTERS >= 32 => {
                    s.call_noinline(Keys::<7, 2> { block, first, fresh, last })
                }
                8 if S::REGISTERS >= 32 => {
                    s.call_noinline(Keys::<8, 2> { block, first, fresh, last })
                }
                1 => s.call_noinline(Keys::<1, NV> { block, first, fresh, last }),
                2 => s.call_noinline(Keys::<2, NV> { block, first, fresh, last }),
                3 => s.call_noinline(Keys::<3, NV> { block, first, fresh, last }),
                4 => s.call_noinline(Keys::<4, NV> { block, first, fresh, last }),
                5 => s.call_noinline(Keys::<5, NV> { block, first, fresh, last }),
                _ => s.call_noinline(Keys::<MAX_MR, NV> { block, first, fresh, last }),
            }
        }
    }

    /// Queries that weighed nothing: their gradient is 0, and values get an equal share of their context's
    /// gradient if the context is a mean of all values.
    ///
    /// # Safety
    /// As [`Task::run`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(&self, s: S, d_value: Gradient) {
        let Backward { d_context, fully_masked, .. } = self.backward;
        let Sequence { query_start, query_len, padded_len, .. } = self.sequence();
        let head_dim = d_context.head_dim();
        let masked =
            |head: usize| (0..query_len).filter(move |&query| self.kept(query, head).1 == 0.0);
        let mut any = false;
        for index in self.group() {
            let head = self.head(index);
            for query in masked(index) {
                any = true;
                // SAFETY: the gradient's row exists.
                unsafe { clear(s, head.out.wrapping_add(query * head.out_row), head_dim) };
            }
        }
        if !any || *fully_masked == FullyMasked::Zeros {
            return;
        }
        let mut column = 0;
        while column < head_dim {
            let count = (head_dim - column).min(S::LANES);
            let mut sum = s.splat(0.0);
            // SAFETY: the queries and the gradients of the values exist.
            unsafe {
                for index in self.group() {
                    for query in masked(index) {
                        let from = d_context.at(query_start + query, index);
                        sum = s.add(sum, s.load_prefix(from.wrapping_add(column), count));
                    }
                }
                let share = s.div(sum, s.splat(padded_len.max(1) as f32));
                for key in 0..padded_len {
                    let to = d_value.at.wrapping_add(key * d_value.stride + column);
                    s.store_prefix(to, s.add(s.load_prefix(to, count), share), count);
                }
            }
            column += S::LANES;
        }
    }
}

const _: () = assert!(WEIGHTS_ROW >= KEY_BLOCK);
