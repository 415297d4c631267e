//! Reads a table's columns of further metrics.

use std::collections::BTreeMap;

use crate::model::Measurement;
use crate::probe::measuring::window::DATA_WAIT;

/// Columns with the same meaning as a metric.
const SAME: &[(&str, &str)] = &[("x_power_w", "power"), ("x_avg_power_w", "power")];

/// Returns the numbers of a row in columns whose names begin with `x_`, as metrics of these names and of the metrics with the same
/// meaning.
fn metrics(headers: &csv::StringRecord, record: &csv::StringRecord) -> BTreeMap<String, f64> {
    let cells = headers.iter().zip(record).filter(|(name, _)| name.starts_with("x_"));
    let numbers = cells.filter_map(|(name, text)| Some((name, text.parse::<f64>().ok().filter(|n| n.is_finite())?)));
    let mut metrics = BTreeMap::new();
    for (name, number) in numbers {
        metrics.insert(name.to_owned(), number);
        metrics.extend(SAME.iter().filter(|(column, _)| *column == name).map(|(_, same)| ((*same).to_owned(), number)));
    }
    metrics
}

/// Adds the numbers of further columns to a measurement, if the row has them.
pub(super) fn beside(
    mut measurement: Measurement,
    headers: &csv::StringRecord,
    record: &csv::StringRecord,
) -> Measurement {
    let number = |column: &str| -> Option<f64> {
        let place = headers.iter().position(|header| header == column)?;
        record.get(place)?.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that is not negative")]
    let bytes = |column: &str| number(column).map(|bytes| bytes as u64);
    measurement.timing.step_seconds = number("x_step_s");
    measurement.phase_seconds.extend(number("x_data_wait_s").map(|wait| (DATA_WAIT.to_owned(), wait)));
    measurement.memory.peak_bytes = bytes("x_peak_memory_bytes");
    measurement.memory.capacity_bytes = bytes("x_memory_capacity_bytes");
    measurement.metrics = metrics(headers, record);
    measurement
}

/// Returns the mean of each metric over the rows of one config that have the metric.
pub(super) fn means<'m>(measurements: impl Iterator<Item = &'m Measurement>) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, number) in measurements.flat_map(|measurement| &measurement.metrics) {
        all.entry(name).or_default().push(*number);
    }
    all.into_iter()
        .filter_map(|(name, numbers)| Some((name.to_owned(), crate::probe::stats::mean(&numbers)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::*;

    #[test]
    fn further_columns_are_metrics_and_power_tells_the_energy_of_a_sample() {
        let text = "a,status,value,x_avg_power_w,x_note\n1,ok,10,100,\"q\"\n1,ok,30,300,\n2,ok,5,,\n";
        let (space, replay) = Table::from_csv(text.as_bytes()).unwrap().into_replay(&[]).unwrap();
        let metric = |level: i64, name: &str| {
            let config = space.locate(&[("a", Value::from(level))].into_iter().collect()).unwrap();
            replay.answer(&config).unwrap().measurement().unwrap().metric(name)
        };
        assert_eq!(metric(1, "x_avg_power_w"), Some(200.0));
        assert_eq!(metric(1, "energy_per_sample"), Some(10.0));
        assert_eq!(metric(2, "energy_per_sample"), None);
        assert_eq!(metric(1, "x_note"), None);
    }
}
