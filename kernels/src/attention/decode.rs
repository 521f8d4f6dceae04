//! Decode steps: one query per row, whose keys and values are in several slots of the cache, such as those of the
//! hypotheses of a beam.
//!
//! The slot table contains, for each position, the slot of its key and value. A panel of keys from one slot is used
//! directly. A panel whose positions are in several slots is scored once per slot, and the lanes are merged, which
//! gives each key the same sum as in its own slot. Values are added in order of position, slot by slot. The bits are
//! those of a cache in which all positions are in one slot.
//!
//! Hypotheses with a common ancestor share the first part of their slots, and nothing after it. Several rows process
//! the shared part as a tile, which reads it once. Then they process their own parts one by one (`decode_group.rs`).

use super::bias::CheckedBias;
use super::cache::{Cache, CacheShape};
use super::decode_group::{MAX_SHARED_ROWS, RowGroup, SharedRows, attend};
use super::head_views::{Heads, HeadsMut};
use super::kv_f16::with_kv_format;
use super::one_head::HeadQuery;
use super::online_softmax::WeightLines;
use super::options::{AttentionOptions, Sequence, check_query, check_sequences};
use super::panels::KvFormat;
use super::tasks::{AttentionParams, chunked};
use crate::debug_slice::impl_debug;
use crate::dtype::Dtype;
use crate::error::{Error, Expected};
use crate::parallel::Parallelism;
use crate::simd::{SimdF32, SimdOp, simd_op};
use core::ops::Range;

/// The KV slots of each row of a decode step. Row `r` sees `lens[r]` keys; key `j` is position `j` of slot
/// `slots[r * stride + j]` of the cache.
///
/// If all keys of a row are in one slot, the table contains this slot `lens[r]` times. With a `stride` of 0, all rows
/// share one row of the table.
#[derive(Clone, Copy)]
pub struct SlotTable<'a> {
    /// Keys that each row sees, `[rows]`.
    pub lens: &'a [u32],
    /// The slot of each key of each row.
    pub slots: &'a [u32],
    /// Entries of `slots` from one row to the next.
    pub stride: usize,
}

impl<'a> SlotTable<'a> {
    /// The slots of row `row`, or `None` if the table has no such row or ends before its last key.
    pub(super) fn row_slots(&self, row: usize) -> Option<&'a [u32]> {
        let len = *self.lens.get(row)? as usize;
        let start = row.checked_mul(self.stride)?;
        self.slots.get(start..start.checked_add(len)?)
    }
}

impl_debug!(SlotTable { [lens], [slots], stride });

