//! `pack`: writes a directory with packed weights.

use crate::arguments::Pack;
use crate::streams::{Failure, Streams};
use simdformer_text::packed::{self, PackOptions, PackedPart};

/// Packs the model; returns the exit code.
pub(crate) fn pack_model(arguments: &Pack, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let Pack { directory, out, weights, isa, .. } = arguments;
    let options = PackOptions { dtypes: weights.clone(), isas: isa.clone() };
    let written = packed::pack(&directory.model, out, &options)?;
    for PackedPart { path, bytes, .. } in &written.parts {
        writeln!(streams.out, "{}: {bytes} bytes", path.display())?;
    }
    writeln!(streams.out, "fingerprint: {:032x}", written.fingerprint)?;
    Ok(0)
}
