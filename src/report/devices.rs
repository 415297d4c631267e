//! Writes the GPUs of a machine, each alone or grouped by model.

use super::labelled::{Page, listed};
use crate::machine::{BUSY, GpuFacts, Holder, Mig, Pcie, Power, Warning};
use crate::model::{
    PRECISIONS, PrecisionFacts,
    quantity::{show_bytes, show_number},
};

/// Writes all GPUs. GPUs of the same model share one block of common facts, followed by one line per GPU.
pub(super) fn gpus_lines(gpus: &[GpuFacts], page: &mut Page) {
    let mut shown: Vec<(&str, bool)> = Vec::new();
    for gpu in gpus {
        let key = (gpu.name.as_str(), gpu.is_visible);
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        let alike: Vec<&GpuFacts> =
            gpus.iter().filter(|other| (other.name.as_str(), other.is_visible) == key).collect();
        match alike[..] {
            [one] => gpu_lines(one, page),
            _ => group_lines(&alike, page),
        }
    }
}

fn group_lines(gpus: &[&GpuFacts], page: &mut Page) {
    let rows: Vec<Vec<(&str, String)>> = gpus.iter().map(|gpu| common_rows(gpu)).collect();
    let is_common = |at: usize| rows.iter().all(|row| row[at] == rows[0][at]);
    let hidden = (!gpus[0].is_visible).then_some(HIDDEN);
    page.line(&format!("{} GPUs", gpus.len()), &listed([Some(gpus[0].name.as_str()), hidden]));
    for (_, (label, words)) in rows[0].iter().enumerate().filter(|(at, _)| is_common(*at)) {
        page.unless_empty(label, words);
    }
    for (gpu, rows) in gpus.iter().zip(&rows) {
        let differing = rows.iter().enumerate().filter(|(at, (_, words))| !is_common(*at) && !words.is_empty());
        let used = gpu.memory_used_bytes.map(|used| format!("{} in use", show_bytes(used)));
        let watts = gpu.power.and_then(|power| power.now_watts).map(|watts| format!("{} W", show_number(watts)));
        let busy = gpu.busy.map(|busy| format!("busy {} %", show_number(busy * 100.0)));
        let own = [gpu.uuid.clone(), used, watts, busy, users(gpu).map(|users| format!("used by {users}"))].into_iter();
        page.line(
            &format!(" {}", label(gpu)),
            &listed(own.chain(differing.map(|(_, (_, words))| Some(words.clone())))),
        );
    }
}

/// Returns the facts that GPUs of the same model mostly share.
fn common_rows(gpu: &GpuFacts) -> Vec<(&'static str, String)> {
    let limits = |power: Power| power_words(Power { now_watts: None, ..power });
    let works: Vec<&str> = gpu.meters.iter().filter(|meter| meter.absent.is_none()).map(|meter| meter.name).collect();
    let absent = gpu.meters.iter().filter_map(|meter| Some(format!("not {}: {}", meter.name, meter.absent.as_ref()?)));
    let works = (!works.is_empty()).then(|| works.join(", "));
    vec![
        (" are", listed([capability(gpu), multiprocessors(gpu), gpu.memory_bytes.map(show_bytes)])),
        ("", gpu.mig.as_ref().map(mig_words).unwrap_or_default()),
        (" computes", precisions(gpu)),
        (" link", links(gpu)),
        (" power", gpu.power.map(limits).unwrap_or_default()),
        (" meters", listed([works].into_iter().chain(absent.map(Some)))),
    ]
}

/// Merges warnings of one rule: equal warnings of several GPUs become one line.
pub(super) fn merged(warnings: &[Warning]) -> Vec<String> {
    let mut lines: Vec<(Vec<u32>, &str)> = Vec::new();
    for warning in warnings {
        let of_gpu = warning.message.strip_prefix("GPU ").and_then(|rest| rest.split_once(' '));
        let parsed = of_gpu.and_then(|(number, words)| Some((number.parse::<u32>().ok()?, words)));
        match parsed {
            Some((number, words)) => {
                match lines.iter_mut().find(|(numbers, known)| *known == words && !numbers.is_empty()) {
                    Some((numbers, _)) => numbers.push(number),
                    None => lines.push((vec![number], words)),
                }
            }
            None => lines.push((Vec::new(), &warning.message)),
        }
    }
    let line = |(numbers, words): (Vec<u32>, &str)| match numbers[..] {
        [] => words.to_owned(),
        [one] => format!("GPU {one} {words}"),
        _ => format!("GPU {}: {words}", ranges(&numbers)),
    };
    lines.into_iter().map(line).collect()
}

/// Formats numbers as ranges, such as `0 to 3, 5`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first} to {last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<String>>().join(", ")
}

const HIDDEN: &str = "hidden by CUDA_VISIBLE_DEVICES";

fn label(gpu: &GpuFacts) -> String {
    gpu.index.map_or_else(|| "GPU".to_owned(), |index| format!("GPU {index}"))
}

