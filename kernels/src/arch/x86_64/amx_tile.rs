//! What a block of a product does with the eight tile registers of AMX.
//!
//! A tile is sixteen rows of 64 bytes. One instruction multiplies a tile of rows, 64 bytes of each, with a tile of
//! weights, sixteen words of four bytes in each of sixteen columns, and adds the products up in a tile of sums,
//! exactly and modulo `2^32`: 16,384 multiply-adds.
//!
//! A block is one or two tiles of rows times a panel of 32 columns, which is two tiles of weights: with two it
//! loads four tiles for four products. Its instructions are written down once, in [`block`](macro@block), for the
//! CPU ([`crate::arch::x86_64::amx`]) and for what emulates it where no CPU has them: so the emulation multiplies by the same
//! instructions, in the same order, with the same registers and strides. The compiler knows nothing of what a tile
//! register holds, so that on the CPU they are one piece of assembly and no function each.
//!
//! Operands are slices, checked when a [`Block`] is made: nothing outside of them is read, and there are no
//! rows that pad.

/// Rows of a tile, and words of four bytes in one of its rows.
pub(crate) const SIDE: usize = 16;

/// Words of a line of two tiles side by side: the columns of a panel.
pub(crate) const LINE: usize = 2 * SIDE;

/// Words of a panel that belong to a step, 64 `k`.
pub(crate) const STEP: usize = SIDE * LINE;

/// The instructions of a block of one or two tiles of rows, given to `$machine!` with what that wants beside
/// them. Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights; places and strides are in bytes.
macro_rules! block {
    (1, $machine:ident!($($with:tt)*)) => {
        $machine! {
            with [$($with)*]
            begin [
                (load 0, start0 + 0, start)
                (load 1, start0 + 64, start)
            ]
            step [
                (load 4, rows0 + 0, row)
                (load 6, panel + 0, line)
                (dot 0, 4, 6)
                (load 7, panel + 64, line)
                (dot 1, 4, 7)
                (ahead rows0, 64)
                (ahead panel, 2048)
            ]
            end [
                (store 0, sums + 0, line)
                (store 1, sums + 64, line)
            ]
        }
    };
    (2, $machine:ident!($($with:tt)*)) => {
        $machine! {
            with [$($with)*]
            begin [
                (load 0, start0 + 0, start)
                (load 1, start0 + 64, start)
                (load 2, start1 + 0, start)
                (load 3, start1 + 64, start)
            ]
            step [
                (load 4, rows0 + 0, row)
                (load 6, panel + 0, line)
                (dot 0, 4, 6)
                (load 7, panel + 64, line)
                (dot 1, 4, 7)
                (load 5, rows1 + 0, row)
                (dot 2, 5, 6)
                (dot 3, 5, 7)
                (ahead rows0, 64)
                (ahead rows1, 64)
                (ahead panel, 2048)
            ]
            end [
                (store 0, sums + 0, line)
                (store 1, sums + 64, line)
                (store 2, sums + 2048, line)
                (store 3, sums + 2112, line)
            ]
        }
    };
}
pub(crate) use block;

/// What tiles are configured to, as the CPU reads it: palette 1, eight tiles of [`SIDE`] rows of 64 bytes.
#[repr(C, align(64))]
pub(crate) struct TileConfig(pub(crate) [u8; 64]);

/// All tiles whole: no block has fewer rows or bytes.
pub(crate) const TILE_CONFIG: TileConfig = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        // Bytes of a row, 16 bits, then rows.
        bytes[16 + 2 * tile] = 4 * SIDE as u8;
        bytes[48 + tile] = SIDE as u8;
        tile += 1;
    }
    TileConfig(bytes)
};

/// The sums of a block: two tiles of rows, each `[16][32]`.
#[repr(C, align(64))]
pub(crate) struct Sums(pub(crate) [i32; 2 * STEP]);

/// What the sums of a block begin with.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a, const TALL: usize> {
    /// All rows of a tile with the same integers, one a column.
    Columns([&'a [f32; LINE]; TALL]),
    /// What they are, after another part of `k`.
    Sums,
}

/// `TALL` tiles of rows times some steps of a panel.
pub(crate) struct Block<'a, const TALL: usize> {
    start: Start<'a, TALL>,
    rows: &'a [f32],
    first: [usize; TALL],
    stride: usize,
    panel: &'a [f32],
    steps: usize,
}

impl<'a, const TALL: usize> Block<'a, TALL> {
    /// The words of `rows` from `first` on, for each tile, and those of its other rows `stride` words apart: bytes
    /// 128 higher than they are. `panel` is `[steps][16][32]` words of signed bytes.
    ///
    /// # Panics
    /// One of them is shorter than that.
    #[inline(always)]
    pub(crate) fn new(
        start: Start<'a, TALL>,
        (rows, first, stride): (&'a [f32], [usize; TALL], usize),
        panel: &'a [f32],
        steps: usize,
    ) -> Self {
        const { assert!(TALL == 1 || TALL == 2) };
        assert!(steps > 0 && panel.len() >= steps * STEP);
        for first in first {
            assert!(first + (SIDE - 1) * stride + steps * SIDE <= rows.len());
        }
        Self { start, rows, first, stride, panel, steps }
    }

    /// What the sums begin with.
    #[inline(always)]
    pub(crate) const fn start(&self) -> &Start<'a, TALL> {
        &self.start
    }

    /// From the first word of tile `tile`'s first row on, all there is.
    #[inline(always)]
    pub(crate) fn rows(&self, tile: usize) -> &'a [f32] {
        &self.rows[self.first[tile]..]
    }

    /// Bytes from a row to the next.
    #[inline(always)]
    pub(crate) const fn stride(&self) -> usize {
        4 * self.stride
    }

    /// The words of the panel.
    #[inline(always)]
    pub(crate) const fn panel(&self) -> &'a [f32] {
        self.panel
    }

    /// Steps of 64 `k`, one or more.
    #[inline(always)]
    pub(crate) const fn steps(&self) -> usize {
        self.steps
    }
}

/// Something that has tiles.
pub(crate) trait TileUnit {
    /// Tiles that can be used, in the thread that asked for them, until they are dropped.
    type Tiles: Tiles;
    /// Configures them, with [`TILE_CONFIG`].
    fn configured(self) -> Self::Tiles;
}

/// Tiles that are configured. Implementations are `#[inline(always)]`.
pub(crate) trait Tiles {
    /// `sums = start + rows * panel`, modulo `2^32`.
    fn multiply<const TALL: usize>(&mut self, block: &Block<'_, TALL>, sums: &mut Sums);
}
