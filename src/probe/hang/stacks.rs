//! Reads stacks in the format of Python's `faulthandler`, and finds the place of a hang.

use std::fmt;

/// The calls of one thread, innermost call first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stack {
    lines: Vec<String>,
    frames: Vec<Frame>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    file: String,
    line: u32,
    function: String,
}

/// The place of a hang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits for a batch. Has the place in the user's code that asked for the batch.
    Loader(Option<String>),
    /// It makes a batch itself, in the user's dataset.
    DataSet(String),
    /// It waits for other ranks in this function.
    Collective(String, Option<String>),
    /// It is in the backward pass, where the ranks of a distributed job wait for each other.
    Backward(Option<String>),
    /// It is in the user's code, or in a function called from there.
    Code(String),
    /// The stack does not show it.
    Unknown,
}

impl Place {
    /// Returns true if the process waits for another process there.
    pub(super) fn is_wait(&self) -> bool {
        matches!(self, Self::Loader(_) | Self::Collective(..) | Self::Backward(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = |from: &Option<String>| from.as_ref().map(|from| format!(" ({from})")).unwrap_or_default();
        match self {
            Self::Loader(place) => write!(f, "waiting for the data loader{}", from(place)),
            Self::DataSet(place) => write!(f, "in the data set ({place})"),
            Self::Collective(function, place) => write!(f, "waiting for other ranks in {function}{}", from(place)),
            Self::Backward(place) => write!(f, "in the backward pass, where ranks wait for each other{}", from(place)),
            Self::Code(place) => write!(f, "in {place}"),
            Self::Unknown => f.write_str("it does not answer"),
        }
    }
}

impl Stack {
    /// Returns the main thread's stack from a dump of all threads. Its outermost call is a module, and Python writes it last.
    pub(super) fn of_main_thread(text: &str) -> Option<Self> {
        let mut stacks: Vec<Self> = Vec::new();
        for line in text.lines() {
            if line.ends_with("(most recent call first):") {
                stacks.push(Self { lines: Vec::new(), frames: Vec::new() });
            } else if let (Some(stack), Some(frame)) = (stacks.last_mut(), Frame::parse(line)) {
                stack.lines.push(line.to_owned());
                stack.frames.push(frame);
            }
        }
        stacks.retain(|stack| !stack.frames.is_empty());
        let is_main = |stack: &Self| stack.frames.last().is_some_and(|frame| frame.function == "<module>");
        let place = stacks.iter().rposition(is_main).or(stacks.len().checked_sub(1))?;
        Some(stacks.swap_remove(place))
    }

    /// Returns the innermost calls, as Python wrote them.
    pub(super) fn lines(&self) -> &[String] {
        const SHOWN: usize = 8;
        &self.lines[..self.lines.len().min(SHOWN)]
    }

    /// Returns the place of the hang. Python does not see collectives inside PyTorch's own code, so in a distributed job a hang in
    /// the backward pass counts as a collective.
    pub(super) fn place(&self, is_distributed: bool) -> Place {
        let innermost_own = self.frames.iter().position(Frame::is_users);
        let own = innermost_own.map(|place| self.frames[place].to_string());
        let library = &self.frames[..innermost_own.unwrap_or(self.frames.len())];
        let is_in = |frames: &[Frame], part: &str| frames.iter().any(|frame| frame.file.contains(part));
        if is_in(library, LOADER) {
            return Place::Loader(own);
        }
        let collective = library.iter().rev().find(|frame| frame.is_collective());
        if let Some(frame) = collective {
            return Place::Collective(frame.function.clone(), own);
        }
        if is_distributed && (is_in(library, "torch/autograd/") || is_in(library, "torch/_tensor.py")) {
            return Place::Backward(own);
        }
        match own {
            Some(own) if is_in(&self.frames, LOADER) => Place::DataSet(own),
            Some(own) => Place::Code(own),
            None => self.frames.first().map_or(Place::Unknown, |frame| Place::Code(frame.to_string())),
        }
    }
}

/// Files of PyTorch's data loader and its parts.
const LOADER: &str = "torch/utils/data/";

impl Frame {
    /// Reads a line like `  File "/a/train.py", line 45 in <module>`.
    fn parse(line: &str) -> Option<Self> {
        let (file, rest) = line.trim_start().strip_prefix("File \"")?.rsplit_once("\", line ")?;
        let (number, function) = rest.split_once(" in ")?;
        Some(Self { file: file.to_owned(), line: number.parse().ok()?, function: function.to_owned() })
    }

    /// Returns true if the code does not belong to a library, to Python, or to gputune's hook.
    fn is_users(&self) -> bool {
        const OTHERS: &[&str] =
            &["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "/python/gputune/", "<frozen "];
        !OTHERS.iter().any(|part| self.file.contains(part))
    }

    /// Returns true if it is a call of `torch.distributed`, but not the wrapper around each such call.
    fn is_collective(&self) -> bool {
        let is_distributed = ["torch/distributed/", "torch/nn/parallel/"].iter().any(|part| self.file.contains(part));
        is_distributed && self.function != "wrapper"
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        write!(f, "{name}:{}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(frames: &str, is_distributed: bool) -> String {
        let text = format!(
            "Thread 0x2 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 1 in wait\n\n\
                            Current thread 0x1 (most recent call first):\n{frames}"
        );
        Stack::of_main_thread(&text).unwrap().place(is_distributed).to_string()
    }

    const MAIN: &str =
        "  File \"/home/me/train.py\", line 45 in main\n  File \"/home/me/train.py\", line 60 in <module>\n";
    const LIBRARY: &str = "/venv/lib/python3.11/site-packages";

    #[test]
    fn the_loader_the_data_set_and_ones_own_code_are_told_apart() {
        let loader = format!(
            "  File \"/usr/lib/python3.11/queue.py\", line 180 in get\n  File \"{LIBRARY}/torch/utils/data/dataloader.py\", line 1131 in _try_get_data\n"
        );
        assert_eq!(place(&format!("{loader}{MAIN}"), false), "waiting for the data loader (train.py:45)");
        let data_set = format!("  File \"/home/me/data.py\", line 12 in __getitem__\n{loader}{MAIN}");
        assert_eq!(place(&data_set, false), "in the data set (data.py:12)");
        assert_eq!(place(MAIN, false), "in train.py:45");
    }

    #[test]
    fn collectives_are_named() {
        let file = format!("{LIBRARY}/torch/distributed");
        let frames = format!(
            "  File \"{file}/distributed_c10d.py\", line 4181 in all_reduce\n  File \"{file}/c10d_logger.py\", line 83 in wrapper\n{MAIN}"
        );
        assert_eq!(place(&frames, true), "waiting for other ranks in all_reduce (train.py:45)");
        let backward = format!("  File \"{LIBRARY}/torch/autograd/graph.py\", line 8 in _engine_run_backward\n{MAIN}");
        assert_eq!(place(&backward, true), "in the backward pass, where ranks wait for each other (train.py:45)");
        assert_eq!(place(&backward, false), "in train.py:45");
    }

    #[test]
    fn what_is_no_stack_is_none() {
        assert_eq!(Stack::of_main_thread("Fatal Python error\n"), None);
        assert_eq!(Stack::of_main_thread("Thread 0x1 (most recent call first):\n  ...\n"), None);
    }
}
