//! Finds out why a process ended on its own.
//!
//! `docs/design/failure-texts.md` has a row for every cause in this module.

mod ended_by;
mod environment;
mod failure_texts;
mod lines;
mod prompt;
mod torch_memory;
mod traceback;

use std::collections::BTreeSet;

use super::orders::Ending;
use super::protocol::ErrorKind;
use crate::model::{Failure, Memory, Outcome};
pub(super) use environment::{first_ending, is_taken, missing_module, says_usage_error, with_last_words};
use failure_texts::Meaning;
use lines::Line;
pub(super) use prompt::asked_for_input;
use torch_memory::Shortage;
use traceback::Exception;

/// The kernel's reports about a probe's memory.
pub(super) struct MemoryFacts {
    /// True if the kernel killed a process for lack of memory during the probe.
    pub(super) oom_killed: bool,
    /// A message if shared memory was full.
    pub(super) shared_is_full: Option<String>,
    /// The probe's processes.
    pub(super) own: BTreeSet<u32>,
    /// True if the framework's allocator reported failed allocations at the end.
    pub(super) has_failed_allocations: bool,
    /// A rank that closed its connection without an orderly end.
    pub(super) lost_rank: Option<u32>,
}

/// All the evidence about the end of a process.
pub(super) struct Evidence<'e> {
    pub(super) ending: Ending,
    pub(super) last_lines: &'e [String],
    pub(super) reported: Option<(ErrorKind, String)>,
    pub(super) memory: MemoryFacts,
    /// The event that the probe waited for, in words: `a step`, or `a line that matches the pattern`.
    pub(super) awaited: &'static str,
    /// The number of processes that reported their rank.
    pub(super) ranks: u32,
    /// The number of processes that still existed when the command ended.
    pub(super) leftovers: usize,
    /// The number of lines on the socket that are not events.
    pub(super) bad_lines: u64,
}

/// Returns the outcome of a process that ended with an error, or before enough was measured.
pub(super) fn classify(evidence: &Evidence<'_>) -> Outcome {
    let last_lines = shown(evidence.last_lines);
    let failure =
        |reason: String| Failure { reason: cut(&reason), last_lines: last_lines.clone(), ..Failure::default() };
    if let Some((kind, message)) = &evidence.reported {
        return reported(*kind, message, evidence.last_lines, &evidence.memory, failure);
    }
    if evidence.ending.is_success() {
        return Outcome::Crashed(failure(nothing_seen(evidence)));
    }
    // An out-of-memory error that the program recovered from did not end it.
    let deciding = ended_by::deciding(evidence.last_lines, evidence.ranks);
    if let Some((memory, reason)) = out_of_memory(deciding, &evidence.memory) {
        return Outcome::OutOfMemory { memory, failure: failure(reason) };
    }
    if evidence.memory.oom_killed && evidence.ending.killed() {
        let reason = "the kernel killed it because memory ran out".to_owned();
        return Outcome::OutOfMemory { memory: Memory::Host, failure: failure(reason) };
    }
    if let Some(full) = evidence.memory.shared_is_full.as_ref().filter(|_| evidence.ending.is_bus_error()) {
        let reason = format!("{}; {full}", evidence.ending);
        return Outcome::OutOfMemory { memory: Memory::Shared, failure: failure(reason) };
    }
    crashed(crash_reason(evidence.ending, deciding) + &bad_lines_words(evidence.bad_lines), failure)
}

/// Returns the outcome of a crash. If another process holds a port or a lock, the config did not cause the crash.
fn crashed(reason: String, failure: impl Fn(String) -> Failure) -> Outcome {
    if is_taken(&reason) {
        return Outcome::Disturbed(failure(environment::with_holder(cut(&reason))));
    }
    Outcome::Crashed(failure(reason))
}

