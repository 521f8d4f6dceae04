//! The ops compared with candle's own, in every layout.

mod support;

mod ops {
    mod attention;
    mod linear;
    mod norm;
    mod rejections;
    mod threads;
}
