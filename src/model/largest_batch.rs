//! Tells how much larger the largest batch of a loader is than the others, and the memory of a step with it.

use super::fact::{LARGEST_BATCH, NOT_READ, READ_BATCHES, TRAINED_LARGEST};
use super::measurement::Measurement;
use super::quantity::{show_bytes, show_count};

impl Measurement {
    /// Returns a sentence about the largest batch and the memory with it; `None` if all batches have about the same size.
    ///
    /// Without a run that read the loader ahead, it is the largest batch that the probe happened to train on.
    pub fn largest_batch_words(&self) -> Option<String> {
        let (times, batches) = (self.facts.number(LARGEST_BATCH)?, self.facts.number(READ_BATCHES)?);
        let seen = if self.has_trained_largest() { "" } else { " that were seen" };
        let peak =
            self.memory.peak_bytes.map(|peak| format!("; peak {} with it", show_bytes(peak))).unwrap_or_default();
        let not_read = self.facts.text(NOT_READ);
        let reason = not_read.map(|reason| format!(" (the loader cannot be read ahead: {reason})")).unwrap_or_default();
        Some(format!("largest of {} batches{seen}: {times:.1} times the mean{peak}{reason}", show_count(batches)))
    }

    /// Returns true if the peak of memory includes a step with the largest batch of the loader.
    pub fn has_trained_largest(&self) -> bool {
        self.facts.flag(TRAINED_LARGEST) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fact, Facts, MemoryUse};

    #[test]
    fn the_largest_batch_is_one_sentence() {
        let mut run = Measurement {
            memory: MemoryUse { peak_bytes: Some(61 << 30), ..MemoryUse::default() },
            ..Measurement::default()
        };
        assert_eq!(run.largest_batch_words(), None);
        run.facts.insert(0, LARGEST_BATCH, Fact::Number(1.72));
        run.facts.insert(0, READ_BATCHES, Fact::Number(12_000.0));
        let words = |run: &Measurement| run.largest_batch_words().unwrap();
        let seen = "largest of 12,000 batches that were seen: 1.7 times the mean; peak 61.0 GiB with it";
        assert_eq!(words(&run), seen);
        run.facts.insert(0, NOT_READ, Fact::from("its data set is iterable"));
        assert!(words(&run).ends_with("(the loader cannot be read ahead: its data set is iterable)"));
        run.facts = Facts::default();
        run.facts.insert(0, LARGEST_BATCH, Fact::Number(1.72));
        run.facts.insert(0, READ_BATCHES, Fact::Number(12_000.0));
        run.facts.insert(0, TRAINED_LARGEST, Fact::Flag(true));
        assert_eq!(words(&run), "largest of 12,000 batches: 1.7 times the mean; peak 61.0 GiB with it");
    }
}
