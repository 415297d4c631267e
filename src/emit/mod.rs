//! The best config as text for other programs.

mod args;
mod env;
mod json;
mod toml;
mod yaml;

use crate::space::Settings;

/// A form in which a config can be written.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it looks like, in a few words.
    pub about: &'static str,
    /// Writes settings; ends with a line break unless it is empty.
    pub write: fn(&Settings) -> String,
}

/// All forms, the default first.
pub const FORMATS: &[Format] = &[
    Format { name: "toml", about: "batch_size = 64", write: toml::write },
    Format { name: "json", about: "{\"batch_size\": 64}", write: json::write },
    Format { name: "yaml", about: "batch_size: 64", write: yaml::write },
    Format { name: "env", about: "BATCH_SIZE=64, quoted for a shell", write: env::write },
    Format { name: "args", about: "--batch-size 64, quoted for a shell", write: args::write },
    Format { name: "none", about: "nothing", write: |_| String::new() },
];

/// The form of this name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// A word as a POSIX shell reads it: bare where that is safe, else in single quotes.
pub fn shell_word(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Value;

    fn settings() -> Settings {
        [
            ("batch_size", Value::from(64)),
            ("ratio", Value::from(0.5)),
            ("whole", Value::from(2.0)),
            ("pin_memory", Value::from(true)),
            ("precision", Value::from("bf16")),
            ("odd", Value::from("it's \"odd\": #1\n$HOME")),
            ("looks_like_a_number", Value::from("12")),
            ("looks_like_a_boolean", Value::from("yes")),
            ("empty", Value::from("")),
        ]
        .into_iter()
        .collect()
    }

    fn written(name: &str) -> String {
        (format(name).unwrap().write)(&settings())
    }

    #[test]
    fn json_and_toml_read_back_as_the_same_settings() {
        assert_eq!(serde_json::from_str::<Settings>(&written("json")).unwrap(), settings());
        let table: std::collections::BTreeMap<String, Value> = ::toml::from_str(&written("toml")).unwrap();
        for (name, value) in settings().iter() {
            assert_eq!(table.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn a_shell_reads_back_env_and_args() {
        let output = std::process::Command::new("sh")
            .args(["-ec", &format!("{}printf '%s|' \"$ODD\" \"$RATIO\" \"$EMPTY\"", written("env"))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's \"odd\": #1\n$HOME|0.5||");
        let output = std::process::Command::new("sh")
            .args(["-ec", &format!("set -- {}\nprintf '%s|' \"$@\"", written("args").trim_end())])
            .output()
            .unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        assert!(words.starts_with("--batch-size|64|--ratio|0.5|"), "{words}");
        assert!(words.contains("|--odd|it's \"odd\": #1\n$HOME|"), "{words}");
    }

    #[test]
    fn every_format_is_readable() {
        let all: Vec<String> =
            FORMATS.iter().map(|format| format!("# {}\n{}", format.name, written(format.name))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
