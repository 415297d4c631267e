//! `gputune cluster k8s`: a driver and workers as Jobs of Kubernetes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gputune::model::quantity;
use gputune::probe::worker::Token;
use gputune::spec::Spec;

use super::manifests::{self, Wanted};
use crate::cli::exit::{Exit, Failed};
use crate::cli::stdout;

/// The longest name of a search, which leaves room for the suffixes of its objects, and the largest ConfigMap (Kubernetes
/// documentation, "Object Names and IDs", "ConfigMaps").
const LONGEST_NAME: usize = 50;
const LARGEST_SPEC: usize = 1 << 20;

/// Write a search as Jobs of Kubernetes: a driver, and workers with GPUs that dial in to it
///
/// The YAML goes to standard output, and is the same for the same options, so it can be kept and read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune cluster k8s tune.toml --image registry/train:1 --workdir /workspace --workers 2 --gpus 4 > search.yaml
  gputune cluster k8s tune.toml --image registry/train:1 --claim results --apply")]
pub(super) struct Args {
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
    /// Submit it by kubectl, with a new token, instead of printing it
    #[arg(long)]
    apply: bool,
}

pub(super) fn run(args: &Args) -> super::super::Result {
    let wanted = wanted(args)?;
    if args.apply {
        return apply(&wanted);
    }
    stdout::print(&manifests::yaml(&wanted))?;
    Ok(Exit::Found)
}

fn usage(message: String, hint: &str) -> Failed {
    Failed::new(Exit::Usage, message).hint(hint)
}

fn wanted(args: &Args) -> Result<Wanted, Failed> {
    let spec = Spec::load(&args.config)?;
    let file = args.config.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !file.chars().all(is_key) {
        return Err(usage(
            format!("`{file}` cannot be a key of a ConfigMap"),
            "call the spec by letters, digits, `-`, `_` and `.`",
        ));
    }
    if spec.text.len() > LARGEST_SPEC {
        return Err(usage(format!("{file} does not fit into a ConfigMap"), "which holds 1 MiB"));
    }
    let name = args.name.clone().unwrap_or_else(|| name_of(&file));
    let is_start = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    checked(
        "--name",
        &name,
        is_start && is_label(&name) && name.len() <= LONGEST_NAME,
        "at most 50 of a-z, 0-9 and -, a letter first",
    )?;
    let label = |option: &str, text: &Option<String>| {
        text.iter().try_for_each(|text| checked(option, text, is_label(text), "a-z, 0-9 and -"))
    };
    label("--namespace", &args.namespace)?;
    let parts = |text: &str| !text.is_empty() && text.split('.').all(is_label);
    if let Some(claim) = &args.claim {
        checked("--claim", claim, parts(claim), "the name of a claim: a-z, 0-9, - and .")?;
    }
    for (option, text) in [("--cpu", &args.cpu), ("--memory", &args.memory)] {
        text.iter().try_for_each(|text| {
            checked(option, text, is_quantity(text), "a quantity of Kubernetes, such as 8, 500m or 64Gi")
        })?;
    }
    checked("--image", &args.image, is_word(&args.image), "the name of an image, without spaces")?;
    checked("--workdir", &args.workdir, is_path(&args.workdir), "an absolute path")?;
    checked("--gputune", &args.gputune, is_word(&args.gputune), "a program in the image")?;
    checked("--deadline", "0s", args.deadline >= Duration::from_secs(1), "at least a second")?;
    let mounts = pairs("--mount", &args.mount, ':', |claim, path| parts(claim) && is_path(path), "CLAIM:DIR")?;
    let selectors = pairs("--select", &args.select, '=', |key, _| is_word(key), "KEY=VALUE")?;
    let token = args.token_file.as_ref().map(|file| Token::read(file)).transpose();
    let token = token.map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))?;
    Ok(Wanted {
        name,
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        spec: (file, spec.text),
        workdir: args.workdir.clone(),
        gputune: args.gputune.clone(),
        workers: args.workers,
        gpus: args.gpus,
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        claim: args.claim.clone(),
        mounts,
        selectors,
        user: args.user,
        deadline_s: args.deadline.as_secs(),
        has_failure_policy: !args.without_failure_policy,
        token,
    })
}

