//! Finds options that only set an argument of the loader, and can therefore change while the script trains.

use super::argument::{Argument, Kind};
use super::source::Source;

/// Returns the `apply` target that is equivalent to an option of the script. Each loader that may train must take the option's
/// unmodified value: `DataLoader(..., batch_size=args.batch_size)`.
pub(super) fn target(parameter: &str, option: &Argument, source: &Source) -> Option<&'static str> {
    let (name, target) = match parameter {
        "batch_size" => ("batch_size", "dataloader.batch_size"),
        "workers" => ("num_workers", "dataloader.num_workers"),
        _ => return None,
    };
    if !matches!(option.kind, Kind::Value { .. }) || !option.spelled().starts_with("--") {
        return None;
    }
    // argparse stores the value under its first long option, with underscores.
    let kept = option.spelled().trim_start_matches('-').replace('-', "_");
    let is_option = |text: &str| {
        let (of, attribute) = text.trim().rsplit_once('.').unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        attribute == kept && !of.is_empty() && of.chars().all(is_name)
    };
    let trains = |call: &&super::Call| call.get("shuffle").is_some_and(|shuffle| shuffle != "False");
    let calls = source.named("DataLoader");
    let is_any_shuffled = calls.iter().any(&trains);
    let mut training = calls.into_iter().filter(|call| !is_any_shuffled || trains(call)).peekable();
    training.peek()?;
    training.all(|call| call.get(name).is_some_and(is_option)).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(parameter: &str, option: &str, text: &str) -> Option<&'static str> {
        let kind = Kind::Value { choices: Vec::new() };
        let option = Argument { names: vec![option.to_owned()], kind, default: None, is_required: false };
        target(parameter, &option, &Source::of(text))
    }

    #[test]
    fn an_option_is_the_loaders_where_all_that_may_train_take_it_as_it_is() {
        const TEXT: &str = "\
train = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=self.opt.num_workers)
test = DataLoader(other, batch_size=4 * args.batch_size)";
        assert_eq!(found("batch_size", "--batch-size", TEXT), Some("dataloader.batch_size"));
        assert_eq!(found("workers", "--num-workers", TEXT), Some("dataloader.num_workers"));
        assert_eq!(found("workers", "--workers", TEXT), None);
        assert_eq!(found("batch_size", "-b", TEXT), None);
        for other in [
            "DataLoader(data, batch_size=args.batch_size // 2, shuffle=True)",
            "DataLoader(data, batch_size=batch_size, shuffle=True)",
            "DataLoader(data, batch_size=args.batch_size, shuffle=True); DataLoader(data, batch_size=8, shuffle=True)",
            "DataLoader(data, args.batch_size, shuffle=True)",
            "",
        ] {
            assert_eq!(found("batch_size", "--batch-size", other), None, "{other}");
        }
    }
}
