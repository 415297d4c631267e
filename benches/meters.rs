//! What a look at GPUs costs in processor time, with the stand-in for NVIDIA's library that the tests use: gputune's own
//! part. What the driver takes is not in it, and awaits a GPU; so does what sampling does to throughput.
//!
//! `cargo build --release --example stand_in_nvml && cargo bench --bench meters` prints a table, and so does `cargo test`;
//! `benches/results/meters.md` keeps a run.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputune::machine::{GpuMeter, GpuState, nvml::Visible};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Says how many GPUs the started program is to look at; the stand-in reads its script when it is opened.
const GPUS: &str = "METERS_BENCH_GPUS";

fn main() -> Result {
    if let Ok(gpus) = std::env::var(GPUS) {
        return measure(&gpus);
    }
    let folder = tempfile::tempdir()?;
    println!("| GPUs | processes on each | µs of CPU per look | at one look a second, of a core |");
    println!("|--:|--:|--:|--:|");
    for gpus in [1, 8] {
        let script = folder.path().join("script.json");
        fs::write(&script, script_of(gpus))?;
        let status = Command::new(std::env::current_exe()?)
            .env(GPUS, gpus.to_string())
            .env("STAND_IN_NVML", &script)
            .status()?;
        if !status.success() {
            return Err("the measuring part failed".into());
        }
    }
    Ok(())
}

/// GPUs that tell everything, on which this program is said to compute.
fn script_of(gpus: usize) -> String {
    let process = serde_json::json!({ "pid": std::process::id(), "bytes": 4e10, "share": 90 });
    let gpu = |number: usize| {
        serde_json::json!({ "uuid": format!("GPU-{number}"), "name": "NVIDIA H200", "state": {
            "memory_total": 15e10, "memory_reserved": 1e9, "processes": [process], "shares": true, "power": 500,
            "energy": 500, "power_samples": 500, "power_limit": 700, "busy": 97, "busy_samples": 97, "sm_clock": 1755,
            "memory_clock": 2619, "set_sm_clock": 1980, "set_memory_clock": 2619, "reasons": 0, "power_capped": 0,
            "heat": 0, "ecc": 0, "xids": [], "sm": 62, "occupancy": 31, "tensor": 40, "dram": 35 } })
    };
    serde_json::json!({ "gpus": (0..gpus).map(gpu).collect::<Vec<_>>() }).to_string()
}

fn measure(gpus: &str) -> Result {
    const LOOKS: u32 = 500;
    let meter = GpuMeter::open(library()?.as_os_str())?;
    meter.begin(&Visible::default(), std::process::id(), GpuState::default());
    meter.look();
    let before = processor_micros()?;
    (0..LOOKS).for_each(|_| meter.look());
    let cost = (processor_micros()? - before) / f64::from(LOOKS);
    println!("| {gpus} | 1 | {cost:.0} | {:.3} % |", cost / 1e4);
    Ok(())
}

/// Beside this program, among the examples.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program.parent().and_then(Path::parent).ok_or("where is this program?")?;
    Ok(profile.join("examples/libstand_in_nvml.so"))
}

/// The processor time of this process so far, in microseconds (fields 14 and 15 of `/proc/self/stat`, in ticks of 10 ms).
fn processor_micros() -> Result<f64> {
    const TICK: f64 = 10_000.0;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat[stat.rfind(')').ok_or("no name")? + 1..].split_whitespace().skip(11).take(2);
    Ok(fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * TICK)
}
