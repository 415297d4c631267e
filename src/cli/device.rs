//! `gputune device`: shows what the machine has, and its ceilings.

use std::path::PathBuf;

use gputune::machine::{Ceilings, Machine, ceilings};
use gputune::report;
use serde::Serialize;

use super::exit::{Exit, Failed};
use super::{colour, diagnostic, folder, stdout};

/// Show what this machine has for training, and what may slow it down
///
/// GPUs with driver, links, limits, precisions and meters; CPU cores, memory, disk; and remedies. Nothing is changed.
/// `--bench` measures the GPU's best speeds in less than 30 seconds; searches compare the best config with them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune device
  gputune device --bench
  gputune device --json > device.json

Without a GPU, `--bench` ends with exit code 3.")]
pub(super) struct Args {
    /// Measure matrix products, memory, copies and kernel launches, and keep the results
    #[arg(long)]
    bench: bool,
    /// The GPU to measure, by CUDA's number
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "bench")]
    gpu: u16,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// A folder on the disk to show
    #[arg(long, value_name = "DIR", default_value = folder::ALL)]
    disk: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    #[serde(flatten)]
    machine: &'a Machine,
    ceilings: &'a [Ceilings],
}

pub(super) fn run(args: &Args) -> super::Result {
    let clock = ceilings::wall_clock();
    let machine = Machine::look(&args.disk);
    let known = if args.bench { vec![bench(&machine, args.gpu, &clock)?] } else { kept(&machine) };
    if args.json {
        stdout::print_json(&Report { format: 1, machine: &machine, ceilings: &known })?;
    } else {
        stdout::print(&report::machine_text(&machine, &known, colour::stdout().columns.min(colour::WIDEST)))?;
    }
    Ok(Exit::Found)
}

/// Returns the ceilings that were measured earlier, for the GPUs of this machine.
fn kept(machine: &Machine) -> Vec<Ceilings> {
    let Some(folder) = ceilings::folder() else { return Vec::new() };
    let driver = machine.driver_key();
    let of = |uuid: &str| match ceilings::load(&folder, uuid, &driver) {
        Ok(found) => found,
        Err(error) => {
            diagnostic::print_warning(&format!("{error}; `gputune device --bench` measures again"));
            None
        }
    };
    machine.gpus.iter().filter_map(|gpu| of(gpu.uuid.as_deref()?)).collect()
}

#[cfg(feature = "cuda")]
fn bench(machine: &Machine, gpu: u16, clock: &dyn Fn() -> f64) -> Result<Ceilings, Failed> {
    use std::io::IsTerminal;
    if let Some((reason, cure)) = machine.without_gpu() {
        return Err(no_gpu(&reason, cure));
    }
    let is_watched = std::io::stderr().is_terminal();
    let mut heard = |kind: ceilings::Kind| {
        if is_watched {
            say_part!("\r\x1b[2Kmeasuring {} ...", kind.label());
        }
    };
    let measured = ceilings::measure(i32::from(gpu), &machine.driver_key(), clock, &mut heard);
    if is_watched {
        say_part!("\r\x1b[2K");
    }
    let measured = measured.map_err(|error| no_gpu(&error.to_string(), error.cure().map(str::to_owned)))?;
    if measured.measured.is_empty() {
        let reason = measured.absent.values().next().cloned().unwrap_or_default();
        return Err(no_gpu(&reason, None));
    }
    let folder = ceilings::folder().ok_or(ceilings::StoreError::NoFolder);
    match folder.and_then(|folder| ceilings::save(&folder, &measured)) {
        Ok(path) => say!("kept in {}", path.display()),
        Err(error) => diagnostic::print_warning(&Failed::because(Exit::Impossible, &error).message()),
    }
    Ok(measured)
}

#[cfg(not(feature = "cuda"))]
fn bench(machine: &Machine, _gpu: u16, _clock: &dyn Fn() -> f64) -> Result<Ceilings, Failed> {
    let (reason, cure) = machine.without_gpu().unwrap_or_default();
    Err(no_gpu(&reason, cure))
}

fn no_gpu(reason: &str, cure: Option<String>) -> Failed {
    Failed::impossible(format!("no GPU can be measured: {reason}")).maybe_hint(cure)
}
