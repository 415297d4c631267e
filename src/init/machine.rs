//! The facts about the machine that a draft depends on.

use crate::machine::{Hardware, Machine};
use crate::model::Precision;

/// The facts about the machine that a draft depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    /// The number of available cores.
    pub cores: usize,
    /// The number of GPUs that programs see.
    pub gpus: usize,
    /// The least capable GPU.
    pub hardware: Option<Hardware>,
    /// True if the CPU multiplies in bf16.
    pub cpu_has_bf16: bool,
    /// The value of `OMP_NUM_THREADS`, if set.
    pub threads: Option<usize>,
}

/// CPU features for multiplying in bf16, under their names in `/proc/cpuinfo`: Intel's and AMD's, and Arm's.
const BF16_FEATURES: &[&str] = &["avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"];

impl Means {
    /// Takes the facts from a description of the machine.
    pub fn of(machine: &Machine) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
        let cores = machine.host.processors.effective().floor().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cores")]
        let cores = cores as usize;
        let threads = std::env::var("OMP_NUM_THREADS").ok().and_then(|threads| threads.trim().parse().ok());
        Self {
            cores,
            gpus: machine.gpus.iter().filter(|gpu| gpu.is_visible).count(),
            hardware: Hardware::of(&machine.gpus),
            cpu_has_bf16: features
                .is_some_and(|line| line.split_whitespace().any(|word| BF16_FEATURES.contains(&word))),
            threads,
        }
    }

    /// Returns true if this precision is faster than fp32, according to the hardware.
    pub fn has(&self, precision: Precision) -> bool {
        match (&self.hardware, precision) {
            (_, Precision::Fp32) => true,
            (Some(hardware), Precision::Tf32 | Precision::Bf16 | Precision::Fp16) => hardware.has(precision),
            (None, Precision::Bf16) => self.gpus > 0 || self.cpu_has_bf16,
            (None, Precision::Fp16) => self.gpus > 0,
            // fp8 needs a separate library.
            (_, Precision::Fp8) | (None, Precision::Tf32) => false,
        }
    }

    /// Describes the machine in one line.
    pub fn line(&self) -> String {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let gpus = match (&self.hardware, self.gpus) {
            (_, 0) => "no GPU".to_owned(),
            (Some(hardware), 1) => hardware.name.clone(),
            (Some(hardware), many) => format!("{many} x {}", hardware.name),
            (None, many) => format!("{many} GPUs"),
        };
        format!("{cores}, {gpus}")
    }
}
