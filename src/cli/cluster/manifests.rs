//! The objects of a search on Kubernetes, as readable YAML. The same options give the same YAML.
//!
//! The templates are `search.yaml.jinja` and `secret.yaml.jinja`.

use gputune::probe::worker::Token;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Value};

use super::K8s;

const SEARCH: &str = include_str!("search.yaml.jinja");
const SECRET: &str = include_str!("secret.yaml.jinja");
/// The port that workers dial: any port above 1023 would do.
const PORT: u16 = 7331;

/// The contents of the objects.
#[derive(Debug)]
pub(super) struct Wanted<'o> {
    pub(super) options: &'o K8s,
    /// The name of the search, which begins the names of all objects.
    pub(super) name: String,
    /// The spec's file name, and its text.
    pub(super) spec: (String, String),
    /// Further persistent volume claims, with their mount points.
    pub(super) mounts: Vec<(String, String)>,
    pub(super) selectors: Vec<(String, String)>,
    pub(super) token: Option<Token>,
}

pub(super) fn secret_name(name: &str) -> String {
    format!("{name}-token")
}

/// Returns all objects, each after a line of three dashes.
pub(super) fn yaml(wanted: &Wanted<'_>) -> String {
    let Wanted { options, name, mounts, .. } = wanted;
    let K8s { claim, gpus, .. } = options;
    let (file, spec) = &wanted.spec;
    let text = |text: &Option<String>| text.as_deref().map(Value::from).unwrap_or_default();
    let pairs = |pairs: &[(String, String)]| Value::from_iter(pairs.iter().map(|(a, b)| vec![a.clone(), b.clone()]));
    let job = |name: &str, part: &str, words: Vec<String>, mounts: &[(String, String)]| {
        // Copies the spec into the script's folder: gputune covers that folder to discard the writes of probes, but cannot
        // cover a mounted file.
        let copy = format!(
            "cp /run/gputune-spec/{file} ./.{file}.$HOSTNAME && mv ./.{file}.$HOSTNAME ./{file} && exec \"$@\""
        );
        let words = ["sh", "-c", &copy, "sh"].into_iter().map(str::to_owned).chain(words);
        let (words, mounts) = (Value::from_iter(words), pairs(mounts));
        Value::from_pairs([("name", name.into()), ("part", part.into()), ("words", words), ("mounts", mounts)])
    };
    let results = claim.iter().map(|claim| (claim.clone(), "/mnt/results".to_owned()));
    let driver_mounts: Vec<(String, String)> = results.chain(mounts.iter().cloned()).collect();
    let driver = job("driver", "driver", wanted.driver_words(), &driver_mounts);
    let workers = (1..=options.workers).map(|n| job(&format!("worker-{n}"), "worker", wanted.worker_words(), mounts));
    let resources = [
        (*gpus > 0).then(|| format!("nvidia.com/gpu: {gpus}")),
        options.cpu.as_ref().map(|cpu| format!("cpu: {}", quoted(cpu))),
        options.memory.as_ref().map(|memory| format!("memory: {}", quoted(memory))),
    ];
    let context = [
        ("name", name.as_str().into()),
        ("namespace", text(&options.namespace)),
        ("secret", wanted.token.as_ref().map_or(String::new(), |token| secret(wanted, token)).into()),
        ("claim", text(claim)),
        ("file", file.as_str().into()),
        ("spec", block(spec, 4).into()),
        ("port", PORT.into()),
        ("jobs", Value::from_iter(std::iter::once(driver).chain(workers))),
        ("deadline_s", options.deadline.as_secs().into()),
        ("has_failure_policy", (!options.without_failure_policy).into()),
        ("user", options.user.unwrap_or(0).into()),
        ("gpus", (*gpus).into()),
        ("selectors", pairs(&wanted.selectors)),
        ("image", options.image.as_str().into()),
        ("workdir", options.workdir.as_str().into()),
        ("resources", Value::from_iter(resources.into_iter().flatten())),
    ];
    render(SEARCH, context)
}

pub(super) fn secret(wanted: &Wanted<'_>, token: &Token) -> String {
    let namespace = wanted.options.namespace.as_deref().map(Value::from).unwrap_or_default();
    render(SECRET, [("name", wanted.name.as_str().into()), ("namespace", namespace), ("token", token.digits().into())])
}

fn render<const N: usize>(template: &str, context: [(&'static str, Value); N]) -> String {
    let mut environment = Environment::empty();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("these are the usual delimiters"));
    environment.add_filter("quoted", |text: String| quoted(&text));
    environment.render_str(template, Value::from_pairs(context)).expect("the templates are tested with all options")
}

/// Quotes a string for any place in YAML: JSON is valid YAML (YAML 1.2, 1.3).
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Formats lines as the value of a key: a readable block if their characters allow it (YAML 1.2, 5.1 and 8.1).
fn block(text: &str, by: usize) -> String {
    let is_plain = |c: char| c == '\n' || c == '\t' || !(c.is_control() || "\u{2028}\u{2029}\u{feff}".contains(c));
    let lines_end_alike = text.ends_with('\n') && !text.ends_with("\n\n");
    if !lines_end_alike || !text.chars().all(is_plain) || text.starts_with([' ', '\n', '\t']) {
        return format!(" {}\n", quoted(text));
    }
    let margin = " ".repeat(by);
    let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{margin}{line}\n") };
    format!(" |\n{}", text.lines().map(indented).collect::<String>())
}

impl Wanted<'_> {
    fn driver_words(&self) -> Vec<String> {
        let spec = format!("{}/{}", self.options.workdir.trim_end_matches('/'), self.spec.0);
        let out = self.options.claim.as_ref().map_or("/tmp", |_| "/mnt/results");
        let (out, listen) = (format!("{out}/{}", self.name), format!("$(POD_IP):{PORT}"));
        let words = ["search", &spec, "--out", &out, "--listen", &listen, "--token-file", "/run/gputune/token"];
        std::iter::once(self.options.gputune.as_str()).chain(words).map(str::to_owned).collect()
    }

    fn worker_words(&self) -> Vec<String> {
        let dial = format!("{}-driver:{PORT}", self.name);
        let words = ["worker", "--dial", &dial, "--token-file", "/run/gputune/token", "--wait", "5m", "--again"];
        std::iter::once(self.options.gputune.as_str()).chain(words).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_readable_where_it_can_be() {
        assert_eq!(block("a = 1\n\n  b\n", 4), " |\n    a = 1\n\n      b\n");
        for odd in ["", "no end", "two ends\n\n", "\r\n", " margin\n", "\u{7}\n"] {
            assert!(block(odd, 4).starts_with(" \""), "{odd:?}");
        }
    }
}
