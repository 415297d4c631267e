//! A machine in one screen.

use crate::ceilings::{Ceilings, KINDS};
use crate::machine::{BUSY, Machine};
use crate::precision::PRECISIONS;
use crate::quantity::{show_bytes, show_number};
use crate::telemetry::{GpuFacts, Holder, Mig, Pcie, Power};

/// Where the text of a line begins.
const INDENT: usize = 11;

/// Lines with a label in front, wrapped.
struct Page {
    text: String,
    width: usize,
}

impl Page {
    fn line(&mut self, label: &str, words: &str) {
        let room = self.width.saturating_sub(INDENT).max(20);
        for (at, line) in wrapped(words, room).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let line = format!("{label:<INDENT$}{line}");
            self.text += line.trim_end();
            self.text.push('\n');
        }
    }
}

/// Words in lines of so many signs; a longer word has a line of its own.
fn wrapped(words: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let last = lines.last_mut();
        match last {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) if last.chars().count() + 1 + word.chars().count() <= room => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The machine, with the ceilings that are known of its GPUs, in lines of at most so many signs.
pub fn machine_text(machine: &Machine, ceilings: &[Ceilings], width: usize) -> String {
    let mut page = Page { text: String::new(), width };
    for gpu in &machine.gpus {
        gpu_lines(gpu, &mut page);
    }
    if let Some((reason, cure)) = machine.without_gpu() {
        page.line("GPU", &format!("none can be used: {reason}"));
        cure.iter().for_each(|cure| page.line("", cure));
    }
    driver_lines(machine, &mut page);
    host_lines(machine, &mut page);
    for ceilings in ceilings {
        page.text.push('\n');
        page.text += &ceilings_text(ceilings, width);
    }
    if !machine.warnings.is_empty() {
        page.text.push('\n');
    }
    for warning in &machine.warnings {
        page.line("warning", &warning.message);
        page.line("", &format!("cure: {}", warning.cure));
    }
    page.text
}

fn gpu_lines(gpu: &GpuFacts, page: &mut Page) {
    let label = gpu.index.map_or_else(|| "GPU".to_owned(), |index| format!("GPU {index}"));
    let hidden = (!gpu.is_visible).then_some("hidden by CUDA_VISIBLE_DEVICES");
    page.line(&label, &listed([Some(gpu.name.as_str()), gpu.uuid.as_deref(), hidden]));
    let capability = gpu.compute_capability.map(|(major, minor)| format!("compute capability {major}.{minor}"));
    let multiprocessors = gpu.multiprocessors.map(|count| format!("{count} multiprocessors"));
    let memory = gpu.memory_bytes.map(|total| match gpu.memory_used_bytes {
        Some(used) => format!("{} of {} in use", show_bytes(used), show_bytes(total)),
        None => show_bytes(total),
    });
    page.line(" is", &listed([capability, multiprocessors, memory, gpu.mig.as_ref().map(mig_words)]));
    if let Some((major, minor)) = gpu.compute_capability {
        let has = |facts: &&crate::precision::PrecisionFacts| facts.precision.is_in_hardware((major, minor));
        let names: Vec<&str> = PRECISIONS.iter().filter(has).map(|facts| facts.name).collect();
        let lacks: Vec<&str> = PRECISIONS.iter().filter(|facts| !has(facts)).map(|facts| facts.name).collect();
        let lacks = (!lacks.is_empty()).then(|| format!("not {}", lacks.join(", ")));
        page.line(" computes", &listed([Some(names.join(", ")), lacks]).replace("; ", ", "));
    }
    let nvlinks = gpu.nvlinks.map(|count| if count == 0 { "no NVLink".to_owned() } else { format!("{count} NVLinks") });
    unless_empty(page, " link", &listed([gpu.pcie.map(|pcie| pcie_words(pcie, gpu.busy)), nvlinks]));
    unless_empty(page, " power", &gpu.power.map(power_words).unwrap_or_default());
    if let Some(processes) = &gpu.processes {
        let names: Vec<String> = processes.iter().map(process_words).collect();
        let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
        page.line(" used by", &names);
    }
    meter_lines(gpu, page);
}

fn unless_empty(page: &mut Page, label: &str, words: &str) {
    if !words.is_empty() {
        page.line(label, words);
    }
}

/// What is known, set apart.
fn listed<T: AsRef<str>>(words: impl IntoIterator<Item = Option<T>>) -> String {
    let known: Vec<T> = words.into_iter().flatten().collect();
    known.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("; ")
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

fn driver_lines(machine: &Machine, page: &mut Page) {
    let cuda = machine.cuda.as_ref().map(|version| format!("CUDA {version}"));
    unless_empty(page, "driver", &listed([machine.driver.clone(), cuda]));
    if machine.gpus.is_empty() {
        return;
    }
    let found = machine.libraries.iter().filter(|library| library.absent.is_none());
    unless_empty(page, "libraries", &found.map(|library| library.name).collect::<Vec<&str>>().join(", "));
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
    let machine_memory = host
        .machine_memory_bytes
        .map(|all| format!("limited by the control group; the machine has {}", show_bytes(all)));
    unless_empty(page, "memory", &listed([amount(host.memory_bytes, host.memory_available_bytes), machine_memory]));
    unless_empty(
        page,
        "/dev/shm",
        &amount(host.shared_memory_bytes, host.shared_memory_free_bytes).unwrap_or_else(|| "there is none".to_owned()),
    );
    if let Some(disk) = &host.disk {
        let free = amount(Some(disk.total_bytes), Some(disk.free_bytes)).unwrap_or_default();
        page.line("disk", &format!("{free} for {}", disk.folder.display()));
    }
}

/// Ceilings as a table, in lines of at most so many signs.
pub fn ceilings_text(ceilings: &Ceilings, width: usize) -> String {
    let mut page = Page { text: String::new(), width };
    page.line("ceilings", &format!("of {}, median and the middle half of the samples", ceilings.name));
    let label_width = KINDS.iter().map(|(_, label, _)| label.len()).max().unwrap_or(0);
    for &(kind, label, unit) in KINDS {
        if let Some(ceiling) = ceilings.measured.get(&kind) {
            let spread = format!("{} to {}", unit.show(ceiling.low), unit.show(ceiling.high));
            let row = format!("{:INDENT$}{label:<label_width$}  {:>11}  {spread}", "", unit.show(ceiling.median));
            page.text += row.trim_end();
            page.text.push('\n');
        }
    }
    let absent: Vec<(&str, &String)> =
        KINDS.iter().filter_map(|(kind, label, _)| Some((*label, ceilings.absent.get(kind)?))).collect();
    for alike in absent.chunk_by(|(_, a), (_, b)| a == b) {
        let labels: Vec<&str> = alike.iter().map(|(label, _)| *label).collect();
        page.line("", &format!("not {}: {}", labels.join(", "), alike[0].1));
    }
    page.text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ceilings::{Ceiling, FORMAT, Kind};
    use crate::machine::{Disk, Host, Library, Processors, Warning};
    use crate::telemetry::MeterState;

    const GIB: u64 = 1 << 30;

    fn host() -> Host {
        Host {
            processors: Processors {
                model: Some("AMD EPYC 9654 96-Core Processor".to_owned()),
                online: 32,
                usable: 16,
                quota: Some(12.5),
            },
            memory_bytes: Some(128 * GIB),
            memory_available_bytes: Some(120 * GIB),
            machine_memory_bytes: Some(1500 * GIB),
            shared_memory_bytes: Some(64 << 20),
            shared_memory_free_bytes: Some(64 << 20),
            disk: Some(Disk { folder: "gputune-out".into(), total_bytes: 64 * GIB, free_bytes: 50 * GIB }),
        }
    }

    fn gpu() -> GpuFacts {
        let meter = |name, absent: Option<&str>| MeterState { name, absent: absent.map(str::to_owned) };
        GpuFacts {
            index: Some(0),
            uuid: Some("GPU-01020304-0506-0708-090a-0b0c0d0e0f10".to_owned()),
            name: "NVIDIA H200".to_owned(),
            is_visible: true,
            compute_capability: Some((9, 0)),
            multiprocessors: Some(132),
            memory_bytes: Some(141 * GIB),
            memory_used_bytes: Some(GIB),
            pcie: Some(Pcie { generation: Some(1), width: Some(16), max_generation: Some(5), max_width: Some(16) }),
            nvlinks: Some(18),
            power: Some(Power { now_watts: Some(78.0), limit_watts: Some(600.0), default_limit_watts: Some(700.0) }),
            mig: Some(Mig::Off),
            processes: Some(vec![Holder { pid: 4711, name: Some("python".to_owned()), memory_bytes: Some(GIB) }]),
            meters: vec![meter("GPM", None), meter("power", None), meter("DCGM", Some("no host engine answers"))],
            ..GpuFacts::default()
        }
    }

    #[test]
    fn a_machine_with_a_gpu_in_eighty_columns() {
        let warning = Warning {
            rule: "shm_small",
            message: "/dev/shm has 64.0 MiB".to_owned(),
            cure: "start the container with --shm-size=8g or --ipc=host",
        };
        let libraries = vec![
            Library { name: "libcuda.so.1", absent: None, cure: None },
            Library {
                name: "libnvrtc",
                absent: Some("libnvrtc was not found".to_owned()),
                cure: Some("set CUDA_HOME".to_owned()),
            },
        ];
        let machine = Machine {
            gpus: vec![gpu()],
            driver: Some("580.95.05".to_owned()),
            cuda: Some("13.0".to_owned()),
            libraries,
            host: host(),
            warnings: vec![warning],
            ..Machine::default()
        };
        let ceiling = Ceiling { median: 7.9e14, low: 7.85e14, high: 7.93e14, samples: 40 };
        let ceilings = Ceilings {
            format: FORMAT,
            uuid: "GPU-1".to_owned(),
            name: "NVIDIA H200".to_owned(),
            driver: "580.95.05".to_owned(),
            gputune_version: String::new(),
            measured_at: 0,
            elapsed_s: 20.0,
            measured: BTreeMap::from([
                (Kind::MatmulBf16, ceiling),
                (Kind::HostToDevicePageable, Ceiling { median: 1.21e10, low: 1.2e10, high: 1.3e10, samples: 9 }),
            ]),
            absent: BTreeMap::from([(Kind::PeerToPeer, "there is one GPU".to_owned())]),
        };
        let text = machine_text(&machine, &[ceilings], 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn without_a_gpu_one_line_says_so() {
        let missing = Library {
            name: "libcuda.so.1",
            absent: Some("libcuda.so.1 was not found".to_owned()),
            cure: Some("install the NVIDIA driver".to_owned()),
        };
        let machine = Machine { libraries: vec![missing], host: host(), ..Machine::default() };
        let text = machine_text(&machine, &[], 60);
        assert!(text.starts_with("GPU        none can be used: libcuda.so.1 was not found\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
