//! `gputune search --slurm`: submits the same search by `sbatch`, and follows its job.
//!
//! The job's output and the search's exit code go through files in the folder of the search, which compute nodes share.

mod asked;
mod follow;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputune::report::emit::shell_word;
use gputune::search::journal;
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::{folder, paths};
use asked::State;
use follow::Job;

/// The subfolder of the search's folder with the files of its job.
const FOLDER: &str = "slurm";
/// The job's number.
const NUMBER: &str = "job";
/// The job's output.
const LOG: &str = "log";
/// The best config, as the search printed it.
const BEST: &str = "best";
/// The exit code of the search.
const CODE: &str = "code";

pub(super) struct Submission<'s> {
    /// The value of `--slurm`.
    pub(super) options: &'s str,
    pub(super) spec: &'s Spec,
    pub(super) out: &'s Path,
    /// The arguments for `gputune search` in the job, besides the spec and the folder.
    pub(super) arguments: Vec<OsString>,
    pub(super) is_fresh: bool,
    pub(super) is_quiet: bool,
}

/// Submits a search, or finds its existing job, and follows the job to its end and the search's result.
pub(super) fn search(wanted: &Submission<'_>) -> super::Result {
    let unreadable = || Failed::usage("the options of --slurm cannot be read: a quote or a backslash is left open");
    let words = shlex::split(wanted.options).ok_or_else(unreadable)?;
    if let Some(why) = refused(&words) {
        return Err(
            Failed::usage(why).hint("write --slurm \"--partition=gpu --nodes=2 --gpus-per-node=4 --time=1:00:00\"")
        );
    }
    if let Some(other) = wanted.spec.engine.launcher.filter(|launcher| launcher.name != "slurm") {
        let key = match other.name {
            "ssh" => "`hosts`".to_owned(),
            "dial" => "`listen`".to_owned(),
            name => format!("`launcher = \"{name}\"`"),
        };
        let message =
            format!("--slurm and {key} in [machine] exclude each other: a job has the nodes that Slurm gives it");
        return Err(Failed::usage(message).hint(format!("take {key} out of [machine], or leave --slurm out")));
    }
    if let Some(job) = Job::of(wanted.out, wanted.is_quiet) {
        match job.state() {
            State::Waits { .. } | State::Runs { .. } if wanted.is_fresh => {
                let message = format!("job {} still searches in {}", job.number, paths::relative(wanted.out).display());
                let hint = format!("end it by `scancel {}`, or choose another --out", job.number);
                return Err(Failed::usage(message).hint(hint));
            }
            State::Waits { .. } | State::Runs { .. } => {
                let id = &job.number;
                job.say(&format!("job {id} of this search is still there, and followed; --slurm asks for no other"));
                return job.follow();
            }
            State::Over(_) | State::Forgotten => {}
            State::Unclear(why) => {
                let message = format!("Slurm does not say whether job {} of this search is over: {why}", job.number);
                return Err(Failed::impossible(message).hint("try again, or choose another --out"));
            }
        }
    }
    if journal::is_in_use(&wanted.out.join(folder::JOURNAL)) == Some(true) {
        let message = format!("another search is running in {}", paths::relative(wanted.out).display());
        return Err(Failed::usage(message).hint("wait for it to end, or choose another folder with --out DIR"));
    }
    if wanted.is_fresh {
        folder::start_over(wanted.out, wanted.is_quiet)?;
    }
    submit(wanted, &words)?.follow()
}

fn submit(wanted: &Submission<'_>, words: &[String]) -> Result<Job, Failed> {
    let files = wanted.out.join(FOLDER);
    folder::prepare(&files)?;
    // Removes the files of an earlier job, so that they are not mistaken for this job's files.
    [NUMBER, LOG, BEST, CODE].into_iter().for_each(|name| folder::remove(&files, name));
    // A percent sign begins a pattern in names of files (`sbatch`(1), "FILENAME PATTERN").
    let log = files.join(LOG).display().to_string().replace('%', "%%");
    let name = wanted.spec.path.file_stem().unwrap_or_default().to_string_lossy();
    let mut sbatch = Command::new("sbatch");
    // If the job loses a node, the search goes on without it. A requeued job continues from the search's journal.
    sbatch
        .args(["--parsable", "--open-mode=append", "--no-kill", "--requeue"])
        .arg(format!("--job-name=gputune-{name}"));
    sbatch.arg(format!("--output={log}")).args(words);
    // If gputune runs inside another job, the variables of that job must not configure this job.
    let of_another = std::env::vars_os().map(|(name, _)| name);
    for name in of_another.filter(|name| name.to_string_lossy().starts_with("SLURM_") && name != "SLURM_CONF") {
        sbatch.env_remove(name);
    }
    let output = asked::run(&mut sbatch, &script(wanted, &files)).map_err(|error| {
        let failed = Failed::impossible(format!("cannot run `sbatch`: {error}"));
        failed.hint(if error.kind() == io::ErrorKind::NotFound {
            "run it where Slurm's programs are, such as on a login node; or leave --slurm out"
        } else {
            "is Slurm's controller up? `scontrol ping` tells"
        })
    })?;
    let told = String::from_utf8_lossy(&output.stdout);
    // `--parsable` prints the number, and the cluster after a semicolon.
    let number = told.trim().split(';').next().unwrap_or_default().to_owned();
    if !output.status.success() || number.is_empty() || !number.chars().all(|letter| letter.is_ascii_digit()) {
        return Err(not_taken(&String::from_utf8_lossy(&output.stderr)));
    }
    folder::write(&files, NUMBER, &number)?;
    let job = Job::new(number, files, wanted.is_quiet);
    job.say(&format!("job {} is submitted; it writes to {}", job.number, paths::relative(wanted.out).display()));
    Ok(job)
}

