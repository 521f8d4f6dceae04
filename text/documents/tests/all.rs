//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod archives;
mod archives_hostile;
mod document_parts;
mod documents;
mod documents_hostile;
mod marks;
mod measure;
mod office;
mod placement;
mod random;
mod sentences;
mod tables;
mod tables_resume;
