//! Finds out why a process ended on its own.
//!
//! `docs/design/failure-texts.md` has a row for every cause in this module.

mod environment;
mod failure_texts;
mod traceback;

use std::collections::BTreeSet;

use super::orders::Ending;
use super::protocol::ErrorKind;
use crate::model::{Failure, Memory, Outcome};
pub(super) use environment::{
    Question, asked_for_input, first_ending, is_taken, missing_module, says_usage_error, with_last_words,
};
use failure_texts::{Meaning, shortage};
use traceback::{Exception, Line};

#[derive(Default)]
pub(super) struct MemoryFacts {
    pub(super) oom_killed: bool,
    pub(super) shared_is_full: Option<String>,
    /// The probe's processes.
    pub(super) own: BTreeSet<u32>,
    pub(super) has_failed_allocations: bool,
    /// A rank that closed its connection without an orderly end.
    pub(super) lost_rank: Option<u32>,
}

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
    pub(super) bad_lines: u64,
    pub(super) length_option: Option<&'e str>,
}

/// Returns the outcome of a process that ended with an error, or before enough was measured.
pub(super) fn classify(evidence: &Evidence<'_>) -> Outcome {
    let failure = |reason: String| self::failure(cut(&reason), evidence.last_lines);
    if let Some((kind, message)) = &evidence.reported {
        return reported(*kind, message, evidence.last_lines, &evidence.memory, failure);
    }
    if evidence.ending.is_success() {
        return Outcome::Crashed(failure(nothing_seen(evidence)));
    }
    // Skips an out-of-memory error that the program recovered from.
    let deciding = traceback::deciding(evidence.last_lines, evidence.ranks);
    if let Some((memory, reason)) = out_of_memory(deciding, &evidence.memory) {
        return Outcome::OutOfMemory { memory, failure: failure(reason) };
    }
    if evidence.memory.oom_killed && evidence.ending.killed() {
        let reason = "the kernel killed it because memory ran out".to_owned();
        return Outcome::OutOfMemory { memory: Memory::Host, failure: failure(reason) };
    }
    // SIGBUS ends a process that uses a mapped file when the memory behind the file is full.
    let is_bus_error = matches!(evidence.ending, Ending::Signalled(7) | Ending::Exited(135));
    if let Some(full) = evidence.memory.shared_is_full.as_ref().filter(|_| is_bus_error) {
        let reason = format!("{}; {full}", evidence.ending);
        return Outcome::OutOfMemory { memory: Memory::Shared, failure: failure(reason) };
    }
    let reason = crash_reason(evidence.ending, deciding) + &bad_lines_words(evidence.bad_lines);
    crashed(reason, evidence.last_lines, failure)
}

/// Returns the outcome of a crash. If another process holds a port or a lock, the config did not cause the crash.
fn crashed(reason: String, last_lines: &[String], failure: impl Fn(String) -> Failure) -> Outcome {
    if is_taken(&reason) {
        return Outcome::Disturbed(failure(environment::with_holder(cut(&reason), last_lines)));
    }
    Outcome::Crashed(failure(reason))
}

/// Classifies a step that reported its own end. Its message is read like output, and its output may name the cause.
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
        [first, rest @ ..] => exception_words(&lines).unwrap_or_else(|| {
            let next = rest.iter().map(|line| line.trim()).find(|line| !line.is_empty());
            let next = next.filter(|_| traceback::is_bare(first)).unwrap_or_default();
            format!("{} {next}", first.trim_end()).trim_end().to_owned()
        }),
    };
    // The traceback in the output may also name the data worker that raised the exception.
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
            crashed(first.or_else(|| known_crash(&lines)).unwrap_or(said), output, failure)
        }
    }
}

