//! `gputune report`: shows the results of a search, in any format, from its folder.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gputune::report::{
    BestReport, Comparison, Output, Place, REPORTS, ReportFormat, Screen, Side, Subject, report_format,
};
use gputune::search::Kept;

use super::exit::{Exit, Failed};
use super::{best, colour, folder, paths, stdout};

/// Show what a search found, in any format; or two searches side by side
///
/// A search may be running, interrupted or over. Of two, B is seen from A: above 1x is better.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune report gputune-out/config
  gputune report gputune-out/config --format summary >> \"$GITHUB_STEP_SUMMARY\"
  gputune report gputune-out/config --format trials --out trials.csv
  gputune report runs/a100 runs/h100
  gputune report runs/main runs/branch --format summary --max-slowdown 5%")]
pub(super) struct Args {
    /// The folder of the search [default: the newest below gputune-out]
    dir: Option<PathBuf>,
    /// The folder of another search, to compare
    other: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", default_value = REPORTS[0].name, value_parser = format_parser())]
    format: &'static ReportFormat,
    /// Print JSON: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// With two searches: end with exit code 1 if the best of the second is slower by more than this, such as 5%
    #[arg(long, value_name = "SHARE", requires = "other", value_parser = share)]
    max_slowdown: Option<f64>,
    /// Print all details: ties, where time went, how probes were measured
    #[arg(short, long, conflicts_with = "other")]
    verbose: bool,
    /// The file or folder for the report; `-` is standard output [default: standard output, or the place of the format in
    /// DIR]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// Reads a share such as `5%` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.strip_suffix('%') {
        Some(percentage) => number(percentage).map(|percentage| percentage / 100.0),
        None => number(text),
    };
    share.filter(|share| (0.0..1.0).contains(share)).ok_or_else(|| "write a share below 100 %, such as 5%".to_owned())
}

/// The format that `--json` stands for.
const JSON: &str = "json";
const ALIASES: [(&str, &str); 2] = [("md", "summary"), ("best", JSON)];

/// Reads the name of a format; help and errors list all names.
fn format_parser() -> impl TypedValueParser<Value = &'static ReportFormat> {
    let known = REPORTS.iter().map(|format| {
        let place = match format.place {
            Place::Stdout => String::new(),
            Place::File(name) => format!("; writes {name}"),
            Place::Folder(name) => format!("; writes {name}/"),
        };
        let two = if format.of_two.is_some() { "; also of two searches" } else { "" };
        let aliases = ALIASES.iter().filter(|(_, name)| *name == format.name).map(|(alias, _)| *alias);
        PossibleValue::new(format.name).help(format!("{}{place}{two}", format.about)).aliases(aliases)
    });
    PossibleValuesParser::new(known).try_map(|given| {
        let name = ALIASES.iter().find(|(alias, _)| *alias == given).map_or(given.as_str(), |(_, name)| *name);
        report_format(name).ok_or_else(|| format!("there is no format `{name}`"))
    })
}

impl Args {
    fn format(&self) -> &'static ReportFormat {
        report_format(JSON).filter(|_| self.json).unwrap_or(self.format)
    }
}

pub(super) fn run(args: &Args) -> super::Result {
    if let Some(other) = &args.other {
        return compare(args, other);
    }
    let format = args.format();
    let kept = read(&folder::of_search(args.dir.as_deref())?)?;
    let best = best_of(&kept);
    let screen = Screen { is_verbose: args.verbose, ..colour::stdout() };
    let screen = if args.out.is_some() { Screen { colours: false, ..screen } } else { screen };
    let made = (format.make)(&Subject { kept: &kept, best: best.as_ref(), screen });
    let output = made.map_err(|missing| Failed::new(Exit::NothingFeasible, missing))?;
    let place = match (&args.out, format.place) {
        (Some(path), _) if path.as_os_str() == "-" => None,
        (Some(path), _) => Some(path.clone()),
        (None, Place::Stdout) => None,
        (None, Place::File(name) | Place::Folder(name)) => Some(kept.folder.join(name)),
    };
    write(place.as_deref(), output, format.name)?;
    Ok(Exit::Found)
}