/// Classifies a step that reported its own end. Its message is read like output, and its output is searched for the cause.
fn reported(
    kind: ErrorKind,
    message: &str,
    output: &[String],
    facts: &MemoryFacts,
    failure: impl Fn(String) -> Failure,
) -> Outcome {
    let mut lines: Vec<String> = message.lines().map(str::to_owned).collect();
    let said = match lines.as_slice() {
        [] => "the step reported an error".to_owned(),
        [line] => line.clone(),
        [first, ..] => exception_words(&lines).unwrap_or_else(|| first.clone()),
    };
    let said = traceback::exceptions(output).iter().rev().find(|own| said.ends_with(&own.text)).map_or(said, in_words);
    if matches!(decisive_line(&lines), Some((Meaning::WorkerLost, _))) || fetched_in_vain(output).is_some() {
        // The main process only knows that a worker is gone. The reason is in the output.
        lines.extend_from_slice(output);
    }
    match kind {
        ErrorKind::Rejected | ErrorKind::NotApplied => return Outcome::Rejected(failure(said)),
        ErrorKind::Diverged => return Outcome::Diverged(failure(said)),
        ErrorKind::OutOfMemory | ErrorKind::Failed => {}
    }
    let killed = || killed_rank(output, facts).filter(|_| kind == ErrorKind::Failed);
    match (out_of_memory(&lines, facts).or_else(killed), kind) {
        (Some((memory, reason)), _) => Outcome::OutOfMemory { memory, failure: failure(reason) },
        (None, ErrorKind::OutOfMemory) => Outcome::OutOfMemory { memory: Memory::Device, failure: failure(said) },
        (None, _) => {
            let first = first_rank(output).or_else(|| {
                let rank = facts.lost_rank.filter(|_| is_complaint(&said))?;
                Some(format!("rank {rank} is gone; {said}"))
            });
            crashed(first.or_else(|| known_crash(&lines)).unwrap_or(said), failure)
        }
    }
}

fn nothing_seen(evidence: &Evidence<'_>) -> String {
    let mut reason = format!("ended with {} before {} was seen", evidence.ending, evidence.awaited);
    if evidence.leftovers > 0 {
        reason += &format!("; it left {} in the background, which were ended", processes(evidence.leftovers));
    }
    reason += &bad_lines_words(evidence.bad_lines);
    // A script that resumes a finished run prints that in its last line.
    let last = last_words(evidence.last_lines).map(|line| format!("; its last line: `{}`", cut(&line)));
    let may_be_over = last.is_some() && (evidence.ranks > 0 || evidence.awaited.contains("pattern"));
    let hint = if may_be_over { format!("; {NOTHING_LEFT}") } else { String::new() };
    reason + &last.unwrap_or_default() + &hint
}

/// What may explain a command that ends well and trains nothing.
pub(super) const NOTHING_LEFT: &str =
    "if it continues an earlier run, nothing is left to train: give it an empty folder, or more steps";

fn processes(count: usize) -> String {
    if count == 1 { "a process".to_owned() } else { format!("{count} processes") }
}

/// Returns an addition to a reason if the socket received lines that are not events. Such lines often explain why no step was seen.
pub(super) fn bad_lines_words(count: u64) -> String {
    if count == 0 { String::new() } else { format!("; {count} lines on the socket were no events") }
}

/// Finds the memory that ran out, and the evidence for it.
pub(super) fn out_of_memory(lines: &[String], facts: &MemoryFacts) -> Option<(Memory, String)> {
    match decisive_line(lines) {
        Some((Meaning::OutOfMemory(memory), line)) => {
            let mut reason = match Shortage::parse(line) {
                Some(shortage) => shortage.words(&facts.own),
                None => line.trim().to_owned(),
            };
            if let Some(full) = facts.shared_is_full.as_ref().filter(|_| memory == Memory::Shared) {
                reason += &format!("; {full}");
            }
            Some((memory, reason))
        }
        Some((Meaning::WorkerLost, _)) if facts.oom_killed && worker_signal(lines).is_none_or(Ending::killed) => {
            Some((Memory::Host, "the kernel killed a data worker because memory ran out".to_owned()))
        }
        Some((Meaning::NoEngine, line)) if facts.has_failed_allocations => {
            Some((Memory::Device, format!("{}, after an allocation failed", line.trim())))
        }
        Some((Meaning::DeviceFault, _)) => None,
        _ if facts.oom_killed && fetched_in_vain(lines).is_some() => {
            Some((Memory::Host, "the kernel killed a data worker because memory ran out".to_owned()))
        }
        _ => killed_rank(lines, facts),
    }
}

