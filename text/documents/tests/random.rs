//! Random numbers of a generator, and random choices.

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }

    pub fn pick<'p>(&mut self, parts: &[&'p str]) -> &'p str {
        parts[self.below(parts.len())]
    }

    /// Up to `most` of the parts.
    pub fn text(&mut self, parts: &[&str], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.pick(parts)).collect()
    }
}
