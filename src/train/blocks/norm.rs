//! The norms of the layers in training: saving, recomputation and the backward pass, also around a block.

use crate::config::Side;
use crate::error::Error;
use crate::model::weights::Norm;
use crate::train::params::{self, NormPart, Part};
use crate::train::pass_context::{Pass, cut, views};
use simdformer_kernels::Input;
use simdformer_kernels::train::{self as kernels, WriteMode};

impl Pass<'_> {
    /// `out = norm(x)`; saves the standard scores and the scales.
    pub(in crate::train) fn norm(
        &self,
        layer: &Norm,
        x: &[f32],
        standard: &mut [f32],
        scale: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (d, exec) = (layer.weight.len(), self.run.exec());
        let (x, out) = (Self::matrix(x, d)?, Self::matrix_mut(out, d)?);
        let scale = &mut scale[..x.rows()];
        let standard = Self::matrix_mut(&mut standard[..x.rows() * d], d)?;
        let (norm, x) = (self.run.norm_of(layer), Input::Matrix(x));
        kernels::norm_forward_save(exec, norm, x, standard, scale, out)?;
        Ok(())
    }

    /// Recomputes the output of [`Pass::norm`].
    pub(in crate::train) fn norm_recompute(
        &self,
        layer: &Norm,
        standard: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (d, exec) = (layer.weight.len(), self.run.exec());
        let standard = Self::matrix(&standard[..out.len()], d)?;
        let out = Self::matrix_mut(out, d)?;
        kernels::norm_recompute(exec, self.run.norm_of(layer), standard, out)?;
        Ok(())
    }

    /// The gradients of a norm's parameters, from the gradient of its result.
    fn norm_parameters(
        &self,
        flat: &params::Norm,
        side: Side,
        standard: &[f32],
        d_out: &[f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let (d, exec) = (flat.weight.len(), self.run.exec());
        let standard = Self::matrix(&standard[..d_out.len()], d)?;
        let d_out = Self::matrix(d_out, d)?;
        let [weight, bias] = match &flat.bias {
            Some(bias) => cut(gradients, [&flat.weight, bias])?,
            None => [&mut gradients[flat.weight.clone()], &mut []],
        };
        kernels::norm_parameters_backward(
            exec,
            standard,
            d_out,
            self.chunks(side)?,
            self.write,
            kernels::NormGradients { weight, bias: flat.bias.is_some().then_some(bias) },
        )?;
        Ok(())
    }

    /// The gradients of a norm's parameters and of its input, from the gradient of its result, which is overwritten.
    pub(in crate::train) fn norm_backward(
        &self,
        side: Side,
        Part { weights: norm, ranges: flat }: NormPart<'_>,
        (standard, scale): (&[f32], &[f32]),
        d_x: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        self.norm_parameters(flat, side, standard, d_x, gradients)?;
        let (d, exec) = (norm.weight.len(), self.run.exec());
        let standard = Self::matrix(&standard[..d_x.len()], d)?;
        let d_x = Self::matrix_mut(d_x, d)?;
        let saved = kernels::SavedNorm { standard, scale: &scale[..d_x.rows()] };
        let (norm, store) = (self.run.norm_of(norm), WriteMode::Store);
        kernels::norm_backward(exec, norm, saved, Input::Output, store, d_x)?;
        Ok(())
    }

    /// With the norm after a block: [`Pass::norm_backward`].
    pub(in crate::train) fn norm_after_backward(
        &self,
        side: Side,
        norm: NormPart<'_>,
        saved: (&[f32], &[f32]),
        d_x: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        match self.post_norm() {
            true => self.norm_backward(side, norm, saved, d_x, gradients),
            false => Ok(()),
        }
    }

    /// With the norm before a block: adds the gradient of the norm's input, computed from that of its result `d_out`,
    /// to `d_x`.
    pub(in crate::train) fn norm_before_backward(
        &self,
        side: Side,
        Part { weights: norm, ranges: flat }: NormPart<'_>,
        (standard, scale): (&[f32], &[f32]),
        (d_out, d_x): (&[f32], &mut [f32]),
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        if self.post_norm() {
            return Ok(());
        }
        self.norm_parameters(flat, side, standard, d_out, gradients)?;
        let (d, exec) = (norm.weight.len(), self.run.exec());
        let standard = Self::matrix(&standard[..d_out.len()], d)?;
        let (d_out, d_x) = (Self::matrix(d_out, d)?, Self::matrix_mut(d_x, d)?);
        let saved = kernels::SavedNorm { standard, scale: &scale[..d_out.rows()] };
        let (norm, d_out) = (self.run.norm_of(norm), Input::Matrix(d_out));
        kernels::norm_backward(exec, norm, saved, d_out, WriteMode::Add, d_x)?;
        Ok(())
    }

    pub(in crate::train) fn final_norm_backward(
        &self,
        side: Side,
        norm: Option<NormPart<'_>>,
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let plan = self.plan.stack(side)?;
        let floats = self.rows(side) * self.run.config.d_model;
        let saved = &plan.final_norm;
        views!(memory => d_x: plan.d_x, standard: saved.standard, scale: saved.scale);
        let d_x = &mut d_x[..floats];
        if let Some(norm) = norm {
            self.norm_backward(side, norm, (standard, scale), d_x, gradients)?;
        }
        Ok(())
    }
}
