//! The tests of what training needs, one module a file, in one program.

mod leaves;
