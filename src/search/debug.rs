//! Short `Debug` output for types that hold closures or the caller's memory.

use super::argmax::TokenMask;
use super::pipeline::Hooks;
use super::processors::AllowedPrefix;
use super::search::Search;
use core::fmt;

impl fmt::Debug for Hooks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("processors", &self.processors.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for AllowedPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedPrefix").finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenMask<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenMask").finish_non_exhaustive()
    }
}

impl fmt::Debug for Search<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("rows", &self.rows().len()).finish_non_exhaustive()
    }
}
