//! GPU performance monitoring, with the values of the script.

use super::calls::{answer, gpu};
use super::layout::{GpmMetric, GpmMetrics, GpmSample};
use super::script::{INVALID_ARGUMENT, SUCCESS, Told, script};

/// The script's names for the numbers of nvml.h, `nvmlGpmMetricId_t`.
const METRICS: &[(u32, &str)] = &[
    (2, "sm"),
    (3, "occupancy"),
    (5, "tensor"),
    (10, "dram"),
    (20, "pcie_sent"),
    (21, "pcie_received"),
    (60, "nvlink_received"),
    (61, "nvlink_sent"),
];

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(sample: &mut *mut GpmSample) -> u32 {
    *sample = Box::into_raw(Box::new(GpmSample { gpu: usize::MAX, time: 0.0 }));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: *mut GpmSample) -> u32 {
    // SAFETY: the sample was allocated above, and is freed once.
    drop(unsafe { Box::from_raw(sample) });
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: usize, sample: &mut GpmSample) -> u32 {
    answer(device, "nvmlGpmSampleGet", |gpu| {
        gpu.number("sm")?;
        (sample.gpu, sample.time) = (device - 1, script().now());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: usize, instance: u32, sample: &mut GpmSample) -> u32 {
    answer(device, "nvmlGpmMigSampleGet", |gpu| {
        let place = instance.checked_sub(1).and_then(|number| gpu.instances.get(number as usize));
        let place = *place.ok_or(INVALID_ARGUMENT)?;
        script().gpus[place].number("sm")?;
        (sample.gpu, sample.time) = (place, script().now());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(request: &mut GpmMetrics) -> u32 {
    // SAFETY: both were filled above and not yet given back; as many metrics follow as the request says.
    let (first, last, metrics) = unsafe {
        let metrics = std::slice::from_raw_parts_mut(request.metrics.as_mut_ptr(), request.count as usize);
        (&*request.first, &*request.last, metrics)
    };
    answer(first.gpu + 1, "nvmlGpmMetricsGet", |_| {
        if last.time - first.time < 0.1 || first.gpu != last.gpu {
            return Err(INVALID_ARGUMENT);
        }
        metrics.iter_mut().for_each(|metric| fill(metric, first, last));
        Ok(())
    })
}

fn fill(metric: &mut GpmMetric, first: &GpmSample, last: &GpmSample) {
    let told = || -> Told<f64> {
        let (_, name) = METRICS.iter().find(|(id, _)| *id == metric.id).ok_or(INVALID_ARGUMENT)?;
        let gpu = gpu(first.gpu + 1)?;
        if gpu.at(name, last.time).is_some_and(|value| value == "nan") {
            return Ok(f64::NAN);
        }
        Ok((gpu.sum(name, last.time)? - gpu.sum(name, first.time)?) / (last.time - first.time))
    };
    match told() {
        Ok(value) => (metric.result, metric.value) = (SUCCESS, value),
        Err(code) => metric.result = code,
    }
}
