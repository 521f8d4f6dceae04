//! Recordings that a formula computes.

const TONE: [i32; 16] = [
    0, 12539, 23170, 30273, 32767, 30273, 23170, 12539, 0, -12539, -23170, -30273, -32767, -30273,
    -23170, -12539,
];

/// Noise, a triangle wave of rising frequency, and a tone that is a thousand times louder in every other
/// half second.
pub fn audio(kind: &str, samples: usize) -> Vec<i16> {
    let (mut state, mut phase) = (1u64, 0u32);
    let mut next = |i: usize| match kind {
        "noise" => {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % 20001) as i32 - 10000
        }
        "chirp" => {
            phase = phase.wrapping_add((5_000_000 + 3_000 * i as u64) as u32);
            (((phase >> 15) as i32 - 65536).abs() - 32768).div_euclid(4)
        }
        _ if (i / 8000).is_multiple_of(2) => TONE[i % 16],
        _ => TONE[i % 16].div_euclid(1000),
    };
    (0..samples).map(|i| next(i) as i16).collect()
}

pub fn floats(samples: &[i16]) -> Vec<f32> {
    samples.iter().map(|&x| f32::from(x) / 32768.0).collect()
}
