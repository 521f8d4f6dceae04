//! The sizes of the relative position tables in the planned memory, and their buckets.
//!
//! A relative position bias depends only on a distance. A stack therefore needs a value for each distance and
//! head, not for each pair of positions. The tables are written once when a session is created, or after each
//! optimizer step.

use super::pass::Relative;
use crate::config::{Config, Side};
use crate::memory::MemoryError;
use simdformer_kernels::relative::RelativeBuckets;

/// The tables of one stack.
#[derive(Clone, Debug)]
pub(crate) struct RelativePlan {
    /// Floats of all tables; 0 if the stack has none.
    pub(crate) floats: usize,
    /// Floats from one layer's table to the next; 0 if all layers share one.
    layer_stride: usize,
    pub(crate) buckets: Option<(RelativeBuckets, usize)>,
}

impl RelativePlan {
    /// Plans tables for sequences of up to `positions`.
    pub(crate) fn new(config: &Config, side: Side, positions: usize) -> Result<Self, MemoryError> {
        let stack = config.stack(side);
        let Some((stack, bias)) = stack.and_then(|stack| Some((stack, stack.relative_bias?)))
        else {
            return Ok(Self { floats: 0, layer_stride: 0, buckets: None });
        };
        // Cannot fail: the configuration was validated.
        let buckets = bias.of(side).map_err(|_| MemoryError::TooLarge)?;
        let table = buckets.table_len(stack.heads, positions);
        let table = table.map_err(|_| MemoryError::TooLarge)?;
        let (layer_stride, tables) = if bias.per_layer { (table, stack.layers) } else { (0, 1) };
        let floats = table.checked_mul(tables).ok_or(MemoryError::TooLarge)?;
        Ok(Self { floats, layer_stride, buckets: Some((buckets, positions)) })
    }

    /// The tables as a pass reads them; `tables` has [`RelativePlan::floats`] floats of the memory.
    pub(crate) fn of<'p>(&self, tables: &'p [f32]) -> Relative<'p> {
        Relative { tables, layer_stride: self.layer_stride, buckets: self.buckets }
    }
}
