//! Tables of any length: a column of CSV, TSV or JSON lines is read, and another one is written.
//!
//! [`Job::fill_column`] turns a table into a table with a function from sources to texts, for example translation. It keeps
//! every byte that it does not replace, computes equal sources once, and takes the memory of a few thousand rows.
//! Interrupted at any moment, it continues where it was.

mod delimited;
mod durable_output;
mod journal;
mod json_lines;
mod known_texts;
mod row_reader;
mod rows;
mod run;
mod table;

pub use run::{ComputeError, Computed, Job, Output, Progress, Summary};
pub use table::{APPENDED, Format, Table};