/// Recognises that the kernel killed a rank of a distributed job for lack of memory.
fn killed_rank(lines: &[String], facts: &MemoryFacts) -> Option<(Memory, String)> {
    let cause = ended_by::root_cause(lines).filter(|cause| cause.ending.killed()).map(|cause| cause.rank);
    let rank = cause.or(facts.lost_rank).filter(|_| facts.oom_killed)?;
    Some((Memory::Host, format!("the kernel killed rank {rank} because memory ran out")))
}

/// Finds the line with the cause: the first line with a known text, because other ranks complain later. A lost data worker and a
/// missing algorithm can have many causes, so any other known text takes precedence.
///
/// Indented lines are a second choice, and only for memory: in a Python traceback they quote the source, and the error is further
/// down.
fn decisive_line(lines: &[String]) -> Option<(Meaning, &str)> {
    let known = |line: &Line<'_>| failure_texts::meaning(line.text.trim_start());
    let all = || lines.iter().map(|line| Line::of(line));
    let plain = all().filter(|line| !line.is_indented()).filter_map(|line| Some((known(&line)?, line.text)));
    let is_vague = |(meaning, _): &(Meaning, &str)| matches!(meaning, Meaning::WorkerLost | Meaning::NoEngine);
    let quoted = all().filter(Line::is_indented).filter_map(|line| Some((known(&line)?, line.text)));
    let quoted = quoted.filter(|(meaning, _)| matches!(meaning, Meaning::OutOfMemory(_)));
    plain
        .clone()
        .find(|found| !is_vague(found))
        .or_else(|| plain.clone().find(is_vague))
        .or_else(|| quoted.clone().next())
}

/// Describes a crash that no known lack of memory explains.
fn crash_reason(ending: Ending, lines: &[String]) -> String {
    if let Some(words) = first_rank(lines) {
        return words;
    }
    let words = match ending {
        // A program that exits with an error prints the reason at the end. A signal leaves no time for that, unless the program
        // aborted.
        Ending::Exited(_) => known_crash(lines).or_else(|| exception_words(lines)).or_else(|| last_words(lines)),
        Ending::Signalled(6) => abort_words(lines),
        Ending::Signalled(_) => None,
    };
    words.map_or_else(|| ending.to_string(), |words| format!("{ending}: {words}"))
}

/// Returns the rank that failed first, according to torchrun, and the reason.
fn first_rank(lines: &[String]) -> Option<String> {
    let cause = ended_by::root_cause(lines)?;
    let mut own = traceback::exceptions(lines);
    // The rank's exception says more than torchrun's own exception.
    own.retain(|own| !own.text.contains("ChildFailedError"));
    let words = traceback::fatal(&own, Some(cause.rank)).or_else(|| traceback::fatal(&own, None)).map(in_words);
    let words = words.filter(|_| matches!(cause.ending, Ending::Exited(_)));
    let words = words.map(|words| format!(": {words}")).unwrap_or_default();
    Some(format!("rank {} failed first: {}{words}", cause.rank, cause.ending))
}

/// Returns true if an error only says that another rank is gone, in the words of Gloo and NCCL for a broken connection.
fn is_complaint(said: &str) -> bool {
    const COMPLAINTS: &[&str] = &[
        "connection closed by peer",
        "connection reset by peer",
        "broken pipe",
        "ncclremoteerror",
        "socket timeout",
        "watchdog caught collective operation timeout",
    ];
    let said = said.to_lowercase();
    COMPLAINTS.iter().any(|complaint| said.contains(complaint))
}

