//! Streams tokens, cancels one source, and cancels everything: a client that disconnected, a deadline.

use core::ops::ControlFlow;
use simdformer::search::{Finish, Hooks};
use simdformer::{DecodeStats, Event, Limits, Model, Session, Source, Stop};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// The output of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    pub(crate) tokens: Vec<u32>,
    pub(crate) finish: Option<Finish>,
}

/// Streams three sources and ends the second after two tokens. Ends everything once `shutdown` is set; this example
/// sets it after `most` tokens.
pub(crate) fn run(
    directory: &str,
    most: usize,
) -> Result<(Vec<Stream>, DecodeStats), Box<dyn Error>> {
    let model = Model::open(directory)?;
    let mut session = Session::new(&model, Limits::new(2, 32, 40))?;
    let options = session.search_options();
    let sources = [&[6, 11, 0][..], &[9, 14, 32, 0], &[8, 0]].map(Source::new);
    // A server would reject an invalid source here, and keep the others.
    sources.iter().try_for_each(|source| session.check(source, &options))?;

    let shutdown = AtomicBool::new(false); // in a server, another thread sets it
    let (mut streams, mut came) = (vec![Stream::default(); sources.len()], 0);
    let counts = session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
        match event {
            // Before every step: check a clock or a flag here.
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
            // Once for every source, also if it was cancelled or never begun.
            Event::Done(done) => streams[done.source].finish = Some(done.finish),
            _ => (),
        }
        ControlFlow::Continue(())
    })?;
    Ok((streams, counts))
}
