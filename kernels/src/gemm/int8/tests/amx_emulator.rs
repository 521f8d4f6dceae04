//! An emulator of the eight AMX tile registers in plain Rust, for CPUs without AMX. It executes the instructions of a
//! block and checks that their operands are valid.

use crate::arch::x86_64::amx_tile::{
    Block, BlockSums, LINE, STEP, Start, TILE_CONFIG, TileUnit, Tiles, block,
};

/// A CPU with tiles, for tests.
#[derive(Clone, Copy)]
pub(crate) struct AmxEmulator;

/// One tile register.
#[derive(Clone, Copy)]
struct TileRegister {
    rows: usize,
    /// Bytes in a row.
    bytes: usize,
    data: [[u8; 64]; 16],
}

/// The tile registers of a thread.
pub(crate) struct Emulated([TileRegister; 8]);

impl TileUnit for AmxEmulator {
    type Tiles = Emulated;

    fn configured(self) -> Emulated {
        Emulated::configure(&TILE_CONFIG.0)
    }
}

/// Memory that instructions may read or write.
enum Words<'a> {
    Floats(&'a [f32]),
    Sums(&'a [i32]),
}

impl Words<'_> {
    fn byte(&self, at: usize) -> u8 {
        let word = match self {
            Self::Floats(words) => words[at / 4].to_bits(),
            Self::Sums(words) => words[at / 4].cast_unsigned(),
        };
        word.to_le_bytes()[at % 4]
    }
}

