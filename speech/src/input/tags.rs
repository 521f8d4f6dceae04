//! Tags before, between and after the sound of a file.

/// The bytes of the ID3v2 tag that a source begins with.
pub(crate) fn id3v2(head: &[u8]) -> Option<u64> {
    let &[b'I', b'D', b'3', version, _, flags, a, b, c, d, ..] = head else { return None };
    let size = [a, b, c, d].iter().fold(0, |n, &byte| n << 7 | u64::from(byte & 0x7f));
    (version < 0xff).then_some(size + if flags & 0x10 != 0 { 20 } else { 10 })
}

/// The bytes of the tag, ID3v2, ID3v1 or APE, that begins with `head`.
#[cfg(feature = "files")]
pub(crate) fn tag(head: &[u8]) -> Option<u64> {
    let little = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    if head.starts_with(b"APETAGEX") {
        // The size is that of the items and the tag's end; a tag that begins with its end has no items.
        let with_head = little(20)? >> 29 & 1 == 1;
        return Some(32 + if with_head { u64::from(little(12)?) } else { 0 });
    }
    if head.starts_with(b"TAG") {
        return Some(if head.get(3) == Some(&b'+') { 227 } else { 128 });
    }
    id3v2(head)
}
