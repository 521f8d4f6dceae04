//! Compressed files: containers, whose lengths and tables are checked before a decoder sees them, and the decoders.

mod bytes;
mod decoder;
mod ebml_elements;
mod ebml_headers;
mod flac_blocks;
mod flac_bytes;
mod followed;
mod heard;
mod media;
mod mp4_atoms;
mod mp4_boxes;
mod mp4_edits;
mod mp4_fragments;
mod mp4_index;
mod mpeg_frames;
mod ogg_headers;
mod ogg_pages;
mod opus;
mod rewritten;
mod untrusted;
mod vorbis_setup;

pub(crate) use decoder::Decoder;
