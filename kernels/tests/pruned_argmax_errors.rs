//! What the pruned argmax may access: nothing in a wrong call, and nothing outside of its operands.

use crate::support::pruned_argmax::{Operands, POISON_COLUMN};
use crate::support::*;
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
use simdformer_kernels::{Error, Expected, Isa, Matrix, PackedMatrix};

#[test]
fn wrong_calls_are_errors_and_write_nothing() {
    let isa = Isa::best();
    let (rows, depth, columns) = (3, 10, 40);
    let operands = Operands::gaussian((rows, depth, columns), 12);
    let built = operands.build(isa);
    let weight = built.packed.get();
    let pruning_table =
        PruningTable::from_built(depth, columns, &built.pruning_table).expect("built");
    let good =
        Product { weight: &weight, pruning_table: &pruning_table, bias: None, by_column: None };
    let needed = pruned_argmax::argmax_scratch(rows, depth).expect("small");
    let call = |product: &Product<'_>, x: Matrix<'_>, outputs: (usize, usize), floats: usize| {
        let (mut found, mut values) = ([POISON_COLUMN; 4], [POISON; 4]);
        let mut scratch = vec![POISON; floats];
        let outputs = (&mut found[..outputs.0], &mut values[..outputs.1]);
        let result =
            pruned_argmax::argmax(product, x, &|_, _| false, outputs, &mut scratch, SERIAL);
        if result.is_err() {
            assert_eq!(found, [POISON_COLUMN; 4]);
            let untouched = |x: &f32| x.to_bits() == POISON.to_bits();
            assert!(values.iter().chain(&scratch).all(untouched));
        }
        result
    };
    let x = operands.x.view();
    assert_eq!(call(&good, x, (3, 3), needed), Ok(()));
    assert_eq!(call(&good, x, (3, 3), needed + 5), Ok(()));

    let mut errors = Vec::new();
    let mut expect = |found: Result<(), Error>, error: Error| {
        assert_eq!(found, Err(error));
        errors.push(error.to_string());
    };
    expect(call(&good, x, (3, 3), needed - 1), errors::min_len("scratch", needed, needed - 1));
    expect(call(&good, x, (3, 3), 0), errors::min_len("scratch", needed, 0));
    for outputs in [(2, 3), (4, 3), (3, 2), (3, 4)] {
        let error = match outputs {
            (3, found) => errors::len("values", 3, found),
            (found, _) => errors::len("columns", 3, found),
        };
        expect(call(&good, x, outputs, needed), error);
    }
    let wide = Operands::gaussian((rows, depth + 1, columns), 1);
    let error = errors::size("columns", "x", Expected::Exactly(10), 11);
    expect(call(&good, wide.x.view(), (3, 3), needed + 99), error);
    for found in [39, 41] {
        let bias = vec![0.0; found];
        let error = errors::len("bias", 40, found);
        expect(call(&Product { bias: Some(&bias), ..good }, x, (3, 3), needed), error);
    }
    for found in [(10, 39), (9, 40), (40, 10)] {
        let other = Operands::gaussian((0, found.0, found.1), 1);
        let by_column = Some(other.weight.view().transposed());
        let error = errors::shape("by_column", [40, 10], [found.1, found.0]);
        expect(call(&Product { by_column, ..good }, x, (3, 3), needed), error);
        let other = other.build(isa);
        let pruning_table =
            PruningTable::from_built(found.0, found.1, &other.pruning_table).expect("built");
        let error = errors::shape("pruning_table", [10, 40], [found.0, found.1]);
        expect(call(&Product { pruning_table: &pruning_table, ..good }, x, (3, 3), needed), error);
    }

    let floats = PruningTable::buffer_len(depth, columns).expect("small");
    assert_eq!(floats, built.pruning_table.len());
    let mut short = vec![POISON; floats - 1];
    let error = errors::min_len("buffer", floats, floats - 1);
    expect(PruningTable::build(&weight, &mut short).map(drop), error);
    assert!(is_poison(&short));
    let error = errors::len("data", floats, floats - 1);
    expect(PruningTable::from_built(depth, columns, &short).map(drop), error);
    let mut more = vec![POISON; floats + 1];
    let error = errors::len("data", floats, floats + 1);
    expect(PruningTable::from_built(depth, columns, &more).map(drop), error);
    PruningTable::build(&weight, &mut more).expect("the buffer may be longer");
    assert_eq!(more[floats].to_bits(), POISON.to_bits());

    let deep = (1 << 16) + 1;
    let error = errors::size("depth", "the pruning table", Expected::AtMost(1 << 16), deep);
    expect(PruningTable::buffer_len(deep, 1).map(drop), error);
    let buffer = vec![0.0; PackedMatrix::buffer_len(isa, deep, 1).expect("small")];
    let weight = PackedMatrix::from_packed(isa, deep, 1, &buffer).expect("packed");
    expect(PruningTable::build(&weight, &mut short).map(drop), error);
    expect(PruningTable::from_built(deep, 1, &short).map(drop), error);
    assert!(PruningTable::buffer_len(1 << 16, 1).is_ok());
    for columns in [u32::MAX as usize, usize::MAX] {
        let most = Expected::AtMost(u32::MAX as usize - 1);
        let error = errors::size("columns", "the pruning table", most, columns);
        expect(PruningTable::buffer_len(1, columns).map(drop), error);
    }
    // Only the product of the sizes is too large.
    let large = 1 << (usize::BITS / 2 + 8);
    for (rows, depth) in [(usize::MAX, 1), (large, large), (usize::MAX / 2000, 4)] {
        expect(
            pruned_argmax::argmax_scratch(rows, depth).map(drop),
            errors::too_large("the scratch"),
        );
    }
    assert!(errors.iter().all(|text| !text.is_empty()));
}

