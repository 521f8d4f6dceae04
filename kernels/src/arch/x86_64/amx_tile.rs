//! A block of a product on the eight AMX tile registers.
//!
//! A tile is sixteen rows of 64 bytes. One instruction multiplies a tile of activations, 64 bytes of each of sixteen
//! rows, with a tile of weights, sixteen words of four bytes in each of sixteen columns, and adds the products to a
//! tile of sums, exactly modulo `2^32`: 16,384 multiply-adds.
//!
//! A block is one or two tiles of rows times a panel of 32 columns, which is two tiles of weights. With two tiles of
//! rows it loads four tiles for four products. The macro [`block`](macro@block) contains its instructions once, for
//! the CPU ([`crate::arch::x86_64::amx`]) and for the emulator on CPUs without AMX. So the emulator executes the same
//! instructions in the same order, with the same registers and strides. The compiler does not model tile registers, so
//! on the CPU a block is one piece of assembly, not one function per instruction.
//!
//! Operands are slices, checked when a [`Block`] is made: nothing outside them is read, and there are no padding rows.

/// Rows of a tile, and four-byte words in one of its rows.
pub(crate) const SIDE: usize = 16;

/// Words in a line of two adjacent tiles: the columns of a panel.
pub(crate) const LINE: usize = 2 * SIDE;

/// Words of a panel in one step of 64 `k`.
pub(crate) const STEP: usize = SIDE * LINE;

/// The instructions of a block of one or two tiles of rows, passed to `$machine!` together with its own arguments.
/// Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights; offsets and strides are in bytes.
macro_rules! block {
    (1, $machine:ident!($($with:tt)*)) => {
        block!(@ $machine [$($with)*] [] [] [] []);
    };
    (2, $machine:ident!($($with:tt)*)) => {
        block!(@ $machine [$($with)*]
            [(load 2, start1 + 0, start) (load 3, start1 + 64, start)]
            [(load 5, rows1 + 0, row) (dot 2, 5, 6) (dot 3, 5, 7)]
            [(ahead rows1, 64)]
            [(store 2, sums + 2048, line) (store 3, sums + 2112, line)]);
    };
    // In brackets: what the second tile of rows adds to each part.
    (@ $machine:ident $with:tt [$($begin:tt)*] [$($step:tt)*] [$($ahead:tt)*] [$($end:tt)*]) => {
        $machine! {
            with $with
            begin [
                (load 0, start0 + 0, start)
                (load 1, start0 + 64, start)
                $($begin)*
            ]
            step [
                (load 4, rows0 + 0, row)
                (load 6, panel + 0, line)
                (dot 0, 4, 6)
                (load 7, panel + 64, line)
                (dot 1, 4, 7)
                $($step)*
                (ahead rows0, 64)
                $($ahead)*
                (ahead panel, 2048)
            ]
            end [
                (store 0, sums + 0, line)
                (store 1, sums + 64, line)
                $($end)*
            ]
        }
    };
}
pub(crate) use block;

/// The tile configuration in the format of the CPU: palette 1, eight tiles of [`SIDE`] rows of 64 bytes.
#[repr(C, align(64))]
pub(crate) struct TileConfig(pub(crate) [u8; 64]);

/// All tiles have the full size: no block has fewer rows or bytes.
pub(crate) const TILE_CONFIG: TileConfig = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        // Bytes per row, 16 bits; then the number of rows.
        bytes[16 + 2 * tile] = 4 * SIDE as u8;
        bytes[48 + tile] = SIDE as u8;
        tile += 1;
    }
    TileConfig(bytes)
};

/// The sums of a block: two tiles of rows, each `[16][32]`.
#[repr(C, align(64))]
pub(crate) struct BlockSums(pub(crate) [i32; 2 * STEP]);

/// The initial sums of a block.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a, const TALL: usize> {
    /// All rows of a tile start with the same integers, one per column.
    Columns([&'a [f32; LINE]; TALL]),
    /// The current sums, from an earlier range of `k`.
    Sums,
}

/// `TALL` tiles of rows times several steps of a panel.
pub(crate) struct Block<'a, const TALL: usize> {
    start: Start<'a, TALL>,
    rows: &'a [f32],
    first: [usize; TALL],
    stride: usize,
    panel: &'a [f32],
    steps: usize,
}

impl<'a, const TALL: usize> Block<'a, TALL> {
    /// `rows` contains the activations as words of bytes with 128 added: tile `i` begins at word `first[i]`, and its
    /// rows are `stride` words apart. `panel` is `[steps][16][32]` words of signed bytes.
    ///
    /// # Panics
    /// If `rows` or `panel` is too short.
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

    /// The initial sums.
    #[inline(always)]
    pub(crate) const fn start(&self) -> &Start<'a, TALL> {
        &self.start
    }

    /// The words of `rows` from the first row of tile `tile` on.
    #[inline(always)]
    pub(crate) fn rows(&self, tile: usize) -> &'a [f32] {
        &self.rows[self.first[tile]..]
    }

    /// Bytes from one row to the next.
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

/// A provider of tiles: the CPU, or the emulator.
pub(crate) trait TileUnit {
    /// Tiles that the thread that configured them can use until they are dropped.
    type Tiles: Tiles;
    /// Configures the tiles with [`TILE_CONFIG`].
    fn configured(self) -> Self::Tiles;
}

/// Configured tiles. Implementations are `#[inline(always)]`.
pub(crate) trait Tiles {
    /// `sums = start + rows * panel`, modulo `2^32`.
    fn multiply<const TALL: usize>(&mut self, block: &Block<'_, TALL>, sums: &mut BlockSums);
}
