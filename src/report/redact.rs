//! Removes secrets from files for sharing: values with a secret's name, passwords in URLs, and well-known tokens.
//!
//! One reader serves specs, commands, JSON and logs. It recognises a name, a separator and a value in the notations of TOML, YAML,
//! JSON, Python, shells and command lines.

mod names;

use names::{is_switch, speaks_of_a_secret};

/// The replacement for a secret: a single word in a shell and plain text elsewhere.
const REDACTED: &str = "REDACTED";

/// The prefixes of well-known tokens, with their shortest lengths: such values are secrets under any name.
const KNOWN: &[(&str, usize)] = &[
    ("hf_", 20),         // https://huggingface.co/docs/hub/security-tokens
    ("ghp_", 30),        // https://github.blog/engineering/behind-githubs-new-authentication-token-formats
    ("gho_", 30),        // the same
    ("github_pat_", 30), // the same
    ("glpat-", 20),      // https://docs.gitlab.com/security/tokens/
    ("sk-", 30),         // https://platform.openai.com/docs/api-reference/authentication
    ("AKIA", 20),        // https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
    ("xoxb-", 24),       // https://docs.slack.dev/authentication/tokens
];

/// Values that are no secret under any name.
const PLAIN: &[&str] = &["true", "false", "none", "null", "yes", "no", "on", "off", "auto", "basic", "digest", "oauth"];

/// Returns the text with its secrets replaced and everything else unchanged.
pub(super) fn redacted(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while !rest.is_empty() {
        let word = word(rest);
        if word.is_empty() {
            let (c, after) = first(rest);
            safe.push(c);
            (rest, before) = (after, Some(c));
            continue;
        }
        let after = &rest[word.len()..];
        if let Some(end) = url_password(rest) {
            safe.push_str(&url_redacted(&rest[..end]));
            (rest, before) = (&rest[end..], Some('@'));
        } else if let Some(value) = value_of(word, after, before) {
            safe.push_str(word);
            safe.push_str(&after[..value.begin]);
            safe.push_str(REDACTED);
            (rest, before) = (&after[value.end..], REDACTED.chars().last());
        } else {
            safe.push_str(if is_known(word) { REDACTED } else { word });
            (rest, before) = (after, word.chars().last());
        }
    }
    safe
}

/// The start and end of a value in the text after its name.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    begin: usize,
    end: usize,
}

fn first(text: &str) -> (char, &str) {
    let c = text.chars().next().unwrap_or_default();
    (c, &text[c.len_utf8()..])
}

/// Returns the name at the beginning of a text. Hyphens within it belong to the name; leading hyphens do not.
fn word(text: &str) -> &str {
    let begins = text.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(text.len());
    if begins { &text[..end] } else { "" }
}

fn is_known(word: &str) -> bool {
    KNOWN.iter().any(|(begin, least)| word.len() >= *least && word.starts_with(begin))
}

/// Returns the place of a secret's value; `before` is the character in front of its name.
fn value_of(name: &str, after: &str, before: Option<char>) -> Option<Place> {
    if !speaks_of_a_secret(name) {
        return None;
    }
    // The closing quotes of a quoted name.
    let quote = after.len() - after.trim_start_matches(['\\', '"', '\'']).len();
    let rest = &after[quote..];
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let (is_assigned, length) = separator(&rest[blank..]);
    let begin = quote + blank + length;
    let is_option = before == Some('-');
    // Without `=`, `:` or `>`, only an option has a value: the next word.
    if !is_assigned && (!is_option || is_switch(name) || length + blank == 0) {
        return None;
    }
    value_at(after, begin, is_assigned)
}

/// Returns true if `=`, `:` or `>` separates a name from its value (not `==`, `://` or `::`), and the distance to the
/// value. `text` begins after the name.
fn separator(text: &str) -> (bool, usize) {
    let signs = text.len() - text.trim_start_matches(['=', ':', '>']).len();
    if signs > 0 {
        let rest = &text[signs..];
        let is_other = text.starts_with("==") || text.starts_with("://") || text.starts_with("::");
        return (!is_other, signs + rest.len() - rest.trim_start_matches([' ', '\t']).len());
    }
    // In a list, `"--token", "X"` may continue on the next line.
    match text.strip_prefix(',') {
        Some(rest) => (false, 1 + rest.len() - rest.trim_start().len()),
        None => (false, 0),
    }
}

