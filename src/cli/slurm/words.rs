//! The options of `--slurm` that a user may give.

/// The options that a user must not give here, and the reasons.
const OWN: &[(&str, &str, &str)] = &[
    ("-o", "--output", "gputune follows what the job prints"),
    ("-e", "--error", "gputune follows what the job prints"),
    ("-a", "--array", "a search is one job; its probes run side by side on the nodes of it"),
    ("-W", "--wait", "gputune waits for the job itself"),
    ("", "--wrap", "gputune submits itself"),
    ("", "--test-only", "nothing would be submitted"),
];

/// Returns the problem with the words, if any.
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
    // A word may be the value of the option before it. `sbatch` would run any other word instead of gputune.
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
        assert!(said("--output=x").contains("`--output` has no place in --slurm"));
        assert!(
            said("-ox").contains("--output")
                && said("--wrap true").contains("--wrap")
                && said("--array=1-3").contains("one job")
        );
        assert!(said("run.sh").contains("`run.sh` in --slurm is no option") && said("--nodes=2 gpu").contains("`gpu`"));
        assert!(said("-p gpu run.sh").contains("`run.sh`"));
    }
}
