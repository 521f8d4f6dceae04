//! The ops compared with candle's own, in every layout.

mod ops {
    mod attention;
    mod linear;
    mod norm;
    mod rejections;
    mod threads;
}