/// Returns the value that begins at `begin`: up to the closing quotes if quoted, else up to the end of the word.
fn value_at(after: &str, begin: usize, is_assigned: bool) -> Option<Place> {
    let text = &after[begin..];
    let quotes = ["\"\"\"", "'''", "\\\"", "\\'", "\"", "'"];
    let (begin, length) = match quotes.iter().find(|quote| text.starts_with(**quote)) {
        Some(quote) => (begin + quote.len(), quoted_length(&text[quote.len()..], quote)),
        None => bare(begin, text),
    };
    let value = &after[begin..begin + length];
    let is_value = !value.trim().is_empty()
        && !PLAIN.contains(&value.to_ascii_lowercase().as_str())
        && !value.starts_with(['$', '{', '[', '(', '<', '%'])
        && (is_assigned || !value.starts_with("-"))
        && value != REDACTED;
    is_value.then_some(Place { begin, end: begin + length })
}

fn quoted_length(text: &str, quote: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find(quote).map(|at| from + at) {
        // A backslash escapes `"`, which then does not end the value.
        if quote.starts_with(['\\', '\'']) || !text[..at].ends_with('\\') {
            return at;
        }
        from = at + quote.len();
    }
    text.find('\n').unwrap_or(text.len())
}

/// Returns the place of an unquoted value. The text begins with the value or with a scheme, as in `Authorization: Bearer X`.
fn bare(begin: usize, text: &str) -> (usize, usize) {
    let length = |it: &str| it.find(|c: char| c.is_whitespace() || "\"'`,;|&)]}\\".contains(c)).unwrap_or(it.len());
    let first = length(text);
    let is_scheme = ["bearer", "basic", "token"].contains(&text[..first].to_ascii_lowercase().as_str());
    match text[first..].strip_prefix(' ').filter(|_| is_scheme) {
        Some(rest) => (begin + first + 1, length(rest)),
        None => (begin, first),
    }
}

/// Returns the position of `@` in `scheme://user:password@`, if a text begins with such a URL. A token can be the user.
fn url_password(text: &str) -> Option<usize> {
    let scheme = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)))?;
    text[scheme..].starts_with("://").then_some(())?;
    let authority = &text[scheme + 3..];
    let end = authority.find(|c: char| c.is_whitespace() || "/\"'`?#<>".contains(c)).unwrap_or(authority.len());
    let at = authority[..end].rfind('@')?;
    let (user, password) = authority[..at].split_once(':').unwrap_or((&authority[..at], ""));
    let is_secret = !password.is_empty() && !password.starts_with(['$', '{']) || is_known(user);
    is_secret.then_some(scheme + 3 + at)
}