fn nothing_seen(evidence: &Evidence<'_>) -> String {
    let mut reason = format!("ended with {} before {} was seen", evidence.ending, evidence.awaited);
    if evidence.leftovers > 0 {
        reason += &format!("; it left {} in the background, ended by gputune", processes(evidence.leftovers));
    }
    reason += &bad_lines_words(evidence.bad_lines);
    // A script that resumes a finished run prints that in its last line.
    let last = last_words(evidence.last_lines).map(|line| format!("; its last line: `{}`", cut(&line)));
    let may_be_over = evidence.ranks > 0 || last.is_some() && evidence.awaited.contains("pattern");
    let hint = if may_be_over { format!("; {}", train_longer(evidence.length_option)) } else { String::new() };
    reason + &last.unwrap_or_default() + &hint
}

/// Returns advice for a command that succeeds before enough is measured.
pub(super) fn train_longer(option: Option<&str>) -> String {
    let how = option.map(|option| format!(" with a larger `{option}`")).unwrap_or_default();
    format!("let it train longer{how}, or in an empty folder if it continues an earlier run")
}

fn processes(count: usize) -> String {
    if count == 1 { "a process".to_owned() } else { format!("{count} processes") }
}

/// Returns an addition to a reason if lines on the socket were no events. They often explain why no step was seen.
pub(super) fn bad_lines_words(count: u64) -> String {
    if count == 0 { String::new() } else { format!("; {count} lines on the socket were no events") }
}

