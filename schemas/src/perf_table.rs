//! Tables of measured operator times: their kinds, their columns, and rows in memory.
//!
//! `docs/perf-tables.md` describes the files.

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// Matrix products.
    Gemm,
    /// Attention of prompts.
    ContextAttention,
    /// Attention of a decode step.
    GenerationAttention,
    /// Routed experts.
    Moe,
    /// Latent attention of prompts, projections apart.
    ContextMla,
    /// Latent attention of a decode step, projections apart.
    GenerationMla,
    /// Latent attention of prompts with its projections.
    MlaContextModule,
    /// Latent attention of a decode step with its projections.
    MlaGenerationModule,
    /// Batched products around latent attention.
    MlaBmm,
    /// All-reduce of the engine.
    AllReduce,
    /// Collectives of NCCL.
    Nccl,
}

impl TableKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Gemm,
        Self::ContextAttention,
        Self::GenerationAttention,
        Self::Moe,
        Self::ContextMla,
        Self::GenerationMla,
        Self::MlaContextModule,
        Self::MlaGenerationModule,
        Self::MlaBmm,
        Self::AllReduce,
        Self::Nccl,
    ];

    /// The name of its file, without `.parquet`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::ContextAttention => "context_attention",
            Self::GenerationAttention => "generation_attention",
            Self::Moe => "moe",
            Self::ContextMla => "context_mla",
            Self::GenerationMla => "generation_mla",
            Self::MlaContextModule => "mla_context_module",
            Self::MlaGenerationModule => "mla_generation_module",
            Self::MlaBmm => "mla_bmm",
            Self::AllReduce => "custom_allreduce",
            Self::Nccl => "nccl",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its columns of words, which select a group of rows.
    #[must_use]
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => &["gemm_dtype"],
            Self::ContextAttention => &["kernel_source", "attn_dtype", "kv_cache_dtype"],
            Self::GenerationAttention => &["kernel_source", "kv_cache_dtype"],
            Self::Moe => &["moe_dtype", "distribution"],
            Self::ContextMla => &["mla_dtype", "kv_cache_dtype"],
            Self::GenerationMla => &["kv_cache_dtype"],
            Self::MlaContextModule => &["mla_dtype", "kv_cache_dtype", "gemm_type"],
            Self::MlaGenerationModule => &["kv_cache_dtype", "gemm_type"],
            Self::MlaBmm => &["bmm_dtype", "op_name"],
            Self::AllReduce => &[],
            Self::Nccl => &["nccl_dtype", "op_name"],
        }
    }

    /// Its columns of whole numbers, the outermost key first.
    #[must_use]
    pub fn numbers(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => &["n", "k", "m"],
            Self::ContextAttention => {
                &["head_dim", "window_size", "num_key_value_heads", "num_heads", "isl", "batch_size"]
            }
            Self::GenerationAttention => {
                &["head_dim", "window_size", "num_key_value_heads", "num_heads", "batch_size", "sequence"]
            }
            Self::Moe => {
                &["topk", "num_experts", "hidden_size", "inter_size", "moe_tp_size", "moe_ep_size", "num_tokens"]
            }
            Self::ContextMla | Self::MlaContextModule => &["num_heads", "isl", "batch_size"],
            Self::GenerationMla | Self::MlaGenerationModule => &["num_heads", "batch_size", "sequence"],
            Self::MlaBmm => &["num_heads", "num_tokens"],
            Self::AllReduce | Self::Nccl => &["num_gpus", "message_size"],
        }
    }
}

/// The column with the time of one call on one rank, in ms.
pub const LATENCY: &str = "latency";

/// Rows of one table, column by column, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct PerfTable {
    /// What they measure.
    pub kind: TableKind,
    /// The columns [`TableKind::words`].
    pub words: Vec<WordColumn>,
    /// The columns [`TableKind::numbers`].
    pub numbers: Vec<Vec<u32>>,
    /// Time of one call, in ms.
    pub latency_ms: Vec<f32>,
}

impl PerfTable {
    /// A table without rows.
    #[must_use]
    pub fn new(kind: TableKind) -> Self {
        Self {
            kind,
            words: vec![WordColumn::default(); kind.words().len()],
            numbers: vec![Vec::new(); kind.numbers().len()],
            latency_ms: Vec::new(),
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.latency_ms.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.latency_ms.is_empty()
    }

    /// The whole numbers of a row.
    pub fn row(&self, index: usize) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().map(move |column| column.get(index).copied().unwrap_or_default())
    }
}

/// A column of few different words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WordColumn {
    /// The words.
    pub dictionary: Vec<String>,
    /// Each row's place in the dictionary.
    pub rows: Vec<u32>,
}

impl WordColumn {
    /// Appends a row.
    pub fn push(&mut self, word: &str) {
        let place = self.dictionary.iter().position(|known| known == word).unwrap_or_else(|| {
            self.dictionary.push(word.to_owned());
            self.dictionary.len() - 1
        });
        self.rows.push(place as u32);
    }

    /// Appends rows of the same word.
    pub fn push_many(&mut self, word: &str, rows: usize) {
        self.push(word);
        if let Some(&place) = self.rows.last() {
            self.rows.resize((self.rows.len() + rows).saturating_sub(1), place);
        }
    }

    /// The word of a row.
    #[must_use]
    pub fn get(&self, row: usize) -> &str {
        let place = self.rows.get(row).map(|&place| place as usize);
        place.and_then(|place| self.dictionary.get(place)).map_or("", String::as_str)
    }
}
