//! One row of the table of parameters.

use super::form::{Form, Panels, ScreenBytes};
use crate::network::Role;
use core::fmt;
use core::ops::Range;

/// A tensor of a model: what it is for, its shape, the form in which it is stored, and what that takes.
/// See [`crate::Model::parameters`].
#[derive(Clone, Debug)]
pub struct Parameter {
    pub(crate) role: Role,
    pub(crate) shape: Vec<usize>,
    pub(crate) place: Place,
    pub(crate) floats: usize,
}

/// Where a parameter is, in floats of the model's memory.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The rows of the tensor from row `skip` on.
    Rows { range: Range<usize>, skip: usize },
    /// The rows of the tensor are the columns of `matrix` from column `first` on.
    Columns { matrix: Panels, first: usize },
    /// Made of the columns of the same tensor.
    Screen(ScreenBytes),
    /// The tensor of this role has the same numbers.
    Shared(Role),
}

impl Parameter {
    /// What it is for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Its shape in a checkpoint, that of [`Role::shape`](crate::checkpoint::Role::shape): rows first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How it is stored.
    pub fn form(&self) -> Form {
        match self.place {
            Place::Rows { .. } => Form::Rows,
            Place::Columns { ref matrix, .. } => matrix.form.into(),
            Place::Screen(_) => Form::Screen,
            Place::Shared(_) => Form::Shared,
        }
    }

    /// The tensor in whose memory it is, where [`Parameter::form`] is [`Form::Shared`].
    pub fn shared_with(&self) -> Option<Role> {
        match self.place {
            Place::Shared(role) => Some(role),
            _ => None,
        }
    }

    /// Bytes of memory, with the padding that comes after it; 0 where it is [`Form::Shared`].
    pub fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }
}

impl fmt::Display for Parameter {
    /// `role shape form bytes`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} {}", self.role, self.shape, self.form(), self.bytes())
    }
}