fn url_redacted(text: &str) -> String {
    let (scheme, user) = text.split_once("://").unwrap_or((text, ""));
    match user.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:{REDACTED}"),
        None => format!("{scheme}://{REDACTED}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with secrets; `X1` is the secret in each.
    const SECRETS: &[&str] = &[
        "WANDB_API_KEY=X1 python train.py",
        "--hf-token X1 --epochs 3",
        "--hf_token=X1 --epochs 3",
        "-token X1",
        "sh -c 'WANDB_API_KEY=X1 exec python t.py --password X1'",
        "sh -c 'export HF_TOKEN=X1; python t.py'",
        "HF_TOKEN='X1' python t.py",
        "'HF_TOKEN=X1' python t.py",
        "env HF_TOKEN=\"X1\" python t.py",
        "--apiKey X1",
        "--apiKey 'X1 X1'",
        "command = [\"python\", \"--hf-token\", \"X1\"]",
        "command = [\n  \"--hf-token\",\n  \"X1\",\n]",
        "command = [\"python\", \"--hf-token=X1\"]",
        "command = ['--hf-token', 'X1']",
        "env = { HF_TOKEN = \"X1\", OTHER = \"2\" }",
        "HF_TOKEN = 'X1'",
        "HF_TOKEN = \"\"\"X1\nX1\"\"\"",
        "\"HF_TOKEN\" = \"X1\"",
        "{\"password\": \"X1\", \"a\": 2}",
        "{\"password\":\"X1\\\"X1\"}",
        "{\\\"password\\\": \\\"X1\\\"}",
        "{'apiKey': 'X1'}",
        "password: X1",
        "auth=X1",
        "wandb.api_key=X1",
        "++trainer.logger.api_key=X1",
        "curl -H 'Authorization: Bearer X1' https://x",
        "postgres://user:X1@host/db",
        "https://user:X1@github.com/a/b.git#main",
        "https://host/path?token=X1&other=2",
        "redis://:X1@host",
        "login(token=\"X1\")",
        "login(token='X1', add=True)",
    ];

    /// Texts without secrets.
    const HARMLESS: &[&str] = &[
        "tokenizer=gpt2",
        "--tokenizer gpt2 --max-tokens 512 --num_tokens=3",
        "key_dim=64 tokens_per_step=1024 keyboard=qwerty",
        "--use_auth_token train.py",
        "--hf-token --epochs 3",
        "--hf-token {token} --key={key}",
        "HF_TOKEN=$HF_TOKEN python t.py",
        "HF_TOKEN=\"${HF_TOKEN}\"",
        "use_auth_token=True token=None password=\"\"",
        "token == other",
        "the token of the next word",
        "KeyError: 'loss'",
        "git@github.com:a/b.git https://host:8080/path s3://bucket/key ssh://git@host/x",
        "[space]\nkey = { values = [1, 2] }\ntoken = [1, 2]\n",
        "std::key::token",
        "tokens: 512, key padding mask",
        "",
    ];

    #[test]
    fn secrets_are_replaced_and_nothing_else() {
        for text in SECRETS {
            let safe = redacted(text);
            assert!(!safe.contains("X1") && safe.contains(REDACTED), "{text}\n{safe}");
            let parts: Vec<&str> = text.split("X1").filter(|part| part.len() > 5).collect();
            assert!(parts.iter().all(|part| safe.contains(part)), "{text}\n{safe}");
        }
        for text in HARMLESS {
            assert_eq!(redacted(text), *text);
        }
    }

    #[test]
    fn tokens_of_known_makers_need_no_name() {
        let token = format!("hf_{}", "a1".repeat(17));
        assert_eq!(redacted(&format!("login {token}")), "login REDACTED");
        assert_eq!(redacted(&format!("https://{token}@host/x")), "https://REDACTED@host/x");
        assert_eq!(redacted("hf_trainer sk-learn"), "hf_trainer sk-learn");
    }

    proptest::proptest! {
        /// Redacting twice has no further effect, and redacting never fails.
        #[test]
        fn any_text_is_read(text in "(--|[a-z]|key|token|password|=|:|://|@|\"|'|\\\\| |,|\n|é|\\PC){0,40}") {
            let once = redacted(&text);
            proptest::prop_assert_eq!(redacted(&once), once);
        }

        /// The secret is removed in each notation.
        #[test]
        fn no_secret_is_left(
            name in "(hf|wandb|my|db)(_|-)(token|api_key|password|secret)",
            secret in "Q[a-zA-Z0-9+/_.-]{3,30}Q",
            form in 0..7_usize,
        ) {
            let text = match form {
                0 => format!("--{name} {secret} --next 1"),
                1 => format!("--{name}={secret} --next 1"),
                2 => format!("{name}={secret} cmd"),
                3 => format!("[\"--{name}\", \"{secret}\", \"--next\"]"),
                4 => format!("{name} = \"{secret}\"\nnext = 1"),
                5 => format!("{{\"{name}\": \"{secret}\"}}"),
                _ => format!("sh -c 'a --{name} \"{secret}\"'"),
            };
            let safe = redacted(&text);
            proptest::prop_assert!(!safe.contains(&secret), "{}", safe);
        }

        /// Settings of training are no secrets.
        #[test]
        fn settings_stay(name in "(batch_size|num_tokens|max-tokens|key_dim|tokenizer|n_head|lr|keyboard)", value in "[a-z0-9.]{1,8}") {
            for text in [format!("--{name} {value}"), format!("{name}={value}"), format!("{name} = \"{value}\"")] {
                proptest::prop_assert_eq!(redacted(&text), text);
            }
        }
    }
}
