//! `gputune search --slurm`: submits the same search by `sbatch`, and follows its job.
//!
//! What the job prints and how its search ends goes through files in the folder of the search, which compute nodes share.

mod asked;
mod end;
mod follow;
mod words;

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

/// The folder of a job's files in that of its search.
const FOLDER: &str = "slurm";
/// The number of the job.
const NUMBER: &str = "job";
/// What the job has printed.
const LOG: &str = "log";
/// The best config, as the search printed it.
const BEST: &str = "best";
/// The code that the search has ended with.
const CODE: &str = "code";

/// A search that is to be submitted.
pub(super) struct Submission<'s> {
    /// The words of `--slurm`.
    pub(super) options: &'s str,
    pub(super) spec: &'s Spec,
    pub(super) out: &'s Path,
    /// What else the search was asked for, as arguments.
    pub(super) arguments: Vec<OsString>,
    pub(super) is_fresh: bool,
    pub(super) is_quiet: bool,
}

/// Submits a search, or finds the job that it already has, and follows that to its end.
///
/// # Errors
/// It cannot be submitted, or has ended otherwise than a search does.
pub(super) fn search(wanted: &Submission<'_>) -> super::Result {
    let usage = |message: String| Failed::new(Exit::Usage, message);
    let unreadable = |why: &str| usage(format!("the options of --slurm cannot be read: {why}"));
    let words = words::split(wanted.options).map_err(unreadable)?;
    if let Some(why) = words::refused(&words) {
        return Err(usage(why).hint("write --slurm \"--partition=gpu --nodes=2 --gpus-per-node=4 --time=1:00:00\""));
    }
    if let Some(other) = wanted.spec.engine.launcher.filter(|launcher| launcher.name != "slurm") {
        let key = match other.name {
            "ssh" => "`hosts`".to_owned(),
            "dial" => "`listen`".to_owned(),
            name => format!("`launcher = \"{name}\"`"),
        };
        let message =
            format!("--slurm and {key} in [machine] exclude each other: a job has the nodes that Slurm gives it");
        return Err(usage(message).hint(format!("take {key} out of [machine], or leave --slurm out")));
    }
    if let Some(job) = Job::of(wanted.out, wanted.is_quiet) {
        match job.state() {
            State::Waits { .. } | State::Runs { .. } if wanted.is_fresh => {
                let message = format!("job {} still searches in {}", job.number, paths::relative(wanted.out).display());
                return Err(usage(message).hint(format!("end it by `scancel {}`, or choose another --out", job.number)));
            }
            State::Waits { .. } | State::Runs { .. } => {
                job.say(&format!(
                    "job {} of this search is still there, and followed; --slurm asks for no other",
                    job.number
                ));
                return job.follow();
            }
            State::Over(_) | State::Forgotten => {}
            State::Unclear(why) => {
                let message = format!("Slurm does not say whether job {} of this search is over: {why}", job.number);
                return Err(Failed::new(Exit::Impossible, message).hint("try again, or choose another --out"));
            }
        }
    }
    if journal::is_in_use(&wanted.out.join(folder::JOURNAL)) == Some(true) {
        let message = format!("another search is running in {}", paths::relative(wanted.out).display());
        return Err(usage(message).hint("wait for it to end, or choose another folder with --out DIR"));
    }
    if wanted.is_fresh
        && let Some(aside) = folder::set_aside(wanted.out)?
        && !wanted.is_quiet
    {
        say!("the earlier search is kept in {}", aside.display());
    }
    submit(wanted, &words)?.follow()
}

