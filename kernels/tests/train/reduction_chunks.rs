//! Reduction chunks cover all rows, each row once.

use crate::support::*;
use simdformer_kernels::Expected;
use simdformer_kernels::train::ReductionChunks;

#[test]
fn reduction_chunks_cover_the_rows_in_order() {
    for ends in [&[][..], &[1], &[3, 4, 900], &[u32::MAX]] {
        let chunks = ReductionChunks::new(ends).expect("chunks");
        let mut next = 0;
        for range in chunks.ranges() {
            assert_eq!(range.start, next);
            assert!(range.end > range.start);
            next = range.end;
        }
        assert_eq!((next, chunks.ranges().len()), (chunks.rows(), chunks.len()));
        assert_eq!(chunks.is_empty(), ends.is_empty());
    }
}

#[test]
fn an_empty_chunk_is_an_error_that_names_it() {
    let end = |chunk, least, found| {
        Err(errors::item("end", ("reduction chunk", chunk), Expected::AtLeast(least), found))
    };
    assert_eq!(ReductionChunks::new(&[0]), end(0, 1, 0));
    assert_eq!(ReductionChunks::new(&[4, 9, 8]), end(2, 10, 8));
}