/// The operands of a block: memory, and the current offset in bytes.
struct Places<'a> {
    rows0: (Words<'a>, usize),
    rows1: (Words<'a>, usize),
    panel: (Words<'a>, usize),
    start0: (Words<'a>, usize),
    start1: (Words<'a>, usize),
    sums: usize,
}

/// The offset from one row of a tile to the next, in bytes.
struct Strides {
    row: usize,
    line: usize,
    start: usize,
}

impl Emulated {
    /// `ldtilecfg`: sets all tiles to zero.
    fn configure(bytes: &[u8; 64]) -> Self {
        assert_eq!(bytes[0], 1, "the only palette");
        assert_eq!(bytes[1], 0, "nothing was interrupted");
        let reserved = (2..16).chain(32..48).chain(56..64);
        assert!(reserved.into_iter().all(|at| bytes[at] == 0), "reserved");
        let mut tiles = [TileRegister { rows: 0, bytes: 0, data: [[0; 64]; 16] }; 8];
        for (i, tile) in tiles.iter_mut().enumerate() {
            tile.bytes = usize::from(u16::from_le_bytes([bytes[16 + 2 * i], bytes[17 + 2 * i]]));
            tile.rows = usize::from(bytes[48 + i]);
            assert!(tile.rows <= 16 && tile.bytes <= 64, "palette 1 has no such tile");
            assert_eq!(tile.rows == 0, tile.bytes == 0, "tile {i} has rows without bytes");
        }
        Self(tiles)
    }

    /// A tile register, which must be configured.
    fn tile(&mut self, tile: usize) -> &mut TileRegister {
        let tile = &mut self.0[tile];
        assert!(tile.rows > 0, "a tile that is not configured");
        tile
    }

    /// `tileloadd`
    fn load(
        &mut self,
        tile: usize,
        (words, at): &(Words<'_>, usize),
        offset: usize,
        stride: usize,
    ) {
        let tile = self.tile(tile);
        let (rows, bytes) = (tile.rows, tile.bytes);
        tile.data = [[0; 64]; 16];
        for (row, data) in tile.data.iter_mut().enumerate().take(rows) {
            for (byte, to) in data.iter_mut().enumerate().take(bytes) {
                *to = words.byte(at + offset + row * stride + byte);
            }
        }
    }

    /// `tilestored`
    fn store(&mut self, tile: usize, sums: &mut BlockSums, offset: usize, stride: usize) {
        let tile = *self.tile(tile);
        assert_eq!((offset % 4, stride % 4, tile.bytes % 4), (0, 0, 0), "words");
        for (row, data) in tile.data.iter().enumerate().take(tile.rows) {
            for (word, four) in data[..tile.bytes].chunks_exact(4).enumerate() {
                sums.0[(offset + row * stride) / 4 + word] =
                    i32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            }
        }
    }

    /// `tdpbusd`
    fn dot(&mut self, sums: usize, rows: usize, weights: usize) {
        assert!(sums != rows && rows != weights && sums != weights, "three tiles");
        let (a, b) = (*self.tile(rows), *self.tile(weights));
        let sums = self.tile(sums);
        assert_eq!((a.bytes % 4, b.bytes % 4), (0, 0), "words");
        assert_eq!(a.bytes / 4, b.rows, "a row has a word for each row of weights");
        assert_eq!((sums.rows, sums.bytes), (a.rows, b.bytes), "sums of rows and columns");
        for m in 0..a.rows {
            for n in 0..b.bytes / 4 {
                let to = &mut sums.data[m][4 * n..][..4];
                let mut sum = i32::from_le_bytes([to[0], to[1], to[2], to[3]]);
                for k in 0..a.bytes {
                    let weight = b.data[k / 4][4 * n + k % 4].cast_signed();
                    sum = sum.wrapping_add(i32::from(a.data[m][k]) * i32::from(weight));
                }
                to.copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

/// One instruction of a block.
macro_rules! instruction {
    ($tiles:ident, $places:ident, $strides:ident, $sums:ident,
        load $tile:literal, $base:ident + $offset:literal, $stride:ident) => {
        $tiles.load($tile, &$places.$base, $offset, $strides.$stride)
    };
    ($tiles:ident, $places:ident, $strides:ident, $sums:ident,
        store $tile:literal, $base:ident + $offset:literal, $stride:ident) => {
        $tiles.store($tile, $sums, $places.$base + $offset, $strides.$stride)
    };
    ($tiles:ident, $places:ident, $strides:ident, $sums:ident,
        dot $to:literal, $rows:literal, $weights:literal) => {
        $tiles.dot($to, $rows, $weights)
    };
    ($tiles:ident, $places:ident, $strides:ident, $sums:ident,
        ahead $base:ident, $bytes:literal) => {
        $places.$base.1 += $bytes
    };
}

/// Executes a block instruction by instruction.
macro_rules! run {
    (
        with [$tiles:ident, $places:ident, $strides:ident, $sums:ident, $steps:expr]
        begin [$(($($begin:tt)*))*]
        step [$(($($step:tt)*))*]
        end [$(($($end:tt)*))*]
    ) => {
        $(instruction!($tiles, $places, $strides, $sums, $($begin)*);)*
        for _ in 0..$steps {
            $(instruction!($tiles, $places, $strides, $sums, $($step)*);)*
        }
        $(instruction!($tiles, $places, $strides, $sums, $($end)*);)*
    };
}

impl Tiles for Emulated {
    fn multiply<const TALL: usize>(&mut self, block: &Block<'_, TALL>, sums: &mut BlockSums) {
        let before = sums.0;
        let line = 4 * LINE;
        let last = TALL - 1;
        let begin = |tile: usize| match block.start() {
            Start::Columns(lines) => (Words::Floats(lines[tile]), 0),
            Start::Sums => (Words::Sums(&before), 4 * tile * STEP),
        };
        let strides = Strides {
            row: block.stride(),
            line,
            start: if matches!(block.start(), Start::Sums) { line } else { 0 },
        };
        let mut places = Places {
            rows0: (Words::Floats(block.rows(0)), 0),
            rows1: (Words::Floats(block.rows(last)), 0),
            panel: (Words::Floats(block.panel()), 0),
            start0: begin(0),
            start1: begin(last),
            sums: 0,
        };
        let tiles = self;
        if TALL == 1 {
            block!(1, run!(tiles, places, strides, sums, block.steps()));
        } else {
            block!(2, run!(tiles, places, strides, sums, block.steps()));
        }
        let Places { rows0, rows1, panel, .. } = places;
        let (rows, all) = (4 * 16 * block.steps(), 4 * STEP * block.steps());
        assert_eq!((rows0.1, panel.1), (rows, all), "a block goes through its operands");
        assert!(TALL == 1 || rows1.1 == rows);
    }
}

/// TileRegister registers with other sizes than those of a block.
fn configured(sizes: &[(usize, (u8, u16))]) -> Emulated {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    for &(tile, (rows, row)) in sizes {
        bytes[16 + 2 * tile..][..2].copy_from_slice(&row.to_le_bytes());
        bytes[48 + tile] = rows;
    }
    Emulated::configure(&bytes)
}

/// Whether `instruction` is valid with tile registers of these sizes.
fn is_legal(sizes: &[(usize, (u8, u16))], instruction: impl Fn(&mut Emulated)) -> bool {
    let run = || instruction(&mut configured(sizes));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_ok()
}

#[test]
fn invalid_instructions_panic() {
    let whole = (16, 64);
    assert!(is_legal(&[(0, whole), (1, whole), (2, whole)], |tiles| tiles.dot(0, 1, 2)));
    assert!(is_legal(&[(0, (3, 8)), (1, (3, 20)), (2, (5, 8))], |tiles| tiles.dot(0, 1, 2)));
    // A register that is not configured, one that is used twice, and rows and columns of different lengths.
    assert!(!is_legal(&[(0, whole), (1, whole)], |tiles| tiles.dot(0, 1, 2)));
    assert!(!is_legal(&[(0, whole), (1, whole)], |tiles| tiles.dot(0, 1, 1)));
    assert!(!is_legal(&[(0, (3, 8)), (1, (3, 20)), (2, (6, 8))], |tiles| tiles.dot(0, 1, 2)));
    assert!(!is_legal(&[(0, (4, 8)), (1, (3, 20)), (2, (5, 8))], |tiles| tiles.dot(0, 1, 2)));
    assert!(!is_legal(&[(0, (3, 12)), (1, (3, 20)), (2, (5, 8))], |tiles| tiles.dot(0, 1, 2)));
    // Larger than a tile register.
    assert!(!is_legal(&[(0, (17, 64))], |_| ()));
    assert!(!is_legal(&[(0, (16, 65))], |_| ()));
    assert!(!is_legal(&[(0, (16, 0))], |_| ()));
    // Memory that ends with the last row, and memory that ends before it.
    let words = [0.0; 16 * 16];
    for (offset, legal) in [(0, true), (1, false)] {
        let load = |tiles: &mut Emulated| tiles.load(0, &(Words::Floats(&words), 0), offset, 64);
        assert_eq!(is_legal(&[(0, whole)], load), legal);
    }
    assert!(is_legal(&[(0, (15, 64))], |tiles| {
        tiles.load(0, &(Words::Floats(&words), 0), 1, 64);
    }));
}

#[test]
fn rows_that_are_not_configured_are_not_read_and_are_zeros() {
    let words: std::vec::Vec<f32> = (1..=64).map(f32::from_bits).collect();
    let mut tiles = configured(&[(3, (2, 8))]);
    tiles.load(3, &(Words::Floats(&words), 4), 8, 16);
    let word = |row: usize, at: usize| tiles.0[3].data[row][4 * at];
    assert_eq!([word(0, 0), word(0, 1), word(0, 2)], [4, 5, 0]);
    assert_eq!([word(1, 0), word(1, 1), word(1, 2), word(2, 0)], [8, 9, 0, 0]);
}

#[test]
fn a_product_of_tiles_is_that_of_their_bytes() {
    let state = &mut 5u64;
    let mut random = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) as u32
    };
    let words = |random: &mut dyn FnMut() -> u32| -> std::vec::Vec<f32> {
        (0..256).map(|_| f32::from_bits(random())).collect()
    };
    let (a, b, c) = (words(&mut random), words(&mut random), words(&mut random));
    let mut tiles = configured(&[(0, (16, 64)), (1, (16, 64)), (2, (16, 64))]);
    for (tile, words) in [(0, &c), (1, &a), (2, &b)] {
        tiles.load(tile, &(Words::Floats(words), 0), 0, 64);
    }
    tiles.dot(0, 1, 2);
    let mut sums = BlockSums([0; 2 * STEP]);
    tiles.store(0, &mut sums, 0, 4 * LINE);
    for m in 0..16 {
        for n in 0..16 {
            let mut sum = i64::from(c[16 * m + n].to_bits().cast_signed());
            for step in 0..16 {
                let rows = a[16 * m + step].to_bits().to_le_bytes();
                let weights = b[16 * step + n].to_bits().to_le_bytes();
                for (x, w) in rows.into_iter().zip(weights) {
                    sum += i64::from(x) * i64::from(w.cast_signed());
                }
            }
            assert_eq!(sums.0[LINE * m + n], sum as i32);
        }
    }
}
