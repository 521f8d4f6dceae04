//! The random generator of sampling: Philox4x32-10.
//!
//! A counter-based generator (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
//! 2011). The number for (seed, stream, sequence, step) is a function of these four values alone. It does not
//! depend on the rest of the batch, on the order of the rows, or on threads.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox4x32.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// A uniform number in [0, 1) with 53 bits. The key is `seed`; the counter is `stream` (low word first),
/// `sequence` and `step`. The bits are the first two words of the output, high word first.
pub(super) fn uniform(seed: u64, stream: u64, sequence: u32, step: u32) -> f64 {
    let counter = [stream as u32, (stream >> 32) as u32, sequence, step];
    let bits = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let wide = (u64::from(bits[0]) << 32) | u64::from(bits[1]);
    (wide >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors of the paper's library.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_stays_in_range_and_differs() {
        let mut seen: Vec<u64> = (0..1000).map(|step| uniform(7, 3, 1, step).to_bits()).collect();
        assert!(seen.iter().all(|&bits| (0.0..1.0).contains(&f64::from_bits(bits))));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }
}
