//! What a process that ended by itself died of.

use super::orders::Ending;
use super::protocol::ErrorKind;
use crate::outcome::{Failure, Memory, Outcome};

/// Texts that the frameworks and runtimes print when memory runs out, in lower case.
///
/// Sources: PyTorch's allocator and older releases of it, torch's cuBLAS calls, XLA, TensorFlow's BFC allocator,
/// bitsandbytes' `CUDA_CHECK_RETURN`, NCCL's `NCCL WARN`, torch's `DataLoader`, glibc, libstdc++, CPython, Rust's
/// allocator, Slurm. A bare "out of memory" is none of them: scripts print it in warnings, too.
const SIGNATURES: &[(&str, Memory)] = &[
    ("cuda out of memory", Memory::Device),
    ("torch.outofmemoryerror", Memory::Device),
    ("torch.cuda.outofmemoryerror", Memory::Device),
    ("cuda error: out of memory", Memory::Device),
    ("cuda_error_out_of_memory", Memory::Device),
    ("cudaerrormemoryallocation", Memory::Device),
    ("hip out of memory", Memory::Device),
    ("mps backend out of memory", Memory::Device),
    ("allocation was preemptively rejected because it would exceed", Memory::Device),
    ("memory mapping failed with oom", Memory::Device),
    ("cublas_status_alloc_failed", Memory::Device),
    ("cudnn_status_alloc_failed", Memory::Device),
    ("resource_exhausted: out of memory", Memory::Device),
    ("oom when allocating tensor with shape", Memory::Device),
    ("resourceexhaustederror", Memory::Device),
    ("error out of memory at line", Memory::Device),
    ("cuda failure 'out of memory'", Memory::Device),
    ("failed to cuda host alloc", Memory::Host),
    ("defaultcpuallocator: can't allocate memory", Memory::Host),
    ("defaultcpuallocator: not enough memory", Memory::Host),
    ("insufficient shared memory (shm)", Memory::Shared),
    ("is killed by signal: bus error", Memory::Shared),
    ("is killed by signal: killed", Memory::Host),
    ("oom_kill event", Memory::Host),
    ("[errno 12] cannot allocate memory", Memory::Host),
    ("std::bad_alloc", Memory::Host),
    ("]: memoryerror", Memory::Host),
    ("numpy._core._exceptions._arraymemoryerror", Memory::Host),
    ("numpy.core._exceptions._arraymemoryerror", Memory::Host),
];

/// Texts that count only at the start of a line.
const LINE_STARTS: &[(&str, Memory)] = &[("memoryerror", Memory::Host), ("memory allocation of ", Memory::Host)];

/// Everything that is known about how a process ended.
pub(super) struct Evidence<'e> {
    pub(super) ending: Ending,
    pub(super) last_lines: &'e [String],
    pub(super) reported: Option<(ErrorKind, String)>,
    /// Whether the kernel killed a process for lack of memory meanwhile.
    pub(super) oom_killed: bool,
    /// What was there to measure, in words: `a step`, or `a line that matches the pattern`.
    pub(super) awaited: &'static str,
    /// Processes that were still there when the command ended.
    pub(super) leftovers: usize,
    /// Lines on the socket that were no events.
    pub(super) bad_lines: u64,
}

/// The outcome of a process that ended by itself without enough to measure, or with an error.
pub(super) fn classify(evidence: &Evidence<'_>) -> Outcome {
    let last_lines = shown(evidence.last_lines);
    let failure = |reason: String| Failure { reason, last_lines: last_lines.clone() };
    if let Some((kind, message)) = &evidence.reported {
        let message = if message.is_empty() { "the step reported an error" } else { message }.to_owned();
        return match kind {
            ErrorKind::OutOfMemory => Outcome::OutOfMemory { memory: Memory::Device, failure: failure(message) },
            ErrorKind::Rejected | ErrorKind::NotApplied => Outcome::Rejected(failure(message)),
            ErrorKind::Diverged => Outcome::Diverged(failure(message)),
            ErrorKind::Failed => Outcome::Crashed(failure(message)),
        };
    }
    if !evidence.ending.is_success() {
        if let Some((memory, line)) = out_of_memory_line(evidence.last_lines) {
            return Outcome::OutOfMemory { memory, failure: failure(line) };
        }
        if evidence.oom_killed && evidence.ending.killed() {
            let reason = "the kernel killed it because memory ran out".to_owned();
            return Outcome::OutOfMemory { memory: Memory::Host, failure: failure(reason) };
        }
    }
    Outcome::Crashed(failure(crash_reason(evidence)))
}

fn crash_reason(evidence: &Evidence<'_>) -> String {
    let mut reason = evidence.ending.to_string();
    match evidence.ending {
        Ending::Exited(0) => {
            reason = format!("ended with {reason} before {} was seen", evidence.awaited);
            if evidence.leftovers > 0 {
                reason += &format!("; it left {} in the background, which were ended", processes(evidence.leftovers));
            }
        }
        // Programs that exit with an error say why last; one that a signal ends had no time to.
        Ending::Exited(_) => {
            if let Some(line) = evidence.last_lines.iter().rev().find(|line| !line.trim().is_empty()) {
                reason = format!("{reason}: {}", line.trim());
            }
        }
        Ending::Signalled(_) => {}
    }
    reason + &bad_lines_words(evidence.bad_lines)
}

