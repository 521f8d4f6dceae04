//! What a file is that is not read, for errors.

use crate::error::Error;

/// The command that converts other files.
pub(crate) const CONVERT: &str = "ffmpeg -i FILE -ac 1";

/// The probable kind of a file that is not a WAV file.
pub(crate) fn kind(head: &[u8]) -> &'static str {
    let at = |at: usize, text: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(text));
    match head {
        [] => "an empty file",
        _ if at(0, b"RIFF") && head.len() < 12 => "the beginning of a RIFF file, cut short",
        _ if at(0, b"RIFF") && at(8, b"AVI ") => "an AVI file",
        _ if (at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64")) && at(8, b"WAVE") => "a WAV file",
        _ if at(0, b"RIFF") => "a RIFF file of another kind",
        _ if at(0, b"RIFX") => "a RIFX file, whose numbers begin with the highest byte",
        _ if at(0, b"RF64") || at(0, b"BW64") => "an RF64 file of another kind",
        _ if at(0, b"riff") => "a Wave64 file",
        _ if at(0, b"fLaC") => "a FLAC file",
        _ if at(0, b"OggS") => "an Ogg file (Vorbis or Opus)",
        _ if at(0, b"ID3") => "an MP3 file",
        [0xff, second, ..] if second & 0xf6 == 0xf0 => "an AAC file",
        [0xff, second, ..] if second & 0xe6 == 0xe2 => "an MP3 file",
        _ if at(4, b"ftyp") => "an MP4 or M4A file",
        _ if at(0, b"FORM") => "an AIFF file",
        _ if at(0, b"caff") => "a CAF file",
        _ if at(0, b".snd") => "an AU file",
        _ if at(0, b"\x1a\x45\xdf\xa3") => "a WebM or Matroska file",
        _ if at(0, b"\x30\x26\xb2\x75") => "a WMA file",
        _ if at(0, b"#!AMR") => "an AMR file",
        _ if at(0, b"PK\x03\x04") || at(0, b"\x1f\x8b") => "a compressed archive",
        _ if at(0, b"version http") => "a Git-LFS pointer, which `git lfs pull` replaces",
        _ if at(0, b"<") => "a web page or XML: perhaps the download was refused",
        _ => "something else",
    }
}

/// The error of a recording that is not of the `expected` formats, but `found`.
pub(crate) fn other_format(expected: &str, found: &str) -> Error {
    let found = format_args!("{found}; `{CONVERT} OUT.wav` converts audio");
    Error::unsupported("the format", expected, found)
}
