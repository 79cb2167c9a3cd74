//! An accelerator: what `data/hardware/*.yaml` holds.

use serde::Deserialize;

/// An accelerator and the node that it sits in. Peak rates are dense.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Bandwidth of device memory, in bytes/s.
    pub memory_bytes_per_second: f64,
    /// Device memory, in bytes.
    pub memory_bytes: u64,
    /// Peak bfloat16 rate, in operations/s.
    pub bf16_flops: f64,
    /// Peak fp8 rate, in operations/s; absent where there are no fp8 units.
    #[serde(default)]
    pub fp8_flops: Option<f64>,
    /// Peak fp4 rate, in operations/s; absent where there are no fp4 units.
    #[serde(default)]
    pub fp4_flops: Option<f64>,
    /// Version of the streaming multiprocessors, such as 90.
    pub sm_version: u32,
    /// Share of the memory bandwidth that simple kernels reach.
    pub memory_efficiency: f64,
    /// What a simple kernel takes on top of its memory traffic, in seconds.
    pub kernel_seconds: f64,
    /// GPUs of one node.
    pub gpus_per_node: u64,
    /// Bandwidth of one GPU within a node, one direction, in bytes/s.
    pub intra_node_bytes_per_second: f64,
    /// Bandwidth of one GPU between nodes, one direction, in bytes/s.
    pub inter_node_bytes_per_second: f64,
    /// Latency of a point-to-point transfer, in seconds.
    pub p2p_seconds: f64,
    /// Memory that the runtime takes, in bytes.
    pub runtime_bytes: u64,
    /// Memory that collectives take, in bytes: for 1, 2, 4, and 8 or more tensor-parallel ranks.
    pub collective_bytes: [u64; 4],
}

impl Hardware {
    /// Reads the text of a hardware file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(yaml: &str) -> Result<Self, String> {
        let hardware: Self = serde_yaml::from_str(yaml).map_err(|e| e.to_string())?;
        hardware.check()?;
        Ok(hardware)
    }

    fn check(&self) -> Result<(), String> {
        let positive = [
            ("memory_bytes_per_second", self.memory_bytes_per_second),
            ("bf16_flops", self.bf16_flops),
            ("fp8_flops", self.fp8_flops.unwrap_or(1.0)),
            ("fp4_flops", self.fp4_flops.unwrap_or(1.0)),
            ("memory_efficiency", self.memory_efficiency),
            ("intra_node_bytes_per_second", self.intra_node_bytes_per_second),
            ("inter_node_bytes_per_second", self.inter_node_bytes_per_second),
        ];
        let wrong = positive.into_iter().find(|(_, value)| !value.is_finite() || *value <= 0.0);
        if let Some((name, _)) = wrong {
            return Err(format!("{name}: must be a number above 0"));
        }
        let times = [("kernel_seconds", self.kernel_seconds), ("p2p_seconds", self.p2p_seconds)];
        match times.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            Some((name, _)) => Err(format!("{name}: must be 0 or more")),
            None if self.gpus_per_node == 0 => Err("gpus_per_node: must be 1 or more".to_owned()),
            None => Ok(()),
        }
    }

    /// Peak rate for operands of that many bits of floating point, in operations/s. Where there are no such units, the
    /// next wider ones do the work.
    #[must_use]
    pub fn flops(&self, rate: TensorRate) -> f64 {
        match rate {
            TensorRate::Bf16 => self.bf16_flops,
            TensorRate::Fp8 => self.fp8_flops.unwrap_or(self.bf16_flops),
            TensorRate::Fp4 => self.fp4_flops.or(self.fp8_flops).unwrap_or(self.bf16_flops),
        }
    }

    /// Memory that collectives of `ranks` tensor-parallel ranks take, in bytes.
    #[must_use]
    pub fn collective_bytes(&self, ranks: u64) -> u64 {
        let [one, two, four, eight] = self.collective_bytes;
        match ranks {
            0 | 1 => one,
            2 | 3 => two,
            4..=7 => four,
            _ => eight,
        }
    }

    /// What a simple kernel takes for each byte that it moves, and on top of that, in seconds.
    #[must_use]
    pub fn move_seconds(&self) -> (f64, f64) {
        (1.0 / (self.memory_bytes_per_second * self.memory_efficiency), self.kernel_seconds)
    }

    /// What a simple kernel takes that moves `bytes` bytes, in ms.
    #[must_use]
    pub fn moves_ms(&self, bytes: f64) -> f64 {
        let (seconds_per_byte, kernel_seconds) = self.move_seconds();
        (bytes * seconds_per_byte + kernel_seconds) * 1e3
    }
}

/// Which tensor units an operator uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRate {
    /// Those for bfloat16.
    Bf16,
    /// Those for fp8.
    Fp8,
    /// Those for fp4.
    Fp4,
}
