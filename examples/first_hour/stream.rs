//! Tokens as they come, an end to one source, and an end to everything: a user who has gone, a deadline.

use core::ops::ControlFlow;
use simdformer::search::{Finish, Hooks};
use simdformer::{DecodeStats, Event, Limits, Model, Session, Source, Stop};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// What became of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    pub(crate) tokens: Vec<u32>,
    pub(crate) finish: Option<Finish>,
}

/// Streams three sources, ends the second after two tokens, and everything once `shutdown` is set,
/// which happens here when `most` tokens have come.
pub(crate) fn run(
    directory: &str,
    most: usize,
) -> Result<(Vec<Stream>, DecodeStats), Box<dyn Error>> {
    let model = Model::open(directory)?;
    let mut session = Session::new(&model, Limits::new(2, 32, 40))?;
    let options = session.search_options();
    let sources = [&[6, 11, 0][..], &[9, 14, 32, 0], &[8, 0]].map(Source::new);
    // A server would refuse a bad source here, and keep the others.
    sources.iter().try_for_each(|source| session.check(source, &options))?;

    let shutdown = AtomicBool::new(false); // set by another thread, in a server
    let (mut streams, mut came) = (vec![Stream::default(); sources.len()], 0);
    let counts = session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
        match event {
            // Before every step: the place to look at a clock or a flag.
            Event::Step(_) if shutdown.load(Ordering::Relaxed) => {
                return ControlFlow::Break(Stop::All);
            }
            Event::Token { source, token } => {
                streams[source].tokens.push(token.id);
                came += 1;
                shutdown.fetch_or(came == most, Ordering::Relaxed);
                if source == 1 && token.index == 1 {
                    return ControlFlow::Break(Stop::Source);
                }
            }
            // Every source, exactly once, also those that were cancelled or had not begun.
            Event::Done(done) => streams[done.source].finish = Some(done.finish),
            _ => (),
        }
        ControlFlow::Continue(())
    })?;
    Ok((streams, counts))
}
