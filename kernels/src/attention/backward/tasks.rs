//! A task computes the gradients of one key-value head of one sequence. The outer loop is over blocks of keys. For each
//! of them, the inner loops are over the query heads that read this head, and over blocks of their queries. So the
//! gradient of a key is one chain of additions, over heads and then over queries; the gradient of a query is one chain
//! over keys.

use super::dkv::{Gradient, dkv_tile};
use super::dq::dq_tile;
use super::masked;
use super::row_ops::{clear, dot};
use super::score_block::ScoreBlock;
use super::workspace::{QUERY_ROWS, ROW_SUMS, WEIGHTS_ROW, Workspace};
use crate::attention::head_views::{HeadPtrs, HeadRows, Heads, Qkv};
use crate::attention::one_head::HeadQuery;
use crate::attention::online_softmax::KEY_BLOCK;
use crate::attention::options::Sequence;
use crate::attention::panels::{ROWS_AHEAD, copy_rows, write_keys};
use crate::attention::tasks::AttentionParams;
use crate::parallel::share;
use crate::prefetch::CacheLevel;
use crate::row_prefetch::PrefetchRows;
use crate::simd::{MAX_MR, SimdF32, simd_op, tile_heights};
use crate::softmax::FullyMasked;
use crate::sync_ptr::SharedMut;
use core::ops::Range;

/// Most queries or keys of a sequence whose rows are prefetched during an earlier task. This leaves space in the L2
/// cache for the workspace of the current task.
const MAX_PREFETCH_ROWS: usize = 2 * QUERY_ROWS;

/// Most floats of a tensor that are prefetched into the L1 cache. All rows of a short sentence fit there, together with
/// the workspace.
const MAX_L1_FLOATS: usize = 512;

/// Tasks between the prefetch and the use. One task of a short sentence ends before the memory has responded.
const PREFETCH_TASKS: usize = 2;

/// The rows that a task reads and writes.
type TaskRows = PrefetchRows<7>;

/// Most queries or keys that are read in place.
const MAX_IN_PLACE_ROWS: usize = 32;

/// Whether `rows` rows of `elements` floats, `stride` apart, are read in place. This requires whole vectors, and so few
/// rows that they do not evict each other from the first-level cache, whose sets repeat every `SET_PERIOD` floats.
fn in_place(rows: usize, stride: usize, elements: usize, row: usize) -> bool {
    const SET_PERIOD: usize = 1024;
    const WAYS: usize = 8;
    let spacing = (stride & stride.wrapping_neg()).min(SET_PERIOD);
    elements == row && rows <= MAX_IN_PLACE_ROWS && rows * spacing <= WAYS * SET_PERIOD
}

/// Most rows of a tile of two vectors on CPUs with 32 registers.
const TALL: usize = 8;

/// A checked call; no tensor is empty.
pub(super) struct Backward<'a> {
    /// The parameters. Their output is the gradient of the query.
    pub(super) params: &'a AttentionParams<'a>,
    pub(super) qkv: Qkv<'a>,
    pub(super) context: Heads<'a>,
    pub(super) d_context: Heads<'a>,
    pub(super) sums: &'a [f32],
    pub(super) sequences: &'a [Sequence],
    pub(super) d_key: HeadPtrs<'a>,
    pub(super) d_value: HeadPtrs<'a>,
    pub(super) layout: Workspace,
    /// Gradients of the bias: for each sequence and head, one value per distance from key to query, beginning with the
    /// farthest key behind the query.
    pub(super) tables: Option<SharedMut<'a>>,
}

/// Floats of the gradient of the bias for one head of a sequence.
pub(super) fn table_len(sequence: &Sequence) -> usize {
    match (sequence.query_len, sequence.key_len) {
        (0, _) | (_, 0) => 0,
        (queries, keys) => queries.saturating_add(keys - 1),
    }
}

