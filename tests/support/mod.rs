//! What several tests of the model layer share, and no other program.

pub(crate) mod golden_options;
pub(crate) mod naive_options;
pub(crate) mod naive_search;
pub(crate) mod rejections;
pub(crate) mod tiny_marian;
