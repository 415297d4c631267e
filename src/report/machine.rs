//! Writes a machine on one screen: its GPUs, each alone or grouped by model, its host, and its ceilings.

use super::screen::{Page, listed};
use crate::machine::{BUSY, Ceilings, GpuFacts, Holder, Machine, Mig, Pcie, Power, Warning, ceilings::KINDS};
use crate::model::quantity::{show_bytes, show_number};
use crate::model::{PRECISIONS, PrecisionFacts};

/// The column where the text of a line begins.
const INDENT: usize = 11;

/// Writes the machine and the known ceilings of its GPUs, in lines of at most `width` characters.
pub fn machine_text(machine: &Machine, ceilings: &[Ceilings], width: usize) -> String {
    let mut page = Page::new(INDENT, width);
    gpus_lines(&machine.gpus, &mut page);
    if let Some((reason, cure)) = machine.without_gpu() {
        page.line("GPU", &format!("none can be used: {reason}"));
        cure.iter().for_each(|cure| page.line("", cure));
    }
    driver_lines(machine, &mut page);
    host_lines(machine, &mut page);
    for ceilings in ceilings {
        page.add("");
        page.add(ceilings_text(ceilings, width).trim_end());
    }
    if !machine.warnings.is_empty() {
        page.add("");
    }
    for alike in machine.warnings.chunk_by(|a, b| a.rule == b.rule) {
        page.lines("warning", merged(alike));
        page.line("", &format!("cure: {}", alike[0].cure));
    }
    page.into_text()
}

fn driver_lines(machine: &Machine, page: &mut Page) {
    let cuda = machine.cuda.as_ref().map(|version| format!("CUDA {version}"));
    page.unless_empty("driver", &listed([machine.driver.clone(), cuda]));
    if machine.gpus.is_empty() {
        return;
    }
    let found = machine.libraries.iter().filter(|library| library.absent.is_none());
    page.unless_empty("libraries", &found.map(|library| library.name).collect::<Vec<&str>>().join(", "));
    let missing = || machine.libraries.iter().filter(|library| library.absent.is_some());
    for (at, library) in missing().enumerate() {
        let is_last_of_cure = missing().nth(at + 1).is_none_or(|next| next.cure != library.cure);
        let cure = library.cure.as_ref().filter(|_| is_last_of_cure).map(|cure| format!("cure: {cure}"));
        page.line("", &listed([library.absent.clone(), cure]));
    }
}

fn host_lines(machine: &Machine, page: &mut Page) {
    let host = &machine.host;
    let processors = &host.processors;
    let count = if processors.usable < processors.online {
        format!("{} of {} usable", processors.usable, processors.online)
    } else {
        processors.usable.to_string()
    };
    let quota = processors.quota.map(|quota| format!("quota of {} cores", show_number(quota)));
    page.line("cores", &listed([Some(count), quota, processors.model.clone()]));
    let amount = |total: Option<u64>, free: Option<u64>| match (total, free) {
        (Some(total), Some(free)) => Some(format!("{} of {} free", show_bytes(free), show_bytes(total))),
        (total, _) => total.map(show_bytes),
    };
    let limited = |all| format!("limited by the control group; the machine has {}", show_bytes(all));
    let machine_memory = host.machine_memory_bytes.map(limited);
    page.unless_empty("memory", &listed([amount(host.memory_bytes, host.memory_available_bytes), machine_memory]));
    let shared = amount(host.shared_memory_bytes, host.shared_memory_free_bytes);
    page.unless_empty("/dev/shm", &shared.unwrap_or_else(|| "there is none".to_owned()));
    if let Some(disk) = &host.disk {
        let free = amount(Some(disk.total_bytes), Some(disk.free_bytes)).unwrap_or_default();
        page.line("disk", &format!("{free} for {}", disk.folder.display()));
    }
}

