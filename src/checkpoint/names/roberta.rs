//! `RobertaModel`, `XLMRobertaModel` and `CamembertModel`: BERT's names, with the prefix `roberta.` in a larger
//! model.

use super::bert::BERT;
use super::encoder_only::Spelling;

pub(super) const ROBERTA: Spelling = Spelling { prefix: "roberta.", ..BERT };
