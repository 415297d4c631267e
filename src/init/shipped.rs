//! Reads the lines of the shipped spaces, to show them in a draft.

use std::sync::LazyLock;

use regex::Regex;

use crate::spec::SHIPPED_SPACES;

/// A parameter of a shipped space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its name.
    pub(super) name: String,
    /// The table without the braces.
    pub(super) definition: String,
    /// Its comment.
    pub(super) about: String,
}

/// The number of GPUs that a variable needs to have an effect, by the beginning of its name.
const GPUS_NEEDED: &[(&str, usize)] =
    &[("nccl.", 2), ("env.NCCL_", 2), ("env.CUDA_", 1), ("env.TF_GPU_", 1), ("env.XLA_FLAGS", 2)];

/// Returns the number of GPUs that a target needs to have an effect.
pub(super) fn gpus_needed(target: &str) -> usize {
    GPUS_NEEDED.iter().find(|(start, _)| target.starts_with(start)).map_or(0, |(_, gpus)| *gpus)
}

/// Returns the parameters of a shipped space and of the spaces that it imports, in their order.
pub(super) fn lines(space: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    add(space, &mut lines, 0);
    lines
}

fn add(space: &str, lines: &mut Vec<Line>, depth: usize) {
    // `name = { ... } # about`
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^([a-z0-9_]+)\s*=\s*\{\s*(.*?)\s*\}\s*(?:#\s*(.*))?$").ok());
    const DEEPEST: usize = 8;
    let Some((_, text)) = SHIPPED_SPACES.iter().find(|(name, _)| *name == space).filter(|_| depth < DEEPEST) else {
        return;
    };
    for line in text.lines() {
        if let Some((_, list)) = line.split_once('=').filter(|(key, _)| key.trim() == "import") {
            let names = list.split('"').skip(1).step_by(2);
            names.for_each(|import| add(import, lines, depth + 1));
        } else if let Some(found) = LINE.as_ref().and_then(|pattern| pattern.captures(line)) {
            let part = |at: usize| found.get(at).map_or(String::new(), |part| part.as_str().to_owned());
            lines.retain(|known| known.name != part(1));
            lines.push(Line { name: part(1), definition: part(2), about: part(3) });
        }
    }
}

impl Line {
    fn key(&self, key: &str) -> Option<&str> {
        let (_, behind) = self.definition.split_once(&format!("{key} = "))?;
        Some(behind)
    }

    /// Returns its target.
    pub(super) fn target(&self) -> Option<&str> {
        self.key("apply")?.strip_prefix('"')?.split('"').next()
    }

    /// Returns the first setting, as written, which is the library's default.
    pub(super) fn first_value(&self) -> Option<String> {
        let list = self.key("values")?.strip_prefix('[')?.split(']').next()?;
        Some(list.split(',').next()?.trim().to_owned()).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn every_parameter_of_a_shipped_space_is_read() {
        for (name, _) in SHIPPED_SPACES {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("spec.toml");
            std::fs::write(
                &path,
                format!("[step]\ncommand = [\"x\"]\nadapter = \"torch\"\n[space]\nimport = [\"{name}\"]\n"),
            )
            .unwrap();
            let spec = Spec::load(&path).unwrap();
            let parameters = spec.space.parameters().iter().map(crate::model::Parameter::name);
            let derived = spec.space.derived().iter().map(|derived| derived.name());
            let mut real: Vec<&str> = parameters.chain(derived).collect();
            let lines = lines(name);
            let mut read: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
            real.sort_unstable();
            read.sort_unstable();
            assert_eq!(read, real, "{name}: one line for each parameter");
        }
    }

    #[test]
    fn what_a_library_does_by_itself_comes_first() {
        let lines = lines("torch-adapter");
        let pin = lines.iter().find(|line| line.name == "pin_memory").unwrap();
        assert_eq!((pin.target(), pin.first_value().as_deref()), (Some("dataloader.pin_memory"), Some("false")));
    }
}
