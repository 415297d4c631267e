//! `gputune tune`: writes a spec for a command, and searches it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputune::model::quantity;

use super::asked::Asked;
use super::exit::Failed;
use super::{diagnostic, folder, init, search};

/// Find the config that trains a script fastest: one command, no file needed
///
/// Does what `gputune init` does for the script, writes gputune-out/NAME/gputune.toml, and searches it. The spec may be edited:
/// `gputune search gputune-out/NAME/gputune.toml` goes on with it, and so does the same `gputune tune`. Options of gputune stand in
/// front of the script.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune tune train.py --data imgs/
  gputune tune --time 10m train.py
  gputune tune -- torchrun --nproc-per-node 2 train.py")]
pub(super) struct Args {
    #[command(flatten)]
    asked: Asked,
    /// The script or the command that trains, with its options [default: the script of this folder]
    #[arg(value_name = "SCRIPT", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Args {
    /// Makes the arguments for a script without options.
    pub(super) fn of(script: PathBuf, asked: Asked) -> Self {
        Self { asked, words: vec![script.into()] }
    }
}

pub(super) fn run(args: Args) -> super::Result {
    let (begin, Args { asked, words }) = (Instant::now(), args);
    let words = if words.is_empty() { init::words_of_folder()? } else { words };
    if let Some(option) = words.first().filter(|word| word.to_string_lossy().starts_with('-')) {
        let message = format!("there is no option `{}`", option.display());
        return Err(Failed::usage(message).hint("see `gputune tune --help`; a script's own options stand behind it"));
    }
    let searched = searched(begin, asked, &words);
    searched.map_err(|failed| {
        let said = if let Failed::Error { message, .. } = &failed { message.as_str() } else { "" };
        let option = misplaced(&words).filter(|option| is_unknown(option, said));
        failed.maybe_hint(option.map(|option| went_to_script(&option)))
    })
}

/// Returns the first word behind the script that is also an option of `gputune tune`.
fn misplaced(words: &[OsString]) -> Option<String> {
    let own = <Args as clap::Args>::augment_args(clap::Command::new("tune"));
    let is_own = |name: &str| own.get_arguments().any(|argument| name.strip_prefix("--") == argument.get_long());
    let mut options = words.iter().skip(1).filter_map(|word| word.to_str()?.split('=').next());
    options.find(|name| name.starts_with("--") && is_own(name)).map(str::to_owned)
}

fn went_to_script(option: &str) -> String {
    format!("`{option}` went to the script: options of gputune stand before the script")
}

/// Returns true if `said` is the message of argparse or Click that the script does not know `option`.
fn is_unknown(option: &str, said: &str) -> bool {
    let known = ["unrecognized arguments: ", "o such option: "].iter().find_map(|text| said.split_once(text));
    known.is_some_and(|(_, rest)| rest.contains(option))
}

/// The report mentions the first run if it took at least this share of the requested time. A round number.
const LARGE: f64 = 0.2;

/// Writes the spec and searches it.
fn searched(begin: Instant, mut asked: Asked, words: &[OsString]) -> super::Result {
    let out = asked.out.clone().unwrap_or_else(|| Path::new(folder::ALL).join(name_of(words)));
    folder::prepare(&out)?;
    let spec = out.join(folder::OWN_SPEC);
    let draft = init::Args::keeping(words.to_vec(), spec.clone(), asked.time.clone(), asked.fresh, asked.quiet);
    if let Some(drafted) = init::drafted(&draft)? {
        if !asked.quiet {
            say!("{}{}", drafted.summary(), drafted.not_searched(asked.verbose));
        }
        // A script that reads no options may ignore this option and train, so no error would name the mistake.
        if let Some(option) = misplaced(words).filter(|_| !drafted.has_options()) {
            diagnostic::print_warning(&went_to_script(&option));
        }
        asked.measured = drafted.measured;
    }
    // The first run counts towards the requested time. clap has checked that the string is a duration.
    if let Some(time) = asked.time.as_deref().and_then(|time| quantity::parse_duration(time).ok()) {
        let took = begin.elapsed();
        asked.first_run = Some(took).filter(|took| *took >= time.mul_f64(LARGE));
        let rest = time.saturating_sub(took).max(Duration::from_secs(1).min(time));
        asked.time = Some(format!("{}ms", rest.as_millis()));
    }
    search::run(search::Args::of(spec, out, asked))
}

/// Returns the name of a job for its folder: the name of its script, else the module after `-m`, else its program.
/// Characters other than letters, digits, `.`, `_` and `-` become `_`.
fn name_of(words: &[OsString]) -> String {
    let paths = || words.iter().map(Path::new);
    let module = || words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1));
    let script = paths().find(|word| word.extension().is_some_and(|kind| kind == "py"));
    let name = script.and_then(Path::file_stem).or_else(|| module().map(OsString::as_os_str));
    let name = name.or_else(|| paths().next().and_then(Path::file_name)).unwrap_or_default();
    name.to_string_lossy().replace(|sign: char| !(sign.is_alphanumeric() || "._-".contains(sign)), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_gputune_behind_the_script_is_recognised() {
        let misplaced = |line: &str| misplaced(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(misplaced("train.py --lr 1 --time 40s").as_deref(), Some("--time"));
        assert_eq!(misplaced("train.py --probes=3").as_deref(), Some("--probes"));
        assert_eq!(misplaced("train.py --slots 2").as_deref(), Some("--slots"));
        assert_eq!(misplaced("train.py time --times 3"), None);
        assert!(is_unknown("--time", "exit code 2: train.py: error: unrecognized arguments: --time 40s"));
        assert!(is_unknown("--time", "exit code 2: Error: No such option: --time"));
        assert!(!is_unknown("--time", "exit code 2: train.py: error: unrecognized arguments: --tme"));
        assert!(!is_unknown("--time", "argument --time: invalid int value: '40s'"));
    }
}