/// Writes ceilings as a table, in lines of at most `width` characters.
pub fn ceilings_text(ceilings: &Ceilings, width: usize) -> String {
    let mut page = Page::new(INDENT, width);
    page.line("ceilings", &format!("of {}, median and the middle half of the samples", ceilings.name));
    let label_width = KINDS.iter().map(|(_, label, _)| label.len()).max().unwrap_or(0);
    for &(kind, label, unit) in KINDS {
        if let Some(ceiling) = ceilings.measured.get(&kind) {
            let spread = format!("{} to {}", unit.show(ceiling.low), unit.show(ceiling.high));
            let row = format!("{:INDENT$}{label:<label_width$}  {:>11}  {spread}", "", unit.show(ceiling.median));
            if row.chars().count() <= width {
                page.add(row.trim_end());
            } else {
                page.line("", &format!("{label}: {}, {spread}", unit.show(ceiling.median)));
            }
        }
    }
    let absent: Vec<(&str, &String)> =
        KINDS.iter().filter_map(|(kind, label, _)| Some((*label, ceilings.absent.get(kind)?))).collect();
    for alike in absent.chunk_by(|(_, a), (_, b)| a == b) {
        let labels: Vec<&str> = alike.iter().map(|(label, _)| *label).collect();
        page.line("", &format!("not {}: {}", labels.join(", "), alike[0].1));
    }
    page.into_text()
}

/// Writes all GPUs. GPUs of the same model share one block of common facts, followed by one line per GPU.
fn gpus_lines(gpus: &[GpuFacts], page: &mut Page) {
    let mut shown: Vec<(&str, bool)> = Vec::new();
    for gpu in gpus {
        let key = (gpu.name.as_str(), gpu.is_visible);
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        let alike: Vec<&GpuFacts> = gpus.iter().filter(|gpu| (gpu.name.as_str(), gpu.is_visible) == key).collect();
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
        let words = listed(own.chain(differing.map(|(_, (_, words))| Some(words.clone()))));
        page.line(&format!(" {}", label(gpu)), &words);
    }
}

/// Returns the facts that GPUs of the same model mostly share.
fn common_rows(gpu: &GpuFacts) -> Vec<(&'static str, String)> {
    let limits = |power: Power| power_words(Power { now_watts: None, ..power });
    vec![
        (" are", listed([capability(gpu), multiprocessors(gpu), gpu.memory_bytes.map(show_bytes)])),
        ("", gpu.mig.as_ref().map(mig_words).unwrap_or_default()),
        (" computes", precisions(gpu)),
        (" link", links(gpu)),
        (" power", gpu.power.map(limits).unwrap_or_default()),
        (" meters", meters(gpu).join("; ")),
    ]
}

/// Merges warnings of one rule: equal warnings of several GPUs become one line.
fn merged(warnings: &[Warning]) -> Vec<String> {
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
    let hidden = (!gpu.is_visible).then_some(HIDDEN);
    page.line(&label(gpu), &listed([Some(gpu.name.as_str()), gpu.uuid.as_deref(), hidden]));
    let memory = gpu.memory_bytes.map(|total| match gpu.memory_used_bytes {
        Some(used) => format!("{} of {} in use", show_bytes(used), show_bytes(total)),
        None => show_bytes(total),
    });
    page.line(" is", &listed([capability(gpu), multiprocessors(gpu), memory, gpu.mig.as_ref().map(mig_words)]));
    page.unless_empty(" computes", &precisions(gpu));
    page.unless_empty(" link", &links(gpu));
    page.unless_empty(" power", &gpu.power.map(power_words).unwrap_or_default());
    page.unless_empty(" used by", &users(gpu).unwrap_or_default());
    page.lines(" meters", meters(gpu));
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
    let [now, best, used, all] = [pcie.generation, pcie.max_generation, pcie.width, pcie.max_width].map(number);
    format!("PCIe generation {now} of {best}{idle}, {used} of {all} lanes")
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

/// Returns a line with all working meters, then a line for each other meter with the reason why it does not work.
fn meters(gpu: &GpuFacts) -> Vec<String> {
    let works: Vec<&str> = gpu.meters.iter().filter(|meter| meter.absent.is_none()).map(|meter| meter.name).collect();
    let absent = gpu.meters.iter().filter_map(|meter| Some(format!("not {}: {}", meter.name, meter.absent.as_ref()?)));
    (!works.is_empty()).then(|| works.join(", ")).into_iter().chain(absent).collect()
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
