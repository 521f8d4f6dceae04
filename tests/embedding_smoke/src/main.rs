//! An engine of somebody else's, which has these crates by path with default features off and reaches
//! what is public: run by `.ci/run`, `cargo run --manifest-path tests/embedding_smoke/Cargo.toml`.
//!
//! First what an engine brings: `raw.rs` multiplies and attends on pointers and on a pool of its own,
//! `translation.rs` translates with tensors that it holds, on that pool, in memory of its own. Both
//! compare with the safe constructors on one thread, bit by bit, and count what is allocated: nothing.
//!
//! Then what was once not as promised, in `guarantees.rs`:
//!
//! | what was wrong | the test here | more in |
//! |---|---|---|
//! | a handle of one session worked in another | `handles_are_of_one_session` | `tests/handles.rs` |
//! | a cut was called an end | `a_cut_is_called_a_cut` | `tests/requests.rs` |
//! | a stream could not be attributed | `a_stream_names_its_source` | `tests/events.rs` |
//! | a format whose kernels are not compiled | `a_format_without_its_feature_is_refused` | |
//! | `start` and `fork` were refused with space in the plan | `a_plan_holds_what_it_says` | `tests/hypotheses.rs` |
//! | a missing matrix was tied, and defaults were taken, in silence | `missing_is_missing`, `defaults_are_listed` | `tests/checkpoint.rs`, `tests/config.rs` |
//! | one bad request refused all others, and none was named | `a_bad_request_is_named_beforehand` | `tests/requests.rs` |
//! | a configuration that no checkpoint can have was valid | `what_no_checkpoint_has_is_invalid` | `tests/config.rs` |
//! | errors blamed the wrong operand | `errors_name_what_is_wrong` | `kernels/tests/texts.rs`, `tests/api_misuse.rs` |
//! | errors said everything twice along `source` | `a_chain_of_errors_is_one_sentence` | `tests/error_chains.rs` |
//! | limits and options that cannot work were taken | `limits_and_options_that_cannot_work` | `tests/bad_input.rs` |
//! | `prefill` refused a forked child | `a_forked_child_takes_a_draft` | `tests/hypotheses.rs` |
//! | a misspelt `SIMDFORMER_ISA` was ignored | `a_misspelt_instruction_set_is_refused` | `kernels/tests/environment.rs` |
//! | the first `generate` on fresh threads allocated | `a_first_translation_allocates_nothing` | `tests/new_pool_no_alloc.rs` |

mod counting;
mod guarantees;
mod numbers;
#[path = "../../../examples/first_hour/pool.rs"]
mod pool;
mod raw;
mod translation;

use simdformer_kernels::Isa;

/// In order, one after the other: nothing else runs while allocations are counted.
const TESTS: &[(&str, fn())] = &[
    ("a_product_of_raw_views", raw::a_product_of_raw_views),
    ("columns_of_one_buffer_on_two_threads", raw::columns_of_one_buffer_on_two_threads),
    ("attention_of_raw_views", raw::attention_of_raw_views),
    ("a_first_translation_allocates_nothing", translation::a_first_translation_allocates_nothing),
    ("handles_are_of_one_session", guarantees::handles_are_of_one_session),
    ("a_cut_is_called_a_cut", guarantees::a_cut_is_called_a_cut),
    ("a_stream_names_its_source", guarantees::a_stream_names_its_source),
    (
        "a_format_without_its_feature_is_refused",
        guarantees::a_format_without_its_feature_is_refused,
    ),
    ("a_plan_holds_what_it_says", guarantees::a_plan_holds_what_it_says),
    ("missing_is_missing", guarantees::missing_is_missing),
    ("defaults_are_listed", guarantees::defaults_are_listed),
    ("a_bad_request_is_named_beforehand", guarantees::a_bad_request_is_named_beforehand),
    ("what_no_checkpoint_has_is_invalid", guarantees::what_no_checkpoint_has_is_invalid),
    ("errors_name_what_is_wrong", guarantees::errors_name_what_is_wrong),
    ("a_chain_of_errors_is_one_sentence", guarantees::a_chain_of_errors_is_one_sentence),
    ("limits_and_options_that_cannot_work", guarantees::limits_and_options_that_cannot_work),
    ("a_forked_child_takes_a_draft", guarantees::a_forked_child_takes_a_draft),
    ("a_misspelt_instruction_set_is_refused", guarantees::a_misspelt_instruction_set_is_refused),
];

fn main() {
    // What the environment says, for the parent that has set it.
    if std::env::args().nth(1).as_deref() == Some("detect") {
        match Isa::detect() {
            Ok(isa) => println!("{isa}"),
            Err(error) => println!("refused: {error}"),
        }
        return;
    }
    for (name, test) in TESTS {
        test();
        println!("ok  {name}");
    }
    println!("{} tests passed", TESTS.len());
}