simd_op!(
    /// A range of sequences times key-value heads, which are processed in order with one workspace.
    pub(super) fn tasks<S: SimdF32, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        backward: &Backward<'_>,
        range: Range<usize>,
        scratch: *mut f32,
    ) {
        let kv_heads = backward.qkv.key.heads();
        for index in range.clone() {
            let task = |index| {
                let (index, kv_head) = (index / kv_heads, index % kv_heads);
                HeadTask { backward, index, kv_head, scratch }
            };
            let mut next = TaskRows::NOTHING;
            if index + PREFETCH_TASKS < range.end {
                next = task(index + PREFETCH_TASKS).prefetch();
            }
            let task = task(index);
            // SAFETY: `attention_backward` checked the views, ranges and the workspace. Only this task writes the keys
            // of this sequence and head, and the queries of the heads that read them.
            unsafe { task.compute_gradients::<S, NV>(s, &mut next) };
            next.issue_all(s);
        }
    }
);

/// Calls an op with a tile of `$rows` rows and `NV` vectors, or of two vectors if it has more rows than [`MAX_MR`].
macro_rules! call_tile {
    ($s:ident, $rows:expr, $op:ident $args:tt) => {{
        const { assert!(MAX_MR == 6 && TALL == 8, "all heights of a tile") };
        if const { S::REGISTERS >= 32 } && $rows > MAX_MR {
            tile_heights!($rows, [7 8], MR => $s.call_noinline($op::<MR, 2> $args))
        } else {
            tile_heights!($rows, [1 2 3 4 5 6], MR => $s.call_noinline($op::<MR, NV> $args))
        }
    }};
}

struct HeadTask<'a> {
    backward: &'a Backward<'a>,
    index: usize,
    kv_head: usize,
    scratch: *mut f32,
}

