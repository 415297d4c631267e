//! Compares the best config's floating-point operations with the GPU's ceiling.

use serde::{Deserialize, Serialize};

use crate::machine::Ceilings;
use crate::machine::ceilings::{PerSecond, published};
use crate::model::{Measurement, Precision, quantity::show_number};

/// The floating-point operations of a config, compared with the GPU's rate in matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Floating-point operations per second on all GPUs together, as the step reports them or the hook counts them.
    pub flops_per_second: f64,
    /// The precision of the config: by its parameter, or as the step reports it.
    pub precision: Option<Precision>,
    /// The number of GPUs that the config used.
    pub gpus: usize,
    /// The ceiling: the rate of these GPUs together in matrix products of this precision.
    pub ceiling_flops_per_second: Option<f64>,
    /// The config's rate as a share of the ceiling.
    pub share: Option<f64>,
    /// True if the ceiling is the peak of the data sheet, because no ceiling was measured.
    #[serde(default)]
    pub is_ceiling_published: bool,
    /// The floating-point operations of the baseline, if another config is the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineCompute>,
}

/// The floating-point operations of the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BaselineCompute {
    /// Floating-point operations per second on all GPUs together.
    pub flops_per_second: f64,
    /// The rate as a share of the ceiling in the baseline's precision.
    pub share: Option<f64>,
}

impl Compute {
    /// Compares a measurement with the ceilings of its GPUs, or else with the peaks of their data sheet.
    pub fn of(measurement: &Measurement, precision: Option<Precision>, ceilings: Option<&Ceilings>) -> Option<Self> {
        let flops_per_second = measurement.flops_per_second()?;
        let precision = precision.or_else(|| Precision::named(measurement.facts.text("precision")?));
        let ranks = measurement.ranks.and_then(|ranks| usize::try_from(ranks).ok());
        let used = &measurement.machine.gpus;
        let gpus = if used.is_empty() { ranks.unwrap_or(1) } else { used.len() }.max(1);
        let measured = precision.zip(ceilings).and_then(|(precision, ceilings)| ceilings.matmul(precision));
        let by_data_sheet = || published(&used.first()?.name, precision?);
        let ceiling = measured.or_else(by_data_sheet);
        #[expect(clippy::cast_precision_loss, reason = "few GPUs")]
        let ceiling_flops_per_second = ceiling.map(|ceiling| ceiling * gpus as f64);
        Some(Self {
            flops_per_second,
            precision,
            gpus,
            ceiling_flops_per_second,
            share: ceiling_flops_per_second.map(|ceiling| flops_per_second / ceiling),
            is_ceiling_published: measured.is_none() && ceiling.is_some(),
            baseline: None,
        })
    }

    /// Adds the comparison of the baseline.
    #[must_use]
    pub fn with_baseline(self, baseline: Option<Self>) -> Self {
        let baseline = baseline.map(|Self { flops_per_second, share, .. }| BaselineCompute { flops_per_second, share });
        Self { baseline, ..self }
    }

    /// Returns the comparison in one line.
    pub fn line(&self) -> String {
        format!("compute   {}{}", self.words(), self.baseline.map_or_else(String::new, |baseline| baseline.words()))
    }

    fn words(&self) -> String {
        let rate = PerSecond::Operations.show(self.flops_per_second);
        let known = self.share.zip(self.ceiling_flops_per_second).zip(self.precision);
        let Some(((share, ceiling), precision)) = known else { return rate };
        let (share, ceiling) = (show_number(share * 100.0), PerSecond::Operations.show(ceiling));
        if self.is_ceiling_published {
            return format!("{rate}, {share} % of the data sheet's peak in {precision} ({ceiling})");
        }
        let whose = if self.gpus == 1 { "this GPU".to_owned() } else { format!("these {} GPUs", self.gpus) };
        format!("{rate}, {share} % of what {whose} reached in {precision} products ({ceiling})")
    }
}

impl BaselineCompute {
    fn words(self) -> String {
        let share = self.share.map_or_else(String::new, |share| format!(", {} %", show_number(share * 100.0)));
        format!("; baseline {}{share}", PerSecond::Operations.show(self.flops_per_second))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::{Ceiling, ceilings::Kind};
    use crate::model::{FLOPS, Fact, GpuUse, Timing};

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
        let ceilings = Ceilings { measured: BTreeMap::from([(Kind::MatmulBf16, ceiling)]), ..Ceilings::default() };
        let compute = Compute::of(&measured(4e13, 0.1), Some(Precision::Bf16), Some(&ceilings)).unwrap();
        assert_eq!(compute.share, Some(0.5));
        let expected = "compute   400 TFLOP/s, 50.0 % of what this GPU reached in bf16 products (800 TFLOP/s)";
        assert_eq!(compute.line(), expected);
        let unknown = Compute::of(&measured(4e13, 0.1), Some(Precision::Fp8), Some(&ceilings)).unwrap();
        assert_eq!((unknown.share, unknown.line().as_str()), (None, "compute   400 TFLOP/s"));
        let baseline = Compute::of(&measured(1e13, 0.1), Some(Precision::Bf16), Some(&ceilings));
        assert!(compute.with_baseline(baseline).line().ends_with("(800 TFLOP/s); baseline 100 TFLOP/s, 12.5 %"));
        assert_eq!(Compute::of(&Measurement::default(), None, None), None);
        assert_eq!(Compute::of(&measured(f64::NAN, 0.1), None, None), None);
    }

    #[test]
    fn without_a_measured_ceiling_the_data_sheet_counts() {
        let mut measured = measured(9.895e13, 0.2);
        measured.machine.gpus = vec![GpuUse { name: "NVIDIA H100 80GB HBM3".to_owned(), ..GpuUse::default() }; 2];
        measured.facts.insert(0, "precision", Fact::Text("bf16".to_owned()));
        let compute = Compute::of(&measured, None, None).unwrap();
        assert_eq!((compute.share, compute.is_ceiling_published), (Some(0.25), true));
        assert_eq!(compute.line(), "compute   495 TFLOP/s, 25.0 % of the data sheet's peak in bf16 (1.98 PFLOP/s)");
    }
}
