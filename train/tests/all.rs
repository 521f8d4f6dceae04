//! The tests of runs. Each file is a module of this one program. The test that counts the allocations of the whole process
//! is a program of its own, and the tests of the example `train` are in its folder.

mod data;
mod directories;
mod faults;
mod runs;
mod support;
mod walkthrough_models;
