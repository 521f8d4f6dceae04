//! Prints the bytes of each part.

use core::fmt;

/// A table of bytes: one line for each part of more than 0 bytes, and a last line with their sum.
pub(crate) struct ByteTable<'t> {
    pub(crate) lines: &'t [(&'static str, usize)],
}

impl fmt::Display for ByteTable<'_> {
    /// Every line except the last ends in a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.lines.iter().map(|&(_, bytes)| bytes).sum();
        for &(what, bytes) in self.lines.iter().filter(|&&(_, bytes)| bytes > 0) {
            let percent = 100.0 * bytes as f64 / total as f64;
            writeln!(f, "{bytes:>15}  {percent:>5.1} %  {what}")?;
        }
        write!(f, "{total:>15}  bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_zero_bytes_has_no_line() {
        let lines = [("weights", 300), ("nothing", 0), ("the rest", 100)];
        assert_eq!(
            ByteTable { lines: &lines }.to_string(),
            "            300   75.0 %  weights\n            100   25.0 %  the rest\n            400  bytes"
        );
        assert_eq!(ByteTable { lines: &[] }.to_string(), "              0  bytes");
    }
}
