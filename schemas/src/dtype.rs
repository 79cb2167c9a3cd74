//! Number formats of weights, caches and kernels, by the names that measured tables use.

use crate::hardware::TensorRate;

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dtype {
    /// Two bytes.
    Bfloat16,
    /// One byte, one scale for a tensor or a row.
    Fp8,
    /// One byte, one scale for each block of 128 by 128.
    Fp8Block,
    /// Half a byte and a scale for every 16.
    Nvfp4,
    /// Weights of half a byte, computed in bfloat16.
    W4a16Mxfp4,
    /// Integer weights of half a byte, computed in bfloat16.
    Int4Weights,
}

impl Dtype {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Bfloat16, Self::Fp8, Self::Fp8Block, Self::Nvfp4, Self::W4a16Mxfp4, Self::Int4Weights];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bfloat16 => "bfloat16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8_block",
            Self::Nvfp4 => "nvfp4",
            Self::W4a16Mxfp4 => "w4a16_mxfp4",
            Self::Int4Weights => "int4_wo",
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes of one element, scales included.
    #[must_use]
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bfloat16 => 2.0,
            Self::Fp8 | Self::Fp8Block => 1.0,
            Self::Nvfp4 => 9.0 / 16.0,
            Self::W4a16Mxfp4 | Self::Int4Weights => 0.5,
        }
    }

    /// The tensor units that compute with it.
    #[must_use]
    pub fn rate(self) -> TensorRate {
        match self {
            Self::Bfloat16 | Self::W4a16Mxfp4 | Self::Int4Weights => TensorRate::Bf16,
            Self::Fp8 | Self::Fp8Block => TensorRate::Fp8,
            Self::Nvfp4 => TensorRate::Fp4,
        }
    }
}
