//! A decode loop on the kernels alone: a KV cache, and a slot table with a hypothesis that forks. Keys and values are
//! written once; a fork copies slot numbers.

use simdformer_kernels::{
    AttentionOptions, CacheMut, CacheShape, Heads, HeadsMut, Isa, Parallelism, SlotTable,
    attention_decode,
};
use std::error::Error;

pub(crate) const HEADS: usize = 2;
pub(crate) const HEAD_DIM: usize = 8;
pub(crate) const WIDTH: usize = HEADS * HEAD_DIM;
/// Positions of a slot.
const CAPACITY: usize = 32;
/// Hypotheses at a time. Each appends to a slot of its own.
const ROWS: usize = 2;

/// Query, key and value of a token. In a model they are projections of its hidden state.
pub(crate) fn projections(token: u32) -> [[f32; WIDTH]; 3] {
    let hash = |part: usize, i: usize| (token as usize * 31 + part * 57 + i * 13) % 29;
    std::array::from_fn(|part| std::array::from_fn(|i| hash(part, i) as f32 / 29.0 - 0.5))
}

/// Two hypotheses: both have the tokens `common`, then each has its own `tails`, which are equally long. Returns the
/// context of the last token of each.
pub(crate) fn run(
    common: &[u32],
    tails: [&[u32]; ROWS],
) -> Result<[[f32; WIDTH]; ROWS], Box<dyn Error>> {
    let isa = Isa::detect()?;
    let shape = CacheShape::new(ROWS, CAPACITY, HEADS, HEAD_DIM);
    let mut memory = vec![0.0; shape.buffer_len(isa)?];
    let mut cache = CacheMut::new(isa, shape, &mut memory)?;
    // For each hypothesis and position: the slot with its key and value.
    let mut table = [[0; CAPACITY]; ROWS];
    let mut contexts = [[0.0; WIDTH]; ROWS];
    for position in 0..common.len() + tails[0].len() {
        if position == common.len() {
            table[1] = table[0]; // the fork
        }
        let active = if position < common.len() { 1 } else { ROWS };
        let token = |row: usize| match position.checked_sub(common.len()) {
            None => common[position],
            Some(at) => tails[row][at],
        };
        let rows: Vec<_> = (0..active).map(|row| projections(token(row))).collect();
        let [query, key, value] =
            [0, 1, 2].map(|part| -> Vec<f32> { rows.iter().flat_map(|row| row[part]).collect() });
        let slots: Vec<u32> = (0..active as u32).collect();
        for (row, &slot) in slots.iter().enumerate() {
            table[row][position] = slot;
        }
        let heads = [active, HEADS, HEAD_DIM];
        let positions = vec![position as u32; active];
        cache.append(&slots, &positions, Heads::new(&key, heads)?, Heads::new(&value, heads)?)?;
        let lens = vec![position as u32 + 1; active];
        let slots = SlotTable { lens: &lens, slots: table.as_flattened(), stride: CAPACITY };
        let out = HeadsMut::new(&mut contexts.as_flattened_mut()[..active * WIDTH], heads)?;
        let options = AttentionOptions::new(HEAD_DIM);
        let query = Heads::new(&query, heads)?;
        attention_decode(query, &cache.as_view(), slots, &options, out, Parallelism::Serial)?;
    }
    Ok(contexts)
}