#[test]
#[cfg(unix)]
fn operands_end_where_memory_does() {
    use crate::support::Guarded;
    for isa in all_isas() {
        for (index, depth) in [0, 1, 3, 4, 15, 16, 17, 31, 63, 64, 65, 130].into_iter().enumerate()
        {
            for rows in [1, 2, 5, 12, 13] {
                let columns = 1 + (index * 7 + rows * 11) % 140;
                let operands = Operands::gaussian((rows, depth, columns), index as u64);
                let built = operands.build(isa);
                let right = operands.right(&built);
                let bias = vec![0.0; columns];
                let turned: Vec<f32> = (0..columns * depth)
                    .map(|at| operands.weight.at(at % depth, at / depth))
                    .collect();
                for wall in [Guarded::at_start, Guarded::at_end] {
                    let packed = wall(&built.packed.data);
                    let weight = PackedMatrix::from_packed(isa, depth, columns, &packed);
                    let weight = weight.expect("packed");
                    let mut pruning_table = wall(&built.pruning_table);
                    pruning_table.fill(POISON);
                    let pruning_table =
                        PruningTable::build(&weight, &mut pruning_table).expect("space");
                    let (x, bias) = (wall(&operands.x.data[..rows * depth]), wall(&bias));
                    let turned = wall(&turned);
                    let length = pruned_argmax::argmax_scratch(rows, depth).expect("small");
                    let mut scratch = wall(&vec![POISON; length]);
                    let mut values = wall(&vec![POISON; rows]);
                    let mut found = vec![POISON_COLUMN; rows];
                    for by_column in [false, true] {
                        let turned = view_matrix(&turned, columns, depth);
                        let product = Product {
                            weight: &weight,
                            pruning_table: &pruning_table,
                            bias: by_column.then_some(&bias[..]),
                            by_column: by_column.then_some(turned),
                        };
                        let (x, to) =
                            (view_matrix(&x, rows, depth), (&mut found[..], &mut values[..]));
                        pruned_argmax::argmax(&product, x, &|_, _| false, to, &mut scratch, SERIAL)
                            .expect("shapes that fit");
                        for row in 0..rows {
                            // A bias of zero changes only zeros.
                            let answer = Some((found[row], values[row].to_bits()));
                            assert_eq!(answer, right[row], "{isa}: {rows} x {columns} x {depth}");
                        }
                    }
                }
            }
        }
    }
}