/// Attention of one query per row, `[rows, heads, head_dim]`, over keys and values that may be in several slots;
/// `slot_table` contains the slots. `out` has the query's shape. A dense bias is indexed by row, as by query elsewhere.
/// With a relative bias, the position of each row is that of its last key.
///
/// This is self-attention in a decode step. [Append](crate::CacheMut::append) the keys and values of the rows first: a row
/// sees its own key. To fork a hypothesis, copy a row of the table; keys and values are not copied.
///
/// The bits are those of [`attention_cached`](crate::attention_cached) on a cache that has the same keys in one slot.
///
/// # Errors
/// Shapes, slots, lengths or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     SlotTable, AttentionOptions, CacheMut, CacheShape, Heads, HeadsMut, Isa, Parallelism,
///     attention_decode,
/// };
///
/// let (isa, heads, head_dim) = (Isa::best(), 1, 2);
/// let shape = CacheShape::new(2, 8, heads, head_dim);
/// let mut data = vec![0.0; shape.buffer_len(isa)?];
/// let mut cache = CacheMut::new(isa, shape, &mut data)?;
/// // All keys are equal, so the context of a row is the mean of the values that it sees.
/// let key = [1.0; 4];
/// let rows = [2, heads, head_dim];
///
/// // Step 0: one hypothesis, in slot 0. Step 1: two hypotheses, which write to slots 0 and 1.
/// let (first, second) = ([2.0, 0.0], [4.0, 0.0, 8.0, 6.0]);
/// let one = [1, heads, head_dim];
/// cache.append(&[0], &[0], Heads::new(&key[..2], one)?, Heads::new(&first, one)?)?;
/// cache.append(&[0, 1], &[1, 1], Heads::new(&key, rows)?, Heads::new(&second, rows)?)?;
///
/// // Position 0 of both is in slot 0, position 1 in the slot of each. A row of the table has 8 positions.
/// let mut slots = [0u32; 2 * 8];
/// slots[8 + 1] = 1;
/// let mut context = [0.0; 4];
/// attention_decode(
///     Heads::new(&[0.5; 4], rows)?,
///     &cache.as_view(),
///     SlotTable { lens: &[2, 2], slots: &slots, stride: 8 },
///     &AttentionOptions::new(head_dim),
///     HeadsMut::new(&mut context, rows)?,
///     Parallelism::Serial,
/// )?;
/// assert!(context.iter().zip([3.0, 0.0, 5.0, 3.0]).all(|(x, y)| (x - y).abs() < 1e-5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_decode(
    query: Heads<'_>,
    cache: &Cache<'_>,
    slot_table: SlotTable<'_>,
    options: &AttentionOptions<'_>,
    mut out: HeadsMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape = cache.shape();
    let isa = cache.isa();
    check_query(&query, ("out", &out), shape.heads, shape.head_dim)?;
    check_slots(&slot_table, query.tokens(), &shape)?;
    let ranges = slot_table.lens.iter().enumerate().map(|(row, &len)| (row, 1, len as usize));
    let reach = check_sequences(ranges, &query, &[])?;
    let bias = CheckedBias::new(options, reach)?;
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let params = AttentionParams::new(&query, shape.heads, options, bias, &mut out, None);
    // Each task writes its own elements of the output.
    let workers = parallelism.workers();
    let unit = rows_of_unit(query.tokens(), query.heads(), workers.threads());
    let tasks = query.tokens().div_ceil(unit) * query.heads();
    chunked(tasks, reach.work, workers, &|range| {
        let rows = DecodeRows { params: &params, cache: *cache, slot_table, unit, range };
        with_kv_format!(shape.dtype, N => isa.dispatch(decode_rows::<N>(rows)));
    });
    Ok(())
}

/// Checks that each of `rows` rows has a slot for each of its keys, and that the cache has these slots and positions.
fn check_slots(slot_table: &SlotTable<'_>, rows: usize, shape: &CacheShape) -> Result<(), Error> {
    let &SlotTable { lens, slots, stride } = slot_table;
    Error::check_len("lens", rows, lens)?;
    for (row, &len) in lens.iter().enumerate() {
        let Some(row_slots) = slot_table.row_slots(row) else {
            let expected = row.saturating_mul(stride).saturating_add(len as usize);
            let expected = Expected::AtLeast(expected);
            return Error::check_size("length", "slots", expected, slots.len());
        };
        let (index, capacity) = (Some(row), Expected::AtMost(shape.capacity));
        Error::check_item("keys", "row", index, capacity, row_slots.len())?;
        Error::check_indices("slot", "key", shape.slots, row_slots)?;
    }
    Ok(())
}

/// Rows of a decode step per task. With more rows, more of them can share what they read, but each thread needs several
/// tasks. The number does not change the bits.
fn rows_of_unit(rows: usize, heads: usize, threads: usize) -> usize {
    let mut unit = MAX_SHARED_ROWS;
    while unit > 1 && rows.div_ceil(unit) * heads < 2 * threads {
        unit /= 2;
    }
    unit
}

/// A range of `(unit of rows, head)` of a decode step.
struct DecodeRows<'a> {
    params: &'a AttentionParams<'a>,
    cache: Cache<'a>,
    slot_table: SlotTable<'a>,
    /// Rows in a unit.
    unit: usize,
    range: Range<usize>,
}