/// Recognises that a batch was fetched from a data worker that was already gone.
fn fetched_in_vain(lines: &[String]) -> Option<String> {
    let exceptions = traceback::exceptions(lines);
    let is_fetching = traceback::fatal(&exceptions, None)?.while_fetching;
    is_fetching.then(|| lost_worker(&exceptions))
}

/// Returns a known cause from any line, not only the last.
pub(super) fn known_crash(lines: &[String]) -> Option<String> {
    match decisive_line(lines) {
        Some((Meaning::DeviceFault, line)) => Some(line.trim().to_owned()),
        Some((Meaning::WorkerLost, _)) => Some(match worker_signal(lines) {
            Some(ending) => format!("a data worker was {ending}"),
            None => lost_worker(&traceback::exceptions(lines)),
        }),
        _ => fetched_in_vain(lines),
    }
}

fn lost_worker(exceptions: &[Exception]) -> String {
    let own_words = exceptions.iter().find(|exception| exception.is_of_child && !exception.while_fetching);
    let words = own_words.map(|exception| format!(": {}", exception.text)).unwrap_or_default();
    format!("a data worker ended unexpectedly{words}")
}

/// Returns the signal in `DataLoader worker (pid 71) is killed by signal: Killed. `
fn worker_signal(lines: &[String]) -> Option<Ending> {
    let rest = lines.iter().find_map(|line| Some(line.split_once("is killed by signal: ")?.1))?;
    Ending::by_description(rest.split('.').next()?.trim())
}

fn exception_words(lines: &[String]) -> Option<String> {
    traceback::fatal(&traceback::exceptions(lines), None).map(in_words)
}

fn in_words(exception: &Exception) -> String {
    match exception.worker {
        Some(worker) => format!("{} (in data worker {worker})", exception.text),
        None if exception.at_start_of_process => format!("a process could not be started: {}", exception.text),
        None => exception.text.clone(),
    }
}

/// Returns the last line that is not noise.
fn last_words(lines: &[String]) -> Option<String> {
    let words = |line: &&String| !line.trim().is_empty();
    let last = lines.iter().rev().filter(words).find(|line| !lines::is_noise(line));
    last.or_else(|| lines.iter().rev().find(words)).map(|line| Line::of(line).text.trim().to_owned())
}

/// Returns the reason for an abort, as libstdc++ (for an uncaught exception), CPython or glibc prints it.
fn abort_words(lines: &[String]) -> Option<String> {
    const STARTS: &[&str] = &["what():", "Fatal Python error:", "Assertion ", "free(): ", "double free", "malloc(): "];
    let words = lines.iter().rev().map(|line| Line::of(line).text.trim());
    let words = words.filter(|line| STARTS.iter().any(|start| line.starts_with(start)));
    words.map(|line| line.trim_start_matches("what():").trim().to_owned()).next()
}

/// Returns the last lines, to keep in the journal and to show on the screen.
pub(super) fn shown(last_lines: &[String]) -> Vec<String> {
    const SHOWN: usize = 10;
    let from = last_lines.len().saturating_sub(SHOWN);
    last_lines[from..].iter().map(|line| cut(line)).collect()
}