fn capability(gpu: &GpuFacts) -> Option<String> {
    gpu.compute_capability.map(|(major, minor)| format!("compute capability {major}.{minor}"))
}

fn multiprocessors(gpu: &GpuFacts) -> Option<String> {
    gpu.multiprocessors.map(|count| format!("{count} multiprocessors"))
}

fn precisions(gpu: &GpuFacts) -> String {
    let Some(capability) = gpu.compute_capability else { return String::new() };
    let has = |facts: &&PrecisionFacts| facts.precision.is_in_hardware(capability);
    let names: Vec<&str> = PRECISIONS.iter().filter(has).map(|facts| facts.name).collect();
    let lacks: Vec<&str> = PRECISIONS.iter().filter(|facts| !has(facts)).map(|facts| facts.name).collect();
    let lacks = (!lacks.is_empty()).then(|| format!("not {}", lacks.join(", ")));
    listed([Some(names.join(", ")), lacks]).replace("; ", ", ")
}

fn links(gpu: &GpuFacts) -> String {
    let nvlinks = gpu.nvlinks.map(|count| if count == 0 { "no NVLink".to_owned() } else { format!("{count} NVLinks") });
    listed([gpu.pcie.map(|pcie| pcie_words(pcie, gpu.busy)), nvlinks])
}

fn users(gpu: &GpuFacts) -> Option<String> {
    let names: Vec<String> = gpu.processes.as_ref()?.iter().map(process_words).collect();
    Some(if names.is_empty() { "nobody".to_owned() } else { names.join(", ") })
}

fn gpu_lines(gpu: &GpuFacts, page: &mut Page) {
    page.line(
        &label(gpu),
        &listed([Some(gpu.name.as_str()), gpu.uuid.as_deref(), (!gpu.is_visible).then_some(HIDDEN)]),
    );
    let memory = gpu.memory_bytes.map(|total| match gpu.memory_used_bytes {
        Some(used) => format!("{} of {} in use", show_bytes(used), show_bytes(total)),
        None => show_bytes(total),
    });
    page.line(" is", &listed([capability(gpu), multiprocessors(gpu), memory, gpu.mig.as_ref().map(mig_words)]));
    page.unless_empty(" computes", &precisions(gpu));
    page.unless_empty(" link", &links(gpu));
    page.unless_empty(" power", &gpu.power.map(power_words).unwrap_or_default());
    page.unless_empty(" used by", &users(gpu).unwrap_or_default());
    meter_lines(gpu, page);
}

fn mig_words(mig: &Mig) -> String {
    match mig {
        Mig::Off => "MIG off".to_owned(),
        Mig::WithoutInstances => "MIG on, without an instance".to_owned(),
        Mig::InstanceOf(parent) => format!("MIG instance of {parent}"),
    }
}

fn pcie_words(pcie: Pcie, busy: Option<f64>) -> String {
    let number = |number: Option<u32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let idle = match (pcie.generation, pcie.max_generation) {
        (Some(now), Some(most)) if now < most && busy.is_none_or(|busy| busy <= BUSY) => " (idle links slow down)",
        _ => "",
    };
    format!(
        "PCIe generation {} of {}{idle}, {} of {} lanes",
        number(pcie.generation),
        number(pcie.max_generation),
        number(pcie.width),
        number(pcie.max_width)
    )
}

fn power_words(power: Power) -> String {
    let watts = |what: &str, watts: Option<f64>| watts.map(|watts| format!("{what}{} W", show_number(watts)));
    let default = power.default_limit_watts.filter(|default| power.limit_watts != Some(*default));
    let parts = [watts("now ", power.now_watts), watts("at most ", power.limit_watts), watts("by default ", default)];
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

fn process_words(holder: &Holder) -> String {
    let name = holder.name.as_deref().unwrap_or("process");
    let memory = holder.memory_bytes.map_or(String::new(), |bytes| format!(" ({})", show_bytes(bytes)));
    format!("{name} {}{memory}", holder.pid)
}

fn meter_lines(gpu: &GpuFacts, page: &mut Page) {
    let works: Vec<&str> = gpu.meters.iter().filter(|meter| meter.absent.is_none()).map(|meter| meter.name).collect();
    if !works.is_empty() {
        page.line(" meters", &works.join(", "));
    }
    for meter in &gpu.meters {
        if let Some(reason) = &meter.absent {
            page.line(if works.is_empty() { " meters" } else { "" }, &format!("not {}: {reason}", meter.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_gpus_have_is_said_once() {
        let warning = |message: &str| Warning { rule: "rule", message: message.to_owned(), cure: "cure" };
        let warnings =
            ["GPU 0 is slow", "GPU 1 is slow", "GPU 2 is used by process 7", "GPU 4 is slow", "the disk is full"];
        let lines = merged(&warnings.map(warning));
        assert_eq!(lines, ["GPU 0 to 1, 4: is slow", "GPU 2 is used by process 7", "the disk is full"]);
    }
}
