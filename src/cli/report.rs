//! `gputune report`: what a search found, in any form, from the folder that it is kept in.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gputune::journal::{self, Fingerprint};
use gputune::kept::{self, Kept, KeptError, Record, StepRecord};
use gputune::report::{BestReport, Output, Place, REPORTS, ReportFormat, Subject, report_format};
use gputune::spec::Spec;
use gputune::telemetry::Device;

use super::exit::{Exit, Failed};
use super::{best, folder, search, stdout};

/// Show what a search found, in any form; it may be running, interrupted or over
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune report gputune-out/config
  gputune report gputune-out/config --format summary >> \"$GITHUB_STEP_SUMMARY\"
  gputune report gputune-out/config --format trials --out trials.csv")]
pub(super) struct Args {
    /// The folder of the search
    dir: PathBuf,
    /// The form
    #[arg(long, value_name = "FORMAT", default_value = REPORTS[0].name, value_parser = format_parser())]
    format: &'static ReportFormat,
    /// Where it is written; `-` is standard output [default: standard output, or the file or folder that the form names,
    /// in DIR]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// Reads the name of a form; help and errors list those that there are.
fn format_parser() -> impl TypedValueParser<Value = &'static ReportFormat> {
    let known = REPORTS.iter().map(|format| {
        let place = match format.place {
            Place::Stdout => String::new(),
            Place::File(name) => format!("; writes {name}"),
            Place::Folder(name) => format!("; writes {name}/"),
        };
        PossibleValue::new(format.name).help(format!("{}{place}", format.about))
    });
    PossibleValuesParser::new(known)
        .try_map(|name| report_format(&name).ok_or_else(|| format!("there is no form `{name}`")))
}

pub(super) fn run(args: &Args) -> super::Result {
    let kept = read(&args.dir)?;
    let best = best_of(&kept);
    let columns = u16::try_from(stdout::columns()).unwrap_or(u16::MAX);
    let made = (args.format.make)(&subject(&kept, best.as_ref(), columns));
    let output = made.map_err(|missing| Failed::new(Exit::NothingFeasible, missing))?;
    let place = match (&args.out, args.format.place) {
        (Some(path), _) if path.as_os_str() == "-" => None,
        (Some(path), _) => Some(path.clone()),
        (None, Place::Stdout) => None,
        (None, Place::File(name) | Place::Folder(name)) => Some(kept.folder.join(name)),
    };
    write(place.as_deref(), output, args.format)?;
    Ok(Exit::Found)
}

/// Reads the folder of a search, from before there was `study.json`, too.
pub(super) fn read(place: &Path) -> Result<Kept, Failed> {
    let kept = match Kept::read(place) {
        Err(KeptError::NoStudy { place: folder }) => match older_record(&folder) {
            Some(record) => Kept::read_with(place, record),
            None => Err(KeptError::NoStudy { place: folder }),
        },
        kept => kept,
    };
    kept.map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))
}

/// What the copy of the spec says, where it needs no other file; the device is in the journal.
fn older_record(folder: &Path) -> Option<Record> {
    let (header, _) = journal::read(&folder.join(folder::JOURNAL)).ok()?;
    // Whatever GPU is here: what that search left out is not in its trials.
    let spec = Spec::load_for(&folder.join(folder::SPEC), &|| None).ok()?;
    let Fingerprint { device, driver, .. } = header.fingerprint;
    let is_gpu = driver != "none";
    Some(Record {
        format: kept::FORMAT,
        gputune_version: header.gputune_version,
        spec: spec.path.display().to_string(),
        step: StepRecord::of(spec.step.template()),
        space: spec.space,
        objective: spec.objective,
        baseline: spec.baseline,
        budget: spec.budget,
        device: Device { name: device, driver, is_gpu },
        stopped: None,
        elapsed_s: None,
    })
}

/// The report on the best config of a search that is kept.
pub(super) fn best_of(kept: &Kept) -> Option<BestReport> {
    let folder = search::absolute(&kept.folder);
    let best = best::report(&kept.study, &kept.device, &kept.step, &kept.header.warm_start, &folder)?;
    // How far it is from the device's ceilings only the machine knows that measured them.
    let then = std::fs::read_to_string(folder.join(folder::BEST_JSON)).ok();
    let then = then.and_then(|text| serde_json::from_str::<BestReport>(&text).ok());
    match then.filter(|then| then.config == best.config) {
        Some(then) => Some(BestReport { compute: then.compute.or(best.compute), ..best }),
        None => Some(best),
    }
}

/// What forms of report are made from.
pub(super) fn subject<'k>(kept: &'k Kept, best: Option<&'k BestReport>, columns: u16) -> Subject<'k> {
    let Kept { folder, spec, device, step, header, lines, study, .. } = kept;
    Subject { study, device, name: spec, best, step, folder, header, lines, columns }
}

/// Writes the page of a search that ended into its folder. It is made from what is kept, as it can be at any later time.
pub(super) fn write_page(best: Option<&BestReport>, folder: &Path) -> Result<(), Failed> {
    let kept = read(folder)?;
    let columns = u16::try_from(stdout::columns()).unwrap_or(u16::MAX);
    folder::write(folder, folder::PAGE, &gputune::report::page(&subject(&kept, best, columns)))
}

/// Writes a report; `None` is standard output.
fn write(place: Option<&Path>, output: Output, format: &ReportFormat) -> Result<(), Failed> {
    let usage = |message: String| Failed::new(Exit::Usage, message);
    match (place, output) {
        (None, Output::File(bytes)) => return stdout::print_bytes(&bytes),
        (None, Output::Folder(_)) => {
            let message = format!("`{}` is a folder, which cannot go to standard output", format.name);
            return Err(usage(message).hint("name a folder with --out DIR"));
        }
        (Some(path), Output::File(_)) if path.is_dir() => {
            return Err(usage(format!("{} is a folder, and `{}` is one file", path.display(), format.name))
                .hint("name a file with --out PATH"));
        }
        (Some(path), Output::File(bytes)) => write_file(path, &bytes)?,
        (Some(path), Output::Folder(_)) if path.exists() && !path.is_dir() => {
            return Err(usage(format!("{} is a file, and `{}` is a folder", path.display(), format.name))
                .hint("name a folder with --out DIR"));
        }
        (Some(path), Output::Folder(files)) => {
            for (name, bytes) in files {
                write_file(&path.join(name), &bytes)?;
            }
        }
    }
    if let Some(path) = place {
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

/// Writes a file whole or not at all, with the folders that lead to it.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let failed = |error: std::io::Error| {
        Failed::new(Exit::Impossible, format!("cannot write {}: {error}", path.display()))
            .hint("name another place with --out PATH")
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    folder::replace(&folder.join(name), bytes).map_err(failed)
}