/// Cuts a string to a readable length.
fn cut(text: &str) -> String {
    const LONGEST: usize = 500;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(oom_killed: bool) -> MemoryFacts {
        MemoryFacts {
            oom_killed,
            shared_is_full: None,
            own: BTreeSet::new(),
            has_failed_allocations: false,
            lost_rank: None,
        }
    }

    fn outcome(ending: Ending, lines: &[&str]) -> Outcome {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        classify(&Evidence {
            ending,
            last_lines: &lines,
            reported: None,
            memory: facts(false),
            awaited: "a step",
            ranks: 0,
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
                "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
                Memory::Device,
            ),
            (
                "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes",
                Memory::Device,
            ),
            ("Error out of memory at line 82 in file /src/csrc/ops.cu", Memory::Device),
            (
                "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\":1154, please report a bug to PyTorch.",
                Memory::Device,
            ),
            (
                "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2415919104 bytes.",
                Memory::Host,
            ),
            (
                "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that",
                Memory::Shared,
            ),
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
        let nothing_seen = "ended with exit code 0 before a step was seen";
        assert_eq!(crash(Ending::Exited(0), &[]), nothing_seen);
        let last = ["at step 5000 of 5000", ""];
        let over = format!("{nothing_seen}; its last line: `at step 5000 of 5000`");
        assert!(crash(Ending::Exited(0), &last).starts_with(&over));
    }

    #[test]
    fn what_no_algorithm_takes_is_no_lack_of_memory() {
        for line in [
            "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous",
            "RuntimeError: GET was unable to find an engine to execute this computation",
        ] {
            assert_eq!(
                memory_of(&["Traceback (most recent call last):", "  File \"t.py\", line 1", line]),
                None,
                "{line}"
            );
            assert_eq!(memory_of(&[line]), None, "{line}");
            let outcome = reported(ErrorKind::Failed, line, &[], &facts(false), Failure::new);
            assert!(matches!(outcome, Outcome::Crashed(_)), "{line}");
        }
    }

    #[test]
    fn a_missing_algorithm_is_lack_of_memory_only_when_an_allocation_failed() {
        let engine = "RuntimeError: GET was unable to find an engine to execute this computation";
        let failed = MemoryFacts { has_failed_allocations: true, ..facts(false) };
        let unfailed = facts(false);
        let memory = |line: &str, facts| out_of_memory(&[line.to_owned()], facts).map(|(memory, _)| memory);
        assert_eq!(memory(engine, &unfailed), None);
        assert_eq!(memory(engine, &failed), Some(Memory::Device));
        assert_eq!(memory("ValueError: bad", &failed), None, "the script caught the failed allocation");
        for (facts, is_memory) in [(&failed, true), (&unfailed, false)] {
            let outcome = reported(ErrorKind::Failed, engine, &[], facts, Failure::new);
            assert_eq!(matches!(outcome, Outcome::OutOfMemory { memory: Memory::Device, .. }), is_memory);
        }
        let lines = [engine, "RuntimeError: CUDA error: an illegal memory access was encountered"].map(str::to_owned);
        assert_eq!(out_of_memory(&lines, &failed), None, "a definite text decides");
    }

    #[test]
    fn a_kill_is_lack_of_memory_only_when_the_kernel_says_so() {
        let mut evidence = Evidence {
            ending: Ending::Signalled(9),
            last_lines: &[],
            reported: None,
            memory: facts(false),
            awaited: "a step",
            ranks: 0,
            leftovers: 0,
            bad_lines: 0,
        };
        assert!(matches!(classify(&evidence), Outcome::Crashed(_)));
        evidence.memory.oom_killed = true;
        assert!(matches!(classify(&evidence), Outcome::OutOfMemory { memory: Memory::Host, .. }));
        evidence.ending = Ending::Exited(137);
        assert!(matches!(classify(&evidence), Outcome::OutOfMemory { memory: Memory::Host, .. }));
    }

    #[test]
    fn a_worker_that_was_killed_is_lack_of_memory_only_when_the_kernel_says_so() {
        let lines: Vec<String> = [
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed. ",
            "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut evidence = Evidence {
            ending: Ending::Exited(1),
            last_lines: &lines,
            reported: None,
            memory: facts(false),
            awaited: "a step",
            ranks: 0,
            leftovers: 0,
            bad_lines: 0,
        };
        let reason = "exit code 1: a data worker was killed by signal 9 (SIGKILL)";
        assert!(matches!(classify(&evidence), Outcome::Crashed(failure) if failure.reason == reason));
        evidence.memory.oom_killed = true;
        assert!(matches!(classify(&evidence), Outcome::OutOfMemory { memory: Memory::Host, .. }));
        evidence.reported = Some((ErrorKind::Failed, lines[1].clone()));
        assert!(matches!(classify(&evidence), Outcome::OutOfMemory { memory: Memory::Host, .. }));
    }

    #[test]
    fn whichever_comes_first_a_fault_or_a_lack_of_memory_decides() {
        let fault = "RuntimeError: CUDA error: device-side assert triggered";
        let lack = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB";
        assert_eq!(memory_of(&[lack, fault]), Some(Memory::Device));
        assert_eq!(memory_of(&[fault, lack]), None);
        let reason = outcome(Ending::Exited(1), &[fault, lack, "tidying up"]).failure().unwrap().reason.clone();
        assert_eq!(reason, format!("exit code 1: {fault}"));
    }

    #[test]
    fn what_comes_after_the_error_does_not_hide_it() {
        let lines = [
            "Traceback (most recent call last):",
            "  File \"train.py\", line 3, in <module>",
            "ModuleNotFoundError: No module named 'flash_attn'",
            " 12%|#2        | 12/100 [00:01<00:10,  8.8it/s]",
            "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 6",
            "  warnings.warn('resource_tracker: There appear to be %d '",
        ];
        let reason = outcome(Ending::Exited(1), &lines).failure().unwrap().reason.clone();
        assert_eq!(reason, "exit code 1: ModuleNotFoundError: No module named 'flash_attn'");
        let words = ["oh no: disk gone", "  5%|5  | 1/20 [00:01<00:10,  8.8it/s]"];
        assert_eq!(outcome(Ending::Exited(1), &words).failure().unwrap().reason, "exit code 1: oh no: disk gone");
    }

    #[test]
    fn a_message_of_several_lines_is_read_as_output_is() {
        let message = "ValueError: Caught ValueError in DataLoader worker process 1.\n\
                       Original Traceback (most recent call last):\n  File \"d.py\", line 10\nValueError: bad image";
        let outcome = reported(ErrorKind::Failed, message, &[], &facts(false), Failure::new);
        assert_eq!(outcome, Outcome::Crashed(Failure::new("ValueError: bad image (in data worker 1)")));
        let message =
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you";
        let outcome = reported(ErrorKind::OutOfMemory, message, &[], &facts(false), Failure::new);
        assert!(matches!(outcome, Outcome::OutOfMemory { memory: Memory::Host, .. }));
    }

    #[test]
    fn a_peers_complaint_gives_way_to_the_rank_that_is_gone() {
        let message =
            "rank 0: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:2954.";
        let mut facts = facts(false);
        let reason = |facts: &MemoryFacts, message: &str| {
            let outcome = reported(ErrorKind::Failed, message, &[], facts, Failure::new);
            outcome.failure().unwrap().reason.clone()
        };
        assert_eq!(reason(&facts, message), message);
        facts.lost_rank = Some(1);
        assert_eq!(reason(&facts, message), format!("rank 1 is gone; {message}"));
        assert_eq!(reason(&facts, "rank 0: KeyError: 'x'"), "rank 0: KeyError: 'x'");
        facts.oom_killed = true;
        assert_eq!(reason(&facts, message), "the kernel killed rank 1 because memory ran out");
    }

    #[test]
    fn an_abort_says_why_where_the_program_does() {
        let lines =
            ["terminate called after throwing an instance of 'c10::Error'", "  what():  bad stride", "frame #0"];
        let failure = outcome(Ending::Signalled(6), &lines).failure().unwrap().clone();
        assert_eq!(failure.reason, "killed by signal 6 (SIGABRT): bad stride");
        assert_eq!(Ending::Exited(137).to_string(), "exit code 137 (SIGKILL)");
    }
}