pub(super) fn out_of_memory(lines: &[String], facts: &MemoryFacts) -> Option<(Memory, String)> {
    match decisive_line(lines) {
        Some((Meaning::OutOfMemory(memory), line)) => {
            let mut reason = shortage(line, &facts.own).unwrap_or_else(|| line.trim().to_owned());
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

fn killed_rank(lines: &[String], facts: &MemoryFacts) -> Option<(Memory, String)> {
    let cause = traceback::root_cause(lines).filter(|cause| cause.ending.killed()).map(|cause| cause.rank);
    let rank = cause.or(facts.lost_rank).filter(|_| facts.oom_killed)?;
    Some((Memory::Host, format!("the kernel killed rank {rank} because memory ran out")))
}

/// Finds the line with the cause: the first line with a known text, because other ranks complain later. A lost data
/// worker and a missing algorithm can have many causes, so any other known text takes precedence.
///
/// Indented lines are a second choice, and only for memory: in a Python traceback they quote the source.
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
        // A program that exits with an error prints the reason at the end. After a signal, only an abort does.
        Ending::Exited(_) => known_crash(lines).or_else(|| exception_words(lines)).or_else(|| last_words(lines)),
        Ending::Signalled(6) => abort_words(lines),
        Ending::Signalled(_) => None,
    };
    words.map_or_else(|| ending.to_string(), |words| format!("{ending}: {words}"))
}

/// Returns the rank that failed first, according to torchrun, and the reason.
fn first_rank(lines: &[String]) -> Option<String> {
    let cause = traceback::root_cause(lines)?;
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
    let last = lines.iter().rev().filter(words).find(|line| !traceback::is_noise(line));
    last.or_else(|| lines.iter().rev().find(words)).map(|line| Line::of(line).text.trim().to_owned())
}

/// Returns the reason for an abort, as libstdc++ (for an uncaught exception), CPython or glibc prints it.
fn abort_words(lines: &[String]) -> Option<String> {
    const STARTS: &[&str] = &["what():", "Fatal Python error:", "Assertion ", "free(): ", "double free", "malloc(): "];
    let words = lines.iter().rev().map(|line| Line::of(line).text.trim());
    let words = words.filter(|line| STARTS.iter().any(|start| line.starts_with(start)));
    words.map(|line| line.trim_start_matches("what():").trim().to_owned()).next()
}

pub(super) fn failure(reason: String, last_lines: &[String]) -> Failure {
    Failure { reason, last_lines: shown(last_lines), ..Failure::default() }
}

/// Adds words to the reason of a process that did not train.
pub(super) fn explained(mut outcome: Outcome, words: impl FnOnce(&Failure) -> Option<String>) -> Outcome {
    if let Outcome::TimedOut(failure) | Outcome::Stalled(failure) | Outcome::Crashed(failure) = &mut outcome
        && let Some(words) = words(failure)
    {
        // An exception without a message ends with its colon.
        failure.reason = format!("{}; {words}", failure.reason.trim_end().trim_end_matches(':'));
    }
    outcome
}

/// Returns the last lines, to keep in the journal and to show on the screen.
pub(super) fn shown(last_lines: &[String]) -> Vec<String> {
    const SHOWN: usize = 10;
    let from = last_lines.len().saturating_sub(SHOWN);
    last_lines[from..].iter().map(|line| cut(line)).collect()
}

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

    const FAILED: Ending = Ending::Exited(1);
    const ENGINE: &str = "RuntimeError: GET was unable to find an engine to execute this computation";
    const FAULT: &str = "RuntimeError: CUDA error: an illegal memory access was encountered";

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    fn evidence(ending: Ending, last_lines: &[String]) -> Evidence<'_> {
        Evidence {
            ending,
            last_lines,
            reported: None,
            memory: MemoryFacts::default(),
            awaited: "a step",
            ranks: 0,
            leftovers: 0,
            bad_lines: 0,
            length_option: None,
        }
    }

    fn outcome(ending: Ending, lines: &[&str]) -> Outcome {
        classify(&evidence(ending, &owned(lines)))
    }

    fn memory(outcome: &Outcome) -> Option<Memory> {
        if let Outcome::OutOfMemory { memory, .. } = outcome { Some(*memory) } else { None }
    }

    fn told(message: &str, facts: &MemoryFacts) -> Outcome {
        reported(ErrorKind::Failed, message, &[], facts, Failure::new)
    }

    #[test]
    fn known_texts_tell_which_memory_ran_out() {
        let (device, host, shared) = (Some(Memory::Device), Some(Memory::Host), Some(Memory::Shared));
        for (line, expected) in [
            ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", device),
            (
                "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\"",
                device,
            ),
            ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you", host),
            ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that", shared),
            ("MemoryError", host),
            ("memory allocation of 4096 bytes failed", host),
            ("terminate called after throwing an instance of 'std::bad_alloc'", host),
            ("ValueError: memory error in config", None),
            ("error: out of memory budget for this test is a plain word", None),
            ("KeyError: 'oom'", None),
            (FAULT, None),
            ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a", None),
            (ENGINE, None),
        ] {
            let traced = ["Traceback (most recent call last):", "  File \"t.py\", line 1", line];
            for lines in [&[line][..], &["Traceback", line, "at exit"], &traced] {
                assert_eq!(memory(&outcome(FAILED, lines)), expected, "{lines:?}");
            }
            assert_eq!(memory(&told(line, &MemoryFacts::default())), expected, "{line}");
        }
        let recovered = outcome(Ending::Exited(0), &["CUDA out of memory. Retrying with batch 8"]);
        assert!(matches!(recovered, Outcome::Crashed(_)), "{recovered:?}");
    }

    /// Rows: the ending, the number of ranks, the lines, and the reason of a crash; `None` if `LACK` is the reason.
    #[test]
    fn the_lines_and_the_ending_give_the_reason() {
        const LACK: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB";
        const TRACE: &str = "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    f()";
        const CAUSE: &str = "\nThe above exception was the direct cause of the following exception:\n";
        const NOISE: &str = " 12%|#2        | 12/100 [00:01<00:10,  8.8it/s]\n\
                             /usr/lib/python3/resource_tracker.py:254: UserWarning: resource_tracker: There appear\n\
                             \x20 warnings.warn('resource_tracker: There appear to be %d '";
        let key = Some("exit code 1: KeyError: 'x'");
        let over = "ended with exit code 0 before a step was seen; its last line: `step 5 of 5`";
        for (ending, ranks, text, crash) in [
            (Ending::Exited(3), 0, "Traceback\nValueError: bad\n\n", Some("exit code 3: ValueError: bad")),
            (Ending::Exited(0), 0, "step 5 of 5\n\n", Some(over)),
            (Ending::Signalled(11), 0, "", Some("killed by signal 11 (SIGSEGV)")),
            (Ending::Signalled(6), 0, "oh\n  what():  bad\nframe #0", Some("killed by signal 6 (SIGABRT): bad")),
            (FAILED, 0, "oh no: disk gone\nNOISE", Some("exit code 1: oh no: disk gone")),
            (FAILED, 0, "begun\nValueError: 45% is too much", Some("exit code 1: ValueError: 45% is too much")),
            // The exception is the first line below the frames. The last exception that nobody caught counts.
            (FAILED, 0, "TRACE\nKeyError: 'x'\n\tMissing key\nNOISE", key),
            (FAILED, 1, "TRACE\nLACK\nTRACE\nKeyError: 'x'\nException ignored in: <f>\nTRACE\nTypeError: x", key),
            (FAILED, 0, "TRACE\nLACK\ntrying half\nTRACE\nKeyError: 'x'", key),
            (FAILED, 0, "LACK; trying half\nTRACE\nKeyError: 'x'", key),
            (FAILED, 0, "LACK\nValueError: no picture", Some("exit code 1: ValueError: no picture")),
            (FAILED, 0, "    raise RuntimeError(\"CUDA out of memory\")\nLACK", None),
            (FAILED, 0, "TRACE\nLACK", None),
            (FAILED, 0, "LACK\ntidying up", None),
            (FAILED, 0, "LACK\nRuntimeError: CUDA error: device-side assert triggered", None),
            (FAILED, 0, "TRACE\nLACK\nCAUSE\nTRACE\nRuntimeError: training failed", None),
            (FAILED, 0, "TRACE\nBackendCompilerFailed: backend='inductor' raised:\nLACK", None),
            (FAILED, 0, "TRACE\nLACK\nException ignored in: <f>\nTRACE\nTypeError: x", None),
            // A later exception may only follow from the lack.
            (FAILED, 0, "LACK\nTRACE\nRuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly", None),
            (FAILED, 0, "LACK\nTRACE\nDistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251", None),
            // The first message of several ranks counts.
            (FAILED, 2, "TRACE\nLACK\nTRACE\nKeyError: 'x'", None),
            (FAILED, 1, "TRACE\nLACK\nTRACE\nKeyError: 'x'", key),
            (FAILED, 0, "[rank1]: LACK\n[rank0]: Traceback (most recent call last):\n[rank0]: E: x", None),
            (
                FAILED,
                0,
                "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 7)\n\
                 Root Cause (first observed failure):\n[0]:\n  rank      : 1\n  exitcode  : -9 (pid: 8)",
                Some("rank 1 failed first: killed by signal 9 (SIGKILL)"),
            ),
        ] {
            let parts = [("TRACE", TRACE), ("LACK", LACK), ("CAUSE", CAUSE), ("NOISE", NOISE)];
            let text = parts.iter().fold(text.to_owned(), |text, (name, part)| text.replace(name, part));
            let lines = owned(&text.lines().collect::<Vec<_>>());
            let outcome = classify(&Evidence { ranks, ..evidence(ending, &lines) });
            let found = (memory(&outcome), outcome.failure().unwrap().reason.as_str());
            assert_eq!(found, crash.map_or((Some(Memory::Device), LACK), |reason| (None, reason)), "{text}");
        }
    }

    #[test]
    fn a_script_that_ends_before_its_first_step_is_told_to_train_longer() {
        let reason = |length_option| {
            let evidence = Evidence { ranks: 1, length_option, ..evidence(Ending::Exited(0), &[]) };
            classify(&evidence).failure().unwrap().reason.clone()
        };
        let nothing_seen = "ended with exit code 0 before a step was seen; let it train longer";
        let or = ", or in an empty folder if it continues an earlier run";
        assert_eq!(reason(None), format!("{nothing_seen}{or}"));
        assert_eq!(reason(Some("--epochs")), format!("{nothing_seen} with a larger `--epochs`{or}"));
    }

    #[test]
    fn a_missing_algorithm_is_lack_of_memory_only_when_an_allocation_failed() {
        let failed = MemoryFacts { has_failed_allocations: true, ..MemoryFacts::default() };
        let memory_of = |lines: &[&str]| out_of_memory(&owned(lines), &failed).map(|(memory, _)| memory);
        assert_eq!(memory_of(&[ENGINE]), Some(Memory::Device));
        assert_eq!(memory_of(&["ValueError: bad"]), None, "the script caught the failed allocation");
        assert_eq!(memory_of(&[ENGINE, FAULT]), None, "a definite text decides");
        assert_eq!(memory(&told(ENGINE, &failed)), Some(Memory::Device));
    }

    #[test]
    fn a_kill_is_lack_of_memory_only_when_the_kernel_says_so() {
        let lines = owned(&[
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed. ",
            "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly",
        ]);
        let worker = "exit code 1: a data worker was killed by signal 9 (SIGKILL)";
        for (ending, lines, expected) in
            [(FAILED, &lines[..], worker), (Ending::Signalled(9), &[], "killed by signal 9 (SIGKILL)")]
        {
            let mut evidence = evidence(ending, lines);
            assert!(matches!(classify(&evidence), Outcome::Crashed(failure) if failure.reason == expected));
            evidence.memory.oom_killed = true;
            assert_eq!(memory(&classify(&evidence)), Some(Memory::Host), "{expected}");
        }
        let memory_facts = || MemoryFacts { oom_killed: true, ..MemoryFacts::default() };
        let killed = Evidence { memory: memory_facts(), ..evidence(Ending::Exited(137), &[]) };
        assert_eq!(memory(&classify(&killed)), Some(Memory::Host));
        let reported = Some((ErrorKind::Failed, lines[1].clone()));
        let reported = Evidence { reported, memory: memory_facts(), ..evidence(FAILED, &lines) };
        assert_eq!(memory(&classify(&reported)), Some(Memory::Host));
    }

    #[test]
    fn a_message_of_several_lines_is_read_as_output_is() {
        let message = "ValueError: Caught ValueError in DataLoader worker process 1.\n\
                       Original Traceback (most recent call last):\n  File \"d.py\", line 10\nValueError: bad image";
        let facts = MemoryFacts::default();
        assert_eq!(told(message, &facts), Outcome::Crashed(Failure::new("ValueError: bad image (in data worker 1)")));
        let broken = "RuntimeError: \n        An attempt has been made to start a new process\n        before";
        let whole = "RuntimeError: An attempt has been made to start a new process";
        assert_eq!(told(broken, &facts), Outcome::Crashed(Failure::new(whole)));
        let message =
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you";
        let outcome = reported(ErrorKind::OutOfMemory, message, &[], &facts, Failure::new);
        assert_eq!(memory(&outcome), Some(Memory::Host));
    }

    #[test]
    fn a_peers_complaint_gives_way_to_the_rank_that_is_gone() {
        let message =
            "rank 0: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:2954.";
        let mut facts = MemoryFacts::default();
        let reason = |facts: &MemoryFacts, message: &str| told(message, facts).failure().unwrap().reason.clone();
        assert_eq!(reason(&facts, message), message);
        facts.lost_rank = Some(1);
        assert_eq!(reason(&facts, message), format!("rank 1 is gone; {message}"));
        assert_eq!(reason(&facts, "rank 0: KeyError: 'x'"), "rank 0: KeyError: 'x'");
        facts.oom_killed = true;
        assert_eq!(reason(&facts, message), "the kernel killed rank 1 because memory ran out");
    }
}