/// What is added to a reason when the socket got lines that are no events: often why nothing was seen.
pub(super) fn bad_lines_words(count: u64) -> String {
    if count == 0 { String::new() } else { format!("; {count} lines on the socket were no events") }
}

fn processes(count: usize) -> String {
    if count == 1 { "a process".to_owned() } else { format!("{count} processes") }
}

/// The first of the last lines that says that memory ran out: in a distributed job the peers' complaints come later.
///
/// Indented lines are a second choice: in a Python traceback they quote the source, and the error itself comes below.
pub(super) fn out_of_memory_line(lines: &[String]) -> Option<(Memory, String)> {
    let indented = |line: &&String| line.starts_with([' ', '\t']);
    let plain = lines.iter().filter(|line| !indented(line));
    plain.chain(lines.iter().filter(indented)).find_map(|line| {
        let lower = line.to_lowercase();
        let inside = SIGNATURES.iter().find(|(text, _)| lower.contains(text));
        let ahead = || LINE_STARTS.iter().find(|(text, _)| lower.starts_with(text));
        let (_, memory) = inside.or_else(ahead)?;
        Some((*memory, line.trim().to_owned()))
    })
}

/// The lines that go into the journal and onto the screen.
pub(super) fn shown(last_lines: &[String]) -> Vec<String> {
    const SHOWN: usize = 10;
    const WIDTH: usize = 500;
    let from = last_lines.len().saturating_sub(SHOWN);
    last_lines[from..].iter().map(|line| line.chars().take(WIDTH).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ending: Ending, lines: &[&str]) -> Outcome {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        classify(&Evidence {
            ending,
            last_lines: &lines,
            reported: None,
            oom_killed: false,
            awaited: "a step",
            leftovers: 0,
            bad_lines: 0,
        })
    }

    fn memory_of(lines: &[&str]) -> Option<Memory> {
        match outcome(Ending::Exited(1), lines) {
            Outcome::OutOfMemory { memory, .. } => Some(memory),
            _ => None,
        }
    }

    #[test]
    fn known_texts_tell_which_memory_ran_out() {
        for (line, memory) in [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
                Memory::Device,
            ),
            ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total", Memory::Device),
            (
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                Memory::Device,
            ),
            (
                "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes",
                Memory::Device,
            ),
            ("Error out of memory at line 82 in file /src/csrc/ops.cu", Memory::Device),
            (
                "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2415919104 bytes.",
                Memory::Host,
            ),
            (
                "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that",
                Memory::Shared,
            ),
            ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.", Memory::Host),
            ("MemoryError", Memory::Host),
            ("memory allocation of 4096 bytes failed", Memory::Host),
            ("terminate called after throwing an instance of 'std::bad_alloc'", Memory::Host),
        ] {
            assert_eq!(memory_of(&["Traceback", line, "at exit"]), Some(memory), "{line}");
        }
    }

    #[test]
    fn the_error_is_quoted_and_not_the_source_line_that_raised_it() {
        let lines = ["    raise RuntimeError(\"CUDA out of memory\")", "RuntimeError: CUDA out of memory"];
        let failure = outcome(Ending::Exited(1), &lines).failure().unwrap().clone();
        assert_eq!(failure.reason, "RuntimeError: CUDA out of memory");
    }

    #[test]
    fn the_docs_list_every_text() {
        let docs = include_str!("../../docs/outcomes.md").to_lowercase();
        for (text, _) in SIGNATURES.iter().chain(LINE_STARTS) {
            assert!(docs.contains(&format!("- `{text}`")), "docs/outcomes.md does not list `{text}`");
        }
    }

    #[test]
    fn other_failures_are_no_lack_of_memory() {
        for line in [
            "ValueError: memory error in config",
            "error: out of memory budget for this test is a plain word",
            "KeyError: 'oom'",
            "RuntimeError: CUDA error: an illegal memory access was encountered",
        ] {
            assert_eq!(memory_of(&[line]), None, "{line}");
        }
        let recovered = outcome(Ending::Exited(0), &["CUDA out of memory. Retrying with batch 8"]);
        assert!(matches!(recovered, Outcome::Crashed(_)), "{recovered:?}");
    }

    #[test]
    fn crashes_say_how_and_with_which_words() {
        let crash = |ending, lines: &[&str]| outcome(ending, lines).failure().unwrap().reason.clone();
        assert_eq!(crash(Ending::Exited(3), &["Traceback", "ValueError: bad", ""]), "exit code 3: ValueError: bad");
        assert_eq!(crash(Ending::Signalled(11), &[]), "killed by signal 11 (SIGSEGV)");
        assert_eq!(crash(Ending::Exited(0), &["bye"]), "ended with exit code 0 before a step was seen");
    }

    #[test]
    fn a_kill_is_lack_of_memory_only_when_the_kernel_says_so() {
        let mut evidence = Evidence {
            ending: Ending::Signalled(9),
            last_lines: &[],
            reported: None,
            oom_killed: false,
            awaited: "a step",
            leftovers: 0,
            bad_lines: 0,
        };
        assert!(matches!(classify(&evidence), Outcome::Crashed(_)));
        evidence.oom_killed = true;
        assert!(matches!(classify(&evidence), Outcome::OutOfMemory { memory: Memory::Host, .. }));
        evidence.ending = Ending::Exited(137);
        assert!(matches!(classify(&evidence), Outcome::OutOfMemory { memory: Memory::Host, .. }));
    }
}