simd_op!(
    /// Computes attention for the rows and heads of `decode`.
    fn decode_rows<S: SimdF32, N: KvFormat, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        decode: DecodeRows<'_>,
    ) {
        let heads = decode.params.query.heads();
        let rows = decode.slot_table.lens.len();
        let mut lines = WeightLines::new();
        let mut queries = [decode.params.head(&Sequence::default(), 0); MAX_SHARED_ROWS];
        let mut task = decode.range.start;
        while task < decode.range.end {
            let (unit, first) = (task / heads, task % heads);
            let count = (heads - first).min(decode.range.end - task);
            let end = rows.min((unit + 1) * decode.unit);
            let mut row = unit * decode.unit;
            while row < end {
                let shared =
                    decode.shared_rows(row, end, const { max_shared_rows::<S>() }, S::LANES);
                // The heads of a row are processed in order, as they are in memory.
                for head in first..first + count {
                    let next = if head + 1 < first + count {
                        (row, head + 1)
                    } else if row + shared.rows < end {
                        (row + shared.rows, first)
                    } else {
                        (end, 0)
                    };
                    decode.load_queries(&shared, (row, head), &mut queries);
                    let kv_head = head / decode.params.group;
                    let kv = decode.cache.head::<N::KvElement>(S::LANES, kv_head);
                    let next_keys = decode.next_keys::<N::KvElement>(S::LANES, next);
                    // SAFETY: `check_slots` checked slots and lengths against the cache. Only this task writes these
                    // rows and this head.
                    unsafe {
                        match shared.rows {
                            4 if const { max_shared_rows::<S>() >= 4 } => {
                                let group = RowGroup::<N, 4>::new(&queries, &shared, kv, next_keys);
                                s.call_noinline(attend::<N, 4, NV>(group, &mut lines));
                            }
                            2 if const { max_shared_rows::<S>() >= 2 } => {
                                let group = RowGroup::<N, 2>::new(&queries, &shared, kv, next_keys);
                                s.call_noinline(attend::<N, 2, NV>(group, &mut lines));
                            }
                            _ => {
                                let group = RowGroup::<N, 1>::new(&queries, &shared, kv, next_keys);
                                attend::<N, 1, NV>(group, &mut lines).run_with(s);
                            }
                        }
                    }
                }
                row += shared.rows;
            }
            task += count;
        }
    }
);

/// Most rows that share one pass over common keys and values. It is one on instruction sets without prefetch, where
/// computing takes longer than reading.
const fn max_shared_rows<S: SimdF32>() -> usize {
    if S::PREFETCHES { MAX_SHARED_ROWS } else { 1 }
}

impl<'a> DecodeRows<'a> {
    /// The KV slots of a row.
    fn slots(&self, row: usize) -> &'a [u32] {
        self.slot_table.row_slots(row).unwrap_or(&[])
    }

    /// At most `most` rows with a common prefix of slots, from `row`, before `end`.
    #[inline(never)]
    fn shared_rows(&self, row: usize, end: usize, most: usize, lanes: usize) -> SharedRows<'a> {
        let mut slots = [self.slots(row); MAX_SHARED_ROWS];
        let mut rows = 1;
        while rows < most && row + rows < end {
            let next = self.slots(row + rows);
            if next.len() != slots[0].len() || next.first() != slots[0].first() {
                break;
            }
            slots[rows] = next;
            rows += 1;
        }
        if rows == 3 {
            rows = 2;
        }
        let panels = |row: usize| slots[row].chunks_exact(lanes);
        let equal = |row| panels(0).zip(panels(row)).take_while(|(a, b)| a == b).count() * lanes;
        let shared = (1..rows).map(equal).fold(slots[0].len(), usize::min);
        if rows == 1 || shared == 0 {
            return SharedRows { rows: 1, slots, shared: 0 };
        }
        SharedRows { rows, slots, shared }
    }

    /// Sets `queries` to those of `head` of the rows from `row`.
    #[inline(never)]
    fn load_queries(
        &self,
        shared: &SharedRows<'_>,
        (row, head): (usize, usize),
        queries: &mut [HeadQuery; MAX_SHARED_ROWS],
    ) {
        for (i, query) in queries.iter_mut().enumerate().take(shared.rows) {
            let keys = shared.slots[i].len();
            *query = self.params.head(&Sequence::of_queries(row + i, 1, keys), head);
        }
    }

    /// Address of the first key of a row and a head, which are computed next. After the last row it is any address.
    fn next_keys<T>(&self, lanes: usize, (row, head): (usize, usize)) -> *const T {
        let slot = self.slots(row).first().map_or(0, |&slot| slot);
        self.cache.head(lanes, head / self.params.group).keys(slot)
    }
}