/// Returns the name of a search from the file name of its spec.
fn name_of(file: &str) -> String {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_ascii_lowercase();
    let stem: String = stem.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let stem: String = stem.trim_matches('-').chars().take(LONGEST_NAME - "gputune-".len()).collect();
    format!("gputune-{}", stem.trim_matches('-')).trim_end_matches('-').to_owned()
}

fn checked(option: &str, text: &str, is_good: bool, hint: &str) -> Result<(), Failed> {
    if is_good { Ok(()) } else { Err(usage(format!("`{text}` cannot be `{option}`"), &format!("it is {hint}"))) }
}

fn pairs(
    option: &str,
    texts: &[String],
    between: char,
    is_good: impl Fn(&str, &str) -> bool,
    form: &str,
) -> Result<Vec<(String, String)>, Failed> {
    let pair = |text: &String| match text.split_once(between).filter(|(one, other)| is_good(one, other)) {
        Some((one, other)) => Ok((one.to_owned(), other.to_owned())),
        None => Err(usage(format!("`{text}` cannot be `{option}`"), &format!("it is {form}"))),
    };
    texts.iter().map(pair).collect()
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
fn apply(wanted: &Wanted) -> super::super::Result {
    let name = &wanted.name;
    let driver = format!("{name}-driver");
    if kubectl(wanted, &["get", "job", &driver, "-o", "name", "--ignore-not-found"], "")?.contains(&driver) {
        let labels = format!("app.kubernetes.io/instance={name}");
        let message = format!("there is a search `{name}` on the cluster");
        return Err(usage(
            message,
            &format!(
                "choose another --name, or remove it: kubectl delete jobs,services,configmaps,secrets -l {labels}"
            ),
        ));
    }
    let secret = manifests::secret_name(name);
    let is_there =
        kubectl(wanted, &["get", "secret", &secret, "-o", "name", "--ignore-not-found"], "")?.contains(&secret);
    if wanted.token.is_none() && !is_there {
        let token = Token::fresh().map_err(|error| Failed::because(Exit::Impossible, &error))?;
        kubectl(wanted, &["apply", "-f", "-"], &manifests::secret(wanted, &token))?;
    }
    let told = kubectl(wanted, &["apply", "-f", "-"], &manifests::yaml(wanted))?;
    say_part!("{told}");
    let namespace = wanted.namespace.as_ref().map(|namespace| format!(" --namespace {namespace}")).unwrap_or_default();
    say!("follow it: kubectl{namespace} logs -f job/{driver}");
    Ok(Exit::Found)
}

/// Runs the user's `kubectl`; a failure carries its error output.
fn kubectl(wanted: &Wanted, words: &[&str], input: &str) -> Result<String, Failed> {
    let failed = |message: String| {
        Failed::new(Exit::Impossible, message)
            .hint("is `kubectl` installed, and does `kubectl get jobs` work? Without --apply the YAML is printed")
    };
    let run = || -> std::io::Result<Output> {
        let mut command = Command::new("kubectl");
        command.args(wanted.namespace.iter().flat_map(|namespace| ["--namespace", namespace])).args(words);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_quantities_are_those_of_kubernetes() {
        assert_eq!(name_of("Tune_it.v2.toml"), "gputune-tune-it-v2");
        assert_eq!(name_of("_.toml"), "gputune");
        assert!(name_of(&"a".repeat(200)).len() <= LONGEST_NAME);
        for good in ["8", "0.5", "500m", "64Gi", "100M"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "0", "-1", "64GB", "1 Gi", "Gi", "1e"] {
            assert!(!is_quantity(bad), "{bad}");
        }
        assert!(is_label("a-1") && !is_label("A") && !is_label("-a") && !is_label("") && !is_label(&"a".repeat(64)));
    }
}
