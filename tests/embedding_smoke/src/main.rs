//! A program outside of the workspace. It depends on these crates by path with default features off and
//! uses only public items. `.ci/run` runs it: `cargo run --manifest-path tests/embedding_smoke/Cargo.toml`.
//!
//! First the parts of an inference engine: `raw.rs` multiplies and attends on pointers and on a pool of its
//! own; `translation.rs` translates with its own tensors, pool and memory. Both compare the bits with those
//! of the safe constructors on one thread, and count the allocations, which must be 0.
//!
//! Then the guarantees that earlier versions broke, in `guarantees.rs`:
//!
//! | what was wrong | the test here | more in |
//! |---|---|---|
//! | a handle of one session worked in another | `handles_are_of_one_session` | `tests/handles.rs` |
//! | a cut was called an end | `a_cut_has_its_own_finish` | `tests/requests.rs` |
//! | a stream could not be attributed | `a_stream_names_its_source` | `tests/events.rs` |
//! | a format whose kernels are not compiled | `a_dtype_without_its_feature_is_an_error` | |
//! | `start` and `fork` were refused with space in the plan | `a_plan_has_space_for_what_it_states` | `tests/hypotheses.rs` |
//! | a missing matrix was tied, and defaults were taken, in silence | `a_missing_tensor_is_an_error`, `defaults_are_listed` | `tests/checkpoint.rs`, `tests/config.rs` |
//! | one bad request refused all others, and none was named | `a_wrong_request_is_named_before_generate` | `tests/requests.rs` |
//! | a configuration that no checkpoint can have was valid | `a_configuration_without_tensor_names_is_invalid` | `tests/config.rs` |
//! | errors blamed the wrong operand | `errors_name_the_wrong_operand` | `kernels/tests/error_texts.rs`, `tests/error_texts.rs` |
//! | errors said everything twice along `source` | `a_chain_of_errors_is_one_sentence` | `tests/error_chains.rs` |
//! | limits and options that cannot work were taken | `limits_and_options_that_cannot_work_are_errors` | `tests/session_errors.rs` |
//! | `prefill` refused a forked child | `a_forked_child_takes_a_draft` | `tests/hypotheses.rs` |
//! | a misspelt `SIMDFORMER_ISA` was ignored | `a_misspelt_instruction_set_is_an_error` | `kernels/tests/environment.rs` |
//! | the first `generate` on fresh threads allocated | `a_first_translation_allocates_nothing` | `tests/new_pool_no_alloc.rs` |

mod counting;
mod guarantees;
mod numbers;
mod raw;
mod translation;

use simdformer_kernels::Isa;

/// They run one after the other: nothing else may run while allocations are counted.
const TESTS: &[(&str, fn())] = &[
    ("a_product_of_raw_views", raw::a_product_of_raw_views),
    ("columns_of_one_buffer_on_two_threads", raw::columns_of_one_buffer_on_two_threads),
    ("attention_of_raw_views", raw::attention_of_raw_views),
    ("a_first_translation_allocates_nothing", translation::a_first_translation_allocates_nothing),
    ("handles_are_of_one_session", guarantees::handles_are_of_one_session),
    ("a_cut_has_its_own_finish", guarantees::a_cut_has_its_own_finish),
    ("a_stream_names_its_source", guarantees::a_stream_names_its_source),
    (
        "a_dtype_without_its_feature_is_an_error",
        guarantees::a_dtype_without_its_feature_is_an_error,
    ),
    ("a_plan_has_space_for_what_it_states", guarantees::a_plan_has_space_for_what_it_states),
    ("a_missing_tensor_is_an_error", guarantees::a_missing_tensor_is_an_error),
    ("defaults_are_listed", guarantees::defaults_are_listed),
    (
        "a_wrong_request_is_named_before_generate",
        guarantees::a_wrong_request_is_named_before_generate,
    ),
    (
        "a_configuration_without_tensor_names_is_invalid",
        guarantees::a_configuration_without_tensor_names_is_invalid,
    ),
    ("errors_name_the_wrong_operand", guarantees::errors_name_the_wrong_operand),
    ("a_chain_of_errors_is_one_sentence", guarantees::a_chain_of_errors_is_one_sentence),
    (
        "limits_and_options_that_cannot_work_are_errors",
        guarantees::limits_and_options_that_cannot_work_are_errors,
    ),
    ("a_forked_child_takes_a_draft", guarantees::a_forked_child_takes_a_draft),
    ("a_misspelt_instruction_set_is_an_error", guarantees::a_misspelt_instruction_set_is_an_error),
];

fn main() {
    // Prints what the environment gives, for the parent process that has set it.
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
