//! Remembered prices are those that the operators give.

use dynosim::perf_data::{DataFiles, hardware, model, tables_for};
use dynosim_schemas::config::{Backend, Parallelism};
use dynosim_systems::timing::{Basis, DecodeBatch, MeasuredTiming, Operator, OperatorModel, PrefillBatch, Served};

/// Prices differ in the last bits only, because a line between two measurements is written in another way.
const SAME: f64 = 1e-12;

fn operators(name: &str, backend: Backend, parallelism: Parallelism) -> OperatorModel {
    let files = DataFiles::default();
    let (model, hardware) = (model(&files, name).unwrap(), hardware(&files, "h200_sxm").unwrap());
    let served = Served { model: &model, hardware: &hardware, backend, parallelism: &parallelism };
    served.check().unwrap();
    let tables = tables_for(&files, "h200_sxm", &served).unwrap();
    served.operators(&tables)
}

fn layouts() -> [(&'static str, Backend, Parallelism); 3] {
    let one = Parallelism::default();
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", Backend::Vllm, one),
        ("openai/gpt-oss-120b", Backend::Sglang, Parallelism { tensor: 4, moe_expert: 4, ..one }),
        ("deepseek-ai/DeepSeek-V3", Backend::Trtllm, Parallelism { attention_data: 8, moe_expert: 8, ..one }),
    ]
}

fn assert_same(ours: f64, plain: f64, what: impl std::fmt::Debug) {
    assert!(plain > 0.0 && (ours / plain - 1.0).abs() <= SAME, "{what:?}: {ours} and {plain}");
}

#[test]
fn decode_steps() {
    for (name, backend, parallelism) in layouts() {
        let timing = MeasuredTiming::new(operators(name, backend, parallelism), false);
        let plain = operators(name, backend, parallelism);
        for requests in [1, 2, 3, 7, 32, 48, 64, 200, 256, 1000, 5000] {
            // In the grid, on its rows, between them, where lines end, and far beyond.
            for tokens in [1, 2, 5, 9, 64, 100, 128, 129, 513, 1000, 2048, 4097, 9000, 40_000, 131_072, 700_000] {
                // The remainder falls away with the mean.
                let batch = DecodeBatch { requests, context_tokens: requests * tokens + requests / 2 };
                // Asked twice, because the second answer is remembered.
                for _ in 0..2 {
                    assert_same(timing.decode_ms(&batch), plain.decode_ms(requests, tokens), (name, requests, tokens));
                }
            }
        }
        for model in [timing.operators(), &plain] {
            let seen = model.bases.seen();
            let (_, attention) = seen.iter().find(|(name, _)| *name == Operator::GenerationAttention).unwrap();
            assert!(attention.ends_with(&[Basis::Interpolated, Basis::Held]), "{name}: {attention:?}");
        }
    }
}

#[test]
fn prompts() {
    for (name, backend, parallelism) in layouts() {
        let timing = MeasuredTiming::new(operators(name, backend, parallelism), false);
        let plain = operators(name, backend, parallelism);
        for requests in [1, 3, 40] {
            for (prefix, new) in [(0, 1), (0, 8192), (64, 1), (1000, 100), (30_000, 4096), (0, 300_000)] {
                let batch = PrefillBatch {
                    requests,
                    prefix_tokens: requests * prefix,
                    context_tokens: requests * (prefix + new),
                };
                for _ in 0..2 {
                    let expected = plain.prefill_ms(requests, new, prefix);
                    assert_same(timing.prefill_ms(&batch), expected, (name, requests, prefix, new));
                }
            }
        }
        assert_eq!(timing.prefill_ms(&PrefillBatch::default()), 0.0);
    }
}

/// A fused pass has the parts of both, with one set of matrix products.
#[test]
fn fused_passes_cost_less_than_their_parts_and_more_than_either() {
    let (name, backend, parallelism) = layouts()[0];
    let timing = MeasuredTiming::new(operators(name, backend, parallelism), true);
    let prefill = PrefillBatch { requests: 1, prefix_tokens: 0, context_tokens: 2048 };
    let decode = DecodeBatch { requests: 64, context_tokens: 64 * 2304 };
    let fused = timing.fused_ms(&prefill, &decode).unwrap();
    let (prompts, steps) = (timing.prefill_ms(&prefill), timing.decode_ms(&decode));
    assert!(fused < prompts + steps && fused > prompts, "{fused} of {prompts} and {steps}");
    let plain = operators(name, backend, parallelism);
    let parts = plain.prefill_tokens_ms(2048 + 64)
        + plain.prefill_logits_ms(1 + 64)
        + plain.context_ms(1, 2048, 0)
        + plain.generation_ms(64, 2304);
    assert_same(fused, parts, "fused");
    assert_eq!(timing.fused_ms(&PrefillBatch::default(), &decode), None);
    assert_eq!(timing.fused_ms(&prefill, &DecodeBatch::default()), None);
}
