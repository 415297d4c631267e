//! `gputune cluster`: writes what a search on a cluster needs: a token, or a driver and workers as Jobs of Kubernetes.

mod manifests;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use gputune::model::quantity;
use gputune::probe::worker::Token;
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::stdout;
use manifests::Wanted;

/// The longest name of a search, in characters. Suffixes such as `-driver` must fit into the 63 characters of an
/// object's name (Kubernetes documentation, "Object Names and IDs").
const LONGEST_NAME: usize = 50;
/// The size of the largest ConfigMap, in bytes (Kubernetes documentation, "ConfigMaps").
const LARGEST_SPEC: usize = 1 << 20;

/// Write what a search on a cluster needs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    K8s(Box<K8s>),
    /// Write a new token for a search and its workers into a file that only you may read
    Token {
        /// The file, which must not be there yet
        file: PathBuf,
    },
}

/// Write a search as Jobs of Kubernetes: a driver, and workers with GPUs that dial in to it
///
/// The YAML goes to standard output. The same options always give the same YAML.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune cluster k8s tune.toml --image registry/train:1 --workdir /workspace --workers 2 --gpus 4 > search.yaml
  gputune cluster k8s tune.toml --image registry/train:1 --claim results --apply")]
struct K8s {
    /// The spec
    config: PathBuf,
    /// The image, with the training script and gputune
    #[arg(long)]
    image: String,
    /// The script's folder in the image, for the spec
    #[arg(long, value_name = "DIR", default_value = "/workspace")]
    workdir: String,
    /// The program in the image
    #[arg(long, value_name = "PATH", default_value = "gputune")]
    gputune: String,
    /// The name of all objects [default: gputune-<name of the spec>]
    #[arg(long)]
    name: Option<String>,
    /// The namespace [default: that of kubectl]
    #[arg(long)]
    namespace: Option<String>,
    /// The number of workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    workers: u32,
    /// GPUs of each worker
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1024))]
    gpus: u32,
    /// CPUs of each worker, as Kubernetes counts them
    #[arg(long, value_name = "QUANTITY")]
    cpu: Option<String>,
    /// Memory of each worker, such as 64Gi
    #[arg(long, value_name = "QUANTITY")]
    memory: Option<String>,
    /// A persistent volume claim for the results; without it the driver prints them
    #[arg(long)]
    claim: Option<String>,
    /// Another claim, for data or scripts; may be given again
    #[arg(long, value_name = "CLAIM:DIR")]
    mount: Vec<String>,
    /// A label that nodes of workers must have; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    select: Vec<String>,
    /// The user and group to run as, for clusters that forbid root
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..))]
    user: Option<u32>,
    /// The time after which Kubernetes ends everything
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = quantity::parse_duration)]
    deadline: Duration,
    /// Put this token into the YAML, as a Secret
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Leave out the pod failure policy, which Kubernetes before 1.26 does not know
    #[arg(long)]
    without_failure_policy: bool,
    /// Submit with kubectl instead of printing. Creates a token unless --token-file is given or the Secret exists
    #[arg(long)]
    apply: bool,
}

pub(super) fn run(args: &Args) -> super::Result {
    match &args.command {
        Command::K8s(options) => {
            let wanted = wanted(options)?;
            if options.apply {
                return apply(&wanted);
            }
            stdout::print(&manifests::yaml(&wanted))?;
        }
        Command::Token { file } => Token::fresh()?.write(file).map_err(|error| {
            let hint = file.exists().then_some("use the existing file, or remove it first");
            Failed::because(Exit::Usage, &error).maybe_hint(hint)
        })?,
    }
    Ok(Exit::Found)
}

fn wanted(options: &K8s) -> Result<Wanted<'_>, Failed> {
    let K8s { config, namespace, claim, image, workdir, gputune, deadline, .. } = options;
    let spec = Spec::load(config)?;
    let file = config.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !file.chars().all(is_key) {
        return Err(Failed::usage(format!("`{file}` cannot be a key of a ConfigMap"))
            .hint("call the spec by letters, digits, `-`, `_` and `.`"));
    }
    if spec.text.len() > LARGEST_SPEC {
        return Err(
            Failed::usage(format!("{file} does not fit into a ConfigMap")).hint("a ConfigMap holds at most 1 MiB")
        );
    }
    let name = options.name.clone().unwrap_or_else(|| name_of(&file));
    let is_start = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    let is_name = is_start && is_label(&name) && name.len() <= LONGEST_NAME;
    checked("--name", &name, is_name, "up to 50 characters (a-z, 0-9, -), starting with a letter")?;
    if let Some(namespace) = namespace {
        checked("--namespace", namespace, is_label(namespace), "a-z, 0-9 and -")?;
    }
    let parts = |text: &str| !text.is_empty() && text.split('.').all(is_label);
    if let Some(claim) = claim {
        checked("--claim", claim, parts(claim), "the name of a claim: a-z, 0-9, - and .")?;
    }
    for (option, text) in [("--cpu", &options.cpu), ("--memory", &options.memory)] {
        text.iter().try_for_each(|text| {
            checked(option, text, is_quantity(text), "a quantity of Kubernetes, such as 8, 500m or 64Gi")
        })?;
    }
    checked("--image", image, is_word(image), "the name of an image, without spaces")?;
    checked("--workdir", workdir, is_path(workdir), "an absolute path")?;
    checked("--gputune", gputune, is_word(gputune), "a program in the image")?;
    let time = quantity::show_duration(*deadline);
    checked("--deadline", &time, *deadline >= Duration::from_secs(1), "at least one second")?;
    let mounts = pairs("--mount", &options.mount, ':', |claim, path| parts(claim) && is_path(path), "CLAIM:DIR")?;
    let selectors = pairs("--select", &options.select, '=', |key, _| is_word(key), "KEY=VALUE")?;
    let token = options.token_file.as_ref().map(|file| Token::read(file)).transpose()?;
    Ok(Wanted { options, name, spec: (file, spec.text), mounts, selectors, token })
}