impl HeadTask<'_> {
    fn sequence(&self) -> Sequence {
        self.backward.sequences[self.index]
    }

    /// Query heads that read this head.
    fn group(&self) -> Range<usize> {
        let group = self.backward.params.group;
        self.kv_head * group..(self.kv_head + 1) * group
    }

    /// The saved maximum and the saved reciprocal of the sum of the weights of query `query` of the sequence.
    #[inline(always)]
    fn saved_sums(&self, query: usize, head: usize) -> (f32, f32) {
        let heads = self.backward.qkv.query.heads();
        let first = 2 * ((self.sequence().query_start + query) * heads + head);
        match self.backward.sums.get(first..first + 2) {
            Some(&[base, inverse]) => (base, inverse),
            _ => (0.0, 0.0),
        }
    }

    /// Copies the saved softmax sums of a block of queries to the workspace. Returns whether one of the queries is
    /// fully masked.
    ///
    /// # Safety
    /// As [`HeadTask::compute_gradients`]; the workspace has space for these queries.
    #[inline(always)]
    unsafe fn load_sums(&self, queries: Range<usize>, head: usize) -> bool {
        let sums = self.place(self.backward.layout.sums);
        let mut masked = false;
        for (local, query) in queries.enumerate() {
            let (base, inverse) = self.saved_sums(query, head);
            masked |= inverse == 0.0;
            // SAFETY: the `# Safety` contract of `load_sums` holds.
            unsafe {
                let to = sums.add(local * ROW_SUMS);
                to.write(base);
                to.add(1).write(inverse);
            }
        }
        masked
    }

    /// Address of the gradient of the bias for a head, at the farthest key behind the query, if it is requested.
    fn table(&self, head: usize) -> Option<*mut f32> {
        let tables = self.backward.tables?;
        let heads = self.backward.qkv.query.heads();
        let before: usize = self.backward.sequences[..self.index].iter().map(table_len).sum();
        Some(tables.as_ptr().wrapping_add(before * heads + head * table_len(&self.sequence())))
    }

    fn place(&self, at: usize) -> *mut f32 {
        self.scratch.wrapping_add(at)
    }

    /// Rows of the gradients from key `key` of the sequence.
    fn gradients(&self, key: usize) -> (Gradient, Gradient) {
        let Backward { d_key, d_value, params, .. } = self.backward;
        let token = self.sequence().key_start + key;
        let rows = |target: &HeadPtrs<'_>, factor| Gradient {
            at: target.at(token, self.kv_head),
            stride: target.token_stride(),
            factor,
        };
        (rows(d_key, params.scale), rows(d_value, 1.0))
    }

    /// The rows that this task reads and writes, if there are few.
    fn prefetch(&self) -> TaskRows {
        let Backward { qkv, context, d_context, params, d_key, d_value, .. } = self.backward;
        let Sequence { query_start, query_len, key_start, key_len, .. } = self.sequence();
        let head = self.group().start;
        if query_len.max(key_len) > MAX_PREFETCH_ROWS {
            return TaskRows::NOTHING;
        }
        let count = query_len.max(key_len);
        const { assert!(MAX_PREFETCH_ROWS <= KEY_BLOCK, "a task that prefetches reads no contexts") };
        let rows = [
            qkv.key.rows(key_start, self.kv_head),
            qkv.value.rows(key_start, self.kv_head),
            qkv.query.rows(query_start, head),
            d_context.rows(query_start, head),
            params.out.rows(query_start, head),
            d_key.rows(key_start, self.kv_head),
            d_value.rows(key_start, self.kv_head),
        ];
        let rows = rows.map(|HeadRows { at, stride }| (at, stride, count));
        let elements = context.head_dim();
        let fits_l1 = count * elements <= MAX_L1_FLOATS;
        let cache = if fits_l1 { CacheLevel::L1 } else { CacheLevel::L2 };
        TaskRows::new(rows, elements, cache)
    }

    /// # Safety
    /// The call was checked, and no other task accesses the workspace or the gradients of the keys and queries of this
    /// task.
    #[inline(always)]
    unsafe fn compute_gradients<S: SimdF32, const NV: usize>(&self, s: S, next: &mut TaskRows) {
        let backward = self.backward;
        let Sequence { query_len, key_len, padded_len, .. } = self.sequence();
        let head_dim = backward.qkv.key.head_dim();
        // SAFETY: the `# Safety` contract of `run` holds.
        unsafe {
            for table in self.group().filter_map(|head| self.table(head)) {
                clear(s, table, table_len(&self.sequence()));
            }
            // If there is a query, each valid key is visible to some query, because the causal mask is aligned to the
            // end.
            let reached = if query_len == 0 { 0 } else { key_len };
            let (d_key, d_value) = self.gradients(0);
            for key in reached..padded_len {
                clear(s, d_key.at.wrapping_add(key * d_key.stride), head_dim);
                clear(s, d_value.at.wrapping_add(key * d_value.stride), head_dim);
            }
            // Without keys, no block checks for fully masked queries.
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

    /// The queries of a head, as in the forward pass.
    fn head(&self, head: usize) -> HeadQuery {
        self.backward.params.head(&self.sequence(), head)
    }

    /// Processes a block of keys, with all its contributions to gradients. Returns whether a query is fully masked. The
    /// first block checks all queries.
    ///
    /// # Safety
    /// As [`HeadTask::compute_gradients`].
    #[inline(always)]
    unsafe fn block_of_keys<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        key: usize,
        keys: usize,
        next: &mut TaskRows,
    ) -> bool {
        let Backward { qkv, layout, params, .. } = self.backward;
        let hides = params.bias.is_some_and(|bias| bias.hides);
        let Sequence { query_len, key_start, .. } = self.sequence();
        let row = layout.row;
        let size = (keys, qkv.key.head_dim());
        let (d_key, d_value) = (self.place(layout.d_key), self.place(layout.d_value));
        let from_key = qkv.key.rows(key_start + key, self.kv_head);
        let from_value = qkv.value.rows(key_start + key, self.kv_head);
        let in_place = in_place(keys, from_key.stride, size.1, row);
        let key_rows = match in_place {
            true => from_key,
            false => HeadRows { at: self.place(layout.key_rows), stride: row },
        };
        // SAFETY: `check_keys` checked that the keys exist, and the workspace has space for a block of them.
        unsafe {
            if !in_place {
                let to = self.place(layout.key_rows);
                copy_rows::<S, f32, ROWS_AHEAD>(s, from_key, size, to, row);
                next.issue(s);
            }
            write_keys::<S, f32, true>(s, key_rows, size, 0, self.place(layout.key_panels));
            next.issue(s);
            write_keys::<S, f32, true>(s, from_value, size, 0, self.place(layout.value_panels));
            next.issue(s);
            if hides {
                clear(s, d_key, keys * row);
                clear(s, d_value, keys * row);
            }
        }
        let blocks = query_len.div_ceil(QUERY_ROWS);
        let group = self.group();
        let mut any = false;
        for index in group.clone() {
            let head = self.head(index);
            for part in 0..blocks {
                let queries = share(query_len, blocks, part);
                // The first block of keys writes the gradient of every query, even of a query that sees no key.
                if key > 0 && head.limit(queries.end - 1) <= key {
                    continue;
                }
                // SAFETY: the `# Safety` contract of `block_of_keys` holds.
                let [query_rows, d_context] = unsafe {
                    let masked = self.load_sums(queries.clone(), index);
                    any |= masked;
                    self.rows_of_queries(s, index, queries.clone(), masked)
                };
                let block = ScoreBlock {
                    head,
                    key,
                    keys,
                    query: queries.start,
                    queries: queries.len(),
                    row,
                    key_panels: self.place(layout.key_panels),
                    value_panels: self.place(layout.value_panels),
                    key_rows,
                    query_rows,
                    d_context,
                    weights: self.place(layout.weights),
                    d_scores: self.place(layout.d_scores),
                    sums: self.place(layout.sums),
                    d_key,
                    d_value,
                    table: self.table(index).map(|table| table.wrapping_add(query_len - 1)),
                };
                let last = index + 1 == group.end && part + 1 == blocks;
                // SAFETY: the `# Safety` contract of `block_of_keys` holds. The operands of the block are in the
                // workspace.
                unsafe {
                    self.dot_contexts(s, &block, index);
                    next.issue(s);
                    self.gradients_of_queries::<S, NV>(s, &block, next);
                    let last = last.then(|| self.gradients(key));
                    let first_head = index == group.start;
                    self.gradients_of_keys::<S, NV>(s, &block, first_head, last, next);
                }
            }
        }
        if hides {
            let (to_key, to_value) = self.gradients(key);
            let shape = (keys, row, qkv.key.head_dim());
            // SAFETY: the sums contain all queries, and the rows of the gradients exist.
            unsafe {
                masked::store_sums(s, d_key, shape, to_key);
                masked::store_sums(s, d_value, shape, to_value);
            }
        }
        any
    }

    /// The rows of a block of queries, and those of the gradients of their contexts: in place, or copied to the workspace.
    /// A block with a fully masked query needs copies, in which its rows are zeros.
    ///
    /// # Safety
    /// As [`HeadTask::compute_gradients`]; the workspace has space for these queries.
    #[inline(always)]
    unsafe fn rows_of_queries<S: SimdF32>(
        &self,
        s: S,
        head: usize,
        queries: Range<usize>,
        masked: bool,
    ) -> [HeadRows; 2] {
        let Backward { qkv, d_context, layout, .. } = self.backward;
        let start = self.sequence().query_start + queries.start;
        let size = (queries.len(), d_context.head_dim());
        let mut both = [qkv.query.rows(start, head), d_context.rows(start, head)];
        for (rows, to) in both.iter_mut().zip([layout.query, layout.d_context]) {
            if !masked && in_place(size.0, rows.stride, size.1, layout.row) {
                continue;
            }
            let to = self.place(to);
            // SAFETY: the `# Safety` contract of `rows_of_queries` holds.
            unsafe { copy_rows::<S, f32, ROWS_AHEAD>(s, *rows, size, to, layout.row) };
            *rows = HeadRows { at: to, stride: layout.row };
            for (local, query) in queries.clone().enumerate() {
                if masked && self.saved_sums(query, head).1 == 0.0 {
                    // SAFETY: as above: `local < queries.len()`.
                    unsafe { clear(s, to.add(local * layout.row), layout.row) };
                }
            }
        }
        both
    }

    /// Computes the dot products of the contexts of a block of queries with the contexts' gradients, if they are needed.
    ///
    /// # Safety
    /// As [`HeadTask::compute_gradients`]; the operands of the block are in the workspace.
    #[inline(always)]
    unsafe fn dot_contexts<S: SimdF32>(&self, s: S, block: &ScoreBlock, head: usize) {
        let Backward { context, layout, .. } = self.backward;
        let start = self.sequence().query_start + block.query;
        if block.sees_all(block.queries - 1) {
            return;
        }
        let sums = self.place(layout.sums);
        for local in 0..block.queries {
            // SAFETY: `local < block.queries`. By the `# Safety` contract of `dot_contexts` these queries exist,
            // `block.d_context` has a row for each, and `sums` has `ROW_SUMS` floats for each.
            unsafe {
                let row = block.d_context.at.wrapping_add(local * block.d_context.stride);
                let product = dot(s, row, context.at(start + local, head), context.head_dim());
                sums.add(local * ROW_SUMS + 2).write(product);
            }
        }
    }

    /// # Safety
    /// As [`HeadTask::compute_gradients`]; the operands of the block are in the workspace.
    #[inline(always)]
    unsafe fn gradients_of_queries<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        block: &ScoreBlock,
        next: &mut TaskRows,
    ) {
        let bias = block.head.hiding_bias();
        // With one vector of keys, a tile has registers for more queries. It needs them, because each query is only one
        // chain of additions.
        let tallest = if S::REGISTERS >= 32 && block.keys <= S::LANES { TALL } else { MAX_MR };
        let tiles = block.queries.div_ceil(tallest);
        for index in 0..tiles {
            next.issue(s);
            let local = share(block.queries, tiles, index);
            let first = local.start;
            // SAFETY: the `# Safety` contract of `gradients_of_queries` holds.
            unsafe { call_tile!(s, local.len(), dq_tile(block, first)) };
            let Some(bias) = bias else { continue };
            for local in local {
                // SAFETY: the `# Safety` contract of `gradients_of_queries` holds.
                unsafe { block.query_masked(s, bias, local) };
            }
        }
    }

    /// # Safety
    /// As [`HeadTask::compute_gradients`]; the operands of the block are in the workspace.
    #[inline(always)]
    unsafe fn gradients_of_keys<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        block: &ScoreBlock,
        first_head: bool,
        last: Option<(Gradient, Gradient)>,
        next: &mut TaskRows,
    ) {
        let seen = block.seen(block.queries - 1);
        if let Some(bias) = block.head.hiding_bias() {
            for key in 0..seen {
                // SAFETY: the `# Safety` contract of `gradients_of_keys` holds.
                unsafe { block.key_masked(s, bias, key) };
            }
            return;
        }
        // Keys that an earlier block of queries sees.
        let before = match (first_head, block.query) {
            (true, 0) => 0,
            (true, query) => block.head.limit(query - 1).saturating_sub(block.key),
            (false, _) => block.keys,
        };
        // With few columns, a tile has registers for more keys, as above.
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
            let first_write = first >= before;
            // SAFETY: the `# Safety` contract of `gradients_of_keys` holds.
            unsafe { call_tile!(s, local.len(), dkv_tile(block, first, first_write, last)) };
        }
    }

    /// Writes the gradients of fully masked queries, which are 0. If their contexts are the mean of all values, each
    /// value gets an equal share of the gradients of these contexts.
    ///
    /// # Safety
    /// As [`HeadTask::compute_gradients`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(&self, s: S, d_value: Gradient) {
        let Backward { d_context, params, .. } = self.backward;
        let Sequence { query_start, query_len, padded_len, .. } = self.sequence();
        let head_dim = d_context.head_dim();
        let masked = |head: usize| {
            (0..query_len).filter(move |&query| self.saved_sums(query, head).1 == 0.0)
        };
        let mut any = false;
        for index in self.group() {
            let head = self.head(index);
            for query in masked(index) {
                any = true;
                // SAFETY: the row of the gradient exists by the `# Safety` contract of `finish`.
                unsafe { clear(s, head.out.wrapping_add(query * head.out_row), head_dim) };
            }
        }
        if !any || params.fully_masked == FullyMasked::Zeros {
            return;
        }
        for column in (0..head_dim).step_by(S::LANES) {
            let count = (head_dim - column).min(S::LANES);
            let mut sum = s.splat(0.0);
            // SAFETY: the queries and the gradients of the values exist by the `# Safety` contract of `finish`.
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
        }
    }
}

const _: () = assert!(WEIGHTS_ROW >= KEY_BLOCK);
