//! Compares the best config's floating-point operations with the GPU's ceiling.

use serde::{Deserialize, Serialize};

use crate::machine::{Ceilings, ceilings::PerSecond};
use crate::model::{Measurement, Precision, quantity::show_number};

/// The floating-point operations of a config, compared with the GPU's rate in matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Floating-point operations per second on all GPUs together, as the step reports them.
    pub flops_per_second: f64,
    /// The precision of the config, if one of its parameters sets it.
    pub precision: Option<Precision>,
    /// The number of GPUs that the config used.
    pub gpus: usize,
    /// The measured rate of this many GPUs in matrix products of that precision.
    pub ceiling_flops_per_second: Option<f64>,
    /// The config's rate as a share of the ceiling.
    pub share: Option<f64>,
}

impl Compute {
    /// Compares a measurement whose step reports its floating-point operations.
    pub fn of(measurement: &Measurement, precision: Option<Precision>, ceilings: Option<&Ceilings>) -> Option<Self> {
        let flops_per_second = measurement.flops_per_second()?;
        let ranks = measurement.ranks.and_then(|ranks| usize::try_from(ranks).ok());
        let gpus =
            if measurement.machine.gpus.is_empty() { ranks.unwrap_or(1) } else { measurement.machine.gpus.len() }
                .max(1);
        let share = precision.zip(ceilings).and_then(|(p, ceilings)| ceilings.share(p, flops_per_second, gpus));
        let ceiling_flops_per_second = share.map(|share| flops_per_second / share);
        Some(Self { flops_per_second, precision, gpus, ceiling_flops_per_second, share })
    }

    /// Returns the comparison in one line.
    pub fn line(&self) -> String {
        let rate = PerSecond::Operations.show(self.flops_per_second);
        let known = self.share.zip(self.ceiling_flops_per_second).zip(self.precision);
        let Some(((share, ceiling), precision)) = known else { return format!("compute   {rate}") };
        let whose = if self.gpus == 1 { "this GPU".to_owned() } else { format!("these {} GPUs", self.gpus) };
        format!(
            "compute   {rate}, {} % of what {whose} reached in {precision} products ({})",
            show_number(share * 100.0),
            PerSecond::Operations.show(ceiling)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::{
        Ceiling,
        ceilings::{FORMAT, Kind},
    };
    use crate::model::FLOPS;
    use crate::model::Timing;

    fn measured(flops: f64, seconds: f64) -> Measurement {
        Measurement {
            metrics: BTreeMap::from([(FLOPS.to_owned(), flops)]),
            timing: Timing { step_seconds: Some(seconds), ..Default::default() },
            ..Measurement::default()
        }
    }

    #[test]
    fn the_share_is_that_of_the_precisions_ceiling() {
        let ceiling = Ceiling { median: 8e14, low: 8e14, high: 8e14, samples: 9 };
        let ceilings = Ceilings {
            format: FORMAT,
            uuid: "GPU-1".to_owned(),
            name: "NVIDIA Test".to_owned(),
            driver: "1".to_owned(),
            gputune_version: String::new(),
            measured_at: 0,
            elapsed_s: 1.0,
            measured: BTreeMap::from([(Kind::MatmulBf16, ceiling)]),
            absent: BTreeMap::new(),
        };
        let compute = Compute::of(&measured(4e13, 0.1), Some(Precision::Bf16), Some(&ceilings)).unwrap();
        assert_eq!(compute.share, Some(0.5));
        assert_eq!(
            compute.line(),
            "compute   400 TFLOP/s, 50.0 % of what this GPU reached in bf16 products (800 TFLOP/s)"
        );
        let unknown = Compute::of(&measured(4e13, 0.1), Some(Precision::Fp8), Some(&ceilings)).unwrap();
        assert_eq!((unknown.share, unknown.line().as_str()), (None, "compute   400 TFLOP/s"));
        assert_eq!(Compute::of(&Measurement::default(), None, None), None);
        assert_eq!(Compute::of(&measured(f64::NAN, 0.1), None, None), None);
    }
}
