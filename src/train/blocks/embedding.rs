//! The backward pass of the embeddings: their norm, and the tables of tokens, positions and types.

use crate::config::{Positions, Side};
use crate::error::Error;
use crate::memory::MemoryError;
use crate::model::blocks::positions_after_norm;
use crate::model::forward::BlockId;
use crate::network::visitor::Input;
use crate::train::dropout::Site;
use crate::train::frozen;
use crate::train::loss_step::Outcome;
use crate::train::params::{self, NormPart};
use crate::train::pass_context::{Pass, views};
use simdformer_kernels::train::{Lookup, embedding_gradient};

impl Pass<'_> {
    /// Writes the gradient of `scale * table[id] + position` to `d_x`. The gradient of positions is copied to
    /// `embedded`; if positions are added after the norm, it is copied before the norm's backward pass.
    pub(in crate::train) fn embedding_norm_backward(
        &self,
        side: Side,
        norm: Option<NormPart<'_>>,
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let plan = self.plan.stack(side)?;
        let floats = self.rows(side) * self.run.config.d_model;
        let saved = &plan.embedding_norm;
        views! { memory =>
            d_x: plan.d_x,
            standard: saved.standard,
            scale: saved.scale,
            embedded: plan.embedded,
        }
        let d_x = &mut d_x[..floats];
        if let Some(dropout) = self.dropout_at(side, Site::Output(BlockId::Embedding)) {
            let rows = self.rows(side);
            let d_x = Self::matrix_mut(d_x, self.run.config.d_model)?;
            self.drop_in_place(&dropout, (side, 0..rows), d_x)?;
        }
        // The gradient of positions is read from here. If positions were added after the norm, copy it before the
        // norm's backward pass.
        let d_positions = &mut embedded[..floats];
        if positions_after_norm(&self.run, side) {
            d_positions.copy_from_slice(d_x);
        }
        if let Some(norm) = norm {
            self.norm_backward(side, norm, (standard, scale), d_x, gradients)?;
        }
        if !positions_after_norm(&self.run, side) {
            d_positions.copy_from_slice(d_x);
        }
        Ok(())
    }

    /// Adds the gradients of looked-up rows to the tables of tokens, positions and types, one group of sentences at a
    /// time. So additions to a table that both sides share have the same order for any split into passes.
    pub(in crate::train) fn look_up(
        &self,
        network: &params::Network,
        memory: &mut [f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), Error> {
        let config = self.run.config;
        let d = config.d_model;
        let skip = frozen::padding_row(config);
        let ties = config.ties;
        let (encoder, decoder) = (&network.encoder, network.decoder.as_ref());
        let target = self.plan.decoder.as_ref().unwrap_or(&self.plan.encoder);
        let of_target = if decoder.is_some() { target.d_x.clone() } else { 0..0 };
        views!(memory => source_d: self.plan.encoder.d_x, target_d: of_target);
        let mut start = [0, 0];
        for &end in &self.batch.groups {
            let end = end.map(|end| end as usize);
            if let Input::Table(table) = &encoder.input {
                let tied = ties.source_target && ties.target_output && decoder.is_some();
                let rows = start[0]..end[0];
                let ids = &self.batch.source.ids[rows.clone()];
                let from = &source_d[rows.start * d..rows.end * d];
                self.look_up_rows(table, tied, (ids, skip), config.embedding_scale, from, outcome)?;
            }
            if let Some(decoder) = decoder {
                let rows = start[1]..end[1];
                let ids = &self.batch.target.ids[rows.clone()];
                let from = &target_d[rows.start * d..rows.end * d];
                let (table, tied) = (&decoder.table, ties.target_output);
                self.look_up_rows(table, tied, (ids, skip), config.embedding_scale, from, outcome)?;
            }
            start = end;
        }
        let learned = matches!(config.positions, Positions::Learned { .. });
        let sides = [
            (Some(&encoder.embedding), &self.plan.encoder, &self.batch.source),
            (decoder.map(|decoder| &decoder.embedding), target, &self.batch.target),
        ];
        for (embedding, plan, lines) in sides {
            let Some(table) = embedding.and_then(|embedding| embedding.positions.as_ref()) else {
                continue;
            };
            if learned {
                // The backward pass wrote the gradient of the positions to `embedded`.
                let from = &memory[plan.embedded.clone()][..lines.rows() * d];
                self.look_up_rows(table, false, (&lines.positions, None), 1.0, from, outcome)?;
            }
        }
        if let Some(table) = &encoder.token_types {
            // All tokens have type 0.
            let lines = &self.batch.source;
            let from = &memory[self.plan.encoder.embedded.clone()][..lines.rows() * d];
            self.look_up_rows(table, false, (&lines.types, None), 1.0, from, outcome)?;
        }
        Ok(())
    }

    fn look_up_rows(
        &self,
        table: &params::Table,
        tied: bool,
        (ids, skip): (&[u32], Option<u32>),
        scale: f32,
        d_x: &[f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), Error> {
        let to = match tied {
            true => &mut *outcome.lookups,
            false => &mut outcome.gradients[table.range.clone()],
        };
        let to = to.get_mut(table.skip * table.columns..).ok_or(MemoryError::TooLarge)?;
        let exec = self.run.exec();
        let d_x = Self::matrix(d_x, table.columns)?;
        let to = Self::matrix_mut(to, table.columns)?;
        embedding_gradient(exec, Lookup { ids, scale, skip }, d_x, to, outcome.order)?;
        Ok(())
    }
}