/// Returns the name of a search from the file name of its spec.
fn name_of(file: &str) -> String {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_ascii_lowercase();
    let stem: String = stem.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let stem: String = stem.trim_matches('-').chars().take(LONGEST_NAME - "gputune-".len()).collect();
    format!("gputune-{stem}").trim_end_matches('-').to_owned()
}

fn cannot_be(option: &str, text: &str, form: &str) -> Failed {
    Failed::usage(format!("`{text}` cannot be `{option}`")).hint(format!("use {form}"))
}

fn checked(option: &str, text: &str, is_good: bool, form: &str) -> Result<(), Failed> {
    if is_good { Ok(()) } else { Err(cannot_be(option, text, form)) }
}

fn pairs(
    option: &str,
    texts: &[String],
    between: char,
    is_good: impl Fn(&str, &str) -> bool,
    form: &str,
) -> Result<Vec<(String, String)>, Failed> {
    let pair = |text: &String| {
        let (one, other) = text.split_once(between).filter(|(one, other)| is_good(one, other))?;
        Some((one.to_owned(), other.to_owned()))
    };
    texts.iter().map(|text| pair(text).ok_or_else(|| cannot_be(option, text, form))).collect()
}

/// Returns true if the text is a label of RFC 1123, as Kubernetes requires.
fn is_label(text: &str) -> bool {
    let is_inside = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_graphic())
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(':') && !text.chars().any(char::is_control)
}

/// Returns true if the text is a quantity above zero (Kubernetes API, "Quantity").
fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let suffix = &text[number.len()..];
    let is_known = ["", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"].contains(&suffix);
    let digits = number.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    is_known && digits && number.parse::<f64>().is_ok_and(|value| value > 0.0)
}

/// Submits all objects. A fresh token goes straight to the cluster and is never shown.
fn apply(wanted: &Wanted<'_>) -> super::Result {
    let (name, namespace) = (&wanted.name, wanted.options.namespace.as_deref());
    let kubectl = |words: &[&str], input: &str| kubectl(namespace, words, input);
    let is_there = |kind: &str, name: &str| -> Result<bool, Failed> {
        Ok(!kubectl(&["get", kind, name, "-o", "name", "--ignore-not-found"], "")?.is_empty())
    };
    let driver = format!("{name}-driver");
    if is_there("job", &driver)? {
        let labels = format!("app.kubernetes.io/instance={name}");
        return Err(Failed::usage(format!("there is a search `{name}` on the cluster")).hint(format!(
            "choose another --name, or remove it: kubectl delete jobs,services,configmaps,secrets -l {labels}"
        )));
    }
    if wanted.token.is_none() && !is_there("secret", &manifests::secret_name(name))? {
        kubectl(&["apply", "-f", "-"], &manifests::secret(wanted, &Token::fresh()?))?;
    }
    say_part!("{}", kubectl(&["apply", "-f", "-"], &manifests::yaml(wanted))?);
    let namespace = namespace.map(|namespace| format!(" --namespace {namespace}")).unwrap_or_default();
    say!("follow it: kubectl{namespace} logs -f job/{driver}");
    Ok(Exit::Found)
}

/// Runs the user's `kubectl`; a failure carries its error output.
fn kubectl(namespace: Option<&str>, words: &[&str], input: &str) -> Result<String, Failed> {
    let failed = |message: String| {
        Failed::impossible(message)
            .hint("is `kubectl` installed, and does `kubectl get jobs` work? Without --apply the YAML is printed")
    };
    let run = || -> std::io::Result<Output> {
        let mut command = std::process::Command::new("kubectl");
        command.args(namespace.iter().flat_map(|namespace| ["--namespace", namespace])).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // If `kubectl` does not read its input, its own error says why.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| failed(format!("cannot run `kubectl`: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<String> = said.lines().map(str::to_owned).collect();
        return Err(failed(format!("`kubectl {}` failed", words.join(" "))).last_lines(lines));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