fn compare(args: &Args, other: &Path) -> super::Result {
    let format = args.format();
    let compared = format.of_two.ok_or_else(|| {
        let names: Vec<&str> = REPORTS.iter().filter(|row| row.of_two.is_some()).map(|row| row.name).collect();
        Failed::usage(format!("`{}` is a format for one search", format.name))
            .hint(format!("of two there are {}", names.join(", ")))
    })?;
    let dir = folder::of_search(args.dir.as_deref())?;
    let (a, b) = (read(&dir)?, read(other)?);
    let names = [dir.display().to_string(), other.display().to_string()];
    let comparison = Comparison::of(&Side { name: &names[0], kept: &a }, &Side { name: &names[1], kept: &b });
    let screen = if args.out.is_some() { Screen { colours: false, ..colour::stdout() } } else { colour::stdout() };
    let place = args.out.as_deref().filter(|path| path.as_os_str() != "-");
    write(place, Output::text(compared(&comparison, screen)), format.name)?;
    match args.max_slowdown.and_then(|most| comparison.regression(most)) {
        Some(reason) => Err(Failed::new(Exit::NothingFeasible, format!("regression: {reason}"))),
        None => Ok(Exit::Found),
    }
}

pub(super) fn read(place: &Path) -> Result<Kept, Failed> {
    Kept::read(place).map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))
}

/// Makes the report on the best config of a kept search.
pub(super) fn best_of(kept: &Kept) -> Option<BestReport> {
    let folder = paths::absolute(&kept.folder);
    let best = best::report(&kept.study, &kept.device, &kept.step, &kept.header.warm_start, &folder)?;
    // Only the machine that ran the search knows the device's ceilings. It kept the comparison with them in best.json.
    let earlier = std::fs::read_to_string(folder.join(folder::BEST_JSON)).ok();
    let earlier = earlier.and_then(|text| serde_json::from_str::<BestReport>(&text).ok());
    match earlier.filter(|earlier| earlier.config == best.config) {
        Some(earlier) => Some(BestReport { compute: earlier.compute.or(best.compute), ..best }),
        None => Some(best),
    }
}

/// Writes the page of a search into its folder. The page is made from the files there, so it can be made again later.
pub(super) fn write_page(best: Option<&BestReport>, folder: &Path) -> Result<(), Failed> {
    let kept = read(folder)?;
    let subject = Subject { kept: &kept, best, screen: colour::stdout() };
    folder::write(folder, folder::PAGE, &gputune::report::page(&subject))
}

/// Writes a report; `None` is standard output.
fn write(place: Option<&Path>, output: Output, format: &str) -> Result<(), Failed> {
    match (place, output) {
        (None, Output::File(bytes)) => return stdout::print_bytes(&bytes),
        (None, Output::Folder(_)) => {
            let message = format!("`{}` is a folder, which cannot go to standard output", format);
            return Err(Failed::usage(message).hint("name a folder with --out DIR"));
        }
        (Some(path), Output::File(_)) if path.is_dir() => {
            return Err(Failed::usage(format!("{} is a folder, and `{}` is one file", path.display(), format))
                .hint("name a file with --out PATH"));
        }
        (Some(path), Output::File(bytes)) => write_file(path, &bytes)?,
        (Some(path), Output::Folder(_)) if path.exists() && !path.is_dir() => {
            return Err(Failed::usage(format!("{} is a file, and `{}` is a folder", path.display(), format))
                .hint("name a folder with --out DIR"));
        }
        (Some(path), Output::Folder(files)) => {
            for (name, bytes) in files {
                write_file(&path.join(name), &bytes)?;
            }
        }
    }
    if let Some(path) = place {
        say!("wrote {}", path.display());
    }
    Ok(())
}

/// Writes a file as a whole or not at all, with the folders that lead to it.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    let name = path.file_name().unwrap_or_default();
    let failed = |error: std::io::Error| {
        Failed::impossible(format!("cannot write {}: {error}", path.display()))
            .hint("name another place with --out PATH")
    };
    let folder = paths::folder_of(path);
    std::fs::create_dir_all(folder).map_err(failed)?;
    folder::replace(&folder.join(name), bytes).map_err(failed)
}
