//! `Debug` of the types that hold closures or planned memory: it prints only a few fields.

use super::event::Generated;
use super::model_drafter::ModelDrafter;
use super::plan::Plan;
use super::session::Session;
use super::traced::TracedSession;
use core::fmt;

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("limits", &self.limits())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("limits", &self.plan.limits)
            .field("bytes", &self.plan.bytes())
            .field("free_sentences", &self.free_sentences())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ModelDrafter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDrafter").finish_non_exhaustive()
    }
}

impl fmt::Debug for Generated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated")
            .field("source", &self.source)
            .field("finish", &self.finish)
            .field("hypotheses", &self.hypotheses().len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TracedSession<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedSession").finish_non_exhaustive()
    }
}