fn submit(wanted: &Submission<'_>, words: &[String]) -> Result<Job, Failed> {
    let files = wanted.out.join(FOLDER);
    folder::prepare(&files)?;
    // Nothing of an earlier job is to be taken for this one's.
    [NUMBER, LOG, BEST, CODE].into_iter().for_each(|name| folder::remove(&files, name));
    // A percent sign begins a pattern in names of files (`sbatch`(1), "FILENAME PATTERN").
    let log = files.join(LOG).display().to_string().replace('%', "%%");
    let name = wanted.spec.path.file_stem().unwrap_or_default().to_string_lossy();
    let mut sbatch = Command::new("sbatch");
    // A search outlives a node, and goes on from its journal.
    sbatch
        .args(["--parsable", "--open-mode=append", "--no-kill", "--requeue"])
        .arg(format!("--job-name=gputune-{name}"));
    sbatch.arg(format!("--output={log}")).args(words);
    // From inside of another job, that job's shape is not this one's.
    let of_another = std::env::vars_os().map(|(name, _)| name);
    for name in of_another.filter(|name| name.to_string_lossy().starts_with("SLURM_") && name != "SLURM_CONF") {
        sbatch.env_remove(name);
    }
    let output = asked::run(&mut sbatch, &script(wanted, &files)).map_err(|error| {
        let failed = Failed::new(Exit::Impossible, format!("cannot run `sbatch`: {error}"));
        failed.hint(if error.kind() == io::ErrorKind::NotFound {
            "run it where Slurm's programs are, such as on a login node; or leave --slurm out"
        } else {
            "is Slurm's controller up? `scontrol ping` tells"
        })
    })?;
    let told = String::from_utf8_lossy(&output.stdout);
    // `--parsable`: the number, and behind a semicolon the cluster.
    let number = told.trim().split(';').next().unwrap_or_default().to_owned();
    if !output.status.success() || number.is_empty() || !number.chars().all(|letter| letter.is_ascii_digit()) {
        return Err(not_taken(&String::from_utf8_lossy(&output.stderr)));
    }
    folder::write(&files, NUMBER, &number)?;
    let job = Job::new(number, files, wanted.is_quiet);
    job.say(&format!("job {} is submitted; it writes to {}", job.number, paths::relative(wanted.out).display()));
    Ok(job)
}

/// What the job runs: the same search, with its results and its code in files. It says what a node lacks.
fn script(wanted: &Submission<'_>, files: &Path) -> String {
    let word = |path: &Path| shell_word(&path.display().to_string());
    let (gputune, spec) = (word(&paths::gputune_path()), word(&paths::absolute(&wanted.spec.path)));
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let (code, best) = (word(&files.join(CODE)), word(&files.join(BEST)));
    let arguments: Vec<String> = wanted.arguments.iter().map(|word| shell_word(&word.to_string_lossy())).collect();
    format!(
        "#!/bin/sh\n\
         for file in {gputune} {spec} {files}; do\n\
         \x20 [ -e \"$file\" ] || {{ echo \"$(uname -n) has no $file: nodes need gputune, the spec and --out under the same path, as on a \
         shared file system\" >&2; exit 3; }}\n\
         done\n\
         rm -f {code}\n\
         cd {here} && exec {gputune} search {spec} --out {out} --ended {code} {arguments} >{best}\n",
        files = word(files),
        here = word(&here),
        out = word(wanted.out),
        arguments = arguments.join(" "),
    )
}

/// The failure where Slurm does not take the job, with what it says.
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
        "the options of --slurm are those of `sbatch`: see its manual".to_owned()
    };
    Failed::new(Exit::Usage, format!("Slurm does not take the job: {reason}")).hint(hint)
}

fn partitions() -> Option<String> {
    let told = asked::run(Command::new("sinfo").args(["-h", "-o", "%R"]), "").ok()?;
    let names: Vec<String> = String::from_utf8_lossy(&told.stdout).lines().map(|name| name.trim().to_owned()).collect();
    (told.status.success() && !names.is_empty()).then(|| names.join(", "))
}

/// Writes the code that a search of a job has ended with, for who follows the job.
pub(super) fn keep_code(file: &Path, exit: Exit) {
    // Where it cannot be written, Slurm's own word has to do.
    let _ = fs::write(file, exit.code().to_string());
}

/// Whether this is a job that Slurm has put back into the queue and started again (`sbatch`(1), `SLURM_RESTART_COUNT`).
pub(super) fn is_started_again() -> bool {
    let count = std::env::var("SLURM_RESTART_COUNT").ok();
    count.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 0)
}
