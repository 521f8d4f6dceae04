//! WAV files, chunk by chunk.

/// A chunk, padded to an even length.
pub fn chunk(name: &[u8; 4], bytes: &[u8]) -> Vec<u8> {
    let mut chunk = name.to_vec();
    chunk.extend((bytes.len() as u32).to_le_bytes());
    chunk.extend(bytes);
    chunk.extend(vec![0; bytes.len() % 2]);
    chunk
}

/// The sixteen bytes of a `fmt ` chunk.
pub fn format(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
    let block = channels * bits.div_ceil(8);
    let mut bytes = [tag.to_le_bytes(), channels.to_le_bytes()].concat();
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate.wrapping_mul(u32::from(block))).to_le_bytes());
    bytes.extend([block.to_le_bytes(), bits.to_le_bytes()].concat());
    bytes
}

pub fn riff(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"RIFF".to_vec();
    let all: usize = chunks.iter().map(Vec::len).sum();
    bytes.extend((4 + all as u32).to_le_bytes());
    bytes.extend(b"WAVE");
    bytes.extend(chunks.concat());
    bytes
}

/// A file of 16 bits and one channel.
pub fn wav(samples: &[i16]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    riff(&[chunk(b"fmt ", &format(1, 1, 16_000, 16)), chunk(b"data", &data)])
}
