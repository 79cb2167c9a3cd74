//! The tables that a model needs as it is served.

use dynosim_schemas::config::Backend;
use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::model::Attention;
use dynosim_schemas::perf_table::TableKind;
use dynosim_systems::timing::{EXPERT_DISTRIBUTIONS, Served, Tables};

use super::catalogue::{DataError, table};
use super::locate::DataFiles;

/// The name of a backend's folder.
#[must_use]
pub fn folder_of(backend: Backend) -> &'static str {
    match backend {
        Backend::Vllm => "vllm",
        Backend::Sglang => "sglang",
        Backend::Trtllm => "trtllm",
    }
}

/// Reads the rows that the operators of `served` may ask for; `hardware` is its accelerator's name.
///
/// # Errors
/// If a table is damaged.
pub fn tables_for(files: &DataFiles, hardware: &str, served: &Served<'_>) -> Result<Tables, DataError> {
    let mut tables = Tables::new();
    for kind in kinds_for(served) {
        let wants = |words: &[&str]| is_wanted(kind, words, served);
        tables.extend(table(files, (hardware, folder_of(served.backend)), kind, &wants)?.map(|table| (kind, table)));
    }
    Ok(tables)
}

fn kinds_for(served: &Served<'_>) -> Vec<TableKind> {
    let mut kinds = vec![TableKind::Gemm];
    match served.model.attention {
        Attention::Grouped { .. } => kinds.extend([TableKind::ContextAttention, TableKind::GenerationAttention]),
        Attention::Latent { .. } => kinds.extend([
            TableKind::MlaContextModule,
            TableKind::MlaGenerationModule,
            TableKind::ContextMla,
            TableKind::GenerationMla,
            TableKind::MlaBmm,
        ]),
    }
    if served.model.has_experts() {
        kinds.push(TableKind::Moe);
    }
    if served.parallelism.gpus_per_worker() > 1 {
        kinds.extend([TableKind::AllReduce, TableKind::Nccl]);
    }
    kinds
}

fn is_wanted(kind: TableKind, words: &[&str], served: &Served<'_>) -> bool {
    let is_kv = |word: &str| word == served.model.quantisation.kv_cache.name();
    let is_prompts = |word: &str| word == served.prompt_attention().name() || word == Dtype::Bfloat16.name();
    let is_gemm = |word: &str| served.gemm_formats().iter().any(|format| format.name() == word);
    match (kind, words) {
        (TableKind::Gemm, &[gemm]) => is_gemm(gemm),
        (TableKind::ContextAttention, &[_, prompts, kv]) | (TableKind::ContextMla, &[prompts, kv]) => {
            is_prompts(prompts) && is_kv(kv)
        }
        (TableKind::GenerationAttention, &[_, kv]) | (TableKind::GenerationMla, &[kv]) => is_kv(kv),
        (TableKind::MlaContextModule, &[prompts, kv, gemm]) => is_prompts(prompts) && is_kv(kv) && is_gemm(gemm),
        (TableKind::MlaGenerationModule, &[kv, gemm]) => is_kv(kv) && is_gemm(gemm),
        (TableKind::Moe, &[moe, distribution]) => {
            moe == served.model.quantisation.moe.name() && EXPERT_DISTRIBUTIONS.contains(&distribution)
        }
        _ => true,
    }
}