/// Returns the job's script: the same search, with results and exit code in files. The script reports missing files.
fn script(wanted: &Submission<'_>, files: &Path) -> String {
    let (gputune, spec) = (paths::word(&paths::gputune_path()), paths::word(&paths::absolute(&wanted.spec.path)));
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let (code, best) = (paths::word(&files.join(CODE)), paths::word(&files.join(BEST)));
    let arguments: Vec<String> = wanted.arguments.iter().map(|word| shell_word(&word.to_string_lossy())).collect();
    format!(
        "#!/bin/sh\n\
         for file in {gputune} {spec} {files}; do\n\
         \x20 [ -e \"$file\" ] || {{ echo \"$(uname -n) has no $file: nodes need gputune, the spec and --out under the same path, as on a \
         shared file system\" >&2; exit {impossible}; }}\n\
         done\n\
         rm -f {code}\n\
         cd {here} && exec {gputune} search {spec} --out {out} --ended {code} {arguments} >{best}\n",
        files = paths::word(files),
        here = paths::word(&here),
        out = paths::word(wanted.out),
        arguments = arguments.join(" "),
        impossible = Exit::Impossible.code(),
    )
}

/// Makes the failure of a job that Slurm refuses, with Slurm's reason.
fn not_taken(said: &str) -> Failed {
    let lines: Vec<&str> = said.lines().map(|line| line.trim_start_matches("sbatch: ")).collect();
    let reason = lines.iter().rev().find(|line| line.contains("rror")).or(lines.last()).copied().unwrap_or_default();
    let reason = reason.trim_start_matches("error: ");
    let low = said.to_lowercase();
    let hint = if low.contains("partition") {
        match partitions() {
            Some(names) => format!("partitions here are {names}"),
            None => "`sinfo` lists the partitions".to_owned(),
        }
    } else if low.contains("account") || low.contains("qos") {
        "`sacctmgr show associations user=$USER` lists accounts and QOS".to_owned()
    } else if low.contains("node configuration") || low.contains("gres") {
        "`sinfo -o \"%P %D %c %m %G\"` lists what nodes have".to_owned()
    } else {
        "--slurm takes the options of `sbatch`: see its manual".to_owned()
    };
    Failed::usage(format!("Slurm does not take the job: {reason}")).hint(hint)
}

fn partitions() -> Option<String> {
    let told = asked::run(Command::new("sinfo").args(["-h", "-o", "%R"]), "").ok()?;
    let names: Vec<String> = String::from_utf8_lossy(&told.stdout).lines().map(|name| name.trim().to_owned()).collect();
    (told.status.success() && !names.is_empty()).then(|| names.join(", "))
}

/// Writes the exit code of a job's search, for the process that follows the job.
pub(super) fn keep_code(file: &Path, exit: Exit) {
    // If the write fails, the follower relies on Slurm's answer.
    let _ = fs::write(file, exit.code().to_string());
}

/// Returns true if Slurm has requeued and restarted this job (`sbatch`(1), `SLURM_RESTART_COUNT`).
pub(super) fn is_started_again() -> bool {
    let count = std::env::var("SLURM_RESTART_COUNT").ok();
    count.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 0)
}

/// Options of `sbatch` that `--slurm` refuses: the short name, the long name, and the reason.
const OWN: &[(&str, &str, &str)] = &[
    ("-o", "--output", "gputune follows what the job prints"),
    ("-e", "--error", "gputune follows what the job prints"),
    ("-a", "--array", "a search is one job; its probes run side by side on the nodes of it"),
    ("-W", "--wait", "gputune waits for the job itself"),
    ("", "--wrap", "gputune submits itself"),
    ("", "--test-only", "nothing would be submitted"),
];

/// Returns the reason why the words of `--slurm` are refused, if they are.
pub(super) fn refused(words: &[String]) -> Option<String> {
    let is = |word: &str, short: &str, long: &str| {
        let rest = word.strip_prefix(long);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            || !short.is_empty() && !word.starts_with("--") && word.starts_with(short)
    };
    let own = words.iter().find_map(|word| {
        let (_, long, why) = OWN.iter().find(|(short, long, _)| is(word, short, long))?;
        Some(format!("`{long}` has no place in --slurm: {why}"))
    });
    // A word without a hyphen may be an option's value. `sbatch` would run any other as the job's script.
    let takes_none = |word: Option<&String>| word.is_none_or(|word| word.starts_with("--") && word.contains('='));
    let stray = words.iter().enumerate().find(|(at, word)| {
        let before = at.checked_sub(1).and_then(|before| words.get(before));
        !word.starts_with('-') && (takes_none(before) || before.is_some_and(|before| !before.starts_with('-')))
    });
    own.or_else(|| stray.map(|(_, word)| format!("`{word}` in --slurm is no option of sbatch")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_run_something_else_is_refused() {
        let said = |text: &str| refused(&shlex::split(text).unwrap()).unwrap_or_default();
        for text in ["--partition=gpu --nodes=2", "-p gpu -N2 -t 10", "--partition gpu --exclusive", ""] {
            assert_eq!(said(text), "");
        }
        for (text, message) in [
            ("--output=x", "`--output` has no place in --slurm"),
            ("-ox", "--output"),
            ("--wrap true", "--wrap"),
            ("--array=1-3", "one job"),
            ("run.sh", "`run.sh` in --slurm is no option"),
            ("--nodes=2 gpu", "`gpu`"),
            ("-p gpu run.sh", "`run.sh`"),
        ] {
            assert!(said(text).contains(message), "{text}");
        }
    }
}
